package rollouts

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

// Reader builds the input of package rollout from informer caches.
type Reader struct {
	Targets      *target.Resolver
	Nodes        corelisters.NodeLister // nil: unknown
	NodeInformer snapshot.Informer      // set with Nodes
}

// Workload returns the rollout input for the pods of a VPA. states have the same order.
func (r *Reader) Workload(v *disruption.VPA, states []*snapshot.State, of *policies.Effective, c disruption.Config, now time.Time) rollout.Workload {
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
		is := c.Status == corev1.ConditionTrue
		n.MemoryPressure = n.MemoryPressure || is && c.Type == corev1.NodeMemoryPressure
		n.DiskOrPIDPressure = n.DiskOrPIDPressure || is && (c.Type == corev1.NodeDiskPressure || c.Type == corev1.NodePIDPressure)
	}
	return n
}

// Evidence returns the cached evidence about a changed pod.
func (r *Reader) Evidence(pod *corev1.Pod, core *disruption.Pod, workload target.Key) rollout.Evidence {
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

func (r *Reader) nodeReady(name string) bool {
	if r.Nodes == nil || !r.NodeInformer.HasSynced() {
		return false
	}
	object, err := r.Nodes.Get(name)
	return err == nil && convert.NodeReady(object)
}

// errNoLimits is the error for unknown limits, which must not count as unlimited.
var errNoLimits = errors.New("the limits of its SizingPolicy are unknown")

const fuseTimeout = 5 * time.Second

// readLimits reads the limits of each policy. After a panic there are none, and all rollouts stop.
func (h *Holds) readLimits(ctx context.Context) {
	err := serving.Guard(func() error { h.limits = h.Policies.Limits(h.effective, h.now.UTC().Truncate(time.Second)); return nil })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read the rounds of SizingPolicies, skipping their pods in this iteration")
	}
}

func (r *Rollouts) recordedReverts() uint64 {
	if r.Records == nil { // no policies
		return 0
	}
	return r.Records.Reverts()
}

// fuseTripped includes trips during this iteration, since Queue judges concurrently.
func (h *Holds) fuseTripped(hold *Hold) bool {
	if reverts := h.recordedReverts(); reverts != h.reverts {
		h.reverts = reverts
		h.Policies.UpdateTrips(h.limits, h.now.UTC().Truncate(time.Second))
	}
	return hold.limits.Trip.Holds(hold.Workload.Key.Namespace)
}

// reportFuses reports tripped fuses: in a metric, and once in a condition, an event and the log.
func (h *Holds) reportFuses(ctx context.Context) {
	h.Metrics.Fuses(h.limits)
	for _, name := range slices.Sorted(maps.Keys(h.limits)) {
		limits := h.limits[name]
		if limits.Trip.At.IsZero() && !meta.IsStatusConditionTrue(limits.Policy.Status.Conditions, convert.ConditionFuseTripped) {
			delete(h.reportedTrips, name)
		} else {
			h.reportFuse(ctx, name, limits)
		}
	}
	maps.DeleteFunc(h.reportedTrips, func(name, _ string) bool { return h.limits[name] == nil })
}

// reportFuse updates condition FuseTripped of a policy with a current or former trip.
func (h *Holds) reportFuse(ctx context.Context, name string, limits *policies.Limits) {
	conditions := limits.Policy.Status.Conditions
	wanted := convert.FuseCondition(limits.Policy, limits.Trip, h.now.UTC().Truncate(time.Second))
	c := meta.FindStatusCondition(conditions, convert.ConditionFuseTripped)
	if c != nil && c.Status == wanted.Status && c.Message == wanted.Message && c.LastTransitionTime.Equal(&wanted.LastTransitionTime) {
		return
	}
	if !limits.Trip.At.IsZero() && h.reportedTrips[name] != wanted.Message {
		if h.reportedTrips == nil {
			h.reportedTrips = map[string]string{}
		}
		h.reportedTrips[name] = wanted.Message
		klog.FromContext(ctx).Info("Fuse of a SizingPolicy tripped, holding further changes of its pods",
			"policy", name, "namespaces", limits.Trip.Namespaces, "since", limits.Trip.At, "message", wanted.Message)
		h.Announcer.Recorder.Event(limits.Policy, report.EventFuseTripped, wanted.Message, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, fuseTimeout)
	defer cancel()
	err := h.Status.Write(ctx, limits.Policy, withCondition(conditions, wanted))
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Failed to write condition FuseTripped, trying again in the next iteration", "policy", name)
	}
}

// withCondition, unlike meta.SetStatusCondition, also updates the transition time of a trip.
func withCondition(conditions []metav1.Condition, wanted metav1.Condition) []metav1.Condition {
	all := slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == wanted.Type })
	return append(all, wanted)
}
