package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

func evicts(m vpav1.UpdateMode) bool {
	return m == vpav1.UpdateModeAuto || m == vpav1.UpdateModeRecreate || m == vpav1.UpdateModeInPlaceOrRecreate
}

func checkRivals(_ context.Context, e *examination) error {
	var claims target.Claims
	for _, v := range e.vpas {
		if v.Spec.TargetRef != nil {
			claim := target.ClaimOf(v)
			claim.Selector = labels.Everything()
			claims.Put(claim)
		}
	}
	for _, v := range e.vpas {
		if v.Spec.TargetRef == nil {
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		claim, found := claims.Controlling(key, nil)
		switch {
		case !found || claim.VPA.Name == v.Name:
		case convert.Mode(v) == vpav1.UpdateModeOff: // usual for a comparison
			e.add(severityNote, cli.VPAName(v), fmt.Sprintf("VPA %s has the same target, %s, and controls its pods: this one only recommends", claim.Name, key), "nothing")
		default:
			e.add(severityError, cli.VPAName(v), fmt.Sprintf("VPA %s has the same target, %s, and controls its pods: this one has no effect", claim.Name, key), "delete one of the two")
		}
	}
	return e.require("VPAs")
}

func checkTargets(ctx context.Context, e *examination) error {
	for _, v := range e.vpas {
		if v.Spec.TargetRef == nil {
			e.add(severityError, cli.VPAName(v), "it has no spec.targetRef, so it controls nothing", "set spec.targetRef")
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		top, _, err := e.owners.Topmost(ctx, key)
		switch {
		case apierrors.IsNotFound(err):
			e.add(severityError, cli.VPAName(v), fmt.Sprintf("its target %s does not exist", key), "correct spec.targetRef, or delete the VPA")
		case err != nil:
			e.add(severityWarning, cli.VPAName(v), fmt.Sprintf("its target %s cannot be read: %v", key, err), "see whether it exists and has a scale subresource")
		case top != key && top != (target.Key{}):
			e.add(severityError, cli.VPAName(v), fmt.Sprintf("its target %s belongs to %s, so it controls no pod", key, top), fmt.Sprintf("let spec.targetRef name %s", top))
		}
	}
	return e.require("VPAs")
}

func checkUnreadable(_ context.Context, e *examination) error {
	for _, v := range e.vpas {
		if problem := convert.UnreadableReason(v); problem != "" {
			e.add(severityError, cli.VPAName(v), "it cannot be read, so its pods are skipped: "+problem, "correct that field")
		}
	}
	return e.require("VPAs")
}

// checkLimits finds VPAs without recommendations because of limits of the recommender.
func checkLimits(_ context.Context, e *examination) error {
	for _, v := range e.vpas {
		for _, c := range v.Status.Conditions {
			switch limited := c.Status == corev1.ConditionTrue; {
			case limited && c.Type == "TooManyContainers":
				e.add(severityWarning, cli.VPAName(v), c.Message, "split the workload, or reuse container names")
			case limited && c.Type == "StatusTooLarge":
				e.add(severityWarning, cli.VPAName(v), c.Message, "set mode Off for some containers in spec.resourcePolicy, or split the workload")
			case c.Type == vpav1.RecommendationProvided && c.Reason == "TooManyVPAs":
				e.add(severityWarning, cli.VPAName(v), c.Message, "delete VPAs whose pods another VPA sizes")
			}
		}
	}
	return e.require("VPAs")
}

func checkFuses(ctx context.Context, e *examination) error {
	policies, err := e.own.LoadlineV1alpha1().SizingPolicies().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // another check covers the definitions
		return nil
	}
	if err != nil {
		return fmt.Errorf("list SizingPolicies: %w", err)
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		if c := meta.FindStatusCondition(p.Status.Conditions, convert.ConditionFuseTripped); c != nil && c.Status == metav1.ConditionTrue {
			e.add(severityError, "SizingPolicy "+p.Name, c.Message, "kubectl get sizings -A shows what was reverted. Then "+convert.Acknowledge(p.Name, c.LastTransitionTime.Time))
		}
	}
	return nil
}

func checkContainerNames(ctx context.Context, e *examination) error {
	var failed error
	for _, v := range e.vpas {
		if v.Spec.TargetRef == nil || v.Spec.ResourcePolicy == nil {
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		pod, _, _, err := e.owners.Template(ctx, key)
		if err != nil {
			if !apierrors.IsNotFound(err) { // another check reports these
				failed = errors.Join(failed, err)
			}
			continue
		}
		var template *corev1.PodSpec
		if pod != nil {
			template = &pod.Spec
		}
		for _, p := range v.Spec.ResourcePolicy.ContainerPolicies {
			if template != nil && convert.UnknownContainer(v, p.ContainerName, key.String(), template) == "" {
				continue
			}
			pods, err := e.podsOf(ctx, key)
			if err != nil {
				failed = errors.Join(failed, err)
				break
			}
			if problem := convert.UnknownContainer(v, p.ContainerName, key.String(), append(pods, template)...); problem != "" {
				e.add(severityWarning, cli.VPAName(v), "container policy "+problem, "correct containerName in spec.resourcePolicy.containerPolicies, or delete the policy")
			}
		}
	}
	return errors.Join(e.require("VPAs"), failed)
}

func (e *examination) podsOf(ctx context.Context, key target.Key) (specs []*corev1.PodSpec, err error) {
	all, read := e.pods[key.Namespace]
	if !read {
		list, err := e.kube.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list pods of namespace %s: %w", key.Namespace, err)
		}
		all = list.Items
		e.pods[key.Namespace] = all
	}
	for i := range all {
		if e.owners.Selects(ctx, key, all[i].Labels) {
			specs = append(specs, &all[i].Spec)
		}
	}
	return specs, nil
}

// maxServeDelay is the time until a new VPA has its first condition.
const maxServeDelay = 15 * time.Minute

func checkRecommenders(_ context.Context, e *examination) error {
	for _, v := range e.vpas {
		if len(v.Status.Conditions) > 0 || e.now.Sub(v.CreationTimestamp.Time) < maxServeDelay {
			continue
		}
		name := "default"
		if len(v.Spec.Recommenders) > 0 && v.Spec.Recommenders[0] != nil {
			name = v.Spec.Recommenders[0].Name
		}
		e.add(severityError, cli.VPAName(v), fmt.Sprintf("no recommender serves it: it selects recommender %q, and its status is empty", name),
			fmt.Sprintf("run a recommender with --recommender-name=%s, or correct spec.recommenders", name))
	}
	return e.require("VPAs")
}

// staleAfter is the age of stale checkpoints. Recommenders write at least once an hour.
const staleAfter = 3 * time.Hour

func checkCheckpoints(ctx context.Context, e *examination) error {
	if e.installed["recommender"].NoCheckpoints {
		return nil // remaining checkpoints are obsolete
	}
	list, err := e.own.AutoscalingV1().VerticalPodAutoscalerCheckpoints(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	newest := map[string]time.Time{}
	for i := range list.Items {
		c := &list.Items[i]
		name := c.Namespace + "/" + c.Spec.VPAObjectName
		if saved := c.Status.LastUpdateTime.Time; saved.After(newest[name]) {
			newest[name] = saved
		}
	}
	for _, v := range e.vpas {
		saved, known := newest[v.Namespace+"/"+v.Name]
		if known && e.now.Sub(saved) > staleAfter {
			e.add(severityWarning, cli.VPAName(v), fmt.Sprintf("its checkpoints were last saved at %s, so its recommendation is equally old", cli.Timestamp(saved)),
				"see whether its recommender runs, gets usage of these pods, and may write checkpoints; where the pods are gone for good, delete the VPA")
		}
	}
	return e.require("VPAs")
}

func checkHPAs(ctx context.Context, e *examination) error {
	if err := e.require("VPAs", "HorizontalPodAutoscalers"); err != nil {
		return err
	}
	for _, v := range e.vpas {
		if v.Spec.TargetRef == nil || convert.Mode(v) == vpav1.UpdateModeOff && !convert.IsGenerated(v) {
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		looked, hpa := sizing.FindHPAResources(e.hpas, key, e.owners.OwnerChain(ctx))
		var both []string
		for k, is := range looked.Conflicts(convert.Rules(v)) {
			if is {
				both = append(both, resources.Kind(k).String())
			}
		}
		if len(both) > 0 && !e.yields(ctx, v) {
			e.add(severityWarning, cli.VPAName(v), fmt.Sprintf("%s scales %s by %s, which this VPA changes: the two work against each other", scalerName(hpa), key, strings.Join(both, " and ")),
				"leave that out of the VPA (controlledResources), or let the other look at another metric; a SizingPolicy leaves it alone by itself")
		}
	}
	return nil
}

// yields reports whether a generated VPA's policy leaves resources to HPAs, false if unreadable.
func (e *examination) yields(ctx context.Context, v *vpav1.VerticalPodAutoscaler) bool {
	if !convert.IsGenerated(v) {
		return false
	}
	name := v.Labels[fleet.PolicyLabel]
	if leaves, known := e.yieldsToHPA[name]; known {
		return leaves
	}
	policy, err := e.own.LoadlineV1alpha1().SizingPolicies().Get(ctx, name, metav1.GetOptions{})
	e.yieldsToHPA[name] = err == nil && !convert.Policy(policy).IgnoresHPAs
	return e.yieldsToHPA[name]
}

// scalerName names an autoscaler. KEDA creates HorizontalPodAutoscalers.
func scalerName(h *autoscalingv2.HorizontalPodAutoscaler) string {
	if scaled := h.Labels["scaledobject.keda.sh/name"]; scaled != "" {
		return "the ScaledObject " + scaled + " of KEDA"
	}
	return "HorizontalPodAutoscaler " + h.Name
}

func checkBudgets(ctx context.Context, e *examination) error {
	if err := e.require("VPAs", "PodDisruptionBudgets"); err != nil {
		return err
	}
	for i := range e.budgets {
		b := &e.budgets[i]
		if !blocksEvictions(b) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() {
			continue
		}
		pods, err := e.kube.CoreV1().Pods(b.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return fmt.Errorf("list pods of namespace %s: %w", b.Namespace, err)
		}
		for _, v := range e.vpas {
			if v.Namespace != b.Namespace || v.Spec.TargetRef == nil || !evicts(convert.Mode(v)) {
				continue
			}
			key := target.RefKey(v.Namespace, v.Spec.TargetRef)
			if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return e.owners.Selects(ctx, key, labels.Set(p.Labels)) }) {
				e.add(severityWarning, "PodDisruptionBudget "+b.Namespace+"/"+b.Name, fmt.Sprintf("it never allows an eviction, so pods of VPA %s that cannot be resized in place keep their sizes", v.Name),
					"maxUnavailable: 1, or a minAvailable below the number of replicas")
			}
		}
	}
	return nil
}

// blocksEvictions reports whether a budget allows no eviction even if all pods are healthy.
func blocksEvictions(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.ExpectedPods > 0 && b.Status.DesiredHealthy >= b.Status.ExpectedPods
}

type allowedRange struct {
	container string
	min, max  resources.List
}

func allowedRanges(v *vpav1.VerticalPodAutoscaler) (all []allowedRange) {
	if v.Spec.ResourcePolicy == nil {
		return nil
	}
	for i := range v.Spec.ResourcePolicy.ContainerPolicies {
		c := &v.Spec.ResourcePolicy.ContainerPolicies[i]
		all = append(all, allowedRange{c.ContainerName, convert.Resources(c.MinAllowed), convert.Resources(c.MaxAllowed)})
	}
	return all
}

func checkLimitRanges(ctx context.Context, e *examination) error {
	ranges, err := e.kube.CoreV1().LimitRanges(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list LimitRanges: %w", err)
	}
	byNamespace := map[string][]*corev1.LimitRange{}
	for i := range ranges.Items {
		r := &ranges.Items[i]
		byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
	}
	for _, v := range e.vpas {
		demand := convert.Ranges(byNamespace[v.Namespace]).Container
		for _, b := range allowedRanges(v) {
			for k := range resources.Kind(resources.Kinds) {
				minAllowed, maxAllowed := b.min.Value(k), b.max.Value(k)
				if limit := demand.Max.Value(k); limit > 0 && minAllowed > limit {
					e.add(severityError, cli.VPAName(v), fmt.Sprintf("minAllowed of container %s is %s of %s, and a LimitRange allows %s at most", b.container, cli.FormatAmount(k, float64(minAllowed)), k, cli.FormatAmount(k, float64(limit))), "lower minAllowed, or raise the max of the LimitRange")
				}
				if floor := demand.Min.Value(k); maxAllowed > 0 && maxAllowed < floor {
					e.add(severityError, cli.VPAName(v), fmt.Sprintf("maxAllowed of container %s is %s of %s, and a LimitRange demands %s at least", b.container, cli.FormatAmount(k, float64(maxAllowed)), k, cli.FormatAmount(k, float64(floor))), "raise maxAllowed, or lower the min of the LimitRange")
				}
			}
		}
	}
	return e.require("VPAs")
}

func checkNodeSizes(_ context.Context, e *examination) error {
	if err := e.require("VPAs", "nodes"); err != nil || len(e.nodes) == 0 {
		return err
	}
	var largest resources.List
	for i := range e.nodes {
		has := convert.Resources(e.nodes[i].Status.Allocatable)
		for k := range resources.Kind(resources.Kinds) {
			largest = largest.With(k, max(largest.Value(k), has.Value(k)))
		}
	}
	for _, v := range e.vpas {
		for k := range resources.Kind(resources.Kinds) {
			capacity := largest.Value(k)
			for _, b := range allowedRanges(v) {
				if minAllowed := b.min.Value(k); capacity > 0 && minAllowed > capacity {
					e.add(severityError, cli.VPAName(v), fmt.Sprintf("minAllowed of container %s is %s of %s, and the largest node has %s", b.container, cli.FormatAmount(k, float64(minAllowed)), k, cli.FormatAmount(k, float64(capacity))), "lower minAllowed, or add larger nodes")
				}
			}
			var target resources.Amount
			for _, b := range convert.Recommendation(v.Status.Recommendation) {
				target = target.Add(b.Target.Value(k))
			}
			if capacity > 0 && target > capacity {
				e.add(severityError, cli.VPAName(v), fmt.Sprintf("its containers are recommended %s of %s in all, and the largest node has %s: such pods stay pending", cli.FormatAmount(k, float64(target)), k, cli.FormatAmount(k, float64(capacity))), "set maxAllowed, or add larger nodes")
			}
		}
	}
	return nil
}
