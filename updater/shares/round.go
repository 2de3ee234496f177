// Package shares lets pods share node headroom.
//
// A round computes the share of each pod (Sharing.RunRound). Each iteration writes the shares, or the
// peaks of pods that stop sharing, into its view (Sharing.SetShares).
package shares

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/nodeshare"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/snapshot"
)

// DefaultInterval is the default time between two rounds.
const DefaultInterval = 5 * time.Minute

// Rounds runs a round at the start of each interval, and sets the shares of views from the last round.
type Rounds struct {
	Sharing    *Sharing
	Interval   time.Duration
	Conditions *Conditions // nil: dry run, no pod shares
	Metrics    Metrics

	limitShrinks bool               // pods of a node shrink at most once an hour
	window       time.Time          // start of the interval of the last round
	failed       time.Time          // start of the interval of the last failed round
	leaving      map[types.UID]bool // pods that would have left their nodes
	logged       map[string]string  // by node
}

// Run runs a round if one is due. Intervals are aligned to the clock, so that restarts do not shift
// them. The next iteration repeats a round that failed or was cut off.
func (r *Rounds) Run(ctx context.Context, in Input, now time.Time) {
	if err := serving.Guard(func() error { r.run(ctx, in, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to compute shares: recovered from panic")
		r.end()
	}
}

func (r *Rounds) run(ctx context.Context, in Input, now time.Time) {
	window := now.Truncate(r.Interval)
	if window.Equal(r.window) || ctx.Err() != nil {
		return
	}
	// Active, unless nodes are unknown, another updater runs, or a node autoscaler does: Pending or Ending
	cluster := r.Conditions.statesInEffect(ctx, now)
	r.limitShrinks = cluster.limitShrinks
	found, err := r.Sharing.RunRound(ctx, in, now, cluster.states)
	if ctx.Err() != nil {
		return
	}
	if r.Conditions != nil && (err == nil || cluster.obstacle.Reason != "") {
		r.Conditions.write(ctx, cluster, found, now)
	}
	if err != nil && !window.Equal(r.failed) {
		klog.FromContext(ctx).Error(err, "Failed to compute shares, trying again in the next iteration")
	}
	if err != nil {
		r.failed = window
	} else {
		r.window = window
	}
	if found == nil || err != nil {
		r.end()
		return
	}
	r.Metrics.Shared(found, r.newlyLeaving(found))
	r.log(ctx, found)
}

func (r *Rounds) end() {
	r.leaving, r.logged = nil, nil
	r.Metrics.SharingEnded()
}

// SetShares sets the shares of the pods in a view, as computed in the last round.
func (r *Rounds) SetShares(ctx context.Context, in Input, view *snapshot.View, now time.Time) Result {
	return r.Sharing.SetShares(ctx, in, view, r.limitShrinks, now)
}

// Sharing computes shares. Use New to create one. All methods except Explain must be called from
// one goroutine.
type Sharing struct {
	Config

	book    *recipe.Cache
	last    atomic.Pointer[round]         // nil: none or failed; also read by Explain
	started time.Time                     // first call of SetShares
	shrunk  map[string]time.Time          // by node: the last shrink for a share
	kills   map[killedContainer]time.Time // the last recorded kills of containers that share

	observed snapshot.VersionCache[*nodeshare.Observed] // by pod of the last round
}

// Config are the caches and settings of a Sharing.
type Config struct {
	Pods         corelisters.PodLister
	Nodes        corelisters.NodeLister          // nil: unknown
	NodeInformer snapshot.Informer               // set with Nodes
	Quotas       corelisters.ResourceQuotaLister // nil: none
	HPAs         *sizing.HorizontalPodAutoscalers
	Records      *records.Store
	MinAge       time.Duration // minimum age of a workload for sharing; 0: sharing.MinAge
}

// New returns a Sharing before its first round.
func New(c Config) *Sharing {
	book, _ := recipe.NewCache("", recipe.DefaultConfig()) // the default recipe is valid
	return &Sharing{Config: c, book: book}
}

// Input is the input of an iteration.
type Input struct {
	VPAs     []snapshot.VPA
	Policies []policies.Effective
	Pods     *snapshot.Pods
}

// minMove is the minimum difference of a share and a request, in millicores and bytes, in addition
// to nodeshare.MinMove. It prevents a resize of small containers in each round.
var minMove = [resources.Kinds]float64{resources.CPU: 10, resources.Memory: 16e6}

// worthMoving reports whether a share justifies a resize, and in which direction.
func worthMoving(k int, has, wanted float64) (less, more bool) {
	by := max(has*nodeshare.MinMove, minMove[k])
	return wanted < has-by, wanted > has+by
}

// ErrNodesUnknown is the error of a round without readable nodes.
var ErrNodesUnknown = errors.New("nodes cannot be read: the updater must watch all namespaces (no --vpa-object-namespace), and may need permission to list nodes")

// RunRound runs a round, or returns nil if no policy enables sharing. Objects that cause a panic are
// excluded. After any other panic, the next round starts without state.
func (s *Sharing) RunRound(ctx context.Context, in Input, now time.Time, may SharingStates) (found *Round, err error) {
	var r *round
	err = serving.Guard(func() error {
		r, err = s.round(ctx, in, now, may)
		return err
	})
	if err != nil {
		r = nil
	}
	if s.last.Store(r); r == nil {
		return nil, err
	}
	return r.found, nil
}

func (s *Sharing) round(ctx context.Context, in Input, now time.Time, may SharingStates) (*round, error) {
	if !in.sharingEnabled() {
		return nil, nil //nolint:nilnil // sharing is off
	}
	if s.Nodes == nil || !s.NodeInformer.HasSynced() {
		return nil, ErrNodesUnknown
	}
	objects, err := s.Nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	last := s.last.Load()
	if last == nil {
		last = &round{}
	}
	r := &round{
		Sharing: s, Input: in, at: now, states: may,
		pods: make(map[types.UID]*member, len(last.pods)), nodes: make(map[string]*node, len(objects)), workloads: make([]*workload, len(in.VPAs)),
		found: &Round{Apart: map[reason.Reason]int{}, Policies: map[string]*Policy{}},
	}
	for _, o := range objects {
		r.nodes[o.Name] = &node{Node: nodeshare.NewNode(o)}
	}
	r.readVPAs(ctx)
	err = client.EachPod(s.Pods, func(pod *corev1.Pod) { r.addPod(ctx, pod) })
	s.observed.Swap()
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		n := r.nodes[name]
		var before []PodName
		if known := last.nodes[name]; known != nil {
			before = known.results[0].Leaves
		}
		if err := serving.Guard(func() error { n.compute(name, before); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "Skipping node in this round of sharing: recovered from panic", "node", name)
			n.fail()
		}
		for i := range n.results {
			if n.results[i].Pods > 0 {
				r.found.Nodes = append(r.found.Nodes, &n.results[i])
			}
		}
		for _, p := range n.pods {
			r.count(p)
		}
	}
	r.Input = Input{} // not kept between rounds
	return r, err
}

func (in *Input) sharingEnabled() bool {
	return slices.ContainsFunc(in.Policies, func(e policies.Effective) bool { return e.Shares })
}

// round is the round in progress, or the last one.
type round struct {
	*Sharing
	Input
	at        time.Time
	states    SharingStates
	pods      map[types.UID]*member
	nodes     map[string]*node
	workloads []*workload // by VPA; nil: without sharing
	found     *Round
}

type node struct {
	nodeshare.Node

	pods    []*member
	results [2]NodeResult // index 0: shares in effect, 1: dry run
}

func (n *node) sharesInEffect(p *member) bool {
	return p.workload != nil && p.workload.state == Active && n.Problem == ""
}

func (n *node) fail() {
	n.results = [2]NodeResult{}
	for _, p := range n.pods {
		p.shares, p.leaves = nil, false
	}
}

func (r *round) addPod(ctx context.Context, pod *corev1.Pod) {
	node := r.nodes[pod.Spec.NodeName]
	if node == nil {
		return // deleted, or not cached yet
	}
	var p *member
	err := serving.Guard(func() error { p = r.newMember(ctx, pod, node); return nil })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Excluding pod from sharing: it cannot be converted", "pod", klog.KObj(pod))
		p = &member{Pod: nodeshare.Pod{UID: pod.UID, Excluded: reason.InternalError, Takes: node.Allocatable}, node: node}
		if err := serving.Guard(func() error { p.Takes = convert.Footprint(pod); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to read the requests of a pod, leaving no room on its node for sharing", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		}
	}
	r.pods[pod.UID] = p
	node.pods = append(node.pods, p)
}

// count counts a pod under a sharing policy, or one that cannot be converted.
func (r *round) count(p *member) {
	if p.workload != nil && p.workload.state == Active && p.VPA != nil && p.node.Problem == "" {
		r.found.Policies[p.VPA.Decision.Policy.Name].Free = true
	}
	switch why := p.ExclusionReason(); why {
	case reason.NoSharingPolicy:
	case "":
		of := r.found.Policies[p.VPA.Decision.Policy.Name]
		of.Pods++
		switch n := p.node; {
		case n.sharesInEffect(p):
			of.Sharing++
			if n.results[0].Overcommitted != [resources.Kinds]bool{} {
				of.Overcommitted = cmp.Or(of.Overcommitted, n.results[0].Name)
			}
		case p.workload != nil && p.workload.state == Active: // only the node prevents it
			if of.Held == nil {
				of.Held = map[reason.Reason]int{}
			}
			of.Held[n.Problem]++
			of.HeldOn = cmp.Or(of.HeldOn, n.results[1].Name)
		}
	default:
		r.found.Apart[why]++
	}
}

// compute computes shares twice: for pods with shares in effect, then for pods in dry run. Each time,
// the other group counts with its requests. before lists the pods that were to leave in the last round.
func (n *node) compute(name string, before []PodName) {
	slices.SortFunc(n.pods, func(a, b *member) int { return cmp.Compare(a.Sharing.Name, b.Sharing.Name) })
	all := make([]*nodeshare.Pod, len(n.pods))
	for i, p := range n.pods {
		all[i] = &p.Pod
	}
	for i, inEffect := range [...]bool{true, false} {
		r := &n.results[i]
		*r = NodeResult{Name: name, Active: inEffect, Problem: n.Problem, Cordoned: n.Cordoned}
		var sharers []*member
		for _, p := range n.pods {
			if p.OtherGroup = n.sharesInEffect(p) != inEffect; !p.OtherGroup && p.Excluded == "" {
				sharers = append(sharers, p)
			}
		}
		if len(sharers) == 0 {
			continue
		}
		input, rule, members := n.Gather(all)
		sharers = slices.DeleteFunc(sharers, func(p *member) bool { return p.Large })
		r.Kinds, r.Available, r.Pods = input.Kinds, input.Available, len(members)
		r.Wanted = slices.ContainsFunc(all, func(p *nodeshare.Pod) bool { return p.Accepted })
		if len(members) > 0 && r.Problem != reason.AllocatableUnknown {
			shares := sharing.Shares(input, rule)
			if leaves := shares.Evictions; inEffect && stillPresent(before, sharers, leaves) {
				rule.NeverEvict = true
				shares = sharing.Shares(input, rule)
				shares.Evictions = leaves
			}
			for i, p := range sharers {
				p.shares, p.leaves = shares.Shares[i], inEffect && slices.Contains(shares.Evictions, i)
			}
			r.setResult(input, sharers, shares)
		}
	}
}

// setResult records the shares of the members: the sums of the node, and the pods that leave it.
func (r *NodeResult) setResult(input *sharing.Node, members []*member, shares sharing.Result) {
	r.Headroom, r.Overcommitted = shares.Headroom, shares.Overcommitted
	for _, i := range shares.Evictions {
		r.Leaves = append(r.Leaves, PodName{members[i].UID, members[i].Sharing.Name})
	}
	for i, p := range members {
		shrinks, grows := moves(&p.Pod, input, shares.Shares[i])
		r.Shrink, r.Grow, r.Wanted = r.Shrink+shrinks, r.Grow+grows, r.Wanted || shrinks > 0 && !p.marked
		for k := range resources.Kind(resources.Kinds) {
			if !input.Kinds[k] {
				continue
			}
			r.Requested[k] += float64(p.Takes.Value(k))
			if shares.Shares[i] == nil {
				continue
			}
			var base, peak, share float64
			for c, of := range input.Pods[i].Containers { // capped to the node
				base += of.Base[k]
				peak += of.Peak[k]
				share += shares.Shares[i][c][k]
			}
			r.Bases[k] += max(base, p.Sharing.Init[k])
			if !r.Cordoned {
				r.Saved[k] += max(peak, p.Sharing.Init[k]) - max(share, p.Sharing.Init[k])
			}
		}
	}
}

// moves returns 1 for each direction that requires a resize in place.
func moves(p *nodeshare.Pod, input *sharing.Node, shares []sharing.Amounts) (shrinks, grows int) {
	if shares == nil {
		return 0, 0
	}
	for c, has := range p.Requests {
		for k, shared := range input.Kinds {
			switch less, more := worthMoving(k, has[k], shares[c][k]); {
			case !shared:
			case less:
				shrinks = 1
			case more:
				grows = 1
			}
		}
	}
	return shrinks, grows
}

// stillPresent reports whether a pod that was to leave its node in the last round is still there.
// It may be unable to leave, so the others share the remaining room.
func stillPresent(before []PodName, members []*member, leaves []int) bool {
	return slices.ContainsFunc(leaves, func(i int) bool {
		return slices.ContainsFunc(before, func(p PodName) bool { return p.UID == members[i].UID })
	})
}

type workload struct {
	nodeshare.VPA

	state SharingState
	sizes nodeshare.Demand // of the last pod
}

func (r *round) readVPAs(ctx context.Context) {
	for i := range r.VPAs {
		if !r.Policies[i].Shares || !r.Pods.Claims(i) {
			continue
		}
		err := serving.Guard(func() error { r.workloads[i] = r.newWorkload(&r.VPAs[i], &r.Policies[i]); return nil })
		if err != nil {
			klog.FromContext(ctx).Error(err, "Excluding pods of a VPA from sharing: it cannot be converted", "vpa", r.VPAs[i].Key())
		}
	}
}

// newWorkload converts a VPA and counts it for its policy.
func (r *round) newWorkload(vpa *snapshot.VPA, e *policies.Effective) *workload {
	var state rollout.State
	if e.Decision.Mode == fleet.Canary && e.Selectable {
		if stored, err := r.Records.State(e.Workload); err == nil {
			state = stored
		}
	}
	w := &workload{VPA: nodeshare.NewVPA(vpa.Object, &e.Decision, &e.Workload, &state, r.book)}
	w.MinAge = r.MinAge
	w.KeepsCPULimit = w.Settings.CPULimit == sharing.RemoveLimit && r.quotaCountsCPULimits(vpa.Object.Namespace)
	w.ScaledByHPA = r.HPAs.Resources(vpa.Target)
	w.Outdated = vpa.Outdated || vpa.Unreadable != ""
	w.Sizing = nodeshare.Sizing{Recommendation: vpa.Recommendation, Floors: vpa.Floors, Rules: vpa.Rules, Ranges: &vpa.Ranges.Ranges}
	w.state = workloadState(&w.VPA, r.states)
	p := r.found.Policies[w.Decision.Policy.Name]
	if p == nil {
		p = &Policy{Apart: map[reason.Reason]int{}}
		r.found.Policies[w.Decision.Policy.Name] = p
	}
	if w.ModeReason != "" {
		p.Apart[w.ModeReason]++
	}
	if w.state == Active {
		p.Active++
	}
	return w
}

// quotaCountsCPULimits is also true if the quotas of a namespace cannot be read.
func (s *Sharing) quotaCountsCPULimits(namespace string) bool {
	if s.Quotas == nil {
		return false
	}
	quotas, err := s.Quotas.ResourceQuotas(namespace).List(labels.Everything())
	return err != nil || slices.ContainsFunc(quotas, func(q *corev1.ResourceQuota) bool {
		return convert.Quota(q).Limits.Has(resources.CPU)
	})
}

type member struct {
	nodeshare.Pod

	workload *workload // nil: its VPA does not share
	node     *node

	// shares are the shares of the containers, also in dry run, followed by one element for the
	// rest of the pod. Nil: the pod has no share, or leaves at once if leaves is set.
	shares []sharing.Amounts
	leaves bool
	marked bool // it had a share before
}

func (r *round) newMember(ctx context.Context, pod *corev1.Pod, on *node) *member {
	p := &member{node: on}
	owner, vpa := r.Pods.Controlling(ctx, pod)
	if vpa < 0 || r.workloads[vpa] == nil {
		p.Pod = nodeshare.NewUnsharedPod(pod)
		return p
	}
	p.workload = r.workloads[vpa]
	observed, _ := r.observed.Get(pod.UID, pod.ResourceVersion, func(*nodeshare.Observed) (*nodeshare.Observed, error) {
		return nodeshare.ObservePod(pod, p.workload.sizes.Observed), nil
	})
	p.Pod = p.workload.Read(pod, observed, &p.workload.sizes, &on.Node, r.at)
	_, p.marked = pod.Annotations[convert.SharedAnnotation]
	replicas := 0
	if p.workload.Settings.Evict { // the rank depends on replicas only here
		replicas = r.Pods.Replicas(ctx, owner)
	}
	p.Sharing.Rank = p.workload.Rank(replicas)
	return p
}
