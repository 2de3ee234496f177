package view

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
)

// Sharing is what a round found: what the pods of each node that share what it has left would
// get.
type Sharing struct {
	Nodes []*NodeSharing // by name, those with pods that share
	// Apart are the pods on these and other nodes whose policy wants sharing, but that do not
	// share, by why.
	Apart    map[sharing.Reason]int
	Policies map[string]*PolicySharing // that want sharing, by name
}

// PolicySharing is how far the workloads of a policy share.
type PolicySharing struct {
	Pods  int                  // that share, or would but for the mode
	Apart map[fleet.Reason]int // VPAs whose pods do not share, or only in a dry run, by why
}

// RecipeDoesNotShare is why pods of a VPA do not share, beside the reasons of package fleet.
const RecipeDoesNotShare fleet.Reason = "RecipeDoesNotShare"

// NodeSharing is a node on which pods share.
type NodeSharing struct {
	Name     string
	Problem  NodeProblem // why nothing could be changed there, whatever policies say; empty: nothing is in the way
	Cordoned bool        // it takes no new pods, so what is saved serves nobody
	Kinds    [resources.Kinds]bool
	Pods     int
	// Available is what those who share have together, Bases what they use nearly always,
	// Headroom what they have above that, and Requested what they request now.
	Available, Bases, Headroom, Requested sharing.Amounts
	// Saved is what they request less than if each had its own peak, but for those that leave.
	Saved         sharing.Amounts
	Overcommitted [resources.Kinds]bool
	Shrink, Grow  int       // pods of which a container has a share that is less, or more, than it requests by more than leastMove
	Leaves        []PodName // in this order
}

// leastMove is the part of a request by which a share must differ for a pod to be moved.
const leastMove = 0.05

// PodName is the name of a pod, with what tells it from another one of that name.
type PodName struct {
	UID  types.UID
	Name string // with the namespace
}

// NodeProblem is why no pod of a node could share.
type NodeProblem string

// The problems.
const (
	KubeletTooOld      NodeProblem = "KubeletTooOld"      // it cannot resize pods, or its version is not known
	AllocatableUnknown NodeProblem = "AllocatableUnknown" // it does not say what it can hold
)

// sharingMemo is what rounds remember of each other, so that only what changed is computed anew.
type sharingMemo struct {
	round int
	pods  map[types.UID]*sharedPod
	nodes map[string]*sharedNode
}

// ErrNodesUnknown says that nobody knows what nodes have.
var ErrNodesUnknown = errors.New("nodes cannot be seen: the updater must see all namespaces (no --vpa-object-namespace), and may need the permission to list nodes")

// Share makes a round at now. It must be called after Read, by the same goroutine. It returns
// nil if no policy wants sharing. A VPA that cannot be understood is none that wants sharing, such
// a pod is set apart, and such a node is left out. After a panic elsewhere, which is an error, the
// next round remembers nothing.
func (r *Reader) Share(ctx context.Context, now time.Time) (found *Sharing, err error) {
	err = Guard(func() error {
		found, err = r.share(ctx, now)
		return err
	})
	if err != nil {
		r.memo.sharing = nil
	}
	return found, err
}

func (r *Reader) share(ctx context.Context, now time.Time) (*Sharing, error) {
	m := r.memo
	if !m.shares {
		m.sharing = nil
		return nil, nil //nolint:nilnil // that nothing is shared is no error
	}
	if r.Nodes == nil || !r.NodesSynced() {
		m.sharing = nil
		return nil, ErrNodesUnknown
	}
	if m.sharing == nil {
		m.sharing = &sharingMemo{pods: map[types.UID]*sharedPod{}, nodes: map[string]*sharedNode{}}
	}
	s := sharingRound{Reader: r, sharingMemo: m.sharing, now: now, found: &Sharing{Apart: map[sharing.Reason]int{}, Policies: map[string]*PolicySharing{}}}
	s.round++
	objects, err := r.Nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	s.readNodes(objects)
	s.readVPAs(ctx)
	err = client.EachPod(r.Pods, func(pod *corev1.Pod) { s.read(ctx, pod) })
	s.prune()
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n, shared := s.nodes[name], false
		if err := Guard(func() error { shared = n.compute(name); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "A defect of the updater: please report it. This node is left out of sharing in this round", "node", name)
			n.changed, shared = true, false // nothing half done is left
		}
		if shared {
			s.found.Nodes = append(s.found.Nodes, &n.result)
		}
		for _, p := range n.pods {
			s.count(p)
		}
	}
	return s.found, err
}

// sharingRound is a round under way.
type sharingRound struct {
	*Reader
	*sharingMemo
	now   time.Time
	found *Sharing
}

// sharedNode is a node with its pods.
type sharedNode struct {
	nodeFacts

	changed bool         // it, or a pod on it
	pods    []*sharedPod // of this round, in no order
	result  NodeSharing
	round   int
}

// nodeFacts are what counts of a node. Kubelets write much more of it every few minutes.
type nodeFacts struct {
	allocatable    resources.List
	gpus, cordoned bool
	problem        NodeProblem
}

// readNodes takes over the nodes as they are now.
func (s *sharingRound) readNodes(objects []*corev1.Node) {
	for _, o := range objects {
		n, now := s.nodes[o.Name], factsOf(o)
		if n == nil {
			n = &sharedNode{}
			s.nodes[o.Name] = n
		}
		if n.nodeFacts != now {
			n.nodeFacts, n.changed = now, true
		}
		n.round, n.pods = s.round, n.pods[:0]
	}
	maps.DeleteFunc(s.nodes, func(_ string, n *sharedNode) bool { return n.round != s.round })
}

// read takes over a pod as it is now. One that cannot be understood is set apart, and read anew in
// the next round.
func (s *sharingRound) read(ctx context.Context, pod *corev1.Pod) {
	node := s.nodes[pod.Spec.NodeName]
	if node == nil {
		return // it is gone, or not known yet
	}
	known := s.pods[pod.UID]
	by := controller{}
	err := Guard(func() error {
		by = s.controller(ctx, pod, known)
		s.readAs(ctx, pod, node, by)
		return nil
	})
	if err == nil {
		return
	}
	klog.FromContext(ctx).Error(err, "Pod does not share: it cannot be understood", "pod", klog.KObj(pod))
	if known != nil && known.node != node {
		known.node.changed = true
	}
	if v := by.sharer(); v != nil {
		v.last = podSizes{} // nothing half done is left
	}
	broken := &sharedPod{uid: pod.UID, node: node, apart: sharing.Broken, round: s.round, takes: node.allocatable}
	broken.pod.Name = pod.Namespace + "/" + pod.Name
	if err := Guard(func() error { broken.takes = mostOf(convert.Footprints(pod)); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "It is not known what a pod requests, so nothing is left on its node for those that share", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	}
	s.pods[pod.UID], node.changed = broken, true
	node.pods = append(node.pods, broken)
}

// readAs takes over a pod that is controlled by somebody.
func (s *sharingRound) readAs(ctx context.Context, pod *corev1.Pod, node *sharedNode, by controller) {
	known := s.pods[pod.UID]
	if known == nil || !known.holds(pod, by.sharer(), node, s.now) {
		if known != nil && known.node != node {
			known.node.changed = true
		}
		known = s.sharedPod(pod, by.sharer(), node)
		s.pods[pod.UID], node.changed = known, true
	}
	known.controller, known.round = by, s.round
	if known.of != nil {
		if rank := s.rank(ctx, known.of, by.owner); rank != known.pod.Rank {
			known.pod.Rank, node.changed = rank, true
		}
	}
	node.pods = append(node.pods, known)
}

// count counts a pod whose policy wants sharing, or that cannot be understood.
func (s *sharingRound) count(p *sharedPod) {
	switch {
	case p.apart == notWanted:
	case p.apart != "":
		s.found.Apart[p.apart]++
	case p.large:
		s.found.Apart[sharing.TooLarge]++
	default:
		s.found.Policies[p.of.policy].Pods++
	}
}

// prune forgets what is gone.
func (s *sharingRound) prune() {
	for uid, p := range s.pods {
		if p.round != s.round {
			p.node.changed = true
			delete(s.pods, uid)
		}
	}
}

// compute shares what a node has left, if anything changed there, and reports whether any pod
// shares.
func (n *sharedNode) compute(name string) bool {
	if !n.changed {
		return n.result.Pods > 0
	}
	n.changed = false
	n.result = NodeSharing{Name: name, Problem: n.problem, Cordoned: n.cordoned}
	slices.SortFunc(n.pods, func(a, b *sharedPod) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	input, rule, members := n.gather()
	n.result.Kinds, n.result.Available, n.result.Pods = input.Kinds, input.Available, len(members)
	if len(members) > 0 && n.result.Problem != AllocatableUnknown {
		n.result.take(input, members, sharing.Shares(input, rule))
	}
	return len(members) > 0
}

// gather returns what the pods of a node share, by which rule, and which these are. Pods that are
// too large are set apart, until all others fit one by one: what they request leaves less.
func (n *sharedNode) gather() (*sharing.Node, sharing.Rule, []*sharedPod) {
	for _, p := range n.pods {
		p.large = false
	}
	for {
		input, rule, members := n.sharing()
		found := false
		for i, p := range members {
			p.large = n.problem != AllocatableUnknown && !input.Holds(&p.pod)
			found = found || p.large
			input.Pods[i] = p.pod.Within(n.amounts())
		}
		if !found {
			return input, rule, members
		}
	}
}

// sharing returns who shares if nobody else is too large. Where their recipes differ the more
// careful rule counts. A kind that a pod does not share counts in full.
func (n *sharedNode) sharing() (*sharing.Node, sharing.Rule, []*sharedPod) {
	input, rule := &sharing.Node{Available: n.amounts()}, sharing.Rule{Stay: true}
	var members []*sharedPod
	for _, p := range n.pods {
		if p.apart != "" || p.large {
			for k := range resources.Kind(resources.Kinds) {
				input.Available[k] -= float64(p.takes.Value(k))
			}
			continue
		}
		for k, shared := range p.of.settings.Kinds {
			input.Kinds[k] = input.Kinds[k] || shared
		}
		rule.Pooling = max(rule.Pooling, p.of.rule.Pooling)
		rule.LeaveAt = max(rule.LeaveAt, p.of.rule.LeaveAt)
		rule.Stay = rule.Stay && !p.of.settings.Evict
		members, input.Pods = append(members, p), append(input.Pods, p.pod)
	}
	return input, rule, members
}

// amounts returns what a node has for pods.
func (n *sharedNode) amounts() (has sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		has[k] = float64(n.allocatable.Value(k))
	}
	return has
}

// take notes what sharing comes to.
func (r *NodeSharing) take(input *sharing.Node, members []*sharedPod, shares sharing.Result) {
	r.Headroom, r.Overcommitted = shares.Headroom, shares.Overcommitted
	for _, i := range shares.Leaves {
		r.Leaves = append(r.Leaves, PodName{members[i].uid, members[i].pod.Name})
	}
	for i, p := range members {
		shrinks, grows := p.moves(input, shares.Shares[i])
		r.Shrink, r.Grow = r.Shrink+shrinks, r.Grow+grows
		for k := range resources.Kind(resources.Kinds) {
			if !input.Kinds[k] {
				continue
			}
			r.Requested[k] += float64(p.takes.Value(k))
			if shares.Shares[i] == nil {
				continue
			}
			var base, peak, share float64
			for c, of := range input.Pods[i].Containers { // cut to what the node has
				base += of.Base[k]
				peak += of.Peak[k]
				share += shares.Shares[i][c][k]
			}
			r.Bases[k] += max(base, p.pod.Init[k])
			if !r.Cordoned {
				r.Saved[k] += max(peak, p.pod.Init[k]) - max(share, p.pod.Init[k])
			}
		}
	}
}

// moves returns 1 for each direction in which a pod would be moved that stays on its node.
func (p *sharedPod) moves(input *sharing.Node, shares []sharing.Amounts) (shrinks, grows int) {
	if shares == nil {
		return 0, 0
	}
	for c, has := range p.requests {
		for k, shared := range input.Kinds {
			switch {
			case !shared:
			case shares[c][k] < has[k]*(1-leastMove):
				shrinks = 1
			case shares[c][k] > has[k]*(1+leastMove):
				grows = 1
			}
		}
	}
	return shrinks, grows
}
