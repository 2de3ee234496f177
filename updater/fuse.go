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

// reverts returns how many reverts were recorded so far.
func (l *Loop) reverts() uint64 {
	if l.records == nil { // no policies
		return 0
	}
	return l.records.Reverts()
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

// fuseTripped reports whether the fuse of the workload's policy has tripped, also during this pass: changes
// are judged while it goes on.
func (p *pass) fuseTripped(h *heldWorkload) bool {
	if reverts := p.reverts(); reverts != p.counted {
		p.counted = reverts
		p.reader.UpdateTrips(p.paces, p.now.UTC().Truncate(time.Second))
	}
	return !h.pace.Trip.At.IsZero()
}

// reportFuses reports which fuses have tripped: as a metric, and once by a condition, an event and a line
// of the log.
func (p *pass) reportFuses(ctx context.Context) {
	p.metrics.Fuses(p.paces)
	var changed []string
	for name, pace := range p.paces {
		if c := reportedFuse(pace.Policy); c != nil || !pace.Trip.At.IsZero() {
			wanted := p.wantedFuse(pace)
			if c == nil || c.Status != wanted.Status || c.Message != wanted.Message || !c.LastTransitionTime.Equal(&wanted.LastTransitionTime) {
				changed = append(changed, name)
			}
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		pace := p.paces[name]
		wanted := p.wantedFuse(pace)
		switch {
		case pace.Trip.At.IsZero():
			delete(p.tripped, name)
		case p.tripped[name] != wanted.Message:
			p.tripped[name] = wanted.Message
			klog.FromContext(ctx).Info("The fuse of a SizingPolicy has tripped, no further pod is changed",
				"policy", name, "since", pace.Trip.At, "message", wanted.Message)
			p.executor.Event(pace.Policy, actuate.EventFuseTripped, wanted.Message, nil)
		}
		err := p.writeFuse(ctx, pace.Policy, wanted)
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Cannot write condition FuseTripped of a SizingPolicy, trying again in the next pass", "policy", name)
		}
	}
	maps.DeleteFunc(p.tripped, func(name, _ string) bool { return p.paces[name] == nil })
}

// reportedFuse returns condition FuseTripped of a policy if it is true; nil: it is not.
func reportedFuse(policy *loadlinev1alpha1.SizingPolicy) *metav1.Condition {
	if c := meta.FindStatusCondition(policy.Status.Conditions, convert.ConditionFuseTripped); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

func (p *pass) wantedFuse(pace *view.Pace) metav1.Condition {
	return convert.FuseCondition(pace.Policy, pace.Trip, p.now.UTC().Truncate(time.Second))
}

// writeFuse writes condition FuseTripped of a policy.
func (p *pass) writeFuse(ctx context.Context, policy *loadlinev1alpha1.SizingPolicy, wanted metav1.Condition) error {
	conditions := p.sharing.conditions
	if conditions == nil || conditions.client == nil { // a dry run
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fuseTimeout)
	defer cancel()
	return patchConditions(ctx, conditions.client, policy, withCondition(policy, wanted))
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
