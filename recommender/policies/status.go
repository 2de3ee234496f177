package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

const statusInterval = time.Minute

const (
	conditionReady    = "Ready"
	conditionDegraded = "Degraded"
)

type statusState struct {
	written    time.Time // zero: not written by this process
	generation int64     // of the policy when last reported, 0: none
}

func (k *Keeper) report(ctx context.Context, o *overview, now time.Time) {
	if !k.reportDue(o, now) {
		return
	}
	results, err := k.results(o)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to compose the statuses of SizingPolicies, retrying in the next iteration")
		return
	}
	k.lastReport = now
	k.Metrics.reset()
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r, p := results[name], o.policies.Object(name)
		k.setMetrics(name, r)
		fresh, last := k.composeStatus(r, p, o.policies.Set().Policy(name), now), k.statuses[name]
		last.generation = p.Generation
		write := !last.recentlyWritten(now) && !apiequality.Semantic.DeepEqual(&p.Status, fresh)
		if write {
			last.written = now
		}
		k.statuses[name] = last
		if !write {
			continue
		}
		if err := k.writeStatus(ctx, p, fresh); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Failed to write the status of a SizingPolicy, retrying in a minute", "policy", name)
		}
	}
	maps.DeleteFunc(k.statuses, func(name string, _ statusState) bool { return results[name] == nil })
}

func (t statusState) recentlyWritten(now time.Time) bool {
	since := now.Sub(t.written)
	return 0 <= since && since < statusInterval
}

// reportDue is true once a minute, because reports scan all pods, and earlier for a new or changed
// policy.
func (k *Keeper) reportDue(o *overview, now time.Time) bool {
	if !(statusState{written: k.lastReport}).recentlyWritten(now) {
		return true
	}
	return slices.ContainsFunc(o.policies.Objects(), func(p *loadlinev1alpha1.SizingPolicy) bool {
		last := k.statuses[p.Name]
		return k.isResponsible(o.policies.Set().Policy(p.Name)) && last.generation != p.Generation && !last.recentlyWritten(now)
	})
}

func (k *Keeper) setMetrics(name string, r *result) {
	for g, n := range r.groups {
		k.Metrics.Workloads.WithLabelValues(name, g.mode.String(), string(g.phase)).Set(float64(n))
	}
	k.Metrics.Degraded.WithLabelValues(name).Set(float64(r.degraded))
	k.Metrics.Cores.WithLabelValues(name).Set(float64(r.savings.Less.Value(resources.CPU)) / 1000)
	k.Metrics.Bytes.WithLabelValues(name).Set(float64(r.savings.Less.Value(resources.Memory)))
}

// writeStatus fails with a conflict if the policy has changed since it was read, because fresh
// contains the conditions of other writers.
func (k *Keeper) writeStatus(ctx context.Context, p *loadlinev1alpha1.SizingPolicy, fresh *loadlinev1alpha1.SizingPolicyStatus) error {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	body, err := json.Marshal([]client.PatchOperation{client.PatchAdd("/metadata/resourceVersion", p.ResourceVersion), client.PatchAdd("/status", fresh)})
	if err != nil {
		return err
	}
	_, err = k.Client.LoadlineV1alpha1().SizingPolicies().Patch(ctx, p.Name, types.JSONPatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// composeStatus changes the transition time of a condition only with its status.
func (k *Keeper) composeStatus(r *result, p *loadlinev1alpha1.SizingPolicy, value *fleet.Policy, now time.Time) *loadlinev1alpha1.SizingPolicyStatus {
	fresh := &loadlinev1alpha1.SizingPolicyStatus{
		Conditions: slices.Clone(p.Status.Conditions), Counts: &r.counts, Savings: sizes(r.savings.Less), Increases: sizes(r.savings.More),
		Workloads: r.largest(now), Errors: r.errors,
	}
	for _, c := range [...]metav1.Condition{r.readyCondition(p, value), r.degradedCondition(k.Records.Readable())} {
		c.ObservedGeneration, c.LastTransitionTime = p.Generation, metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&fresh.Conditions, c)
	}
	return fresh
}

func (r *result) readyCondition(p *loadlinev1alpha1.SizingPolicy, value *fleet.Policy) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch {
	case value.Unusable != "":
		return not("Unusable", "the policy suspends all selected workloads and changes no pod: "+value.Unusable)
	case p.Spec.Paused != nil && *p.Spec.Paused:
		return not("Paused", "spec.paused is true: no VPA is created or deleted, and no pod is changed")
	case r.counts.Selected == 0 && r.counts.Yielded > 0:
		return not("AlwaysYields", "all selected workloads belong to other policies with a higher priority, or with the same priority and a name that sorts first")
	case r.counts.Selected == 0:
		return not("NothingSelected", "no workload is selected: check spec.namespaces and spec.workloads")
	}
	served := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: "Served"}
	if r.unmeasured > 0 {
		served.Message = "throttling and CPU pressure of changed pods are not observed: set the updater flag --prometheus-address, or set spec.safety.throttle and pressure to \"0\""
	}
	return served
}

func (r *result) degradedCondition(known bool) metav1.Condition {
	c := metav1.Condition{Type: conditionDegraded, Status: metav1.ConditionFalse, Reason: "FewReverts"}
	switch {
	case !known:
		c.Status, c.Reason = metav1.ConditionUnknown, "RecordsUnknown"
		c.Message = "SizingRecords cannot be read: install their definition, and grant the recommender list and watch on sizingrecords"
	case r.degraded > 0:
		c.Status, c.Reason = metav1.ConditionTrue, "HighRevertRate"
		c.Message = "at least three of the last five rounds were reverted: " + strings.Join(r.names, ", ")
		if others := r.degraded - len(r.names); others > 0 {
			c.Message += fmt.Sprintf(" and %d others", others)
		}
	}
	return c
}
