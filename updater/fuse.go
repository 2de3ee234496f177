package main

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

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/view"
)

// errNoPace is the error of a workload whose policy has no pace: it must not be taken for unlimited.
var errNoPace = errors.New("the limits of its SizingPolicy are not known")

// fuseTimeout bounds the request that writes condition FuseTripped.
const fuseTimeout = 5 * time.Second

// paces returns the pace of each policy. After a panic there is none, and no rollout goes on.
func (l *Loop) paces(ctx context.Context, now time.Time) (paces map[string]*view.Pace) {
	err := view.Guard(func() error { paces = l.reader.Paces(now.UTC().Truncate(time.Second)); return nil })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to sum up the rounds of SizingPolicies, their pods are left alone in this pass")
	}
	return paces
}

// mayStart reports whether another pod of the workload may be changed in this pass: one that has not
// begun takes one of the starts that its policy has left. Hold lets all of them be planned while a
// start is left, so that a workload that cannot be changed does not keep others from beginning.
func (h *heldWorkload) mayStart() bool {
	if h.starts || !h.State.Started.IsZero() {
		return true
	}
	if h.pace.Starts <= 0 {
		return false
	}
	h.pace.Starts--
	h.starts = true
	return true
}

// reportFuses reports which fuses have tripped: as a metric, and once by a condition, an event and a line
// of the log.
func (p *pass) reportFuses(ctx context.Context) {
	p.metrics.Fuses(p.paces)
	var changed []string
	for name, pace := range p.paces {
		c := meta.FindStatusCondition(pace.Policy.Status.Conditions, convert.ConditionFuseTripped)
		reported, trip := c != nil && c.Status == metav1.ConditionTrue, pace.Trip.At
		if reported == trip.IsZero() || reported && !c.LastTransitionTime.Time.Equal(trip) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		pace := p.paces[name]
		switch trip := pace.Trip; {
		case trip.At.IsZero():
			delete(p.tripped, name)
		case !p.tripped[name].Equal(trip.At):
			p.tripped[name] = trip.At
			message := convert.FuseCondition(name, trip).Message
			klog.FromContext(ctx).Info("The fuse of a SizingPolicy has tripped, no further pod is changed", "policy", name, "since", trip.At, "message", message)
			p.executor.Event(pace.Policy, actuate.EventFuseTripped, message, nil)
		}
		if err := p.writeFuse(ctx, pace); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Cannot write condition FuseTripped of a SizingPolicy, trying again in the next pass", "policy", name)
		}
	}
	maps.DeleteFunc(p.tripped, func(name string, _ time.Time) bool { return p.paces[name] == nil })
}

// writeFuse writes condition FuseTripped of a policy. Its time is that of the trip, which a user
// acknowledges.
func (p *pass) writeFuse(ctx context.Context, pace *view.Pace) error {
	conditions := p.sharing.conditions
	if conditions == nil || conditions.client == nil { // a dry run
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fuseTimeout)
	defer cancel()
	wanted := convert.FuseCondition(pace.Policy.Name, pace.Trip)
	wanted.ObservedGeneration = pace.Policy.Generation
	if wanted.LastTransitionTime.IsZero() {
		wanted.LastTransitionTime = metav1.NewTime(p.now.UTC().Truncate(time.Second))
	}
	return patchConditions(ctx, conditions.client, pace.Policy, withCondition(pace.Policy, wanted))
}

// withCondition returns the conditions of a policy with another one of a type.
func withCondition(p *loadlinev1alpha1.SizingPolicy, wanted metav1.Condition) []metav1.Condition {
	all := slices.Clone(p.Status.Conditions)
	if i := slices.IndexFunc(all, func(c metav1.Condition) bool { return c.Type == wanted.Type }); i >= 0 {
		all[i] = wanted
		return all
	}
	return append(all, wanted)
}
