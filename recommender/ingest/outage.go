package ingest

import (
	"time"

	"k8s.io/klog/v2"
)

// reminder is how often a lasting outage is logged.
const reminder = 10 * time.Minute

// outage logs when something fails and when it works again, not each time.
type outage struct {
	since, said time.Time
}

// note takes the result of the last attempt.
func (o *outage) note(log klog.Logger, err error, now time.Time) {
	switch {
	case err == nil && !o.since.IsZero():
		log.Info("The metrics API answers again", "outage", now.Sub(o.since))
		*o = outage{}
	case err != nil && o.since.IsZero():
		log.Error(err, "The metrics API does not answer: recommendations stay as they are until it does. Is metrics-server installed?")
		o.since, o.said = now, now
	case err != nil && now.Sub(o.said) >= reminder:
		log.Error(err, "The metrics API still does not answer", "outage", now.Sub(o.since))
		o.said = now
	}
}
