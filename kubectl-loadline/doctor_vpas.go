package main

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
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

func vpaName(v *vpav1.VerticalPodAutoscaler) string { return "VPA " + v.Namespace + "/" + v.Name }

// evicts reports whether the updater may evict pods for a mode.
func evicts(m vpav1.UpdateMode) bool {
	return m == vpav1.UpdateModeAuto || m == vpav1.UpdateModeRecreate || m == vpav1.UpdateModeInPlaceOrRecreate
}

func lookAtRivals(_ context.Context, e *examination) error {
	var claims target.Claims
	for i := range e.vpas {
		if v := &e.vpas[i]; v.Spec.TargetRef != nil {
			claim := target.ClaimOf(v)
			claim.Selects = func(map[string]string) bool { return true }
			claims.Put(claim)
		}
	}
	for i := range e.vpas {
		v := &e.vpas[i]
		if v.Spec.TargetRef == nil {
			continue
		}
		of := target.RefKey(v.Namespace, v.Spec.TargetRef)
		first, found := claims.Controlling(of, nil)
		switch {
		case !found || first.VPA.Name == v.Name:
		case convert.Mode(v) == vpav1.UpdateModeOff: // as one that a trial compares
			e.find(isNote, vpaName(v), fmt.Sprintf("VPA %s has the same target, %s, and controls its pods: this one only recommends", first.Name, of), "nothing")
		default:
			e.find(isError, vpaName(v), fmt.Sprintf("VPA %s has the same target, %s, and controls its pods: this one has no effect", first.Name, of), "delete one of the two")
		}
	}
	return e.needs("VPAs")
}

func lookAtTargets(ctx context.Context, e *examination) error {
	for i := range e.vpas {
		v := &e.vpas[i]
		if v.Spec.TargetRef == nil {
			e.find(isError, vpaName(v), "it has no spec.targetRef, so it controls nothing", "set spec.targetRef")
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		top, _, err := e.owners.Topmost(ctx, key)
		switch {
		case apierrors.IsNotFound(err):
			e.find(isError, vpaName(v), fmt.Sprintf("its target %s does not exist", key), "correct spec.targetRef, or delete the VPA")
		case err != nil:
			e.find(isWarning, vpaName(v), fmt.Sprintf("its target %s cannot be read: %v", key, err), "see whether it exists and has a scale subresource")
		case top != key && top != (target.Key{}):
			e.find(isError, vpaName(v), fmt.Sprintf("its target %s belongs to %s, so it controls no pod", key, top), fmt.Sprintf("let spec.targetRef name %s", top))
		}
	}
	return e.needs("VPAs")
}

func lookAtUnreadable(_ context.Context, e *examination) error {
	for i := range e.vpas {
		v := &e.vpas[i]
		if problem := convert.Unreadable(v); problem != "" {
			e.find(isError, vpaName(v), "it cannot be read, so its pods are left alone: "+problem, "correct that field")
		}
	}
	return e.needs("VPAs")
}

// lookAtLimits finds VPAs that lack recommendations because of a limit of the recommender.
func lookAtLimits(_ context.Context, e *examination) error {
	for i := range e.vpas {
		v := &e.vpas[i]
		for _, c := range v.Status.Conditions {
			switch limited := c.Type == "TooManyContainers" || c.Type == "StatusTooLarge"; {
			case limited && c.Status == corev1.ConditionTrue:
				e.find(isWarning, vpaName(v), c.Message, "select fewer containers with spec.resourcePolicy, or split the workload")
			case c.Type == vpav1.RecommendationProvided && c.Reason == "TooManyVPAs":
				e.find(isWarning, vpaName(v), c.Message, "delete VPAs whose pods another VPA sizes")
			}
		}
	}
	return e.needs("VPAs")
}

// lookAtFuses finds SizingPolicies whose fuse has tripped.
func lookAtFuses(ctx context.Context, e *examination) error {
	policies, err := e.own.LoadlineV1alpha1().SizingPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) { // the definitions are another check
			return nil
		}
		return fmt.Errorf("list SizingPolicies: %w", err)
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		if c := meta.FindStatusCondition(p.Status.Conditions, convert.ConditionFuseTripped); c != nil && c.Status == metav1.ConditionTrue {
			e.find(isError, "SizingPolicy "+p.Name, c.Message, "kubectl get sizings -A shows what was reverted. Then "+convert.Acknowledge(p.Name, c.LastTransitionTime.Time))
		}
	}
	return nil
}

// lookAtContainerNames finds container policies that have no effect, because no container has their name.
func lookAtContainerNames(ctx context.Context, e *examination) error {
	var failed error
	for i := range e.vpas {
		v := &e.vpas[i]
		if v.Spec.TargetRef == nil || v.Spec.ResourcePolicy == nil {
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		of, _, _, err := e.owners.Template(ctx, key)
		if err != nil {
			if !apierrors.IsNotFound(err) { // else another check finds it
				failed = errors.Join(failed, err)
			}
			continue
		}
		var template *corev1.PodSpec
		if of != nil {
			template = &of.Spec
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
				e.find(isWarning, vpaName(v), "container policy "+problem, "correct containerName in spec.resourcePolicy.containerPolicies, or delete the policy")
			}
		}
	}
	return errors.Join(e.needs("VPAs"), failed)
}

// podsOf returns the pods that the selector of a workload matches.
func (e *examination) podsOf(ctx context.Context, key target.Key) (specs []*corev1.PodSpec, err error) {
	all, read := e.pods[key.Namespace]
	if !read {
		list, err := e.kube.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list pods of namespace %s: %w", key.Namespace, err)
		}
		if e.pods == nil {
			e.pods = map[string][]corev1.Pod{}
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

// servedWithin is how long it may take until a VPA has a first condition.
const servedWithin = 15 * time.Minute

func lookAtRecommenders(_ context.Context, e *examination) error {
	for i := range e.vpas {
		v := &e.vpas[i]
		if len(v.Status.Conditions) > 0 || e.now.Sub(v.CreationTimestamp.Time) < servedWithin {
			continue
		}
		name := "default"
		if len(v.Spec.Recommenders) > 0 && v.Spec.Recommenders[0] != nil {
			name = v.Spec.Recommenders[0].Name
		}
		e.find(isError, vpaName(v), fmt.Sprintf("no recommender serves it: it asks for recommender %q, and nobody has written its status", name),
			fmt.Sprintf("run a recommender with --recommender-name=%s, or correct spec.recommenders", name))
	}
	return e.needs("VPAs")
}

// staleAfter is the age from which a checkpoint counts as stale: recommenders save once an hour at
// least.
const staleAfter = 3 * time.Hour

func lookAtCheckpoints(ctx context.Context, e *examination) error {
	if e.installed["recommender"].noCheckpoints {
		return nil // those that are there are left from before
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
	for i := range e.vpas {
		v := &e.vpas[i]
		saved, known := newest[v.Namespace+"/"+v.Name]
		if known && e.now.Sub(saved) > staleAfter {
			e.find(isWarning, vpaName(v), fmt.Sprintf("its checkpoints were last saved at %s, so what is recommended is from then, too", at(saved)),
				"see whether its recommender runs, gets usage of these pods, and may write checkpoints; where the pods are gone for good, delete the VPA")
		}
	}
	return e.needs("VPAs")
}

func lookAtHPAs(ctx context.Context, e *examination) error {
	if err := e.needs("VPAs", "HorizontalPodAutoscalers"); err != nil {
		return err
	}
	for i := range e.vpas {
		v := &e.vpas[i]
		if v.Spec.TargetRef == nil || convert.Mode(v) == vpav1.UpdateModeOff && !convert.MadeForPolicy(v) {
			continue
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		looked, first := sizing.LooksAt(e.hpas, key, e.owners.From(ctx))
		var both []string
		for k, is := range looked.Against(convert.Rules(v)) {
			if is {
				both = append(both, resources.Kind(k).String())
			}
		}
		if len(both) > 0 && !e.leavesToHPAs(ctx, v) {
			e.find(isWarning, vpaName(v), fmt.Sprintf("%s scales %s by %s, which this VPA changes: the two work against each other", scaler(first), key, strings.Join(both, " and ")),
				"leave that out of the VPA (controlledResources), or let the other look at another metric; a SizingPolicy leaves it alone by itself")
		}
	}
	return nil
}

// leavesToHPAs reports whether a VPA was made for a policy that leaves alone what HorizontalPodAutoscalers
// look at; false where that policy cannot be read.
func (e *examination) leavesToHPAs(ctx context.Context, v *vpav1.VerticalPodAutoscaler) bool {
	if !convert.MadeForPolicy(v) {
		return false
	}
	name := v.Labels[fleet.PolicyLabel]
	if leaves, known := e.leavesHPAs[name]; known {
		return leaves
	}
	policy, err := e.own.LoadlineV1alpha1().SizingPolicies().Get(ctx, name, metav1.GetOptions{})
	if e.leavesHPAs == nil {
		e.leavesHPAs = map[string]bool{}
	}
	e.leavesHPAs[name] = err == nil && !convert.Policy(policy).BesideHPAs
	return e.leavesHPAs[name]
}

// scaler names what scales a workload: KEDA works through a HorizontalPodAutoscaler of its own.
func scaler(h *autoscalingv2.HorizontalPodAutoscaler) string {
	if scaled := h.Labels["scaledobject.keda.sh/name"]; scaled != "" {
		return "the ScaledObject " + scaled + " of KEDA"
	}
	return "HorizontalPodAutoscaler " + h.Name
}

func lookAtBudgets(ctx context.Context, e *examination) error {
	if err := e.needs("VPAs", "PodDisruptionBudgets"); err != nil {
		return err
	}
	for i := range e.budgets {
		b := &e.budgets[i]
		if !allowsNothing(b) {
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
		for j := range e.vpas {
			v := &e.vpas[j]
			if v.Namespace != b.Namespace || v.Spec.TargetRef == nil || !evicts(convert.Mode(v)) {
				continue
			}
			key := target.RefKey(v.Namespace, v.Spec.TargetRef)
			if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return e.owners.Selects(ctx, key, labels.Set(p.Labels)) }) {
				e.find(isWarning, "PodDisruptionBudget "+b.Namespace+"/"+b.Name, fmt.Sprintf("it never allows an eviction, so pods of VPA %s that cannot be resized in place keep their sizes", v.Name),
					"maxUnavailable: 1, or a minAvailable below the number of replicas")
			}
		}
	}
	return nil
}

// allowsNothing reports whether a budget cannot allow an eviction even while all its pods are well.
func allowsNothing(b *policyv1.PodDisruptionBudget) bool {
	s := &b.Status
	return s.ExpectedPods > 0 && s.DesiredHealthy >= s.ExpectedPods
}

// bounds are minAllowed and maxAllowed of a container as they were written.
type bounds struct {
	container   string
	least, most resources.List
}

func boundsOf(v *vpav1.VerticalPodAutoscaler) (all []bounds) {
	if v.Spec.ResourcePolicy == nil {
		return nil
	}
	for i := range v.Spec.ResourcePolicy.ContainerPolicies {
		c := &v.Spec.ResourcePolicy.ContainerPolicies[i]
		all = append(all, bounds{c.ContainerName, convert.Resources(c.MinAllowed), convert.Resources(c.MaxAllowed)})
	}
	return all
}

func lookAtLimitRanges(ctx context.Context, e *examination) error {
	ranges, err := e.kube.CoreV1().LimitRanges(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list LimitRanges: %w", err)
	}
	of := map[string][]*corev1.LimitRange{}
	for i := range ranges.Items {
		r := &ranges.Items[i]
		of[r.Namespace] = append(of[r.Namespace], r)
	}
	for i := range e.vpas {
		v := &e.vpas[i]
		demand := convert.Ranges(of[v.Namespace]).Container
		for _, b := range boundsOf(v) {
			for k := range resources.Kind(resources.Kinds) {
				least, most := b.least.Value(k), b.most.Value(k)
				if limit := demand.Max.Value(k); limit > 0 && least > limit {
					e.find(isError, vpaName(v), fmt.Sprintf("minAllowed of container %s is %s of %s, and a LimitRange allows %s at most", b.container, human(k, float64(least)), k, human(k, float64(limit))), "lower minAllowed, or raise the max of the LimitRange")
				}
				if floor := demand.Min.Value(k); most > 0 && most < floor {
					e.find(isError, vpaName(v), fmt.Sprintf("maxAllowed of container %s is %s of %s, and a LimitRange demands %s at least", b.container, human(k, float64(most)), k, human(k, float64(floor))), "raise maxAllowed, or lower the min of the LimitRange")
				}
			}
		}
	}
	return e.needs("VPAs")
}

func lookAtNodeSizes(_ context.Context, e *examination) error {
	if err := e.needs("VPAs", "nodes"); err != nil || len(e.nodes) == 0 {
		return err
	}
	var largest resources.List
	for i := range e.nodes {
		has := convert.Resources(e.nodes[i].Status.Allocatable)
		for k := range resources.Kind(resources.Kinds) {
			if a, there := has.Get(k); there && a > largest.Value(k) {
				largest = largest.With(k, a)
			}
		}
	}
	for i := range e.vpas {
		v := &e.vpas[i]
		for k := range resources.Kind(resources.Kinds) {
			most := largest.Value(k)
			for _, b := range boundsOf(v) {
				if least := b.least.Value(k); most > 0 && least > most {
					e.find(isError, vpaName(v), fmt.Sprintf("minAllowed of container %s is %s of %s, and the largest node has %s", b.container, human(k, float64(least)), k, human(k, float64(most))), "lower minAllowed, or add larger nodes")
				}
			}
			var target resources.Amount
			for _, b := range convert.Recommendation(v.Status.Recommendation) {
				target = target.Add(b.Target.Value(k))
			}
			if most > 0 && target > most {
				e.find(isError, vpaName(v), fmt.Sprintf("its containers are recommended %s of %s in all, and the largest node has %s: such pods stay pending", human(k, float64(target)), k, human(k, float64(most))), "set maxAllowed, or add larger nodes")
			}
		}
	}
	return nil
}
