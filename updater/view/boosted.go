package view

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/target"
)

// Controlling returns the VPA that controls a pod, by the rule of the webhook, and
// false if none does. It is an error when that cannot be known now.
func (r *Reader) Controlling(ctx context.Context, pod *corev1.Pod) (Reading, bool, error) {
	return r.controlling(ctx, pod, func(c *target.Claim) bool { return !c.Idle })
}

// Governed returns the VPA that controls a pod, made ones among them, and what a SizingPolicy lets
// be done with its pods; nil: nothing is to be done because of one, for the reason that is
// returned, if any.
func (r *Reader) Governed(ctx context.Context, pod *corev1.Pod) (Reading, *Rollout, reason.Reason, error) {
	reading, found, err := r.controlling(ctx, pod, func(*target.Claim) bool { return true })
	if err != nil || !found {
		return Reading{}, nil, "", err
	}
	p := r.permitted(reading.Object)
	return reading, p.rollout, p.held, nil
}

// controlling is Controlling among the VPAs that counts leaves.
func (r *Reader) controlling(ctx context.Context, pod *corev1.Pod, counts func(*target.Claim) bool) (Reading, bool, error) {
	owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !ok {
		return Reading{}, false, nil
	}
	top, found, err := r.Targets.Topmost(ctx, owner)
	if err != nil || !found {
		return Reading{}, false, err
	}
	chosen, found, err := r.strongest(top, counts)
	if err != nil || !found {
		return Reading{}, false, err
	}
	if selects, err := r.selects(ctx, chosen, top, pod); err != nil || !selects {
		return Reading{}, false, err
	}
	reading, err := r.reading(pod.Namespace, chosen.Name)
	return reading, err == nil, err
}

// strongest returns the strongest VPA of a target among those that counts accepts.
func (r *Reader) strongest(top target.Key, counts func(*target.Claim) bool) (strongest target.Claim, found bool, err error) {
	vpas, err := target.VPAsOf(r.VPAIndex, top)
	if err != nil {
		return target.Claim{}, false, fmt.Errorf("find the VPAs of %s: %w", top, err)
	}
	for _, vpa := range vpas {
		if c := target.ClaimOf(vpa); counts(&c) && (!found || target.CompareClaims(c, strongest) < 0) {
			strongest, found = c, true
		}
	}
	return strongest, found, nil
}

// selects reports whether the strongest VPA of a target controls a pod.
func (r *Reader) selects(ctx context.Context, c target.Claim, top target.Key, pod *corev1.Pod) (bool, error) {
	var failed error
	c.Selects = func(l map[string]string) bool {
		selector, err := r.Targets.Selector(ctx, c.Namespace, c.VPA.Spec.TargetRef)
		failed = err
		return err == nil && selector.Matches(labels.Set(l))
	}
	var index target.Claims
	index.Put(c)
	_, found := index.Controlling(top, pod.Labels)
	return found, failed
}

func (r *Reader) reading(namespace, name string) (Reading, error) {
	vpa, err := r.VPAs.VerticalPodAutoscalers(namespace).Get(name)
	if err != nil {
		return Reading{}, err
	}
	objects, err := r.LimitRanges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return Reading{}, fmt.Errorf("list LimitRanges of namespace %s: %w", namespace, err)
	}
	return NewReading(vpa, convert.Ranges(objects)), nil
}

// Siblings returns the core value of a VPA with those of its pods that have the
// owner of the given one.
func (r *Reader) Siblings(ctx context.Context, reading Reading, pod *corev1.Pod) (disruption.VPA, error) {
	owner, _ := target.Controller(pod.Namespace, pod.OwnerReferences)
	pods, err := r.Pods.Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return disruption.VPA{}, fmt.Errorf("list pods of namespace %s: %w", pod.Namespace, err)
	}
	v := reading.VPA(r.PerVPAConfig)
	v.Groups = []disruption.Group{r.group(ctx, owner)}
	for _, p := range pods {
		if o, ok := target.Controller(p.Namespace, p.OwnerReferences); ok && o == owner && p.DeletionTimestamp == nil {
			v.Pods = append(v.Pods, reading.Pod(p, 0))
		}
	}
	return v, nil
}
