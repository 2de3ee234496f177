package nodeshare

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Pod is a pod as far as sharing is concerned.
type Pod struct {
	UID     types.UID
	Of      *VPA           // nil: none whose policy wants sharing
	Takes   resources.List // of its node
	Waiting resources.List // of Takes, as convert.Waiting
	Created time.Time
	Apart   reason.Reason // why it does not share, whatever its node has; empty: it does. Without a VPA it is NotWanted
	New     bool          // its kubelet has not accepted it yet
	Large   bool          // it would share, but is too large; as of the last time its node gathered it
	refused bool          // it is new, and does not fit beside those that its node has; as of that time
	Beside  bool          // it shares, but not with those that the caller has gathered
	Sharing sharing.Pod   // of one that shares; the caller gives it a rank
	// Requests are those of its ordinary containers, which come first in Sharing.
	Requests []sharing.Amounts
	// Accepted says that those who share make room for what the pod waits for. Gather says so.
	Accepted bool
}

// Why returns why a pod does not share; empty: it does.
func (p *Pod) Why() reason.Reason {
	if p.Apart == "" && p.Large {
		return reason.TooLarge
	}
	return p.Apart
}

// Sizes are the containers of a pod as they share. Equal pods of one VPA have the same.
type Sizes struct {
	asked, runs       policy.Pod
	running, starting resources.List // see convert.Footprints
	containers        []sharing.Container
	requests          []sharing.Amounts
}

func (s *Sizes) equal(o *Sizes) bool {
	return equalPods(&s.asked, &o.asked) && equalPods(&s.runs, &o.runs) && s.running == o.running && s.starting == o.starting
}

func equalPods(a, b *policy.Pod) bool {
	return slices.Equal(a.Containers, b.Containers) && a.Unsized == b.Unsized && a.Rounded == b.Rounded
}

// Unwanted returns a pod that no VPA controls whose policy wants sharing.
func Unwanted(pod *corev1.Pod) Pod {
	return Pod{UID: pod.UID, Created: pod.CreationTimestamp.Time, Takes: convert.Footprint(pod), Waiting: convert.Waiting(pod), New: convert.Unaccepted(pod), Apart: reason.NotWanted}
}

// Read returns a pod of v, which is on a node. It reuses the last sizes of pods of v, which may be zero, for an
// equal pod and replaces them for another one.
func (v *VPA) Read(pod *corev1.Pod, last *Sizes, on *Node, now time.Time) Pod {
	p := Pod{UID: pod.UID, Of: v, Created: pod.CreationTimestamp.Time, Waiting: convert.Waiting(pod), New: convert.Unaccepted(pod)}
	s := Sizes{asked: convert.NewPod(pod), runs: convert.Pod(pod)}
	s.running, s.starting = convert.Footprints(pod)
	for k := range resources.Kind(resources.Kinds) {
		p.Takes = p.Takes.With(k, max(s.running.Value(k), s.starting.Value(k)))
	}
	if p.Apart = sharing.Eligible(v.facts(pod, &s, on.GPUs, now)); p.Apart != "" && p.Apart != reason.Reverted {
		return p
	}
	if last.containers == nil || !last.equal(&s) {
		v.size(&s)
		*last = s
	}
	if p.Apart != "" {
		p.awaitPeak(last)
		return p
	}
	p.Requests = last.requests
	p.Sharing = sharing.Pod{Name: pod.Namespace + "/" + pod.Name, Daemon: v.Kind == "DaemonSet", Containers: last.containers}
	for k := range resources.Kind(resources.Kinds) {
		p.Sharing.Init[k] = float64(s.starting.Value(k))
	}
	return p
}

// LeastMove is the part of its request by which a container must get less or more for its pod to be moved.
const LeastMove = 0.05

// awaitPeak makes a pod whose share did harm wait for what it lacks of its peak, so that those who
// share make room for that as for a resize that waits. What is too little to be moved for does not count:
// nobody will ever take that room.
func (p *Pod) awaitPeak(s *Sizes) {
	for k, shared := range p.Of.Settings.Kinds {
		if !shared {
			continue
		}
		k, takes := resources.Kind(k), 0.0
		for i := range s.containers {
			peak := max(s.containers[i].Base[k], s.containers[i].Peak[k])
			if i < len(s.requests) && peak <= s.requests[i][k]*(1+LeastMove) {
				peak = s.requests[i][k]
			}
			takes += peak
		}
		if by := resources.Amount(math.Ceil(takes)) - p.Takes.Value(k); by > 0 {
			p.Takes, p.Waiting = p.Takes.With(k, p.Takes.Value(k)+by), p.Waiting.With(k, p.Waiting.Value(k)+by)
		}
	}
}

// unanswered reports whether the pod asks for something else than it runs with.
func (s *Sizes) unanswered() bool {
	for i := range s.asked.Containers {
		asked, runs := &s.asked.Containers[i], &s.runs.Containers[i]
		if asked.Requests != runs.Requests || asked.Limits != runs.Limits {
			return true
		}
	}
	return false
}

// facts returns what decides whether a pod shares.
func (v *VPA) facts(pod *corev1.Pod, s *Sizes, gpus bool, now time.Time) sharing.Facts {
	mark, _ := convert.Shared(pod)
	f := sharing.Facts{
		Excluded: v.Mode == fleet.SharingOff && v.Why != reason.SharingOptedOut && v.Why != reason.RecipeDoesNotShare || v.Kind == "CronJob" || v.Kind == "Job",
		Off:      v.Why == reason.SharingOptedOut, GPUs: gpus, PodLevel: convert.SizedAsWhole(pod),
		Guaranteed: pod.Status.QOSClass == corev1.PodQOSGuaranteed, Shared: v.Settings.Kinds,
		Age: now.Sub(v.Created), MinAge: v.MinAge, Short: v.Short, Reverted: mark.Out(now),
		Pending: pod.Status.Phase == corev1.PodPending, Terminating: pod.DeletionTimestamp != nil, Boosted: convert.HasBoosted(pod),
		Resizing: s.unanswered() || resizing(pod),
	}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		for k, looked := range v.Looked.Of(name) {
			f.HPA[k] = f.HPA[k] || looked
		}
		for _, p := range pod.Spec.Containers[i].ResizePolicy {
			for k := range resources.Kind(resources.Kinds) {
				f.Restarts[k] = f.Restarts[k] || p.ResourceName == convert.ResourceName(k) && p.RestartPolicy == corev1.RestartContainer
			}
		}
		_, recommended := v.Sizing.Recommendation[name]
		f.Recommended = f.Recommended || recommended && v.Why != reason.RecipeDoesNotShare && !v.Outdated
	}
	return f
}

// resizing reports whether a resize of a pod is under way, waits or was refused.
func resizing(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) {
			return true
		}
	}
	return false
}

// size finds the base and the peak of each container of a pod: what it would get if these were
// recommended, so that limits of the VPA, of the namespace and of the container itself count. What
// else runs in the pod, such as sidecars that are init containers, counts as one more container
// that always takes what it requests. So does what is not shared. What minAllowed or a LimitRange
// raises counts only as far as the container requests it already: nobody makes room for the rest.
func (v *VPA) size(s *Sizes) {
	asked := s.asked.Containers
	base := map[string]resources.Bounds{} // without a size, so that a small one is no garbage
	v.recommendBase(base)
	bases := policy.Fit(s.runs, base, v.Sizing.Rules, *v.Sizing.Ranges)
	peaks := policy.Fit(s.runs, v.Sizing.Recommendation, v.Sizing.Rules, *v.Sizing.Ranges)
	all, requests := make([]sharing.Container, len(asked)+1), make([]sharing.Amounts, len(asked))
	rest, owns, most := &all[len(asked)], v.owns(), v.policyMax()
	for k := range resources.Kind(resources.Kinds) {
		rest.Base[k] = float64(s.running.Value(k))
	}
	for i := range asked {
		c := &all[i]
		c.Name = asked[i].Name
		own := owns(c.Name)
		for k := range resources.Kind(resources.Kinds) {
			has := asked[i].Requests.Value(k)
			requests[i][k] = float64(has)
			rest.Base[k] = max(rest.Base[k]-float64(has), 0)
			base, peak := has, has
			if v.Settings.Kinds[k] {
				if a, fitted := bases.Containers[i].Requests.Get(k); fitted {
					base = min(a, max(has, own.base.Value(k)))
				}
				if a, fitted := peaks.Containers[i].Requests.Get(k); fitted {
					peak = min(a, max(base, own.peak.Value(k)))
				}
			}
			if m, bounded := most(c.Name).Get(k); bounded && v.Settings.Kinds[k] {
				peak = min(peak, m)
			}
			c.Base[k], c.Peak[k] = float64(min(base, peak)), float64(peak)
		}
	}
	rest.Peak = rest.Base
	s.containers, s.requests = all, requests
}
