package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
)

var quotaNames = [resources.Kinds]struct{ requests, limits []corev1.ResourceName }{
	resources.CPU:    {[]corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceCPU}, []corev1.ResourceName{corev1.ResourceLimitsCPU}},
	resources.Memory: {[]corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceMemory}, []corev1.ResourceName{corev1.ResourceLimitsMemory}},
}

// Quota returns the remaining resources of a quota by its status, negative if exceeded.
func Quota(q *corev1.ResourceQuota) disruption.Quota {
	left := disruption.Quota{Scopes: scopes(q)}
	for k := range resources.Kind(resources.Kinds) {
		for _, name := range quotaNames[k].requests {
			left.Requests = lower(left.Requests, k, name, q)
		}
		for _, name := range quotaNames[k].limits {
			left.Limits = lower(left.Limits, k, name, q)
		}
	}
	return left
}

// QuotaResources returns the resources of a quota that Quota reads.
func QuotaResources(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return nil
	}
	kept := corev1.ResourceList{}
	for _, names := range quotaNames {
		for _, name := range slices.Concat(names.requests, names.limits) {
			if q, has := list[name]; has {
				kept[name] = q
			}
		}
	}
	return kept
}

func lower(r resources.List, k resources.Kind, name corev1.ResourceName, q *corev1.ResourceQuota) resources.List {
	hard, ok := q.Status.Hard[name]
	if !ok {
		return r
	}
	left := roundDown(k, hard) - Amount(k, q.Status.Used[name])
	if known, ok := r.Get(k); ok && known <= left {
		return r
	}
	return r.With(k, left)
}

func roundDown(k resources.Kind, q resource.Quantity) resources.Amount {
	a := Amount(k, q)
	if exact := Quantity(k, a); exact.Cmp(q) > 0 {
		a--
	}
	return a
}

func scopes(q *corev1.ResourceQuota) (rules []disruption.ScopeRule) {
	for _, name := range q.Spec.Scopes {
		rules = append(rules, disruption.ScopeRule{Scope: disruption.ScopeName(name), Operator: disruption.ScopeExists})
	}
	if q.Spec.ScopeSelector == nil {
		return rules
	}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		rules = append(rules, disruption.ScopeRule{Scope: disruption.ScopeName(e.ScopeName), Operator: disruption.ScopeOperator(e.Operator), Values: e.Values})
	}
	return rules
}

// Traits returns the properties of a pod with requests that quota scopes depend on.
func Traits(pod *corev1.Pod) disruption.PodTraits {
	return disruption.PodTraits{
		Terminating:    pod.Spec.ActiveDeadlineSeconds != nil,
		CrossNamespace: crossesNamespaces(pod.Spec.Affinity),
		Class:          pod.Spec.PriorityClassName,
	}
}

func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	crosses := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) bool {
		names := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
		return slices.ContainsFunc(required, names) ||
			slices.ContainsFunc(preferred, func(t corev1.WeightedPodAffinityTerm) bool { return names(t.PodAffinityTerm) })
	}
	with, against := a.PodAffinity, a.PodAntiAffinity
	return with != nil && crosses(with.RequiredDuringSchedulingIgnoredDuringExecution, with.PreferredDuringSchedulingIgnoredDuringExecution) ||
		against != nil && crosses(against.RequiredDuringSchedulingIgnoredDuringExecution, against.PreferredDuringSchedulingIgnoredDuringExecution)
}
