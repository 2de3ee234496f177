package snapshot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Controlling returns the VPA that controls a pod, by the rule of the webhook, and false if none does. It is an
// error when that is not known now. VPAs that change no pods count only with idle.
func (r *Reader) Controlling(ctx context.Context, pod *corev1.Pod, idle bool) (VPA, bool, error) {
	owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !ok {
		return VPA{}, false, nil
	}
	top, found, err := r.Targets.Topmost(ctx, owner)
	if err != nil || !found {
		return VPA{}, false, err
	}
	chosen, found, err := r.strongest(top, idle)
	if err != nil || !found {
		return VPA{}, false, err
	}
	if selects, err := r.selects(ctx, chosen, top, pod); err != nil || !selects {
		return VPA{}, false, err
	}
	object, err := r.VPAs.VerticalPodAutoscalers(pod.Namespace).Get(chosen.Name)
	if err != nil {
		return VPA{}, false, err
	}
	ranges, err := r.rangesOf(pod.Namespace)
	if err != nil {
		return VPA{}, false, err
	}
	return NewVPA(object, ranges), true, nil
}

// strongest returns the strongest VPA of a target. VPAs that change no pods count only with idle.
func (r *Reader) strongest(top target.Key, idle bool) (strongest target.Claim, found bool, err error) {
	vpas, err := target.VPAsOf(r.VPAIndex, top)
	if err != nil {
		return target.Claim{}, false, fmt.Errorf("find the VPAs of %s: %w", top, err)
	}
	for _, vpa := range vpas {
		if c := target.ClaimOf(vpa); (idle || !c.Idle) && (!found || target.CompareClaims(c, strongest) < 0) {
			strongest, found = c, true
		}
	}
	return strongest, found, nil
}

// selects reports whether the strongest VPA of a target controls a pod.
func (r *Reader) selects(ctx context.Context, c target.Claim, top target.Key, pod *corev1.Pod) (bool, error) {
	if client.LabelsTooLarge(pod.Labels) { // no VPA controls the pod, so its target need not be read
		return false, nil
	}
	selector, err := r.Targets.Selector(ctx, c.Namespace, c.VPA.Spec.TargetRef)
	if err != nil {
		return false, err
	}
	c.Selector = selector
	var index target.Claims
	index.Put(c)
	_, found := index.Controlling(top, pod.Labels)
	return found, nil
}

// ControlsAny reports whether one of the named VPAs of a namespace controls a pod that matches. It lists the
// pods of the namespace once.
func (r *Reader) ControlsAny(ctx context.Context, namespace string, vpas map[string]bool, matches func(*corev1.Pod) bool) bool {
	pods, _ := r.Pods.Pods(namespace).List(labels.Everything()) // fails only without an index
	strongest := map[target.Key]target.Claim{}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		if !matches(pod) {
			return false
		}
		owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
		if !ok {
			return false
		}
		top, found, err := r.Targets.Topmost(ctx, owner)
		if err != nil || !found {
			return false
		}
		c, known := strongest[top]
		if !known {
			if c, _, err = r.strongest(top, true); err != nil {
				return false
			}
			strongest[top] = c
		}
		if !vpas[c.Name] {
			return false
		}
		selects, err := r.selects(ctx, c, top, pod)
		return err == nil && selects
	})
}

// Siblings returns a VPA as package disruption needs it, with its pods that have the owner of the given one.
func (r *Reader) Siblings(ctx context.Context, vpa *VPA, pod *corev1.Pod) (disruption.VPA, error) {
	owner, _ := target.Controller(pod.Namespace, pod.OwnerReferences)
	pods, err := r.Pods.Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return disruption.VPA{}, fmt.Errorf("list pods of namespace %s: %w", pod.Namespace, err)
	}
	v := vpa.Core(r.PerVPAConfig)
	v.Groups = []disruption.Group{r.group(ctx, owner)}
	for _, p := range pods {
		if o, ok := target.Controller(p.Namespace, p.OwnerReferences); ok && o == owner && p.DeletionTimestamp == nil {
			v.Pods = append(v.Pods, vpa.Pod(p))
		}
	}
	return v, nil
}
