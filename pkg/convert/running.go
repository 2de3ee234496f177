package convert

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// RunningPod returns a running pod without its owner and with its targets, given the recommendation
// and the rules of its VPA and the LimitRanges of its namespace.
func RunningPod(pod *corev1.Pod, recommendation map[string]resources.Bounds, rules policy.Rules, ranges policy.Ranges) disruption.Pod {
	p, sizing := PodState(pod)
	p.Containers = WithTargets(p.Containers, sizing, recommendation, rules, ranges)
	return p
}

// PodState returns a running pod without its owner and without targets, and the input of policy.Fit
// without its containers.
func PodState(pod *corev1.Pod) (disruption.Pod, policy.Pod) {
	p := disruption.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Pending:    pod.Status.Phase == corev1.PodPending,
		PodLevel:   SizedAsWhole(pod),
		Boosted:    HasBoosted(pod),
		Sized:      HasSized(pod),
		Protected:  Protected(pod),
		Restarts:   int32(min(Restarts(pod), math.MaxInt32)),
		Created:    pod.CreationTimestamp.Time,
		Node:       pod.Spec.NodeName,
		Traits:     Traits(pod),
		Fixed:      fixed(pod),
		Containers: make([]disruption.Container, len(pod.Spec.Containers)),
	}
	if noted := (disruption.Noted{Backoff: Pause(pod), Restart: Restart(pod)}); noted != (disruption.Noted{}) {
		p.Noted = &noted
	}
	p.Footprint, p.Starting = Footprints(pod)
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Time
	}
	p.Ready, p.Resize, p.ResizeSince = conditions(pod)
	current, asked := Pod(pod), NewPod(pod)
	observed, known := Observed(pod)
	for i := range p.Containers {
		c := &pod.Spec.Containers[i]
		p.Containers[i] = disruption.Container{
			Observed: !known || slices.Contains(observed, c.Name),
			Actual:   current.Containers[i],
			Spec:     asked.Containers[i],
			Restarts: restarts(c),
			OOM:      outOfMemory(pod, c.Name),
		}
	}
	current.Containers, current.StaysBurstable = nil, StaysBurstable(pod)
	return p, current
}

// WithTargets returns copies of the containers of a pod with their targets. Sizing is the second
// result of PodState.
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

// Requirements returns what must change so that a VPA lets its pods be changed.
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

// fixed are the containers that are never sized.
func fixed(pod *corev1.Pod) (containers []policy.Container) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		containers = append(containers, policy.Container{Name: c.Name, Requests: Resources(c.Resources.Requests), Limits: Resources(c.Resources.Limits)})
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
			if p.ResourceName == ResourceName(k) {
				kinds[k] = p.RestartPolicy == corev1.RestartContainer
			}
		}
	}
	return kinds
}

// OOMKilled is the reason that the kubelet gives for the termination of a container that ran out
// of memory.
const OOMKilled = "OOMKilled"

func outOfMemory(pod *corev1.Pod, container string) disruption.OOM {
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
