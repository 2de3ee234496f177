package view

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/sizing"
)

// sharer is a VPA whose policy wants its pods to share. It is replaced when anything of it
// changes.
type sharer struct {
	policy   string
	decision fleet.Decision
	mode     fleet.SharingMode
	why      fleet.Reason // why that is less than the policy says; empty: it is not
	settings fleet.Sharing
	rule     sharing.Rule
	kind     string // of the workload
	created  time.Time
	looked   sizing.LookedAt
	outdated bool

	reading Reading
	base    map[string]resources.Bounds // with the base as the target
	last    podSizes                    // of the pod that was read last: others that are like it have the same
}

// podSizes is what follows from the containers of a pod and their statuses alone.
type podSizes struct {
	likes      likeness
	running    resources.List // what runs beside each other
	unanswered bool           // it asks for something else than it runs with
	containers []sharing.Container
	requests   []sharing.Amounts // of the ordinary containers, which come first
}

// equal reports whether pods of two sharers share alike.
func (v *sharer) equal(b *sharer) bool {
	return v.policy == b.policy && v.mode == b.mode && v.why == b.why && v.settings == b.settings && v.rule == b.rule &&
		v.created.Equal(b.created) && v.outdated == b.outdated && maps.Equal(v.looked, b.looked)
}

// readVPAs finds the VPAs whose policies want sharing.
func (s *sharingRound) readVPAs(ctx context.Context) {
	for name, known := range s.memo.vpas {
		ruled := s.memo.ruled[name]
		if ruled == nil || !ruled.shares {
			known.sharer = nil
			continue
		}
		if err := Guard(func() error { s.readVPA(ruled, known); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "The pods of a VPA do not share: it cannot be understood", "vpa", name)
			known.sharer = nil
		}
	}
}

// readVPA takes over a VPA whose policy wants sharing.
func (s *sharingRound) readVPA(ruled *ruled, known *knownVPA) {
	now := s.sharerOf(ruled, known)
	if before := known.sharer; before == nil || !before.equal(&now) {
		known.sharer = new(now)
	} else {
		before.decision = now.decision // annotations about the rank
	}
	s.note(&now)
}

// note notes what a VPA means for its policy.
func (s *sharingRound) note(v *sharer) {
	p := s.found.Policies[v.policy]
	if p == nil {
		p = &PolicySharing{Apart: map[fleet.Reason]int{}}
		s.found.Policies[v.policy] = p
	}
	if v.why != "" {
		p.Apart[v.why]++
	}
}

// sharerOf returns a VPA whose policy wants sharing.
func (s *sharingRound) sharerOf(v *ruled, known *knownVPA) sharer {
	d := &v.answer.Decision
	everywhere := false
	if d.Mode == fleet.Canary && v.answer.Known {
		state, err := s.Records.StateAs(v.names().record, v.answer.Workload)
		everywhere = err == nil && state.Phase == rollout.PhaseFullRollout && state.Hash == d.Policy.RolloutHash
	}
	one := sharer{
		policy: d.Policy.Name, decision: *d, settings: d.Policy.Sharing, kind: v.answer.Workload.Key.Kind, created: v.answer.Workload.Created,
		looked: s.HPAs.LooksAt(v.names().scaled), outdated: s.Generations.Outdated(v.by) || convert.Unreadable(v.by) != "", reading: known.reading,
	}
	if one.created.IsZero() { // it is not known when the workload was
		one.created = v.by.CreationTimestamp.Time
	}
	one.mode, one.why = d.Shares(everywhere)
	if r := s.memo.book.Choose(v.by.Annotations[recipe.Annotation], d.Policy.Recipe).Sharing; r != nil {
		one.rule = *r
	} else if one.mode != fleet.SharingOff {
		one.mode, one.why = fleet.SharingOff, RecipeDoesNotShare
	}
	return one
}

// recommendsBase returns a recommendation of the base: what is never lowered below, as after a
// revert, is part of that.
func (v *sharer) recommendsBase() map[string]resources.Bounds {
	if v.base != nil {
		return v.base
	}
	v.base = maps.Clone(v.reading.recommendation)
	for name, b := range v.base {
		floors := v.reading.floors[name]
		for k := range resources.Kind(resources.Kinds) {
			if target, recommended := b.Target.Get(k); recommended {
				b.Target = b.Target.With(k, min(max(b.Lower.Value(k), floors.Value(k)), target))
			}
		}
		v.base[name] = b
	}
	return v.base
}

// controller is what controls a pod, and when that may be another one.
type controller struct {
	owner  *knownOwner // nil: it has none
	moved  int32       // see owner
	vpa    *knownVPA   // nil: none does
	claims int         // see memo
}

// sharer returns the VPA if its policy wants sharing.
func (c controller) sharer() *sharer {
	if c.vpa == nil {
		return nil
	}
	return c.vpa.sharer
}

// controller returns what controls a pod. What is known of the pod tells whether that need not be
// looked up: neither the pod, nor its owners, nor which VPAs there are has changed.
func (s *sharingRound) controller(ctx context.Context, pod *corev1.Pod, known *sharedPod) controller {
	if known != nil && known.version == pod.ResourceVersion && known.version != "" {
		c := known.controller
		if c.owner != nil && c.owner.pass == s.memo.pass && !c.owner.unreadable && c.owner.moved == c.moved &&
			c.claims == s.memo.claims && (c.vpa == nil || c.vpa.pass == s.memo.pass) {
			return c
		}
	}
	owner, claim, reason := s.claimed(ctx, pod)
	c := controller{owner: owner, claims: s.memo.claims}
	if owner != nil {
		c.moved = owner.moved
	}
	if reason == "" {
		c.vpa = s.memo.vpas[claimName(claim)]
	}
	return c
}

// rank returns in which order the pods of a workload leave; those that must not be evicted never
// do.
func (s *sharingRound) rank(ctx context.Context, v *sharer, owner *knownOwner) sharing.Rank {
	if !v.settings.Evict {
		return sharing.Never
	}
	if owner.counted != s.round {
		owner.counted, owner.replicas = s.round, s.group(ctx, owner.Key).Replicas
	}
	return v.decision.Rank(v.kind, owner.replicas)
}

// sharedPod is a pod as far as sharing is concerned. It is replaced when the pod or its VPA
// changes.
type sharedPod struct {
	controller

	uid     types.UID
	version string // of the pod
	of      *sharer
	node    *sharedNode
	gpus    bool           // of the node
	old     time.Time      // when its workload will be old enough; zero: it is
	takes   resources.List // of its node
	apart   sharing.Reason // why it does not share; empty: it does. Without a sharer it is notWanted
	large   bool           // it would share, but is too large; as of the last time its node was computed
	pod     sharing.Pod
	// requests are those of its ordinary containers.
	requests []sharing.Amounts
	round    int
}

// notWanted is why a pod does not share whose policy, if there is one, does not want it.
const notWanted sharing.Reason = "NotWanted"

// holds reports whether a pod is still what is known of it.
func (p *sharedPod) holds(pod *corev1.Pod, v *sharer, node *sharedNode, now time.Time) bool {
	return p.of == v && p.node == node && p.gpus == node.gpus && p.version == pod.ResourceVersion && p.version != "" &&
		(p.old.IsZero() || now.Before(p.old))
}

// sharedPod reads a pod.
func (s *sharingRound) sharedPod(pod *corev1.Pod, v *sharer, node *sharedNode) *sharedPod {
	p := &sharedPod{uid: pod.UID, version: pod.ResourceVersion, of: v, node: node, gpus: node.gpus, apart: notWanted}
	running, starting := convert.Footprints(pod)
	p.takes = mostOf(running, starting)
	if v == nil {
		return p
	}
	if likes := likenessOf(pod); likes.containers == nil || likes != v.last.likes || running != v.last.running {
		v.last = podSizes{likes: likes, running: running, unanswered: unanswered(pod)}
	}
	facts := v.facts(pod, node.gpus, s.now)
	if facts.Age < sharing.MinAge {
		p.old = s.now.Add(sharing.MinAge - facts.Age)
	}
	if p.apart = sharing.Eligible(facts); p.apart != "" {
		return p
	}
	if v.last.containers == nil {
		v.size(pod)
	}
	p.requests = v.last.requests
	p.pod = sharing.Pod{Name: pod.Namespace + "/" + pod.Name, Daemon: v.kind == "DaemonSet", Containers: v.last.containers}
	for k := range resources.Kind(resources.Kinds) {
		p.pod.Init[k] = float64(starting.Value(k))
	}
	return p
}

// mostOf returns what a pod takes of its node that takes so much when it runs, and when it starts.
func mostOf(running, starting resources.List) (takes resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		takes = takes.With(k, max(running.Value(k), starting.Value(k)))
	}
	return takes
}

// facts returns what decides whether the pod shares that was read last.
func (v *sharer) facts(pod *corev1.Pod, gpus bool, now time.Time) sharing.Facts {
	_, resize, _ := conditions(pod)
	f := sharing.Facts{
		Excluded: v.mode == fleet.SharingOff && v.why != fleet.SharingOptedOut && v.why != RecipeDoesNotShare || v.kind == "CronJob" || v.kind == "Job",
		Off:      v.why == fleet.SharingOptedOut, GPUs: gpus, PodLevel: convert.SizedAsWhole(pod),
		Guaranteed: pod.Status.QOSClass == corev1.PodQOSGuaranteed, Shared: v.settings.Kinds,
		Age: now.Sub(v.created), Pending: pod.Status.Phase == corev1.PodPending, Terminating: pod.DeletionTimestamp != nil, Boosted: convert.HasBoosted(pod),
		Resizing: resize != disruption.NotResizing || v.last.unanswered,
	}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		for k, looked := range v.looked.Of(name) {
			f.HPA[k] = f.HPA[k] || looked
		}
		_, recommended := v.reading.recommendation[name]
		f.Recommended = f.Recommended || recommended && v.why != RecipeDoesNotShare && !v.outdated
	}
	return f
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

// size finds the base and the peak of each container of the pod that was read last: what it would
// get if these were recommended, so that limits of the VPA, of the namespace and of the container
// itself count. What else runs in the pod, such as sidecars that are init containers, counts as one
// more container that always takes what it requests. So does what is not shared.
func (v *sharer) size(pod *corev1.Pod) {
	asked, current := convert.NewPod(pod).Containers, convert.Pod(pod)
	bases := policy.Fit(current, v.recommendsBase(), v.reading.rules, v.reading.Ranges.Ranges)
	peaks := policy.Fit(current, v.reading.recommendation, v.reading.rules, v.reading.Ranges.Ranges)
	all, requests := make([]sharing.Container, len(asked)+1), make([]sharing.Amounts, len(asked))
	rest := &all[len(asked)]
	for k := range resources.Kind(resources.Kinds) {
		rest.Base[k] = float64(v.last.running.Value(k))
	}
	for i := range asked {
		c := &all[i]
		c.Name = asked[i].Name
		for k := range resources.Kind(resources.Kinds) {
			has := asked[i].Requests.Value(k)
			requests[i][k] = float64(has)
			rest.Base[k] = max(rest.Base[k]-float64(has), 0)
			base, peak := has, has
			if v.settings.Kinds[k] {
				if a, fitted := bases.Containers[i].Requests.Get(k); fitted {
					base = a
				}
				if a, fitted := peaks.Containers[i].Requests.Get(k); fitted {
					peak = a
				}
			}
			c.Base[k], c.Peak[k] = float64(min(base, peak)), float64(peak)
		}
	}
	rest.Peak = rest.Base
	v.last.containers, v.last.requests = all, requests
}

// hasGPUs reports whether a node has GPUs.
func hasGPUs(node *corev1.Node) bool {
	for name, amount := range node.Status.Allocatable {
		if convert.IsGPU(name) && !amount.IsZero() {
			return true
		}
	}
	return false
}

// leastKubelet is the first version of a kubelet that resizes pods in place.
var leastKubelet = version.MajorMinor(1, 33)

// factsOf returns what counts of a node.
func factsOf(node *corev1.Node) nodeFacts {
	f := nodeFacts{allocatable: convert.Resources(node.Status.Allocatable), gpus: hasGPUs(node), cordoned: node.Spec.Unschedulable}
	kubelet, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	switch {
	case f.allocatable.Value(resources.CPU) <= 0 || f.allocatable.Value(resources.Memory) <= 0:
		f.problem = AllocatableUnknown
	case err != nil || kubelet.LessThan(leastKubelet):
		f.problem = KubeletTooOld
	}
	return f
}
