// Package report logs skipped pods and limits repeated events.
package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
)

// MaxEvents is the maximum number of events of one kind in an iteration. The rest follows later.
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

	mu        sync.Mutex // guards the fields down to ids, which requests read
	last      Iteration
	iteration uint32
	pods      map[string]skipped // by UID, with small values because there is one for each pod
	ids       map[reason.Reason]uint32
	cases     map[subject]*continuation // of acute reasons
}

// Iteration is the last loop iteration.
type Iteration struct {
	At      time.Time // zero: no iteration has ended
	Waiting string    // why later iterations change no pods, or empty
}

type skipped struct {
	reason    uint32 // index in Skips.ids
	iteration uint32
}

type subject struct {
	vpa    cache.ObjectName
	reason reason.Reason
}

// continuation is a skip reason of a VPA in consecutive iterations.
type continuation struct {
	since     time.Time
	iteration uint32
	pods      int
	example   string
	sent      bool
}

// Report logs changes. It returns pods with a new skip reason, and due events by VPA and reason.
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
			log.Info("Skipping pod", "pod", klog.KRef(s.Namespace, s.Pod), "vpa", s.VPA, "reason", s.Reason)
		}
		t.pods[s.UID] = skipped{id, t.iteration}
		if s.VPA != "" && s.Reason.Explain().ActionRequired { // the event is on the VPA
			t.count(s, now)
		}
	}
	maps.DeleteFunc(t.pods, func(_ string, s skipped) bool { return s.iteration != t.iteration })
	return changed, t.due(now)
}

// Wait records why an iteration ends early.
func (t *Skips) Wait(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.Waiting = why
}

// ReasonOf returns why the last iteration skipped a pod, or empty.
func (t *Skips) ReasonOf(uid string) (reason.Reason, Iteration) {
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
		message := fmt.Sprintf("Skipped pods: %d, such as %s: %s", c.pods, c.example, key.reason.Explain().Meaning)
		if t.Room != "" && (key.reason == reason.NodeFull || key.reason == reason.TooLargeForNode) {
			message += "; " + t.Room
		}
		events = append(events, SkipEvent{key.vpa, key.reason, message})
	}
	return events
}

const repeatInterval = time.Hour

// Event identifies an event. Messages that change in each iteration are not part of it.
type Event struct {
	VPA           cache.ObjectName
	Reason, About string
	Next          int64 // Unix time
}

// Announcer emits events on VPAs, equal ones at most once an hour.
type Announcer struct {
	Recorder Recorder
	VPAs     vpalisters.VerticalPodAutoscalerLister

	sent map[Event]time.Time
}

// Announce emits an event, unless the VPA is gone or an equal one was emitted within an hour.
func (a *Announcer) Announce(e Event, message string, now time.Time) bool {
	if last, sent := a.sent[e]; sent && now.Sub(last) < repeatInterval || !a.Write(e.VPA, e.Reason, message) {
		return false
	}
	if a.sent == nil {
		a.sent = map[Event]time.Time{}
	}
	a.sent[e] = now
	return true
}

// Write emits an event on a VPA, and reports whether the VPA exists.
func (a *Announcer) Write(on cache.ObjectName, reason, message string) bool {
	vpa, err := a.VPAs.VerticalPodAutoscalers(on.Namespace).Get(on.Name)
	if err != nil {
		return false
	}
	a.Recorder.Event(vpa, reason, message, nil)
	return true
}

// Sent reports whether an event was emitted less than an hour ago.
func (a *Announcer) Sent(e Event) bool { _, sent := a.sent[e]; return sent }

// Forget drops the events that may be emitted again.
func (a *Announcer) Forget(now time.Time) {
	maps.DeleteFunc(a.sent, func(_ Event, at time.Time) bool { return now.Sub(at) >= repeatInterval })
}

// Reasons of events.
const (
	EventEvicted      = "EvictedByVPA"         // on the pod
	EventEvictedPod   = "EvictedPod"           // on the VPA; on the SizingPolicy with counts
	EventResized      = "InPlaceResizedByVPA"  // on the pod
	EventNotResizable = "InPlaceResizeSkipped" // on the pod
	EventResizedPods  = "Resized"              // on the VPA and on the SizingPolicy, with counts

	// Of rollouts under a SizingPolicy. The first three are on pod and VPA, the others on the VPA.
	EventReverted        = "Reverted" // also on the SizingPolicy, with counts
	EventRevertDeferred  = "RevertDeferred"
	EventResizeFailed    = "ResizeFailed"
	EventResizeWithdrawn = "ResizeWithdrawn"
	EventCanaryPromoted  = "CanaryPromoted"
	EventCanaryHeld      = "CanaryHeld"
	EventCooldownActive  = "CooldownActive"
	EventScheduleSkipped = "ScheduleSkipped"
	EventHPAConflict     = "HPAConflict"
	EventPolicyConflict  = "PolicyConflict"
	EventResizeSkipped   = "ResizeSkipped"
	EventWorkloadOptOut  = "WorkloadOptOut"

	EventFuseTripped = "FuseTripped" // on the SizingPolicy
)

// Object is a pod, VPA or SizingPolicy.
type Object interface {
	runtime.Object
	metav1.Object
}

// Details are annotations of an event. They hold the values that differ between pods, so that all
// events of a workload have the same text. The event client counts equal events and drops others.
type Details map[string]string

// Recorder emits events. A dry run prints the events about rollouts.
type Recorder interface {
	Event(about Object, reason, message string, details Details)
}

// Handler serves the UIDs of skipped pods by reason, as {"reasons": {"TooYoung": ["UID", ...]}}.
// The query ?uid=... restricts it to some pods. Use NewHandler to create one.
type Handler struct {
	skips atomic.Pointer[Skips]
	turns explanation.Turns
}

// NewHandler returns a Handler that responds with status 503 until Serve is called.
func NewHandler() *Handler { return &Handler{turns: explanation.NewTurns()} }

// Serve serves the pods of s from now on.
func (h *Handler) Serve(s *Skips) { h.skips.Store(s) }

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.turns.Answer(w, r, func(context.Context) (any, error) {
		from := h.skips.Load()
		if from == nil {
			return nil, explanation.ErrNotReady
		}
		return from.reasons(r.URL.Query()["uid"])
	})
}

// reasons returns the UIDs of skipped pods by reason, for all pods if uids is empty.
func (t *Skips) reasons(uids []string) (*explanation.Skips, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		return nil, explanation.ErrNotReady
	}
	names := make(map[uint32]reason.Reason, len(t.ids))
	for name, id := range t.ids {
		names[id] = name
	}
	if len(uids) == 0 {
		uids = slices.Collect(maps.Keys(t.pods))
	}
	slices.Sort(uids)
	found := map[reason.Reason][]string{}
	for _, uid := range uids {
		if s, skipped := t.pods[uid]; skipped {
			found[names[s.reason]] = append(found[names[s.reason]], uid)
		}
	}
	return &explanation.Skips{Reasons: found}, nil
}
