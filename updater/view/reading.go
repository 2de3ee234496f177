package view

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Reading is one VPA, read once for all its pods.
type Reading struct {
	Object *vpav1.VerticalPodAutoscaler
	Ranges convert.LimitRanges // of its namespace

	rules          policy.Rules
	recommendation map[string]resources.Bounds
	floors         map[string]resources.List // by container, below which nothing is lowered; they count in the recommendation
}

// NewReading reads a VPA.
func NewReading(vpa *vpav1.VerticalPodAutoscaler, ranges convert.LimitRanges) Reading {
	return Reading{
		Object: vpa, Ranges: ranges,
		rules:          convert.Rules(vpa),
		recommendation: convert.Recommendation(vpa.Status.Recommendation),
	}
}

// VPA returns the core value without pods. The per-VPA time of a quick OOM
// counts only with the feature gate PerVPAConfig.
func (r Reading) VPA(perVPAConfig bool) disruption.VPA {
	v := disruption.VPA{Namespace: r.Object.Namespace, Name: r.Object.Name, Mode: mode(convert.Mode(r.Object))}
	p := r.Object.Spec.UpdatePolicy
	if p == nil {
		return v
	}
	if p.MinReplicas != nil {
		v.MinReplicas = int(*p.MinReplicas)
	}
	if p.EvictAfterOOMSeconds != nil && perVPAConfig {
		v.QuickOOM = time.Duration(*p.EvictAfterOOMSeconds) * time.Second
	}
	for _, e := range p.EvictionRequirements {
		if e == nil {
			continue
		}
		requirement := disruption.Requirement{Higher: e.ChangeRequirement == vpav1.TargetHigherThanRequests}
		for k := range resources.Kind(resources.Kinds) {
			requirement.Kinds[k] = slices.Contains(e.Resources, convert.ResourceName(k))
		}
		v.Requirements = append(v.Requirements, requirement)
	}
	return v
}

func mode(m vpav1.UpdateMode) disruption.Mode {
	switch m {
	case vpav1.UpdateModeRecreate, vpav1.UpdateModeAuto:
		return disruption.Recreate
	case vpav1.UpdateModeInPlaceOrRecreate:
		return disruption.InPlaceOrRecreate
	case vpav1.UpdateModeInPlace:
		return disruption.InPlace
	case vpav1.UpdateModeInitial:
		return disruption.Initial
	}
	return disruption.Off
}

// Pod returns the core value of a pod that belongs to the group of that index.
func (r Reading) Pod(pod *corev1.Pod, group int) disruption.Pod {
	p := disruption.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Group: group,
		Pending:    pod.Status.Phase == corev1.PodPending,
		PodLevel:   convert.SizedAsWhole(pod),
		Boosted:    convert.HasBoosted(pod),
		Sized:      convert.HasSized(pod),
		Restarts:   int32(min(convert.Restarts(pod), math.MaxInt32)),
		Created:    pod.CreationTimestamp.Time,
		Node:       pod.Spec.NodeName,
		Traits:     convert.Traits(pod),
		Fixed:      fixed(pod),
		Containers: make([]disruption.Container, len(pod.Spec.Containers)),
	}
	if noted := (disruption.Noted{Backoff: convert.Pause(pod), Restart: convert.Restart(pod)}); noted != (disruption.Noted{}) {
		p.Noted = &noted
	}
	p.Footprint, p.Starting = convert.Footprints(pod)
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Time
	}
	p.Ready, p.Resize, p.ResizeSince = conditions(pod)
	current := convert.Pod(pod)
	asked := convert.NewPod(pod)
	fitted := policy.Fit(current, r.recommendation, r.rules, r.Ranges.Ranges)
	observed, known := convert.Observed(pod)
	rule := r.rules.Lookup()
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

// fixed are the containers that are never sized.
func fixed(pod *corev1.Pod) (containers []policy.Container) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		containers = append(containers, policy.Container{Name: c.Name, Requests: convert.Resources(c.Resources.Requests), Limits: convert.Resources(c.Resources.Limits)})
	}
	return containers
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

// oomKilled is the reason the kubelet gives for such a termination.
const oomKilled = "OOMKilled"

func outOfMemory(pod *corev1.Pod, container string) disruption.OOM {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if t := s.LastTerminationState.Terminated; s.Name == container && t != nil && t.Reason == oomKilled {
			return disruption.OOM{Started: t.StartedAt.Time, Ended: t.FinishedAt.Time}
		}
	}
	return disruption.OOM{}
}
