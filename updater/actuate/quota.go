package actuate

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
)

// quotaExcess is a refusal by a ResourceQuota. A dry run counts the evicted pod and its replacement
// at the same time, so the refusal alone does not show that the replacement has no room.
type quotaExcess struct {
	quota                    string
	requested, used, limited corev1.ResourceList
}

var exceeded = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (\S+), used: (\S+), limited: (\S+)`)

func exceededQuota(err error) (quotaExcess, bool) {
	if !apierrors.IsForbidden(err) || deniedByAdmission(err) {
		return quotaExcess{}, false
	}
	found := exceeded.FindStringSubmatch(err.Error())
	if found == nil {
		return quotaExcess{}, false
	}
	var lists [3]corev1.ResourceList
	for i := range lists {
		list, ok := parseAmounts(found[i+2])
		if !ok {
			return quotaExcess{}, false
		}
		lists[i] = list
	}
	return quotaExcess{found[1], lists[0], lists[1], lists[2]}, true
}

// parseAmounts parses a list such as "cpu=1,pods=1".
func parseAmounts(text string) (corev1.ResourceList, bool) {
	list := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		q, err := resource.ParseQuantity(value)
		if !ok || err != nil {
			return nil, false
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, true
}

// fitsWithout reports whether the quota has room without a pod. Nil: the quota does not count it.
func (q quotaExcess) fitsWithout(pod *corev1.Pod) bool {
	for name, requested := range q.requested {
		limit, bounded := q.limited[name]
		if !bounded {
			continue
		}
		after := q.used[name].DeepCopy()
		if pod != nil {
			after.Sub(charged(pod, name))
		}
		if after.Sign() < 0 {
			after = resource.Quantity{}
		}
		after.Add(requested)
		if after.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}

// checkQuotas fails if a quota has no room for a replacement once the evicted pod is gone. The API
// server names only the first exceeded quota. pod has the containers of the evicted pod, including
// ones that admission added, and its new resources.
func (c *Checker) checkQuotas(ctx context.Context, excess quotaExcess, pod, evicted *corev1.Pod) error {
	quotas, err := c.Kube.CoreV1().ResourceQuotas(evicted.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return &BlockedError{Reason: reason.ReplacementUnknown, Cause: fmt.Errorf("list ResourceQuotas: %w", shorten(err))}
	}
	all := []quotaExcess{excess}
	left := map[string]*corev1.Pod{excess.quota: evicted}
	for i := range quotas.Items {
		q := &quotas.Items[i]
		left[q.Name] = nil
		if counts(q, evicted) {
			left[q.Name] = evicted
		}
		if q.Name == excess.quota || !counts(q, pod) {
			continue
		}
		other := quotaExcess{q.Name, corev1.ResourceList{}, q.Status.Used, q.Status.Hard}
		for name := range q.Status.Hard {
			if amount := charged(pod, name); amount.Sign() > 0 {
				other.requested[name] = amount
			}
		}
		all = append(all, other)
	}
	for _, q := range all {
		if !q.fitsWithout(left[q.quota]) {
			return &BlockedError{Reason: reason.ReplacementRefused, Cause: fmt.Errorf("ResourceQuota %s has no room for the new pod once the old one is gone", q.quota)}
		}
	}
	return nil
}

func counts(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	traits := convert.Traits(pod)
	traits.BestEffort = policy.ClassOf(convert.Pod(pod).Containers) == policy.BestEffort
	return disruption.ScopesCover(convert.Quota(q).Scopes, traits)
}

func charged(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	if name == corev1.ResourcePods || name == "count/pods" {
		return *resource.NewQuantity(1, resource.DecimalSI)
	}
	of := func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }
	if limit, is := strings.CutPrefix(string(name), "limits."); is {
		name, of = corev1.ResourceName(limit), func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }
	} else if request, is := strings.CutPrefix(string(name), "requests."); is {
		name = corev1.ResourceName(request)
	}
	if pod.Spec.Resources != nil {
		if whole, there := of(*pod.Spec.Resources)[name]; there {
			return whole
		}
	}
	sum, starting := pod.Spec.Overhead[name].DeepCopy(), resource.Quantity{}
	sidecars := resource.Quantity{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		needs := of(c.Resources)[name].DeepCopy()
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.Add(needs)
			continue
		}
		if needs.Add(sidecars); needs.Cmp(starting) > 0 {
			starting = needs
		}
	}
	running := sidecars
	for i := range pod.Spec.Containers {
		running.Add(of(pod.Spec.Containers[i].Resources)[name])
	}
	if starting.Cmp(running) > 0 {
		running = starting
	}
	sum.Add(running)
	return sum
}
