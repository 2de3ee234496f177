package main

import (
	"errors"
	"sync/atomic"
	"time"

	"loadline.dev/loadline/pkg/serving"
)

// startGrace is how long a program that is not ready yet says so. Longer would
// make the liveness probe of the reference manifest, which asks the same path,
// restart a program that waits for a slow API server.
const startGrace = 25 * time.Second

// silence is the longest time without an answered probe that counts as healthy.
const silence = 5 * time.Minute

// health is the state behind /health-check.
type health struct {
	started time.Time
	ready   atomic.Bool
	probes  *serving.Health
}

func newHealth(started time.Time) *health {
	return &health{started: started, probes: serving.NewHealth(silence)}
}

// alive is told after each probe that the webhook answered.
func (h *health) alive() {
	if !h.ready.Swap(true) {
		h.probes.Activate()
	}
	h.probes.Tick()
}

var errStarting = errors.New("the webhook does not answer yet")

// Check fails while the webhook starts, for at most startGrace, and when it has
// not answered its own probe for long.
func (h *health) Check() error {
	if !h.ready.Load() {
		if time.Since(h.started) < startGrace {
			return errStarting
		}
		return nil
	}
	return h.probes.Check()
}
