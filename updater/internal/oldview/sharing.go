package oldview

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
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	nodeshare "loadline.dev/loadline/updater/internal/oldnodeshare"
)

// Sharing is what a round found: what the pods of each node that share what it has left would
// get.
type Sharing struct {
	Nodes []*NodeSharing // by name, those with pods that share
	// Apart are the pods on these and other nodes whose policy wants sharing, but that do not
	// share, by why.
	Apart    map[reason.Reason]int
	Policies map[string]*PolicySharing // that want sharing, by name
}

// PolicySharing is how far the workloads of a policy share.
type PolicySharing struct {
	Pods  int                   // that share, or would but for the mode
	Apart map[reason.Reason]int // VPAs whose pods do not share, or only in a dry run, by why
	// Acting are VPAs whose pods share in fact, Sharing those pods, and Overcommitted the first of the
	// nodes on which the bases alone are more than there is.
	Acting, Sharing int
	Overcommitted   string
	// Held are pods that would share but for a problem of their nodes, and HeldOn is the first of these. Free says
	// that a pod of the policy is on a node without one, whether it shares at the moment or not.
	Held   map[reason.Reason]int
	HeldOn string
	Free   bool
}

// NodeSharing is a node on which pods share.
type NodeSharing struct {
	Name     string
	Acts     bool          // the pods get their shares; else they only would. A node can have both
	Problem  reason.Reason // see nodeshare.Node
	Cordoned bool          // it takes no new pods, so what is saved serves nobody
	Kinds    [resources.Kinds]bool
	Pods     int
	// Available is what those who share have together, Bases what they use nearly always,
	// Headroom what they have above that, and Requested what they request now.
	Available, Bases, Headroom, Requested sharing.Amounts
	// Saved is what they request less than if each had its own peak, but for those that leave.
	Saved         sharing.Amounts
	Overcommitted [resources.Kinds]bool
	Shrink, Grow  int // pods of which a container has a share that is less, or more, than it requests, see worthMoving
	// Wanted reports whether a pod came that is to give something of its peak, or one waits for what the others are to
	// give: a resize that its kubelet put off, or its peak after harm.
	Wanted bool
	// Leaves are pods that are to leave, in this order. Those that did not since the round before count, and
	// get their shares, as all others.
	Leaves []PodName
}

// leastMoved are the millicores, or bytes, by which a share must differ from a request besides
// nodeshare.LeastMove for a pod to be moved: a small container would move in each round, for nothing.
var leastMoved = [resources.Kinds]float64{resources.CPU: 10, resources.Memory: 16e6}

// worthMoving reports whether a container that has something is to get less, or more.
func worthMoving(k int, has, wanted float64) (less, more bool) {
	by := max(has*nodeshare.LeastMove, leastMoved[k])
	return wanted < has-by, wanted > has+by
}

// PodName is the name of a pod, with what tells it from another one of that name.
type PodName struct {
	UID  types.UID
	Name string // with the namespace
}

// sharingMemo is what rounds remember of each other, so that only what changed is computed anew.
type sharingMemo struct {
	at    time.Time // of the last round
	round int
	pods  map[types.UID]*sharedPod
	nodes map[string]*sharedNode
}

// ErrNodesUnknown says that nobody knows what nodes have.
var ErrNodesUnknown = errors.New("nodes cannot be seen: the updater must see all namespaces (no --vpa-object-namespace), and may need the permission to list nodes")

// Share makes a round at now. It must be called after Read, by the same goroutine. It returns
// nil if no policy wants sharing. Of those that want it the standings say whose pods share in fact. A VPA that cannot be understood is none that wants sharing, such
// a pod is set apart, and such a node is left out. After a panic elsewhere, which is an error, the
// next round remembers nothing.
func (r *Reader) Share(ctx context.Context, now time.Time, may Standings) (found *Sharing, err error) {
	err = serving.Guard(func() error {
		found, err = r.share(ctx, now, may)
		return err
	})
	if err != nil {
		r.memo.sharing = nil
	}
	return found, err
}

func (r *Reader) share(ctx context.Context, now time.Time, may Standings) (*Sharing, error) {
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
		m.sharing = &sharingMemo{pods: make(map[types.UID]*sharedPod, m.met), nodes: map[string]*sharedNode{}}
	}
	s := sharingRound{Reader: r, sharingMemo: m.sharing, now: now, standings: may, found: &Sharing{Apart: map[reason.Reason]int{}, Policies: map[string]*PolicySharing{}}}
	s.round++
	s.at = now
	objects, err := r.Nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	s.readNodes(objects)
	s.readVPAs(ctx)
	err = client.EachPod(r.Pods, func(pod *corev1.Pod) { s.read(ctx, pod) })
	s.prune()
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		if err := serving.Guard(func() error { n.compute(name); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "A defect of the updater: please report it. This node is left out of sharing in this round", "node", name)
			n.fail()
		}
		for i := range n.results {
			if n.results[i].Pods > 0 {
				s.found.Nodes = append(s.found.Nodes, &n.results[i])
			}
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
	now       time.Time
	standings Standings
	found     *Sharing
}

// sharedNode is a node with its pods.
type sharedNode struct {
	nodeshare.Node

	changed bool           // it, or a pod on it
	pods    []*sharedPod   // of this round, in no order
	results [2]NodeSharing // of those that act, and of those that only would
	round   int
}

// acts reports whether a pod that shares gets its share.
func (n *sharedNode) acts(p *sharedPod) bool {
	return p.by != nil && p.by.standing == Acts && n.Problem == ""
}

// fail leaves nothing half done.
func (n *sharedNode) fail() {
	n.changed, n.results = true, [2]NodeSharing{}
	for _, p := range n.pods {
		p.shares, p.leaves = nil, false
	}
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
	var owner *knownOwner
	err := serving.Guard(func() error {
		owner, _ = s.claimed(ctx, pod)
		s.readAs(ctx, pod, node, owner, known)
		return nil
	})
	if err == nil {
		return
	}
	klog.FromContext(ctx).Error(err, "Pod does not share: it cannot be understood", "pod", klog.KObj(pod))
	if known != nil && known.node != node {
		known.node.changed = true
	}
	if v := owner.sharer(); v != nil {
		v.likes = likeness{} // nothing half done is left
	}
	broken := &sharedPod{Pod: nodeshare.Pod{UID: pod.UID, Apart: reason.InternalError, Takes: node.Allocatable}, node: node, round: s.round}
	if err := serving.Guard(func() error { broken.Takes = convert.Footprint(pod); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "It is not known what a pod requests, so nothing is left on its node for those that share", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	}
	s.pods[pod.UID], node.changed = broken, true
	node.pods = append(node.pods, broken)
}

// readAs takes over a pod of an owner, with what is known of it, if anything is.
func (s *sharingRound) readAs(ctx context.Context, pod *corev1.Pod, node *sharedNode, owner *knownOwner, known *sharedPod) {
	if by := owner.sharer(); known == nil || !known.holds(pod, by, node, s.now) {
		if known != nil && known.node != node {
			known.node.changed = true
		}
		known = s.sharedPod(pod, by, node)
		s.pods[pod.UID], node.changed = known, true
	}
	known.round = s.round
	if known.Of != nil {
		if rank := s.rank(ctx, known.Of, owner); rank != known.Sharing.Rank {
			known.Sharing.Rank, node.changed = rank, true
		}
	}
	node.pods = append(node.pods, known)
}

// count counts a pod whose policy wants sharing, or that cannot be understood.
func (s *sharingRound) count(p *sharedPod) {
	if p.by != nil && p.by.standing == Acts && p.Of != nil && p.node.Problem == "" {
		s.found.Policies[p.Of.Decision.Policy.Name].Free = true
	}
	switch why := p.Why(); why {
	case reason.NotWanted:
	case "":
		of := s.found.Policies[p.Of.Decision.Policy.Name]
		of.Pods++
		switch n := p.node; {
		case n.acts(p):
			of.Sharing++
			if n.results[0].Overcommitted != [resources.Kinds]bool{} {
				of.Overcommitted = cmp.Or(of.Overcommitted, n.results[0].Name)
			}
		case p.by != nil && p.by.standing == Acts: // for its node alone it does not
			if of.Held == nil {
				of.Held = map[reason.Reason]int{}
			}
			of.Held[n.Problem]++
			of.HeldOn = cmp.Or(of.HeldOn, n.results[1].Name)
		}
	default:
		s.found.Apart[why]++
	}
}

// prune forgets what is gone.
func (s *sharingRound) prune() {
	met := 0
	for _, n := range s.nodes {
		met += len(n.pods)
	}
	if met == len(s.pods) {
		return // nothing is
	}
	for uid, p := range s.pods {
		if p.round != s.round {
			p.node.changed = true
			delete(s.pods, uid)
		}
	}
}

// compute shares what a node has left, if anything changed there. Those that act and those that
// only would share apart: each take in full what they request from the others.
func (n *sharedNode) compute(name string) {
	if !n.changed {
		return
	}
	before := n.results[0].Leaves
	n.changed = false
	slices.SortFunc(n.pods, func(a, b *sharedPod) int { return cmp.Compare(a.Sharing.Name, b.Sharing.Name) })
	all := make([]*nodeshare.Pod, len(n.pods))
	for i, p := range n.pods {
		all[i], p.Large, p.shares, p.leaves = &p.Pod, false, nil, false
	}
	for i, acts := range [...]bool{true, false} {
		r := &n.results[i]
		*r = NodeSharing{Name: name, Acts: acts, Problem: n.Problem, Cordoned: n.Cordoned}
		var sharers []*sharedPod
		for _, p := range n.pods {
			if p.Beside = n.acts(p) != acts; !p.Beside && p.Apart == "" {
				sharers = append(sharers, p)
			}
		}
		if len(sharers) == 0 {
			continue
		}
		input, rule, members := n.Gather(all)
		sharers = slices.DeleteFunc(sharers, func(p *sharedPod) bool { return p.Large })
		r.Kinds, r.Available, r.Pods = input.Kinds, input.Available, len(members)
		r.Wanted = slices.ContainsFunc(all, func(p *nodeshare.Pod) bool { return p.Accepted })
		if len(members) > 0 && r.Problem != reason.AllocatableUnknown {
			shares := sharing.Shares(input, rule)
			switch leaves := shares.Leaves; {
			case acts && stay(before, sharers, leaves):
				rule.Stay = true
				shares = sharing.Shares(input, rule)
				shares.Leaves = leaves
			case acts && len(leaves) > 0:
				n.changed = true // the next round sees who stayed
			}
			r.take(input, sharers, shares)
		}
	}
}

// stay reports whether a pod that was to leave its node by the round before is still there: it may not
// leave, so that until it does nobody gets more than there is beside it.
func stay(before []PodName, members []*sharedPod, leaves []int) bool {
	return slices.ContainsFunc(leaves, func(i int) bool {
		return slices.ContainsFunc(before, func(p PodName) bool { return p.UID == members[i].UID })
	})
}

// take notes what sharing comes to.
func (r *NodeSharing) take(input *sharing.Node, members []*sharedPod, shares sharing.Result) {
	r.Headroom, r.Overcommitted = shares.Headroom, shares.Overcommitted
	for _, i := range shares.Leaves {
		r.Leaves = append(r.Leaves, PodName{members[i].UID, members[i].Sharing.Name})
		members[i].leaves = r.Acts
	}
	for i, p := range members {
		if r.Acts {
			p.shares = shares.Shares[i]
		}
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
