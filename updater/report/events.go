package report

import (
	"maps"
	"time"

	"k8s.io/client-go/tools/cache"

	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
)

// repeat is the minimum time between two equal events.
const repeat = time.Hour

// Event identifies an event. Messages that change in each iteration do not count.
type Event struct {
	VPA           cache.ObjectName
	Reason, About string
	Next          int64 // Unix time
}

// Announcer writes events on VPAs, equal ones at most once an hour.
type Announcer struct {
	Recorder Recorder
	VPAs     vpalisters.VerticalPodAutoscalerLister

	sent map[Event]time.Time
}

// Announce writes an event, unless it was written less than an hour ago or its VPA is gone. It reports whether it did.
func (a *Announcer) Announce(e Event, message string, now time.Time) bool {
	if last, sent := a.sent[e]; sent && now.Sub(last) < repeat || !a.Write(e.VPA, e.Reason, message) {
		return false
	}
	if a.sent == nil {
		a.sent = map[Event]time.Time{}
	}
	a.sent[e] = now
	return true
}

// Write writes an event on a VPA, and reports whether the VPA exists.
func (a *Announcer) Write(on cache.ObjectName, reason, message string) bool {
	vpa, err := a.VPAs.VerticalPodAutoscalers(on.Namespace).Get(on.Name)
	if err != nil {
		return false
	}
	a.Recorder.Event(vpa, reason, message, nil)
	return true
}

// Sent reports whether an event was written less than an hour ago.
func (a *Announcer) Sent(e Event) bool { _, sent := a.sent[e]; return sent }

// Forget drops the events that may be written again.
func (a *Announcer) Forget(now time.Time) {
	maps.DeleteFunc(a.sent, func(_ Event, at time.Time) bool { return now.Sub(at) >= repeat })
}
