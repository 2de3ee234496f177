// Package nodeshare turns a node, its pods and their recommendations into the input of
// sharing.Shares.
//
// NewVPA reads a VPA with its SizingPolicy and its workload. VPA.Read reads one of its pods: its
// requests, the base and the peak of each container, or the reason why it does not share.
// Node.Gather combines the pods of a node into the input of sharing.Shares.
//
// The package calls no API. The caller finds the VPA that controls a pod.
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

// Node holds the fields that sharing reads. Kubelets write others every few minutes.
type Node struct {
	Allocatable    resources.List
	GPUs, Cordoned bool
	Problem        reason.Reason // why no pod there can be resized; empty: all can
}

// NewNode converts a node.
func NewNode(node *corev1.Node) Node {
	n := Node{Allocatable: convert.Resources(node.Status.Allocatable), GPUs: hasGPUs(node), Cordoned: node.Spec.Unschedulable}
	switch {
	case convert.IsVirtualNode(node):
		n.Problem = reason.SizeFollowsPods
	case n.Allocatable.Value(resources.CPU) <= 0 || n.Allocatable.Value(resources.Memory) <= 0:
		n.Problem = reason.AllocatableUnknown
	case !convert.ResizesPods(node):
		n.Problem = reason.KubeletTooOld
	}
	return n
}

func hasGPUs(node *corev1.Node) bool {
	for name, amount := range node.Status.Allocatable {
		if convert.IsGPU(name) && !amount.IsZero() {
			return true
		}
	}
	return false
}

// Gather returns the input of sharing.Shares, the rule, and the sharing pods in the same order,
// without pods of another group. It excludes pods that are too large until each remaining pod fits
// alone: the requests of an excluded pod reduce the available resources.
func (n *Node) Gather(pods []*Pod) (*sharing.Node, sharing.Rule, []*Pod) {
	for _, p := range pods {
		p.Large = p.Large && p.OtherGroup
	}
	n.markRefused(pods)
	for {
		input, rule, members := n.sharingInput(pods)
		found := false
		for i, p := range members {
			p.Large = n.Problem != reason.AllocatableUnknown && !input.FitsBases(&p.Sharing)
			found = found || p.Large
			input.Pods[i] = p.Sharing.CappedTo(n.allocatable())
		}
		if !found {
			return input, rule, members
		}
	}
}

// sharingInput returns the sharing pods if no further pod is too large. If recipes differ, the more
// conservative rule applies. Unshared kinds count in full, and pods that the kubelet will refuse do
// not count. A waiting resize reduces the available resources if it fits along with all bases.
// Otherwise it is never granted, and the pods would give up resources for nothing.
func (n *Node) sharingInput(pods []*Pod) (*sharing.Node, sharing.Rule, []*Pod) {
	input, rule := &sharing.Node{Available: n.allocatable(), Pods: make([]sharing.Pod, 0, len(pods))}, sharing.Rule{NeverEvict: true}
	members := make([]*Pod, 0, len(pods))
	var waiting []convert.Arrival
	for _, p := range pods {
		if p.Accepted = false; p.refused {
			continue
		}
		if p.ExclusionReason() != "" || p.OtherGroup {
			p.subtractRequests(&input.Available)
			if p.Waiting != (resources.List{}) {
				waiting = append(waiting, convert.Arrival{UID: p.UID, Created: p.Created, Requests: p.Waiting})
			}
			continue
		}
		for k, shared := range p.VPA.Settings.Kinds {
			input.Kinds[k] = input.Kinds[k] || shared
		}
		rule.Pooling = max(rule.Pooling, p.VPA.Rule.Pooling)
		rule.EvictAbove = max(rule.EvictAbove, p.VPA.Rule.EvictAbove)
		rule.NeverEvict = rule.NeverEvict && !p.VPA.Settings.Evict
		members, input.Pods = append(members, p), append(input.Pods, p.Sharing)
	}
	if len(waiting) == 0 {
		return input, rule, members
	}
	accepted := convert.Admitted(n.limited(input.Spare()), waiting)
	for _, p := range pods {
		p.Accepted = slices.ContainsFunc(accepted, func(a convert.Arrival) bool { return a.UID == p.UID })
	}
	for _, a := range accepted {
		for k := range resources.Kind(resources.Kinds) {
			input.Available[k] -= float64(a.Requests.Value(k))
		}
	}
	return input, rule, members
}

func (n *Node) allocatable() (has sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		has[k] = float64(n.Allocatable.Value(k))
	}
	return has
}

// markRefused marks new pods that the kubelet will refuse, because they do not fit along with the
// granted resources of other pods. Any client with the permission can bind such a pod to a node.
func (n *Node) markRefused(pods []*Pod) {
	left := n.allocatable()
	var arrivals []convert.Arrival
	for _, p := range pods {
		if p.refused = p.New; p.New {
			arrivals = append(arrivals, convert.Arrival{UID: p.UID, Created: p.Created, Requests: p.Takes})
			continue
		}
		p.subtractRequests(&left)
	}
	if len(arrivals) == 0 {
		return
	}
	accepted := map[types.UID]bool{}
	for _, a := range convert.Admitted(n.limited(left), arrivals) {
		accepted[a.UID] = true
	}
	for _, p := range pods {
		p.refused = p.New && !accepted[p.UID]
	}
}

func (p *Pod) subtractRequests(left *sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		left[k] -= float64(p.Takes.Value(k) - p.Waiting.Value(k))
	}
}

func (n *Node) limited(amounts sharing.Amounts) (result resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if n.Allocatable.Value(k) > 0 {
			result = result.With(k, resources.Amount(math.Floor(amounts[k])))
		}
	}
	return result
}

// Pod holds the fields of a pod that sharing reads.
type Pod struct {
	UID        types.UID
	VPA        *VPA           // nil: none with a policy that enables sharing
	Takes      resources.List // of its node
	Waiting    resources.List // of Takes, as convert.UngrantedResources
	Created    time.Time
	Excluded   reason.Reason // why it never shares; empty: it does
	New        bool          // its kubelet has not accepted it yet
	Large      bool          // too large to share, set by Gather
	refused    bool          // new, and the kubelet will refuse it, set by Gather
	OtherGroup bool          // it shares with another group of pods
	Sharing    sharing.Pod   // set if it shares; the caller sets the rank
	// Requests are the requests of the ordinary containers, which come first in Sharing.
	Requests []sharing.Amounts
	// Accepted, set by Gather, reports that pods make room for the pod's waiting resize.
	Accepted bool
}

// ExclusionReason returns why a pod does not share, or "".
func (p *Pod) ExclusionReason() reason.Reason {
	if p.Excluded == "" && p.Large {
		return reason.TooLarge
	}
	return p.Excluded
}

// Observed holds the fields of a pod that depend only on its object. It must not be modified.
type Observed struct {
	*requested

	name           string         // with the namespace
	takes, waiting resources.List // see Pod
	facts          sharing.PodFacts
	mark           sharing.Mark
	new            bool
}

type requested struct {
	spec, actual      policy.Pod
	running, starting resources.List // see convert.Footprints
}

// ObservePod reads a pod. It reuses equal resources of other, a pod of the same VPA or nil.
func ObservePod(pod *corev1.Pod, other *Observed) *Observed {
	o := &Observed{
		name: pod.Namespace + "/" + pod.Name, requested: &requested{spec: convert.NewPod(pod), actual: convert.Pod(pod)},
		waiting: convert.UngrantedResources(pod), new: convert.IsUnadmitted(pod),
	}
	o.mark, _ = convert.ParseShared(pod)
	o.running, o.starting = convert.Footprints(pod)
	for k := range resources.Kind(resources.Kinds) {
		o.takes = o.takes.With(k, max(o.running.Value(k), o.starting.Value(k)))
	}
	o.facts = sharing.PodFacts{
		PodLevelResources: convert.HasPodLevelResources(pod), Guaranteed: pod.Status.QOSClass == corev1.PodQOSGuaranteed,
		Pending: pod.Status.Phase == corev1.PodPending, Terminating: pod.DeletionTimestamp != nil, Boosted: convert.IsBoosted(pod),
		Resizing: o.isUnresolved() || hasResizeCondition(pod),
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].ResizePolicy {
			for k := range resources.Kind(resources.Kinds) {
				o.facts.Restarts[k] = o.facts.Restarts[k] || p.ResourceName == convert.ResourceName(k) && p.RestartPolicy == corev1.RestartContainer
			}
		}
	}
	if other != nil && o.equal(other.requested) {
		o.requested = other.requested
	}
	return o
}

func (r *requested) equal(o *requested) bool {
	return r == o || equalPods(&r.spec, &o.spec) && equalPods(&r.actual, &o.actual) && r.running == o.running && r.starting == o.starting
}

func equalPods(a, b *policy.Pod) bool {
	return slices.Equal(a.Containers, b.Containers) && a.InitTotals == b.InitTotals && a.Rounded == b.Rounded
}

// Demand is the bases and peaks of the containers of a pod. Equal pods of a VPA have equal demand.
type Demand struct {
	Observed   *Observed // nil: no pod yet
	containers []sharing.Container
	requests   []sharing.Amounts
}

// NewUnsharedPod returns a pod without a VPA, or with a VPA without sharing.
func NewUnsharedPod(pod *corev1.Pod) Pod {
	return Pod{UID: pod.UID, Created: pod.CreationTimestamp.Time, Takes: convert.Footprint(pod), Waiting: convert.UngrantedResources(pod), New: convert.IsUnadmitted(pod), Excluded: reason.NoSharingPolicy}
}

// Read returns a pod of v on a node, given the result of ObservePod. It reuses last, the demand of
// a previous pod of v, for an equal pod and replaces it for another one. last may be zero.
func (v *VPA) Read(pod *corev1.Pod, o *Observed, last *Demand, on *Node, now time.Time) Pod {
	p := Pod{UID: pod.UID, VPA: v, Created: pod.CreationTimestamp.Time, Takes: o.takes, Waiting: o.waiting, New: o.new}
	if p.Excluded = sharing.IneligibleReason(v.facts(o, on.GPUs, now)); p.Excluded != "" && p.Excluded != reason.Reverted {
		return p
	}
	if last.Observed == nil || !last.Observed.equal(o.requested) {
		*last = v.demand(o)
	}
	if p.Excluded != "" {
		p.awaitPeak(last)
		return p
	}
	p.Requests = last.requests
	p.Sharing = sharing.Pod{Name: o.name, Daemon: v.Kind == "DaemonSet", Containers: last.containers}
	for k := range resources.Kind(resources.Kinds) {
		p.Sharing.Init[k] = float64(o.starting.Value(k))
	}
	return p
}

// MinMove is the minimum change of a request that justifies a resize, as a fraction of the request.
const MinMove = 0.05

// awaitPeak treats the missing resources of a pod with a harmful share as a waiting resize, so that
// sharing pods make room. Differences below MinMove are never resized.
func (p *Pod) awaitPeak(s *Demand) {
	for k, shared := range p.VPA.Settings.Kinds {
		if !shared {
			continue
		}
		k, takes := resources.Kind(k), 0.0
		for i := range s.containers {
			peak := max(s.containers[i].Base[k], s.containers[i].Peak[k])
			if i < len(s.requests) && peak <= s.requests[i][k]*(1+MinMove) {
				peak = s.requests[i][k]
			}
			takes += peak
		}
		if by := resources.Amount(math.Ceil(takes)) - p.Takes.Value(k); by > 0 {
			p.Takes, p.Waiting = p.Takes.With(k, p.Takes.Value(k)+by), p.Waiting.With(k, p.Waiting.Value(k)+by)
		}
	}
}

func (o *Observed) isUnresolved() bool {
	return !slices.EqualFunc(o.spec.Containers, o.actual.Containers, func(asked, runs policy.Container) bool {
		return asked.Requests == runs.Requests && asked.Limits == runs.Limits
	})
}

func (v *VPA) facts(o *Observed, gpus bool, now time.Time) sharing.PodFacts {
	f := o.facts
	f.Excluded = v.Mode == fleet.SharingOff && v.ModeReason != reason.SharingOptedOut && v.ModeReason != reason.RecipeDoesNotShare || v.Kind == "CronJob" || v.Kind == "Job"
	f.Off, f.GPUNode, f.Shared = v.ModeReason == reason.SharingOptedOut, gpus, v.Settings.Kinds
	f.Age, f.MinAge, f.ShortHistory, f.Reverted = now.Sub(v.Created), v.MinAge, v.ShortHistory, o.mark.RevertActive(now)
	for i := range o.spec.Containers {
		name := o.spec.Containers[i].Name
		for k, looked := range v.ScaledByHPA.For(name) {
			f.HPA[k] = f.HPA[k] || looked
		}
		_, recommended := v.Sizing.Recommendation[name]
		f.Recommended = f.Recommended || recommended && v.ModeReason != reason.RecipeDoesNotShare && !v.Outdated
	}
	return f
}

func hasResizeCondition(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress)
	})
}

// demand computes the base of each container, its lower bound or the floor after a revert, and its
// peak, its target, within the limits of the VPA, the namespace and the container. Sidecars and
// unshared kinds count as a further container that always uses its requests. Increases by
// minAllowed or a LimitRange count only up to the current request, so that no other pod makes room
// for them.
func (v *VPA) demand(o *Observed) Demand {
	asked := o.spec.Containers
	base := map[string]resources.Bounds{} // without a size: a small map stays on the stack
	v.recommendBase(base)                 // the lower bounds, at least the floors after reverts
	bases := policy.Fit(o.actual, base, v.Sizing.Rules, *v.Sizing.Ranges)
	peaks := policy.Fit(o.actual, v.Sizing.Recommendation, v.Sizing.Rules, *v.Sizing.Ranges)
	all, requests := make([]sharing.Container, len(asked)+1), make([]sharing.Amounts, len(asked))
	rest, unraisedOf, maxAllowed := &all[len(asked)], v.unraised(), v.policyMaxAllowed()
	for k := range resources.Kind(resources.Kinds) {
		rest.Base[k] = float64(o.running.Value(k))
	}
	for i := range asked {
		c := &all[i]
		c.Name = asked[i].Name
		unraised := unraisedOf(c.Name) // before minAllowed or a recipe floor raised them
		for k := range resources.Kind(resources.Kinds) {
			has := asked[i].Requests.Value(k)
			requests[i][k] = float64(has)
			rest.Base[k] = max(rest.Base[k]-float64(has), 0)
			base, peak := has, has
			if v.Settings.Kinds[k] {
				if a, fitted := bases.Containers[i].Requests.Get(k); fitted {
					base = min(a, max(has, unraised.base.Value(k)))
				}
				if a, fitted := peaks.Containers[i].Requests.Get(k); fitted {
					peak = min(a, max(base, unraised.peak.Value(k)))
				}
			}
			if m, bounded := maxAllowed(c.Name).Get(k); bounded && v.Settings.Kinds[k] {
				peak = min(peak, m)
			}
			c.Base[k], c.Peak[k] = float64(min(base, peak)), float64(peak)
		}
	}
	rest.Peak = rest.Base
	return Demand{Observed: o, containers: all, requests: requests}
}
