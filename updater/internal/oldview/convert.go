package oldview

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// runningPod returns a running pod as package disruption wants it, without its owner, with what it
// would get of a recommendation, given the rules of its VPA and the LimitRanges of its namespace.
func runningPod(pod *corev1.Pod, recommendation map[string]resources.Bounds, rules policy.Rules, ranges policy.Ranges) disruption.Pod {
	p := disruption.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Pending:    pod.Status.Phase == corev1.PodPending,
		PodLevel:   convert.SizedAsWhole(pod),
		Boosted:    convert.HasBoosted(pod),
		Sized:      convert.HasSized(pod),
		Protected:  convert.Protected(pod),
		Restarts:   int32(min(convert.Restarts(pod), math.MaxInt32)),
		Created:    pod.CreationTimestamp.Time,
		Node:       pod.Spec.NodeName,
		Traits:     traits(pod),
		Fixed:      fixed(pod),
		Containers: make([]disruption.Container, len(pod.Spec.Containers)),
	}
	if noted := (disruption.Noted{Backoff: pauseOf(pod), Restart: restartOf(pod)}); noted != (disruption.Noted{}) {
		p.Noted = &noted
	}
	p.Footprint, p.Starting = convert.Footprints(pod)
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Time
	}
	p.Ready, p.Resize, p.ResizeSince = conditions(pod)
	current := convert.Pod(pod)
	asked := convert.NewPod(pod)
	current.StaysBurstable = rules.KeepsClass && convert.StaysBurstable(pod)
	fitted := policy.Fit(current, recommendation, rules, ranges)
	observed, known := convert.Observed(pod)
	rule := rules.Lookup()
	for i := range p.Containers {
		c := &pod.Spec.Containers[i]
		p.Containers[i] = disruption.Container{
			Observed: !known || slices.Contains(observed, c.Name),
			Off:      rule(c.Name).Off,
			Current:  current.Containers[i],
			Asked:    asked.Containers[i],
			Fitted:   fitted.Containers[i],
			Restarts: restarts(c),
			OOM:      outOfMemory(pod, c.Name),
		}
	}
	return p
}

// requirements returns what must change so that a VPA lets its pods be changed.
func requirements(vpa *vpav1.VerticalPodAutoscaler) (all []disruption.Requirement) {
	if vpa.Spec.UpdatePolicy == nil {
		return nil
	}
	for _, e := range vpa.Spec.UpdatePolicy.EvictionRequirements {
		if e == nil {
			continue
		}
		requirement := disruption.Requirement{Higher: e.ChangeRequirement == vpav1.TargetHigherThanRequests}
		for k := range resources.Kind(resources.Kinds) {
			requirement.Kinds[k] = slices.Contains(e.Resources, convert.ResourceName(k))
		}
		all = append(all, requirement)
	}
	return all
}

// fixed are the containers that are never sized.
func fixed(pod *corev1.Pod) (containers []policy.Container) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		containers = append(containers, policy.Container{Name: c.Name, Requests: convert.Resources(c.Resources.Requests), Limits: convert.Resources(c.Resources.Limits)})
	}
	return containers
}

// conditions reads whether a pod is ready, and the state of its resize. A
// pending resize counts more than one in progress, because it is the newer.
func conditions(pod *corev1.Pod) (ready bool, state disruption.ResizeState, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.PodReady:
			ready = true
		case corev1.PodResizePending:
			state, since = pending(c.Reason), c.LastTransitionTime.Time
		case corev1.PodResizeInProgress:
			if state == disruption.NotResizing {
				state, since = inProgress(c), c.LastTransitionTime.Time
			}
		}
	}
	return ready, state, since
}

func pending(reason string) disruption.ResizeState {
	switch reason {
	case corev1.PodReasonDeferred:
		return disruption.ResizeDeferred
	case corev1.PodReasonInfeasible:
		return disruption.ResizeInfeasible
	}
	return disruption.ResizeUnclear
}

func inProgress(c corev1.PodCondition) disruption.ResizeState {
	switch {
	case c.Reason == "" && c.Message == "":
		return disruption.ResizeInProgress
	case c.Reason == corev1.PodReasonError:
		return disruption.ResizeError
	}
	return disruption.ResizeUnclear
}

// restarts returns the kinds for which the resize policy of a container restarts it.
func restarts(c *corev1.Container) (kinds [resources.Kinds]bool) {
	for _, p := range c.ResizePolicy {
		for k := range resources.Kind(resources.Kinds) {
			if p.ResourceName == convert.ResourceName(k) {
				kinds[k] = p.RestartPolicy == corev1.RestartContainer
			}
		}
	}
	return kinds
}

func outOfMemory(pod *corev1.Pod, container string) disruption.OOM {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if t := s.LastTerminationState.Terminated; s.Name == container && t != nil && t.Reason == convert.OOMKilled {
			return disruption.OOM{Started: t.StartedAt.Time, Ended: t.FinishedAt.Time}
		}
	}
	return disruption.OOM{}
}

// quotaNames are the resources of a quota that mean the same.
var quotaNames = [resources.Kinds]struct{ requests, limits []corev1.ResourceName }{
	resources.CPU:    {[]corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceCPU}, []corev1.ResourceName{corev1.ResourceLimitsCPU}},
	resources.Memory: {[]corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceMemory}, []corev1.ResourceName{corev1.ResourceLimitsMemory}},
}

// quotaOf reads what a quota leaves, by its status; that is below 0 where it is exceeded.
func quotaOf(q *corev1.ResourceQuota) disruption.Quota {
	left := disruption.Quota{Scopes: scopes(q)}
	for k := range resources.Kind(resources.Kinds) {
		for _, name := range quotaNames[k].requests {
			left.Requests = tighter(left.Requests, k, name, q)
		}
		for _, name := range quotaNames[k].limits {
			left.Limits = tighter(left.Limits, k, name, q)
		}
	}
	return left
}

// tighter takes what a quota leaves of a resource if that is less than known.
func tighter(r resources.List, k resources.Kind, name corev1.ResourceName, q *corev1.ResourceQuota) resources.List {
	hard, ok := q.Status.Hard[name]
	if !ok {
		return r
	}
	left := whole(k, hard) - convert.Amount(k, q.Status.Used[name])
	if known, ok := r.Get(k); ok && known <= left {
		return r
	}
	return r.With(k, left)
}

// whole reads a bound, rounded down.
func whole(k resources.Kind, q resource.Quantity) resources.Amount {
	a := convert.Amount(k, q)
	if exact := convert.Quantity(k, a); exact.Cmp(q) > 0 {
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

// traits reads the properties of a pod with requests that the scopes of quotas depend on.
func traits(pod *corev1.Pod) disruption.PodTraits {
	return disruption.PodTraits{
		Terminating:    pod.Spec.ActiveDeadlineSeconds != nil,
		CrossNamespace: looksAbroad(pod.Spec.Affinity),
		Class:          pod.Spec.PriorityClassName,
	}
}

// looksAbroad reports whether an affinity to pods names other namespaces, or may.
func looksAbroad(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	abroad := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) bool {
		names := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
		return slices.ContainsFunc(required, names) ||
			slices.ContainsFunc(preferred, func(t corev1.WeightedPodAffinityTerm) bool { return names(t.PodAffinityTerm) })
	}
	with, against := a.PodAffinity, a.PodAntiAffinity
	return with != nil && abroad(with.RequiredDuringSchedulingIgnoredDuringExecution, with.PreferredDuringSchedulingIgnoredDuringExecution) ||
		against != nil && abroad(against.RequiredDuringSchedulingIgnoredDuringExecution, against.PreferredDuringSchedulingIgnoredDuringExecution)
}

func restartOf(pod *corev1.Pod) disruption.Restart {
	r := convert.Restart(pod)
	return disruption.Restart{At: r.At, Count: r.Count}
}

func pauseOf(pod *corev1.Pod) disruption.Backoff {
	b := convert.Pause(pod)
	return disruption.Backoff{Fruitless: b.Fruitless, Until: b.Until}
}
