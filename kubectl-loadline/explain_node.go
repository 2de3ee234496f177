package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodeshare"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// surroundings are what decides about pods: VPAs, policies and owners. They are read when they are
// asked for, once.
type surroundings struct {
	kube   kubernetes.Interface
	own    versioned.Interface
	now    time.Time
	policy *sizing.Reader
	owners *target.Live
	book   *recipe.Book  // of the updater, which knows no flag of the recommender
	minAge time.Duration // of workloads that share; 0: nobody said

	problems   []string // what of all this may not be read
	namespaces map[string]*namespaceVPAs
	ranges     map[string]policy.Ranges // of namespaces, where they can be read
	read       map[cache.ObjectName]*controlling
}

// namespaceVPAs are the VPAs of a namespace, and its LimitRanges.
type namespaceVPAs struct {
	claims target.Claims
	ranges policy.Ranges
	err    error
}

// controlling is a VPA that controls a pod.
type controlling struct {
	object   *vpav1.VerticalPodAutoscaler
	standing sizing.Standing
	rollout  rolloutStanding
	problem  string // what of the rollout cannot be known
	sizing   nodeshare.Sizing
	shares   *nodeshare.VPA // nil: no policy wants that
}

func newSurroundings(ctx context.Context, own versioned.Interface, q question) (*surroundings, error) {
	var problems []string
	reader, err := sizing.NewReader(ctx, q.Kube, own, q.Policies)
	if apierrors.IsForbidden(err) { // they have no namespace, and who edits one may do without
		reader, problems = sizing.WithoutPolicies(q.Kube, own), append(problems, fmt.Sprintf("nothing here counts what SizingPolicies say: %v", err))
	} else if err != nil {
		return nil, err
	}
	book, err := recipe.NewBook("", recipe.DefaultConfig())
	if err != nil {
		return nil, err
	}
	return &surroundings{kube: q.Kube, own: own, now: q.Now, policy: reader, owners: target.NewLive(q.Kube, client.NewScales(q.Kube).Scale), book: book, minAge: q.SharingMinAge,
		problems: problems, namespaces: map[string]*namespaceVPAs{}, ranges: map[string]policy.Ranges{}, read: map[cache.ObjectName]*controlling{}}, nil
}

// control returns the VPA that controls a pod; nil: none does.
func (s *surroundings) control(ctx context.Context, pod *corev1.Pod) (*controlling, error) {
	owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !owned {
		return nil, nil //nolint:nilnil // that none does is no error
	}
	n := s.namespace(ctx, pod.Namespace)
	if n.err != nil || n.claims.Len() == 0 {
		return nil, n.err
	}
	top, _, err := s.owners.Topmost(ctx, owner)
	if err != nil {
		return nil, err
	}
	claim, found := n.claims.Controlling(top, pod.Labels)
	if !found {
		return nil, nil //nolint:nilnil // the same
	}
	known, err := s.known(ctx, claim.VPA)
	if err != nil {
		return nil, err
	}
	if shares(&known.standing.Decision) && known.shares == nil {
		v := nodeshare.VPAOf(claim.VPA, &known.standing.Decision, &known.standing.Workload, &known.standing.State, s.book)
		v.Sizing, v.Outdated, v.MinAge = known.sizing, convert.Unreadable(claim.VPA) != "", s.minAge
		if v.Looked, err = s.policy.LooksAt(ctx, top, s.owners.From(ctx)); err != nil {
			return nil, err
		}
		known.shares = &v
	}
	return known, nil
}

// known reads what decides about the pods of a VPA, once.
func (s *surroundings) known(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler) (*controlling, error) {
	name := cache.MetaObjectToName(vpa)
	if c := s.read[name]; c != nil {
		return c, nil
	}
	c := &controlling{object: vpa}
	var err error
	if c.standing, err = s.policy.Standing(ctx, vpa); err != nil {
		return nil, fmt.Errorf("read which SizingPolicy is responsible for VPA %s: %w", name, err)
	}
	c.rollout.Standing = c.standing
	c.problem = c.rollout.complete(ctx, s.kube, vpa, s.now)
	n := s.namespace(ctx, vpa.Namespace)
	if n.err != nil {
		return nil, n.err
	}
	c.sizing = s.sizingOf(c, &n.ranges)
	s.read[name] = c
	return c, nil
}

// sizingOf returns what a VPA recommends, no less than what did well where less did harm.
func (s *surroundings) sizingOf(c *controlling, ranges *policy.Ranges) nodeshare.Sizing {
	z := nodeshare.Sizing{Recommendation: convert.Recommendation(c.object.Status.Recommendation), Rules: convert.Rules(c.object), Ranges: ranges}
	if c.standing.Object == nil {
		return z
	}
	var recommended []policy.Container
	for name, b := range z.Recommendation {
		recommended = append(recommended, policy.Container{Name: name, Requests: b.Target})
	}
	z.Floors = c.standing.State.Floors(recommended, convert.Rollout(c.standing.Object).Hash, s.now)
	for name, floor := range z.Floors {
		z.Recommendation[name] = z.Recommendation[name].AtLeast(floor)
	}
	return z
}

// namespace reads the VPAs and LimitRanges of a namespace.
func (s *surroundings) namespace(ctx context.Context, name string) *namespaceVPAs {
	if known := s.namespaces[name]; known != nil {
		return known
	}
	n := &namespaceVPAs{}
	s.namespaces[name] = n
	vpas, err := s.own.AutoscalingV1().VerticalPodAutoscalers(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		n.err = fmt.Errorf("list VPAs of namespace %s: %w", name, err)
		return n
	}
	for i := range vpas.Items {
		vpa := &vpas.Items[i]
		if vpa.Spec.TargetRef == nil {
			continue
		}
		claim, key := target.ClaimOf(vpa), target.RefKey(name, vpa.Spec.TargetRef)
		claim.Selects = func(labels map[string]string) bool { return s.owners.Selects(ctx, key, labels) }
		n.claims.Put(claim)
	}
	if len(vpas.Items) == 0 {
		return n
	}
	n.ranges, n.err = s.readRanges(ctx, name)
	return n
}

func (s *surroundings) readRanges(ctx context.Context, name string) (policy.Ranges, error) {
	ranges, err := s.kube.CoreV1().LimitRanges(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return policy.Ranges{}, fmt.Errorf("list LimitRanges of namespace %s: %w", name, err)
	}
	objects := make([]*corev1.LimitRange, 0, len(ranges.Items))
	for i := range ranges.Items {
		objects = append(objects, &ranges.Items[i])
	}
	slices.SortFunc(objects, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return convert.Ranges(objects).Ranges, nil
}

// nodeAnswer is what a round of sharing would find on a node now.
type nodeAnswer struct {
	nodeshare.Node

	Name     string
	Assumed  time.Duration                    // the least age of workloads that share, which nobody said; 0: somebody did
	Policies []*loadlinev1alpha1.SizingPolicy // that want pods there to share, by name
	Groups   []sharingGroup                   // of pods that share among themselves: at most those that do, and those that only would
	Apart    []apartPod                       // that do not, although their policy wants it, by name
	Marked   []markedPod                      // that have a share, or had one, by name
	Others   int                              // that no policy wants to share
	Takes    resources.List                   // what these take
	Unread   []string                         // why it is not known of pods which VPA controls them; they count as others
}

// sharingGroup are pods of a node that share among themselves: to those of a policy that acts the pods of
// one in a dry run take what they request, and the other way round.
type sharingGroup struct {
	Acts    bool
	Input   *sharing.Node
	Rule    sharing.Rule
	Members []*nodeshare.Pod // by name
	Shares  sharing.Result   // of these; the zero value where nobody knows what the node has
}

// markedPod is a pod with a mark of sharing.
type markedPod struct {
	sharing.Mark

	Name string
}

// apartPod is a pod that does not share.
type apartPod struct {
	*nodeshare.Pod

	Name string
}

// node reads a node and its pods as they are now.
func (s *surroundings) node(ctx context.Context, name string) (*nodeAnswer, error) {
	object, err := s.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := s.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods of all namespaces: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(podName(&a), podName(&b)) })
	n := &nodeAnswer{Name: name, Node: nodeshare.NodeOf(object)}
	if s.minAge == 0 {
		n.Assumed = sharing.MinAge
	}
	policies := map[string]*loadlinev1alpha1.SizingPolicy{}
	var pods []*nodeshare.Pod
	names, acting := map[*nodeshare.Pod]string{}, map[*nodeshare.Pod]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != name || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		by, err := s.control(ctx, pod)
		if err != nil {
			n.unread(pod, err)
		}
		p := s.pod(ctx, pod, by, &n.Node)
		if p.Of != nil {
			policies[by.standing.Policy.Name] = by.standing.Object
			acting[p] = n.Problem == "" && by.acts()
		}
		if mark, marked := convert.Shared(pod); marked {
			n.Marked = append(n.Marked, markedPod{mark, podName(pod)})
		}
		pods, names[p] = append(pods, p), podName(pod)
	}
	n.Policies = slices.SortedFunc(maps.Values(policies), func(a, b *loadlinev1alpha1.SizingPolicy) int { return strings.Compare(a.Name, b.Name) })
	for _, acts := range [...]bool{true, false} {
		for _, p := range pods {
			p.Beside = acting[p] != acts
		}
		n.gather(pods, acts)
	}
	for _, p := range pods {
		switch p.Why() {
		case "":
		case reason.NotWanted:
			n.Others++
			for k := range resources.Kind(resources.Kinds) {
				n.Takes = n.Takes.With(k, n.Takes.Value(k).Add(p.Takes.Value(k)))
			}
		default:
			n.Apart = append(n.Apart, apartPod{p, names[p]})
		}
	}
	return n, nil
}

// acts reports whether the pods of a VPA get their shares, as far as its policy says so.
func (c *controlling) acts() bool {
	return c.shares != nil && c.shares.Mode == fleet.SharingOn && meta.IsStatusConditionTrue(c.standing.Object.Status.Conditions, sizing.ConditionSharing)
}

// gather adds a group of pods that share, if there are some; the others are beside them.
func (n *nodeAnswer) gather(pods []*nodeshare.Pod, acts bool) {
	g := sharingGroup{Acts: acts}
	if g.Input, g.Rule, g.Members = n.Gather(pods); len(g.Members) == 0 {
		return
	}
	if n.Problem != reason.AllocatableUnknown {
		g.Shares = sharing.Shares(g.Input, g.Rule)
	}
	n.Groups = append(n.Groups, g)
}

// unread notes why it is not known which VPA controls a pod, once for all of which that is so.
func (n *nodeAnswer) unread(pod *corev1.Pod, err error) {
	if !slices.ContainsFunc(n.Unread, func(text string) bool { return strings.HasSuffix(text, ": "+err.Error()) }) {
		n.Unread = append(n.Unread, fmt.Sprintf("it is not known which VPA controls pod %s, so it counts as one that no policy wants to share: %v", podName(pod), err))
	}
}

// pod reads a pod as the updater does.
func (s *surroundings) pod(ctx context.Context, pod *corev1.Pod, by *controlling, on *nodeshare.Node) *nodeshare.Pod {
	if by == nil || by.shares == nil {
		return new(nodeshare.Unwanted(pod))
	}
	running, starting := convert.Footprints(pod)
	sizes := nodeshare.SizesOf(running, starting)
	p := by.shares.Read(pod, &sizes, on, s.now)
	replicas := int32(-1)
	if owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences); owned && by.shares.Settings.Evict {
		if wanted, known := s.owners.Replicas(ctx, owner); known {
			replicas = wanted
		}
	}
	p.Sharing.Rank = by.shares.Rank(int(replicas))
	return &p
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
