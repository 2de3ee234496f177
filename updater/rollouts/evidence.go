package rollouts

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/target"
)

// Evidence returns the cached evidence about a changed pod.
func (r *Facts) Evidence(pod *corev1.Pod, core *disruption.Pod, workload target.Key) rollout.Evidence {
	e := rollout.Evidence{
		Infeasible: core.Resize == disruption.ResizeInfeasible,
		Resizing:   core.Resize == disruption.ResizeInProgress || core.Resize == disruption.ResizeError || core.Resize == disruption.ResizeUnclear || core.ResizeUnreported(),
		Replaced:   r.Targets.Replacing(workload),
		Gone:       pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		NodeReady:  r.nodeReady(pod.Spec.NodeName),
		Generation: pod.Generation,
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			e.NotReady, e.NotReadySince = true, c.LastTransitionTime.Time
		}
	}
	unknown := math.NaN()
	for i := range core.Containers {
		w := rollout.ContainerEvidence{Container: core.Containers[i].Spec, Throttled: unknown, ThrottledBefore: unknown, Pressure: unknown, PressureBefore: unknown}
		for j := range pod.Status.ContainerStatuses {
			s := &pod.Status.ContainerStatuses[j]
			if s.Name != w.Name {
				continue
			}
			w.Restarts = int(s.RestartCount)
			for _, end := range []*corev1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
				if end != nil && end.Reason == convert.OOMKilled && end.FinishedAt.After(w.OOMKilled) {
					w.OOMKilled = end.FinishedAt.Time
				}
			}
		}
		e.Containers = append(e.Containers, w)
	}
	return e
}

func (r *Facts) nodeReady(name string) bool {
	if r.Nodes == nil || !r.NodeInformer.HasSynced() {
		return false
	}
	object, err := r.Nodes.Get(name)
	return err == nil && convert.NodeReady(object)
}
