package updater

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/policies"
)

// errNoLimits is the error of a workload whose policy has no limits: it must not be taken for
// unlimited.
var errNoLimits = errors.New("the limits of its SizingPolicy are unknown")

// fuseTimeout bounds the request that writes condition FuseTripped.
const fuseTimeout = 5 * time.Second

// limits returns the limits of each policy. After a panic there are none, and no rollout continues.
func (l *Loop) limits(ctx context.Context, it *iteration, now time.Time) (limits map[string]*policies.Limits) {
	err := serving.Guard(func() error { limits = l.policies.Limits(it.policies, now.UTC().Truncate(time.Second)); return nil })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read the rounds of SizingPolicies, skipping their pods in this pass")
	}
	return limits
}

// reverts returns how many reverts were recorded so far.
func (l *Loop) reverts() uint64 {
	if l.records == nil { // no policies
		return 0
	}
	return l.records.Reverts()
}

// fuseTripped reports whether the fuse of the workload's policy holds it, also if it tripped in
// this pass: changes are judged meanwhile.
func (p *pass) fuseTripped(h *heldWorkload) bool {
	if reverts := p.reverts(); reverts != p.counted {
		p.counted = reverts
		p.Loop.policies.UpdateTrips(p.limits, p.now.UTC().Truncate(time.Second))
	}
	return h.limits.Trip.Holds(h.Workload.Key.Namespace)
}

// reportFuses reports which fuses have tripped: as a metric, and once by a condition, an event and
// a line of the log.
func (p *pass) reportFuses(ctx context.Context) {
	p.metrics.Fuses(p.limits)
	for _, name := range slices.Sorted(maps.Keys(p.limits)) {
		limits := p.limits[name]
		if limits.Trip.At.IsZero() && !meta.IsStatusConditionTrue(limits.Policy.Status.Conditions, convert.ConditionFuseTripped) {
			delete(p.tripped, name)
		} else {
			p.reportFuse(ctx, name, limits)
		}
	}
	maps.DeleteFunc(p.tripped, func(name, _ string) bool { return p.limits[name] == nil })
}

// reportFuse updates condition FuseTripped of a policy whose fuse has or had tripped.
func (p *pass) reportFuse(ctx context.Context, name string, limits *policies.Limits) {
	conditions := limits.Policy.Status.Conditions
	wanted := convert.FuseCondition(limits.Policy, limits.Trip, p.now.UTC().Truncate(time.Second))
	c := meta.FindStatusCondition(conditions, convert.ConditionFuseTripped)
	if c != nil && c.Status == wanted.Status && c.Message == wanted.Message && c.LastTransitionTime.Equal(&wanted.LastTransitionTime) {
		return
	}
	if !limits.Trip.At.IsZero() && p.tripped[name] != wanted.Message {
		p.tripped[name] = wanted.Message
		klog.FromContext(ctx).Info("Fuse of a SizingPolicy tripped, holding further changes of its pods",
			"policy", name, "namespaces", limits.Trip.Namespaces, "since", limits.Trip.At, "message", wanted.Message)
		p.executor.Event(limits.Policy, actuate.EventFuseTripped, wanted.Message, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, fuseTimeout)
	defer cancel()
	err := p.status.write(ctx, limits.Policy, withCondition(conditions, wanted))
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Failed to write condition FuseTripped, trying again in the next pass", "policy", name)
	}
}

// withCondition returns conditions with another one of a type. Unlike meta.SetStatusCondition it
// also moves the time of a transition, which acknowledges the trip.
func withCondition(conditions []metav1.Condition, wanted metav1.Condition) []metav1.Condition {
	all := slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == wanted.Type })
	return append(all, wanted)
}
