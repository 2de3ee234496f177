package rollouts

import (
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

// Facts builds the input of package rollout from informer caches.
type Facts struct {
	Targets      *target.Resolver
	Nodes        corelisters.NodeLister // nil: unknown
	NodeInformer snapshot.Informer      // set with Nodes
}

// Workload returns the rollout input for the pods of a VPA. states have the same order.
func (r *Facts) Workload(v *disruption.VPA, states []*snapshot.State, of *policies.Effective, c disruption.Config, now time.Time) rollout.Workload {
	w := rollout.Workload{
		Mode: of.Mode, ShortHistory: of.ShortHistory, Ordinals: of.Workload.Key.Kind == "StatefulSet",
		RollingOut: r.Targets.Settling(of.Workload.Key), Target: of.Target, Pods: make([]rollout.Pod, len(v.Pods)),
	}
	for i := range v.Pods {
		p := &v.Pods[i]
		one := &w.Pods[i]
		*one = rollout.Pod{
			UID: p.UID, Name: p.Name, Running: !p.Pending, Ready: p.Ready,
			Resizing:      p.Resize != disruption.NotResizing && p.Resize != disruption.ResizeDeferred && p.Resize != disruption.ResizeInfeasible || p.ResizeUnreported(),
			Deferred:      p.Resize == disruption.ResizeDeferred,
			Infeasible:    p.Resize == disruption.ResizeInfeasible,
			Due:           !p.Leaves() && disruption.Assess(v, p, c, now).Reason == "", // a pod that leaves its node is not part of a rollout
			TotalRequests: p.Need().After,
			Node:          r.node(p.Node),
			ObservedSince: states[i].ChangedAt(),
			Unsent:        states[i].Unsent(),
		}
		for j := range p.Containers {
			after := p.Containers[j].After()
			for k := range resources.Kind(resources.Kinds) {
				asked := &p.Containers[j].Spec
				one.Grows[k] = one.Grows[k] || after.Requests.Value(k) > asked.Requests.Value(k) || after.Limits.Value(k) > asked.Limits.Value(k)
			}
		}
		if !one.Due {
			one.OmittedReason = of.ExcludedPart()
		}
	}
	return w
}

func (r *Facts) node(name string) (n rollout.Node) {
	if r.Nodes == nil || !r.NodeInformer.HasSynced() {
		return n
	}
	object, err := r.Nodes.Get(name)
	if err != nil {
		return n
	}
	n.Known, n.Size = true, convert.Resources(object.Status.Allocatable)
	for _, c := range object.Status.Conditions {
		is := c.Status == corev1.ConditionTrue
		n.MemoryPressure = n.MemoryPressure || is && c.Type == corev1.NodeMemoryPressure
		n.DiskOrPIDPressure = n.DiskOrPIDPressure || is && (c.Type == corev1.NodeDiskPressure || c.Type == corev1.NodePIDPressure)
	}
	return n
}
