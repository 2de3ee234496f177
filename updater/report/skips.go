// Package report logs skipped pods and limits how often an event repeats.
package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
)

// MaxEvents is the maximum number of events of one kind in an iteration. The others follow in later iterations.
const MaxEvents = 20

// SkipEvent is a due event on a VPA.
type SkipEvent struct {
	VPA     cache.ObjectName
	Reason  reason.Reason
	Message string
}

// Skips logs skipped pods and collects the due events about them.
type Skips struct {
	After time.Duration // minimum duration of a reason before its event
	Room  string        // why evictions wait for room on nodes, or empty

	mu        sync.Mutex // of the fields down to ids, which requests read
	last      Iteration
	iteration uint32
	pods      map[string]skipped // by UID, small values since there are as many as pods
	ids       map[reason.Reason]uint32
	cases     map[subject]*continuation // of acute reasons
}

// Iteration is the last loop iteration.
type Iteration struct {
	At      time.Time // zero: none has ended
	Waiting string    // why later iterations change no pods; empty: there was none
}

type skipped struct {
	reason    uint32 // number in Skips.ids
	iteration uint32
}

type subject struct {
	vpa    cache.ObjectName
	reason reason.Reason
}

// continuation is a reason that skips pods of a VPA in consecutive iterations.
type continuation struct {
	since     time.Time
	iteration uint32
	pods      int
	example   string
	sent      bool // its event
}

// Report logs the changes since the last iteration. It returns the pods that are skipped for another reason than in
// the last iteration, and the due events by VPA and reason.
func (t *Skips) Report(ctx context.Context, all []disruption.Skip, now time.Time) (changed []disruption.Skip, events []SkipEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods, t.cases, t.ids = make(map[string]skipped, len(all)), map[subject]*continuation{}, map[reason.Reason]uint32{}
	}
	t.iteration++
	t.last = Iteration{At: now}
	log := klog.FromContext(ctx).V(4)
	for i := range all {
		s := &all[i]
		id, numbered := t.ids[s.Reason]
		if !numbered {
			id = uint32(len(t.ids))
			t.ids[s.Reason] = id
		}
		before, known := t.pods[s.UID]
		if !known || before.reason != id {
			changed = append(changed, *s)
			log.Info("Pod left alone", "pod", klog.KRef(s.Namespace, s.Pod), "vpa", s.VPA, "reason", s.Reason)
		}
		t.pods[s.UID] = skipped{id, t.iteration}
		if s.VPA != "" && s.Reason.Explain().Acute { // an event is written on the VPA
			t.count(s, now)
		}
	}
	for uid, s := range t.pods {
		if s.iteration != t.iteration {
			delete(t.pods, uid)
		}
	}
	return changed, t.due(now)
}

// Wait records why an iteration ends early.
func (t *Skips) Wait(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.Waiting = why
}

// Of returns the reason for which the last iteration skipped a pod, or "".
func (t *Skips) Of(uid string) (reason.Reason, Iteration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, found := t.pods[uid]; found {
		for r, id := range t.ids {
			if id == s.reason {
				return r, t.last
			}
		}
	}
	return "", t.last
}

func (t *Skips) count(s *disruption.Skip, now time.Time) {
	key := subject{cache.NewObjectName(s.Namespace, s.VPA), s.Reason}
	c := t.cases[key]
	if c == nil {
		c = &continuation{since: now}
		t.cases[key] = c
	}
	if c.iteration != t.iteration {
		c.iteration, c.pods, c.example = t.iteration, 0, s.Pod
	}
	c.pods++
}

func (t *Skips) due(now time.Time) (events []SkipEvent) {
	var due []subject
	for key, c := range t.cases {
		switch {
		case c.iteration != t.iteration:
			delete(t.cases, key)
		case !c.sent && now.Sub(c.since) >= t.After:
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.vpa.Namespace, b.vpa.Namespace), cmp.Compare(a.vpa.Name, b.vpa.Name), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range due[:min(len(due), MaxEvents)] {
		c := t.cases[key]
		c.sent = true
		message := fmt.Sprintf("Pods left alone: %d, such as %s: %s", c.pods, c.example, key.reason.Explain().Means)
		if t.Room != "" && (key.reason == reason.NodeFull || key.reason == reason.TooLargeForNode) {
			message += "; " + t.Room
		}
		events = append(events, SkipEvent{key.vpa, key.reason, message})
	}
	return events
}
