package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/status"
)

const (
	statusEvery   = time.Minute // at most
	mostWorkloads = 100
	mostErrors    = 10
)

// The reasons of the condition Ready.
const (
	reasonServed        = "Served"
	reasonPaused        = "Paused"
	reasonUnusable      = "Unusable"
	reasonModeNotServed = "ModeNotServed"
	reasonNothing       = "NothingSelected"
	reasonYields        = "AlwaysYields"
)

// report writes the statuses of policies that are not as they should be.
func (k *Keeper) report(ctx context.Context, o *overview, now time.Time) {
	results := k.results(o)
	k.Metrics.Workloads.Reset()
	for _, p := range o.policies.Objects() {
		value := o.policies.Set().Policy(p.Name)
		if !k.mine(value) {
			continue
		}
		r := results[p.Name]
		for mode, n := range r.modes {
			k.Metrics.Workloads.WithLabelValues(p.Name, mode, "").Set(float64(n))
		}
		fresh := r.status(p, value, now)
		last, written := k.statuses[p.Name]
		if apiequality.Semantic.DeepEqual(&p.Status, fresh) || written && 0 <= now.Sub(last) && now.Sub(last) < statusEvery {
			continue
		}
		k.statuses[p.Name] = now
		if err := k.writeStatus(ctx, p.Name, fresh); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Cannot write the status of a SizingPolicy, trying again in a minute", "policy", p.Name)
		}
	}
	maps.DeleteFunc(k.statuses, func(name string, _ time.Time) bool { return o.policies.Object(name) == nil })
}

func (k *Keeper) writeStatus(ctx context.Context, name string, fresh *loadlinev1alpha1.SizingPolicyStatus) error {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	body, err := json.Marshal([]client.PatchOperation{client.PatchAdd("/status", fresh)})
	if err != nil {
		return err
	}
	_, err = k.Client.LoadlineV1alpha1().SizingPolicies().Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// result is what came of a policy in a pass.
type result struct {
	counts    loadlinev1alpha1.PolicyCounts
	workloads []loadlinev1alpha1.WorkloadStatus
	errors    []string
	modes     map[string]int
}

// results goes over the workloads once, for all policies.
func (k *Keeper) results(o *overview) map[string]*result {
	results := map[string]*result{}
	of := func(policy string) *result {
		r := results[policy]
		if r == nil {
			r = &result{modes: map[string]int{}}
			results[policy] = r
		}
		return r
	}
	for _, p := range o.policies.Objects() {
		of(p.Name)
	}
	for i := range o.workloads {
		w := &o.workloads[i]
		if w.Policy == nil {
			continue
		}
		of(w.Policy.Name).add(w)
		for p := range o.policies.Set().Selecting(k.describe(w)) {
			if p.Name != w.Policy.Name {
				of(p.Name).counts.Yielded++
			}
		}
	}
	return results
}

// add counts a workload that the policy is responsible for.
func (r *result) add(w *workload) {
	r.counts.Selected++
	r.modes[w.Mode.String()]++
	if vpa := w.person; vpa != nil && status.Provided(vpa) || vpa == nil && w.made != nil && status.Provided(w.made) {
		r.counts.WithRecommendation++
	}
	if w.Reason == fleet.OptedOut || w.refused != "" {
		r.counts.Refused++
	}
	if w.Problem != "" {
		r.complain(fmt.Sprintf("%s in namespace %s: %s", w.Key, w.Key.Namespace, w.Problem))
	}
	if w.refused != "" {
		r.complain(w.refused)
	}
	if len(r.workloads) < mostWorkloads {
		r.workloads = append(r.workloads, loadlinev1alpha1.WorkloadStatus{
			Ref:  loadlinev1alpha1.WorkloadReference{APIVersion: w.APIVersion, Kind: w.Key.Kind, Namespace: w.Key.Namespace, Name: w.Key.Name},
			Mode: loadlinev1alpha1.RolloutMode(w.Mode.String()),
		})
	}
}

// complain adds an error unless it was said before, or there are enough.
func (r *result) complain(problem string) {
	if len(r.errors) < mostErrors && !slices.Contains(r.errors, problem) {
		r.errors = append(r.errors, problem)
	}
}

// status returns the new status of a policy. The time of its condition is that of the last
// change from True to False or back.
func (r *result) status(p *loadlinev1alpha1.SizingPolicy, value *fleet.Policy, now time.Time) *loadlinev1alpha1.SizingPolicyStatus {
	fresh := &loadlinev1alpha1.SizingPolicyStatus{
		Conditions: slices.Clone(p.Status.Conditions), Counts: &r.counts, Workloads: r.workloads, Errors: r.errors,
	}
	ready := r.ready(p, value)
	ready.Type, ready.ObservedGeneration, ready.LastTransitionTime = "Ready", p.Generation, metav1.NewTime(now.UTC().Truncate(time.Second))
	meta.SetStatusCondition(&fresh.Conditions, ready)
	return fresh
}

func (r *result) ready(p *loadlinev1alpha1.SizingPolicy, value *fleet.Policy) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	mode := loadlinev1alpha1.RolloutModeInherit
	if p.Spec.Rollout != nil && p.Spec.Rollout.Mode != nil {
		mode = *p.Spec.Rollout.Mode
	}
	switch {
	case value.Unusable != "":
		return not(reasonUnusable, "the policy holds what it selects, no pod of that is changed: "+value.Unusable)
	case p.Spec.Paused != nil && *p.Spec.Paused:
		return not(reasonPaused, "spec.paused is true: no VPA is made or removed, and no pod is changed")
	case r.counts.Selected == 0 && r.counts.Yielded > 0:
		return not(reasonYields, "each workload that this policy selects is another policy's, which has a higher priority, or the same and a smaller name")
	case r.counts.Selected == 0:
		return not(reasonNothing, "no workload is selected: check spec.namespaces and spec.workloads")
	case !convert.Served(mode):
		return not(reasonModeNotServed, fmt.Sprintf("mode %s is not served yet: acts as Recommend", mode))
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonServed}
}
