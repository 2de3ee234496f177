package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
)

const (
	lasts = 10 * time.Minute // from then on a reason lasts
	most  = 20               // events for each pass; the others follow
)

// meanings are what the reasons that need somebody to do something mean. The
// others pass by themselves, or are what was asked for.
var meanings = map[disruption.Reason]string{
	disruption.ModeNotEnabled:    "mode `InPlace` without its gate",
	disruption.StatusOutdated:    "the target of the VPA changed, or may have changed while the updater was not there, and what is recommended is for the spec before",
	disruption.PodLevelResources: "`spec.resources` of the pod bounds its containers; they are not sized alone",
	disruption.OutsideLimitRange: "a LimitRange would refuse the recommended size",
	disruption.NoOwner:           "the owner is gone, is unknown, or wants no replicas",
	disruption.BelowMinReplicas:  "fewer live pods than the minimum",
	disruption.NoBudget:          "too few pods are there to spare one",
	disruption.RestartUnderWay:   "another pod of its owner, or of one of its PodDisruptionBudgets, is being restarted by a resize",
	disruption.BackingOff:        "earlier changes had no effect: new pods came back without them or with a part of them, or the same resize was asked for in vain",
	disruption.QuotaFull:         "a ResourceQuota leaves too little for the recommended size",
	disruption.NodeFull:          "no node has room for the recommended size now; for a resize its own node",
	disruption.TooLargeForNode:   "no node is large enough for the recommended size; for a resize its own node",
	disruption.ClassWouldChange:  "a resize would change the QoS class of the pod, and the mode allows no eviction",
	disruption.StaticCPU:         "its node has the static CPU manager policy and gives a pod of class Guaranteed no other CPU in place, and the mode allows no eviction, or a new pod would only have its startup boost again",
	disruption.Deferred:          "the node has no room now",
	disruption.Infeasible:        "the node can never grant it (mode `InPlace` only)",
	disruption.ResizeFailed:      "the node tried and failed (mode `InPlace`; in `InPlaceOrRecreate` for up to an hour, when it could not take memory that is in use)",
	disruption.MemoryInUse:       "the pod uses so much memory that no cut of its limit is worth a resize",
	disruption.ResizeRefused:     "the API server refused the resize, or could not be asked",
	disruption.EvictionRefused:   "the eviction was refused, mostly by a PodDisruptionBudget",
	disruption.Broken:            "the pod or its VPA made our code panic; all others are served",
}

// skipEvent is what a VPA is to be told.
type skipEvent struct {
	VPA     cache.ObjectName
	Reason  disruption.Reason
	Message string
}

// reporter remembers what was said. The zero value has said nothing.
type reporter struct {
	// Room says whether evictions wait for room on nodes, and why; empty: as the flags
	// demand.
	Room string

	pass  int
	pods  map[string]said           // by UID
	cases map[subject]*continuation // of the reasons that may last
}

type said struct {
	reason disruption.Reason
	pass   int
}

type subject struct {
	vpa    cache.ObjectName
	reason disruption.Reason
}

// continuation is a reason that holds for pods of a VPA pass after pass.
type continuation struct {
	since   time.Time
	pass    int
	pods    int
	example string
	told    bool
}

// report logs what changed since the last pass and returns the events that are
// due, by VPA and reason.
func (t *reporter) report(ctx context.Context, skipped []disruption.Skip, now time.Time) []skipEvent {
	if t.pods == nil {
		t.pods, t.cases = make(map[string]said, len(skipped)), map[subject]*continuation{}
	}
	t.pass++
	log := klog.FromContext(ctx).V(4)
	for i := range skipped {
		s := &skipped[i]
		before, known := t.pods[s.UID]
		if !known || before.reason != s.Reason {
			log.Info("Pod left alone", "pod", klog.KRef(s.Namespace, s.Pod), "vpa", s.VPA, "reason", s.Reason)
		}
		t.pods[s.UID] = said{s.Reason, t.pass}
		if meanings[s.Reason] != "" {
			t.count(s, now)
		}
	}
	for uid, s := range t.pods {
		if s.pass != t.pass {
			delete(t.pods, uid)
		}
	}
	return t.due(now)
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
		case !c.told && now.Sub(c.since) >= lasts:
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.vpa.Namespace, b.vpa.Namespace), cmp.Compare(a.vpa.Name, b.vpa.Name), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range due[:min(len(due), most)] {
		c := t.cases[key]
		c.told = true
		message := fmt.Sprintf("Pods left alone: %d, such as %s: %s", c.pods, c.example, meanings[key.reason])
		if t.Room != "" && (key.reason == disruption.NodeFull || key.reason == disruption.TooLargeForNode) {
			message += "; " + t.Room
		}
		events = append(events, skipEvent{key.vpa, key.reason, message})
	}
	return events
}
