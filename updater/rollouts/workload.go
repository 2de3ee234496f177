package rollouts

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// Reader reads from caches.
type Reader struct {
	Targets      *target.Resolver
	Nodes        corelisters.NodeLister // nil: unknown
	NodeInformer snapshot.Informer      // set with Nodes
}

// Workload returns the pods of a VPA as package rollout needs them, in their order. The states are those of
// the pods.
func (r *Reader) Workload(v *disruption.VPA, states []*snapshot.State, of *policies.Effective, c disruption.Config, now time.Time) rollout.Workload {
	w := rollout.Workload{
		Mode: of.Mode, ShortHistory: of.ShortHistory, Ordinals: of.Workload.Key.Kind == "StatefulSet",
		Rolling: r.Targets.Settling(of.Workload.Key), Target: of.Target, Pods: make([]rollout.Pod, len(v.Pods)),
	}
	for i := range v.Pods {
		p := &v.Pods[i]
		one := &w.Pods[i]
		*one = rollout.Pod{
			UID: p.UID, Name: p.Name, Running: !p.Pending, Ready: p.Ready,
			Resizing:   p.Resize != disruption.NotResizing && p.Resize != disruption.ResizeDeferred && p.Resize != disruption.ResizeInfeasible || p.Unanswered(),
			Deferred:   p.Resize == disruption.ResizeDeferred,
			Infeasible: p.Resize == disruption.ResizeInfeasible,
			Due:        !p.Leaves() && disruption.Assess(v, p, c, now).Reason == "", // a pod that leaves its node is part of no rollout
			Wants:      p.Need().Wants,
			Node:       r.node(p.Node),
			Observed:   states[i].ChangedAt(),
		}
		for j := range p.Containers {
			after := p.Containers[j].After()
			for k := range resources.Kind(resources.Kinds) {
				asked := &p.Containers[j].Spec
				one.Grows[k] = one.Grows[k] || after.Requests.Value(k) > asked.Requests.Value(k) || after.Limits.Value(k) > asked.Limits.Value(k)
			}
		}
		if !one.Due {
			one.LeftOut = of.LeftOut()
		}
	}
	return w
}

// node returns the size and the conditions of a node.
func (r *Reader) node(name string) (n rollout.Node) {
	if r.Nodes == nil || !r.NodeInformer.HasSynced() {
		return n
	}
	object, err := r.Nodes.Get(name)
	if err != nil {
		return n
	}
	n.Known, n.Size = true, convert.Resources(object.Status.Allocatable)
	for _, c := range object.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.NodeMemoryPressure:
			n.MemoryPressure = true
		case corev1.NodeDiskPressure, corev1.NodePIDPressure:
			n.DiskOrPIDPressure = true
		}
	}
	return n
}

// Evidence returns the evidence about a changed pod of a workload that is in caches.
func (r *Reader) Evidence(pod *corev1.Pod, core *disruption.Pod, workload target.Key) rollout.Evidence {
	e := rollout.Evidence{
		Infeasible: core.Resize == disruption.ResizeInfeasible,
		Resizing:   core.Resize == disruption.ResizeInProgress || core.Resize == disruption.ResizeError || core.Resize == disruption.ResizeUnclear || core.Unanswered(),
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
		w := rollout.Witness{Container: core.Containers[i].Spec, Throttled: unknown, ThrottledBefore: unknown, Waiting: unknown, WaitingBefore: unknown}
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

// nodeReady reports whether a node exists and is ready.
func (r *Reader) nodeReady(name string) bool {
	if r.Nodes == nil || !r.NodeInformer.HasSynced() {
		return false
	}
	object, err := r.Nodes.Get(name)
	return err == nil && convert.NodeReady(object)
}
