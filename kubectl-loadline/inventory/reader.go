// Package inventory reads VPAs, policies, owners and usage with the permissions of the user.
package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// Request names a VPA or pod, and the settings of the programs.
type Request struct {
	Namespace, Name string
	Book            *recipe.Cache // settings of the recommender
	Now             time.Time
	Policies        fleet.Options        // of the programs
	Kube            kubernetes.Interface // nil: SizingPolicies are not read
	Programs        string               // namespace of the programs
}

// Reader reads VPAs, policies and owners on demand, each once.
type Reader struct {
	Kube     kubernetes.Interface
	Owners   *target.Live
	Now      time.Time
	Problems []string // objects that cannot be read

	own        versioned.Interface
	policy     *sizing.Reader
	namespaces map[string]*namespaceVPAs
	ranges     map[string]policy.Ranges // by namespace, empty if unreadable
	resolved   map[cache.ObjectName]*VPA
}

type namespaceVPAs struct {
	claims target.Claims
	ranges policy.Ranges
	err    error
}

// VPA is a VPA with its policy and rollout.
type VPA struct {
	Object  *vpav1.VerticalPodAutoscaler
	Rollout Rollout
	Problem string // unknown parts of the rollout
	// Recommendation is at least the floors after reverts.
	Recommendation map[string]resources.Bounds
	Rules          policy.Rules
	Ranges         *policy.Ranges // of the namespace
}

// NewReader returns a Reader with the policies of the cluster.
func NewReader(ctx context.Context, own versioned.Interface, q Request) (*Reader, error) {
	var problems []string
	reader, err := sizing.NewReader(ctx, q.Kube, own, q.Policies)
	if apierrors.IsForbidden(err) { // users of one namespace need no SizingPolicies
		reader, problems = sizing.NewReaderWithoutPolicies(q.Kube, own), []string{fmt.Sprintf("SizingPolicies are ignored: %v", err)}
	} else if err != nil {
		return nil, err
	}
	return &Reader{Kube: q.Kube, own: own, Now: q.Now, policy: reader, Owners: target.NewLive(q.Kube, client.NewScales(q.Kube).Scale),
		Problems: problems, namespaces: map[string]*namespaceVPAs{}, ranges: map[string]policy.Ranges{}, resolved: map[cache.ObjectName]*VPA{}}, nil
}

// Controlling returns the VPA that controls a pod, or nil.
func (s *Reader) Controlling(ctx context.Context, pod *corev1.Pod) (*VPA, error) {
	owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !owned {
		return nil, nil //nolint:nilnil // that none does is no error
	}
	n := s.namespace(ctx, pod.Namespace)
	if n.err != nil || n.claims.Len() == 0 {
		return nil, n.err
	}
	top, _, err := s.Owners.Topmost(ctx, owner)
	if err != nil {
		return nil, err
	}
	claim, found := n.claims.Controlling(top, pod.Labels)
	if !found {
		return nil, nil //nolint:nilnil // the same
	}
	return s.Resolve(ctx, claim.VPA)
}

// Resolve returns a VPA with its policy and rollout.
func (s *Reader) Resolve(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler) (*VPA, error) {
	name := cache.MetaObjectToName(vpa)
	if c := s.resolved[name]; c != nil {
		return c, nil
	}
	c := &VPA{Object: vpa}
	var err error
	if c.Rollout.WorkloadStatus, err = s.policy.WorkloadStatus(ctx, vpa); err != nil {
		return nil, fmt.Errorf("read which SizingPolicy is responsible for VPA %s: %w", name, err)
	}
	c.Problem = c.Rollout.Complete(ctx, s.Kube, vpa, s.Now)
	n := s.namespace(ctx, vpa.Namespace)
	if n.err != nil {
		return nil, n.err
	}
	c.Rules, c.Ranges = convert.Rules(vpa), &n.ranges
	c.Recommendation = s.recommendation(c)
	s.resolved[name] = c
	return c, nil
}

func (s *Reader) recommendation(c *VPA) map[string]resources.Bounds {
	all := convert.Recommendation(c.Object.Status.Recommendation)
	if c.Rollout.Object == nil {
		return all
	}
	for name, floor := range c.Rollout.State.Floors(c.Rollout.Target, c.Rollout.Settings.Hash, s.Now) {
		all[name] = all[name].AtLeast(floor)
	}
	return all
}

func (s *Reader) namespace(ctx context.Context, name string) *namespaceVPAs {
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
		claim.Selector = targetSelector{ctx, s.Owners, key}
		n.claims.Put(claim)
	}
	if len(vpas.Items) == 0 {
		return n
	}
	n.ranges, n.err = s.readRanges(ctx, name)
	return n
}

// targetSelector is the selector of a target. It reads the target only to match a pod.
type targetSelector struct {
	ctx    context.Context
	owners *target.Live
	target target.Key
}

func (s targetSelector) Matches(of labels.Labels) bool {
	set, _ := of.(labels.Set)
	return s.owners.Selects(s.ctx, s.target, set)
}

func (s *Reader) readRanges(ctx context.Context, name string) (policy.Ranges, error) {
	ranges, err := s.Kube.CoreV1().LimitRanges(name).List(ctx, metav1.ListOptions{})
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

// PodsPerPage is the page size of pod lists.
const PodsPerPage = 500

// DescribeScope describes the objects of a request.
func (q *Request) DescribeScope(selector labels.Selector) string {
	text := "in any namespace"
	if q.Namespace != "" {
		text = "in namespace " + q.Namespace
	}
	if selector != nil && !selector.Empty() {
		text += fmt.Sprintf(" with labels %s", selector)
	}
	return text
}

func (s *Reader) limitRanges(ctx context.Context, name string) policy.Ranges {
	if known, read := s.ranges[name]; read {
		return known
	}
	ranges, _ := s.readRanges(ctx, name) // none on error
	s.ranges[name] = ranges
	return ranges
}

// LivePods lists the pods of a request that are neither completed nor terminating.
func LivePods(ctx context.Context, q Request) (all []corev1.Pod, err error) {
	err = EachPod(ctx, q.Kube, q.Namespace, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			all = append(all, *p)
		}
	})
	return all, err
}

// EachPod calls f for the pods of a namespace, or of all, page by page.
func EachPod(ctx context.Context, kube kubernetes.Interface, namespace string, f func(*corev1.Pod)) error {
	for options := (metav1.ListOptions{Limit: PodsPerPage}); ; {
		list, err := kube.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			f(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}
