package rollouts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
)

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
