package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/kube/target"
)

// Boosted returns what is to be done at now about the startup boosts of a pod. An
// annotation that names no container, or that cannot be read, is over, too.
func (r Reading) Boosted(pod *corev1.Pod, now time.Time) policy.BoostVerdict {
	original, _ := convert.Boosted(pod) // what cannot be read is known by its name alone
	p := policy.BoostedPod{Containers: make([]policy.BoostedContainer, len(pod.Spec.Containers))}
	p.Ready, p.ReadySince = Ready(pod)
	p.StaysBurstable = r.rules.KeepsClass && convert.StaysBurstable(pod)
	observed, known := convert.Observed(pod)
	current := convert.Pod(pod)
	p.Unsized, p.Rounded = current.Unsized, current.Rounded
	for i, c := range current.Containers {
		was, boosted := original[c.Name]
		delete(original, c.Name)
		p.Containers[i] = policy.BoostedContainer{
			Current: c, Boosted: boosted, Observed: !known || slices.Contains(observed, c.Name),
			Original: policy.Container{Requests: convert.Resources(was.Requests), Limits: convert.Resources(was.Limits)},
		}
	}
	verdict := policy.JudgeBoost(p, policy.BoostAdvice{
		Sizes:          r.Object != nil && convert.Mode(r.Object) != vpav1.UpdateModeOff,
		Recommendation: r.recommendation, Rules: r.rules, Ranges: r.Ranges.Ranges,
	}, now)
	for name := range original {
		verdict.Over = append(verdict.Over, name)
	}
	return verdict
}

// Controlling returns the VPA that controls a pod, by the rule of the webhook, and
// false if none does. It is an error when that cannot be known now.
func (r *Reader) Controlling(ctx context.Context, pod *corev1.Pod) (Reading, bool, error) {
	return r.controlling(ctx, pod, func(c *target.Claim) bool { return !c.Idle })
}

// Governed returns the VPA that controls a pod, made ones among them, and what a SizingPolicy lets
// be done with its pods; nil: nothing is to be done because of one, for the reason that is
// returned, if any.
func (r *Reader) Governed(ctx context.Context, pod *corev1.Pod) (Reading, *Rollout, disruption.Reason, error) {
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
	vpas, err := r.VPAs.VerticalPodAutoscalers(pod.Namespace).List(labels.Everything())
	if err != nil {
		return Reading{}, false, fmt.Errorf("list VPAs of namespace %s: %w", pod.Namespace, err)
	}
	var index target.Claims
	var failed error
	for _, vpa := range vpas {
		if ref := vpa.Spec.TargetRef; ref == nil || target.RefKey(vpa.Namespace, ref) != top {
			continue
		}
		c := target.ClaimOf(vpa)
		if !counts(&c) {
			continue
		}
		c.Selects = func(l map[string]string) bool {
			selector, err := r.Targets.Selector(ctx, vpa.Namespace, vpa.Spec.TargetRef)
			failed = errors.Join(failed, err)
			return err == nil && selector.Matches(labels.Set(l))
		}
		index.Put(c)
	}
	chosen, found := index.Controlling(top, pod.Labels)
	if failed != nil || !found {
		return Reading{}, false, failed
	}
	reading, err := r.reading(pod.Namespace, chosen.Name)
	return reading, err == nil, err
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
