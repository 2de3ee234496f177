package report

import (
	"maps"
	"time"

	"k8s.io/client-go/tools/cache"
)

// repeat is the minimum time between two equal events.
const repeat = time.Hour

// Event identifies an event. Messages that change in each iteration do not count.
type Event struct {
	VPA           cache.ObjectName
	Reason, About string
	Next          int64 // Unix time
}

// Events has the time at which each event was sent. Make it with make.
type Events map[Event]time.Time

// Add reports whether an event is due at now, and records it as sent.
func (s Events) Add(e Event, now time.Time) bool {
	if last, sent := s[e]; sent && now.Sub(last) < repeat {
		return false
	}
	s[e] = now
	return true
}

// Sent reports whether an event was sent.
func (s Events) Sent(e Event) bool { _, sent := s[e]; return sent }

// Forget drops the events that may be sent again.
func (s Events) Forget(now time.Time) {
	maps.DeleteFunc(s, func(_ Event, at time.Time) bool { return now.Sub(at) >= repeat })
}
