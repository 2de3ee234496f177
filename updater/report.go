package updater

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

// most is how many events there are for each pass; the others follow.
const most = 20

// skipEvent is an event that is due on a VPA.
type skipEvent struct {
	VPA     cache.ObjectName
	Reason  reason.Reason
	Message string
}

// reporter remembers what was said. One with After alone has said nothing.
type reporter struct {
	// After is how long a reason must hold before an event says so.
	After time.Duration
	// Room says whether evictions wait for room on nodes, and why; empty: as the flags
	// demand.
	Room string

	mu    sync.Mutex // of pass, pods and ids: requests read these
	pass  uint32
	pods  map[string]said // by UID; there are as many as pods, so it is kept small
	ids   map[reason.Reason]uint32
	cases map[subject]*continuation // of the reasons that may last
}

type said struct {
	reason uint32 // number in reporter.ids
	pass   uint32
}

type subject struct {
	vpa    cache.ObjectName
	reason reason.Reason
}

// continuation is a reason that holds for pods of a VPA pass after pass.
type continuation struct {
	since   time.Time
	pass    uint32
	pods    int
	example string
	sent    bool // its event
}

// report logs what changed since the last pass. It returns the pods that are left alone for
// another reason than in the pass before, and the events that are due, by VPA and reason.
func (t *reporter) report(ctx context.Context, skipped []disruption.Skip, now time.Time) (news []disruption.Skip, events []skipEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods, t.cases, t.ids = make(map[string]said, len(skipped)), map[subject]*continuation{}, map[reason.Reason]uint32{}
	}
	t.pass++
	log := klog.FromContext(ctx).V(4)
	for i := range skipped {
		s := &skipped[i]
		id, numbered := t.ids[s.Reason]
		if !numbered {
			id = uint32(len(t.ids))
			t.ids[s.Reason] = id
		}
		before, known := t.pods[s.UID]
		if !known || before.reason != id {
			news = append(news, *s)
			log.Info("Pod left alone", "pod", klog.KRef(s.Namespace, s.Pod), "vpa", s.VPA, "reason", s.Reason)
		}
		t.pods[s.UID] = said{id, t.pass}
		if s.VPA != "" && s.Reason.Explain().Acute { // an event is written on the VPA
			t.count(s, now)
		}
	}
	for uid, s := range t.pods {
		if s.pass != t.pass {
			delete(t.pods, uid)
		}
	}
	return news, t.due(now)
}

func (t *reporter) count(s *disruption.Skip, now time.Time) {
	key := subject{cache.NewObjectName(s.Namespace, s.VPA), s.Reason}
	c := t.cases[key]
	if c == nil {
		c = &continuation{since: now}
		t.cases[key] = c
	}
	if c.pass != t.pass {
		c.pass, c.pods, c.example = t.pass, 0, s.Pod
	}
	c.pods++
}

func (t *reporter) due(now time.Time) (events []skipEvent) {
	var due []subject
	for key, c := range t.cases {
		switch {
		case c.pass != t.pass:
			delete(t.cases, key)
		case !c.sent && now.Sub(c.since) >= t.After:
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.vpa.Namespace, b.vpa.Namespace), cmp.Compare(a.vpa.Name, b.vpa.Name), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range due[:min(len(due), most)] {
		c := t.cases[key]
		c.sent = true
		message := fmt.Sprintf("Pods left alone: %d, such as %s: %s", c.pods, c.example, key.reason.Explain().Means)
		if t.Room != "" && (key.reason == reason.NodeFull || key.reason == reason.TooLargeForNode) {
			message += "; " + t.Room
		}
		events = append(events, skipEvent{key.vpa, key.reason, message})
	}
	return events
}
