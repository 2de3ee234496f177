package main

import (
	"time"

	"k8s.io/klog/v2"
)

// reminder is how often a lasting outage is logged.
const reminder = 10 * time.Minute

// metricsAPI is the name of the usual source of usage.
const metricsAPI = "The metrics API"

// outage logs when something fails and when it works again, not each time.
type outage struct {
	since, said time.Time
}

// note takes the result of the last attempt.
func (o *outage) note(log klog.Logger, source string, err error, now time.Time) {
	hint := ""
	if source == metricsAPI {
		hint = ". Is metrics-server installed?"
	}
	switch {
	case err == nil && !o.since.IsZero():
		log.Info(source+" answers again", "outage", now.Sub(o.since))
		*o = outage{}
	case err != nil && o.since.IsZero():
		log.Error(err, source+" does not answer, or not well: recommendations stay as they are until it does"+hint)
		o.since, o.said = now, now
	case err != nil && now.Sub(o.said) >= reminder:
		log.Error(err, source+" still does not answer", "outage", now.Sub(o.since))
		o.said = now
	}
}
