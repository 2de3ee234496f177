// Package convert converts between API objects and core values for all programs.
//
// Its functions decide nothing and read only their arguments.
package convert

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Pod converts the containers of a running pod with the resources in force: the ones in the status,
// else the ones in the spec. It adds the declared memory from the annotation.
func Pod(pod *corev1.Pod) policy.Pod {
	current, declared := currentFinder(pod), ParseDeclared(pod.Annotations)
	p := corePod(pod, func(i int) corev1.ResourceRequirements { return current(&pod.Spec.Containers[i]) })
	for i := range p.Containers {
		p.Containers[i].Declared = declared[p.Containers[i].Name]
	}
	return p
}

// NewPod converts the containers of a pod at creation, from its spec alone.
func NewPod(pod *corev1.Pod) policy.Pod {
	return corePod(pod, func(i int) corev1.ResourceRequirements { return pod.Spec.Containers[i].Resources })
}

// StaysBurstable reports whether only the regular containers make a pod Burstable, so that new
// resources of them could make it Guaranteed.
func StaysBurstable(pod *corev1.Pod) bool {
	init := initContainers(pod)
	if len(init) > 0 && policy.ClassOf(init) != policy.Guaranteed {
		return false
	}
	return Class(pod) == policy.Burstable
}

// Class returns the QoS class of a pod at creation.
func Class(pod *corev1.Pod) policy.Class {
	return policy.ClassOf(append(initContainers(pod), NewPod(pod).Containers...))
}

func corePod(pod *corev1.Pod, sizes func(int) corev1.ResourceRequirements) policy.Pod {
	containers := make([]policy.Container, len(pod.Spec.Containers))
	for i := range containers {
		r := sizes(i)
		containers[i] = policy.Container{Name: pod.Spec.Containers[i].Name, Requests: Resources(r.Requests), Limits: Resources(r.Limits)}
	}
	return policy.Pod{Containers: containers, InitTotals: initContainerResources(pod), Rounded: fractionalMemory(pod)}
}

// fractionalMemory counts memory requests or limits with a fraction of a byte, the larger count.
func fractionalMemory(pod *corev1.Pod) (r resources.List) {
	var requests, limits resources.Amount
	fraction := func(list corev1.ResourceList) resources.Amount {
		q, exists := list[corev1.ResourceMemory]
		if exists && q.MilliValue() != q.Value()*1000 {
			return 1
		}
		return 0
	}
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			requests, limits = requests+fraction(containers[i].Resources.Requests), limits+fraction(containers[i].Resources.Limits)
		}
	}
	if count := max(requests, limits); count > 0 {
		r = r.With(resources.Memory, count)
	}
	return r
}

// initContainerResources sums the resources of the init containers like a LimitRange of type Pod.
func initContainerResources(pod *corev1.Pod) (u policy.InitTotals) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sizes := policy.Totals{Requests: Resources(c.Resources.Requests), Limits: Resources(c.Resources.Limits)}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			u.Sidecars = u.Sidecars.Plus(sizes)
			sizes = policy.Totals{}
		}
		u.Startup = u.Startup.Larger(u.Sidecars.Plus(sizes))
	}
	return u
}

// Current returns the resources in force: the status if present, even if empty, else the spec.
func Current(pod *corev1.Pod, container corev1.Container) corev1.ResourceRequirements {
	return inForce(pod.Status.ContainerStatuses, &container)
}

func inForce(statuses []corev1.ContainerStatus, c *corev1.Container) corev1.ResourceRequirements {
	for i := range statuses {
		if s := &statuses[i]; s.Name == c.Name && s.Resources != nil {
			return *s.Resources
		}
	}
	return c.Resources
}

func currentFinder(pod *corev1.Pod) func(*corev1.Container) corev1.ResourceRequirements {
	status := byName(pod.Status.ContainerStatuses, func(s *corev1.ContainerStatus) string { return s.Name })
	return func(container *corev1.Container) corev1.ResourceRequirements {
		if s := status.find(container.Name); s != nil && s.Resources != nil {
			return *s.Resources
		}
		return container.Resources
	}
}

// HasResources reports whether the container has a resources object. A patch must extend such an
// object instead of replacing it, because it may hold only device claims.
func HasResources(c *corev1.Container) bool {
	return c.Resources.Requests != nil || c.Resources.Limits != nil || c.Resources.Claims != nil
}

// HasPodLevelResources reports whether a pod has pod-level CPU or memory. Its containers must not
// be changed alone, because the API server refuses a sum above the pod-level resources.
func HasPodLevelResources(pod *corev1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && (!Resources(r.Requests).Empty() || !Resources(r.Limits).Empty())
}

// IsSizedByVPA reports whether a VPA has set resources of the pod, so that its template may differ.
func IsSizedByVPA(pod *corev1.Pod) bool {
	return pod.Annotations[UpdatesAnnotation] != "" || pod.Annotations[ResizedAnnotation] != ""
}

// NodeReady reports whether condition Ready of a node is true.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// RunningPod converts a running pod with its targets, but without its owner.
func RunningPod(pod *corev1.Pod, recommendation map[string]resources.Bounds, rules policy.Rules, ranges policy.Ranges) disruption.Pod {
	p, sizing := PodState(pod)
	p.Containers = WithTargets(p.Containers, sizing, recommendation, rules, ranges)
	return p
}

// PodState converts a running pod without its owner and targets. The second result is the input of
// policy.Fit without containers.
func PodState(pod *corev1.Pod) (disruption.Pod, policy.Pod) {
	p := disruption.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Pending:         pod.Status.Phase == corev1.PodPending,
		PodLevel:        HasPodLevelResources(pod),
		Boosted:         IsBoosted(pod),
		SizedByVPA:      IsSizedByVPA(pod),
		Protected:       Protected(pod),
		Restarts:        int32(min(RestartCount(pod), math.MaxInt32)),
		Created:         pod.CreationTimestamp.Time,
		Node:            pod.Spec.NodeName,
		Traits:          Traits(pod),
		FixedContainers: initContainers(pod),
		Containers:      make([]disruption.Container, len(pod.Spec.Containers)),
	}
	if noted := (disruption.PersistedState{Backoff: ParseBackoff(pod), Restart: ParseRestart(pod)}); noted != (disruption.PersistedState{}) {
		p.Persisted = &noted
	}
	p.Footprint, p.InitFootprint = Footprints(pod)
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Time
	}
	p.Ready, p.Resize, p.ResizeSince = conditions(pod)
	current, asked := Pod(pod), NewPod(pod)
	observed, known := ParseObserved(pod)
	for i := range p.Containers {
		c := &pod.Spec.Containers[i]
		p.Containers[i] = disruption.Container{
			Observed: !known || slices.Contains(observed, c.Name),
			Actual:   current.Containers[i],
			Spec:     asked.Containers[i],
			Restarts: restarts(c),
			OOM:      lastOOMKill(pod, c.Name),
		}
	}
	current.Containers, current.StaysBurstable = nil, StaysBurstable(pod)
	return p, current
}

// WithTargets returns copies of containers with targets. Sizing is the second result of PodState.
func WithTargets(containers []disruption.Container, sizing policy.Pod, recommendation map[string]resources.Bounds, rules policy.Rules, ranges policy.Ranges) []disruption.Container {
	containers = slices.Clone(containers)
	sizing.Containers = make([]policy.Container, len(containers))
	for i := range containers {
		sizing.Containers[i] = containers[i].Actual
	}
	sizing.StaysBurstable = sizing.StaysBurstable && rules.KeepsClass
	fitted, rule := policy.Fit(sizing, recommendation, rules, ranges), rules.Lookup()
	for i := range containers {
		c := &containers[i]
		c.Off, c.Target = rule(c.Actual.Name).Off, fitted.Containers[i]
	}
	return containers
}

// Requirements returns the eviction requirements of a VPA.
func Requirements(vpa *vpav1.VerticalPodAutoscaler) (all []disruption.Requirement) {
	if vpa.Spec.UpdatePolicy == nil {
		return nil
	}
	for _, e := range vpa.Spec.UpdatePolicy.EvictionRequirements {
		if e == nil {
			continue
		}
		requirement := disruption.Requirement{Higher: e.ChangeRequirement == vpav1.TargetHigherThanRequests}
		for k := range resources.Kind(resources.Kinds) {
			requirement.Kinds[k] = slices.Contains(e.Resources, ResourceName(k))
		}
		all = append(all, requirement)
	}
	return all
}

func initContainers(pod *corev1.Pod) (containers []policy.Container) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		containers = append(containers, policy.Container{Name: c.Name, Requests: Resources(c.Resources.Requests), Limits: Resources(c.Resources.Limits)})
	}
	return containers
}

// conditions returns readiness and resize state. A pending resize is newer than one in progress.
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

// restarts returns the resources that restart the container when they are resized.
func restarts(c *corev1.Container) (kinds [resources.Kinds]bool) {
	for _, p := range c.ResizePolicy {
		for k := range resources.Kind(resources.Kinds) {
			if p.ResourceName == ResourceName(k) {
				kinds[k] = p.RestartPolicy == corev1.RestartContainer
			}
		}
	}
	return kinds
}

// OOMKilled is the termination reason that the kubelet sets for a container that ran out of memory.
const OOMKilled = "OOMKilled"

func lastOOMKill(pod *corev1.Pod, container string) disruption.OOM {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if t := s.LastTerminationState.Terminated; s.Name == container && t != nil && t.Reason == OOMKilled {
			return disruption.OOM{Started: t.StartedAt.Time, Ended: t.FinishedAt.Time}
		}
	}
	return disruption.OOM{}
}

// Ready reports whether a pod is ready, and since when.
func Ready(pod *corev1.Pod) (ready bool, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// IsUnadmitted reports whether the kubelet has not admitted a pod yet. Such a pod may not fit,
// because every user with permission to bind a pod chooses its node.
func IsUnadmitted(pod *corev1.Pod) bool {
	return pod.Status.StartTime == nil && pod.Status.Phase == corev1.PodPending
}

// UngrantedResources returns the part of the Footprint of a pod that waits for room, because the
// kubelet has not granted its resize. The amount is untrusted: every user with permission to resize
// a pod chooses it.
func UngrantedResources(pod *corev1.Pod) (more resources.List) {
	if resizePending(pod) == nil {
		return more
	}
	running, starting := footprints(pod, granted, podLevelGranted(pod))
	asks, has := Footprint(pod), running.Larger(starting)
	for k := range resources.Kind(resources.Kinds) {
		if by := asks.Value(k) - has.Value(k); by > 0 {
			more = more.With(k, by)
		}
	}
	return more
}

// ResizeInfeasible reports whether the kubelet has marked the resize of a pod as infeasible.
func ResizeInfeasible(pod *corev1.Pod) bool {
	c := resizePending(pod)
	return c != nil && c.Reason == corev1.PodReasonInfeasible
}

func resizePending(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// Arrival is a pod that the kubelet has not admitted yet, or the ungranted part of a resize.
type Arrival struct {
	UID      types.UID // of the pod
	Created  time.Time
	Requests resources.List
}

// Admitted returns the arrivals that a kubelet with the given free resources admits, the oldest
// pods first. It refuses or defers arrivals that do not fit. Resources absent in left are
// unlimited. Arrivals are sorted in place, and the result keeps that order.
func Admitted(left resources.List, arrivals []Arrival) []Arrival {
	slices.SortFunc(arrivals, func(a, b Arrival) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) })
	return slices.DeleteFunc(arrivals, func(a Arrival) bool {
		rest := left
		for k := range resources.Kind(resources.Kinds) {
			has, limited := left.Get(k)
			if !limited || a.Requests.Value(k) == 0 {
				continue
			}
			if a.Requests.Value(k) > has {
				return true
			}
			rest = rest.With(k, has.Add(-a.Requests.Value(k)))
		}
		left = rest
		return false
	})
}
