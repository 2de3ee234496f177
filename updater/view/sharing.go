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
	"loadline.dev/loadline/pkg/kube/nodeshare"
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

// NodeSharing is a node on which pods share.
type NodeSharing struct {
	Name     string
	Problem  nodeshare.NodeProblem // see nodeshare.Node
	Cordoned bool                  // it takes no new pods, so what is saved serves nobody
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
	nodeshare.Node

	changed bool             // it, or a pod on it
	pods    []*nodeshare.Pod // of this round, in no order
	result  NodeSharing
	round   int
}

// readNodes takes over the nodes as they are now.
func (s *sharingRound) readNodes(objects []*corev1.Node) {
	for _, o := range objects {
		n, now := s.nodes[o.Name], nodeshare.NodeOf(o)
		if n == nil {
			n = &sharedNode{}
			s.nodes[o.Name] = n
		}
		if n.Node != now {
			n.Node, n.changed = now, true
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
		v.likes = likeness{} // nothing half done is left
	}
	broken := &sharedPod{Pod: nodeshare.Pod{UID: pod.UID, Apart: sharing.Broken, Takes: node.Allocatable}, node: node, round: s.round}
	if err := Guard(func() error { broken.Takes = convert.Footprint(pod); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "It is not known what a pod requests, so nothing is left on its node for those that share", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	}
	s.pods[pod.UID], node.changed = broken, true
	node.pods = append(node.pods, &broken.Pod)
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
	if known.Of != nil {
		if rank := s.rank(ctx, known.Of, by.owner); rank != known.Sharing.Rank {
			known.Sharing.Rank, node.changed = rank, true
		}
	}
	node.pods = append(node.pods, &known.Pod)
}

// count counts a pod whose policy wants sharing, or that cannot be understood.
func (s *sharingRound) count(p *nodeshare.Pod) {
	switch why := p.Why(); why {
	case nodeshare.NotWanted:
	case "":
		s.found.Policies[p.Of.Decision.Policy.Name].Pods++
	default:
		s.found.Apart[why]++
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
	n.result = NodeSharing{Name: name, Problem: n.Problem, Cordoned: n.Cordoned}
	slices.SortFunc(n.pods, func(a, b *nodeshare.Pod) int { return cmp.Compare(a.Sharing.Name, b.Sharing.Name) })
	input, rule, members := n.Gather(n.pods)
	n.result.Kinds, n.result.Available, n.result.Pods = input.Kinds, input.Available, len(members)
	if len(members) > 0 && n.result.Problem != nodeshare.AllocatableUnknown {
		n.result.take(input, members, sharing.Shares(input, rule))
	}
	return len(members) > 0
}

// take notes what sharing comes to.
func (r *NodeSharing) take(input *sharing.Node, members []*nodeshare.Pod, shares sharing.Result) {
	r.Headroom, r.Overcommitted = shares.Headroom, shares.Overcommitted
	for _, i := range shares.Leaves {
		r.Leaves = append(r.Leaves, PodName{members[i].UID, members[i].Sharing.Name})
	}
	for i, p := range members {
		shrinks, grows := moves(p, input, shares.Shares[i])
		r.Shrink, r.Grow = r.Shrink+shrinks, r.Grow+grows
		for k := range resources.Kind(resources.Kinds) {
			if !input.Kinds[k] {
				continue
			}
			r.Requested[k] += float64(p.Takes.Value(k))
			if shares.Shares[i] == nil {
				continue
			}
			var base, peak, share float64
			for c, of := range input.Pods[i].Containers { // cut to what the node has
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

// moves returns 1 for each direction in which a pod would be moved that stays on its node.
func moves(p *nodeshare.Pod, input *sharing.Node, shares []sharing.Amounts) (shrinks, grows int) {
	if shares == nil {
		return 0, 0
	}
	for c, has := range p.Requests {
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
