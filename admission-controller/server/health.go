package server

import (
	"errors"
	"sync/atomic"
	"time"

	"loadline.dev/loadline/pkg/serving"
)

// StartGrace is how long a program that is not ready yet says so. The liveness
// probe asks the same path, in our manifest and in that of the reference, and
// gives up with the third failure, 25 seconds after the start at the earliest.
// Any longer, or just as long, could restart a program that waits for a slow
// API server.
const StartGrace = 20 * time.Second

// silence is the longest time without an answered probe that counts as healthy.
const silence = 5 * time.Minute

// Health is the state behind /health-check.
type Health struct {
	started time.Time
	ready   atomic.Bool
	probes  *serving.Health
}

// NewHealth returns the state of a program that starts.
func NewHealth(started time.Time) *Health {
	return &Health{started: started, probes: serving.NewHealth(silence)}
}

// Alive is called after each probe that the webhook answered.
func (h *Health) Alive() {
	if !h.ready.Swap(true) {
		h.probes.Activate()
	}
	h.probes.Tick()
}

var errStarting = errors.New("the webhook does not answer yet")

// Check fails while the webhook starts, for at most StartGrace, and when it has
// not answered its own probe for long.
func (h *Health) Check() error {
	if !h.ready.Load() {
		if time.Since(h.started) < StartGrace {
			return errStarting
		}
		return nil
	}
	return h.probes.Check()
}
