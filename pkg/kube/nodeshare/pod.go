package nodeshare

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Pod is a pod as far as sharing is concerned.
type Pod struct {
	UID     types.UID
	Of      *VPA           // nil: none whose policy wants sharing
	Takes   resources.List // of its node
	New     bool           // its kubelet has not accepted it yet
	Apart   sharing.Reason // why it does not share, whatever its node has; empty: it does. Without a VPA it is NotWanted
	Large   bool           // it would share, but is too large; as of the last time its node gathered it
	Beside  bool           // it shares, but not with those that the caller has gathered
	Sharing sharing.Pod    // of one that shares; the caller gives it a rank
	// Requests are those of its ordinary containers, which come first in Sharing.
	Requests []sharing.Amounts
}

// NotWanted is why a pod does not share whose policy, if there is one, does not want it.
const NotWanted sharing.Reason = "NotWanted"

// Why returns why a pod does not share; empty: it does.
func (p *Pod) Why() sharing.Reason {
	if p.Apart == "" && p.Large {
		return sharing.TooLarge
	}
	return p.Apart
}

// Sizes is what follows from the containers of a pod and their statuses alone, and from its VPA:
// pods of one VPA that are alike in these have the same. Make it with SizesOf.
type Sizes struct {
	running, starting resources.List // see convert.Footprints
	unanswered        bool           // it asks for something else than it runs with
	containers        []sharing.Container
	requests          []sharing.Amounts
}

// SizesOf returns the sizes of a pod that takes so much of its node when it runs, and when it
// starts. What its containers share is found when a pod is read with them.
func SizesOf(pod *corev1.Pod, running, starting resources.List) Sizes {
	return Sizes{running: running, starting: starting, unanswered: unanswered(pod)}
}

// Takes reports whether the sizes are those of a pod that takes so much.
func (s *Sizes) Takes(running, starting resources.List) bool {
	return s.running == running && s.starting == starting
}

// Unwanted returns a pod that no VPA controls whose policy wants sharing.
func Unwanted(pod *corev1.Pod) Pod {
	return Pod{UID: pod.UID, Takes: convert.Footprint(pod), New: convert.Unaccepted(pod), Apart: NotWanted}
}

// Read returns a pod of v, which is on a node; s are its sizes.
func (v *VPA) Read(pod *corev1.Pod, s *Sizes, on *Node, now time.Time) Pod {
	p := Pod{UID: pod.UID, Of: v, New: convert.Unaccepted(pod)}
	for k := range resources.Kind(resources.Kinds) {
		p.Takes = p.Takes.With(k, max(s.running.Value(k), s.starting.Value(k)))
	}
	if p.Apart = sharing.Eligible(v.facts(pod, s, on.GPUs, now)); p.Apart != "" {
		return p
	}
	if s.containers == nil {
		v.size(pod, s)
	}
	p.Requests = s.requests
	p.Sharing = sharing.Pod{Name: pod.Namespace + "/" + pod.Name, Daemon: v.Kind == "DaemonSet", Containers: s.containers}
	for k := range resources.Kind(resources.Kinds) {
		p.Sharing.Init[k] = float64(s.starting.Value(k))
	}
	return p
}

// facts returns what decides whether a pod shares.
func (v *VPA) facts(pod *corev1.Pod, s *Sizes, gpus bool, now time.Time) sharing.Facts {
	mark, _ := convert.Shared(pod)
	f := sharing.Facts{
		Excluded: v.Mode == fleet.SharingOff && v.Why != fleet.SharingOptedOut && v.Why != RecipeDoesNotShare || v.Kind == "CronJob" || v.Kind == "Job",
		Off:      v.Why == fleet.SharingOptedOut, GPUs: gpus, PodLevel: convert.SizedAsWhole(pod),
		Guaranteed: pod.Status.QOSClass == corev1.PodQOSGuaranteed, Shared: v.Settings.Kinds,
		Age: now.Sub(v.Created), MinAge: v.MinAge, Reverted: mark.Out(now), Pending: pod.Status.Phase == corev1.PodPending, Terminating: pod.DeletionTimestamp != nil, Boosted: convert.HasBoosted(pod),
		Resizing: s.unanswered || resizing(pod),
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
		f.Recommended = f.Recommended || recommended && v.Why != RecipeDoesNotShare && !v.Outdated
	}
	return f
}

// Until returns when what Read says of a pod ends at now, though nothing of the pod changes; zero: it
// does not.
func (v *VPA) Until(pod *corev1.Pod, now time.Time) time.Time {
	if least := cmp.Or(v.MinAge, sharing.MinAge); now.Sub(v.Created) < least {
		return v.Created.Add(least)
	}
	if mark, _ := convert.Shared(pod); mark.Out(now) {
		return mark.At.Add(sharing.RevertFor)
	}
	return time.Time{}
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

// unanswered reports whether a pod asks for something else than it runs with.
func unanswered(pod *corev1.Pod) bool {
	asked, runs := convert.NewPod(pod), convert.Pod(pod)
	for i := range asked.Containers {
		if asked.Containers[i].Requests != runs.Containers[i].Requests || asked.Containers[i].Limits != runs.Containers[i].Limits {
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
func (v *VPA) size(pod *corev1.Pod, s *Sizes) {
	asked, current := convert.NewPod(pod).Containers, convert.Pod(pod)
	bases := policy.Fit(current, v.recommendsBase(), v.Sizing.Rules, v.Sizing.Ranges)
	peaks := policy.Fit(current, v.Sizing.Recommendation, v.Sizing.Rules, v.Sizing.Ranges)
	all, requests := make([]sharing.Container, len(asked)+1), make([]sharing.Amounts, len(asked))
	rest := &all[len(asked)]
	for k := range resources.Kind(resources.Kinds) {
		rest.Base[k] = float64(s.running.Value(k))
	}
	for i := range asked {
		c := &all[i]
		c.Name = asked[i].Name
		own := v.own(c.Name)
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
			c.Base[k], c.Peak[k] = float64(min(base, peak)), float64(peak)
		}
	}
	rest.Peak = rest.Base
	s.containers, s.requests = all, requests
}
