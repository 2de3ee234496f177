// Package policies resolves the effective policy of each VPA: the changes of running pods that the
// VPA and a SizingPolicy allow together.
package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/snapshot"
)

// Effective is the effective policy of a VPA.
type Effective struct {
	Policy      *sizing.Policy  // governs the rollout; nil: only the VPA applies
	Conflicting string          // another policy of the same priority, or empty
	Decision    fleet.Decision  // of all SizingPolicies about the target
	Workload    target.Workload // the target
	Selectable  bool            // the target exists and SizingPolicies can select it
	Shares      bool            // the policy enables sharing

	Update  disruption.Mode // of the policy for a generated VPA, else the more conservative of VPA and policy
	Ungated bool            // policy sets mode InPlace, which needs no feature gate
	Skip    reason.Reason   // why all pods are skipped; empty: they are not

	*Rollout // set with Policy
}

// Rollout holds the rollout settings of a workload.
type Rollout struct {
	Mode         fleet.Mode
	Settings     rollout.Settings
	Safety       rollout.Safety
	Observed     bool                      // changes are noted on their pods and reverted after harm
	Target       []policy.Container        // recommendation by container, without floors
	ShortHistory bool                      // the policy requires more usage history
	HasHPA       bool                      // an HPA scales on a resource, or HPAs cannot be read
	ScaledByHPA  sizing.HPAResources       // resources an HPA scales on, requests stay
	Floors       map[string]resources.List // minimum by container, after reverts
	Max          *policy.Rules             // maxAllowed of the policy for a user VPA; nil: none
}

// PolicyName returns the name of the policy that governs the rollout.
func (e *Effective) PolicyName() string { return e.Policy.Object.Name }

// ExcludedPart returns why a pod with its target may still differ from the recommendation, or "".
func (r *Rollout) ExcludedPart() reason.Reason {
	switch {
	case len(r.Floors) > 0:
		return reason.RevertBackoff
	case len(r.ScaledByHPA) > 0:
		return reason.ManagedByHPA
	}
	return ""
}

// ChangesPods reports whether a mode changes running pods.
func ChangesPods(m disruption.Mode) bool { return m != disruption.Off && m != disruption.Initial }

// Resolver resolves effective policies from caches.
type Resolver struct {
	VPAs          vpalisters.VerticalPodAutoscalerLister
	Policies      *sizing.Policies // nil: there are none
	Records       *records.Store
	HPAs          *sizing.HorizontalPodAutoscalers // nil: unknown
	HasPrometheus bool                             // CPU throttling and pressure are measured
}

// Resolve returns effective policies, and applies floors, HPAs and maxAllowed to vpas.
func (r *Resolver) Resolve(ctx context.Context, vpas []snapshot.VPA, now time.Time) []Effective {
	all := make([]Effective, len(vpas))
	for i := range vpas {
		v := &vpas[i]
		err := serving.Guard(func() error { all[i] = r.resolve(v, now); return nil })
		if err != nil {
			klog.FromContext(ctx).Error(err, "Skipping pods: failed to resolve the policy of their VPA", "vpa", klog.KObj(v.Object))
			all[i] = Effective{Update: v.Mode, Skip: reason.InternalError}
		}
	}
	return all
}

func (r *Resolver) resolve(v *snapshot.VPA, now time.Time) Effective {
	e := r.Permitted(v.Object)
	if e.Policy == nil {
		return e
	}
	for _, name := range slices.Sorted(maps.Keys(v.Recommendation)) {
		e.Target = append(e.Target, policy.Container{Name: name, Requests: v.Recommendation[name].Target})
	}
	state, err := r.Records.State(e.Workload)
	if err != nil { // the targets that did harm are unknown
		return Effective{Decision: e.Decision, Workload: e.Workload, Selectable: e.Selectable, Shares: e.Shares, Update: e.Update, Skip: reason.NoRecord}
	}
	e.Floors = state.Floors(e.Target, e.Settings.Hash, now)
	e.limit(v)
	return e
}

func (e *Effective) limit(v *snapshot.VPA) {
	v.Rules.Outer = e.Max
	if len(e.Floors) == 0 && len(e.ScaledByHPA) == 0 {
		return
	}
	v.Floors = e.Floors
	for name, b := range v.Recommendation {
		scaled := e.ScaledByHPA.For(name)
		b = b.AtLeast(e.Floors[name])
		for k := range resources.Kind(resources.Kinds) {
			if scaled[k] {
				b = resources.Bounds{Lower: b.Lower.Without(k), Target: b.Target.Without(k), Upper: b.Upper.Without(k)}
			}
		}
		v.Recommendation[name] = b
	}
}

// Permitted returns the effective policy of a VPA without the parts that depend on its
// recommendation: Target and Floors.
func (r *Resolver) Permitted(vpa *vpav1.VerticalPodAutoscaler) Effective {
	vpaMode, generated := snapshot.ModeOf(vpa), convert.IsGenerated(vpa)
	answer := r.Policies.ForTarget(vpa, generated)
	e := Effective{Update: vpaMode, Decision: answer.Decision, Workload: answer.Workload, Selectable: answer.Selectable, Conflicting: answer.Conflicting}
	d := &e.Decision
	e.Shares = d.Policy != nil && d.Policy.Sharing.Mode != fleet.SharingOff
	if d.Reason != "" {
		if ChangesPods(vpaMode) || generated && d.Reason != reason.ModeOff {
			e.Skip = d.Reason
		}
		return e
	}
	if d.Policy == nil {
		return e
	}
	governing := r.Policies.Snapshot().Policy(d.Policy.Name)
	if governing == nil {
		return e
	}
	settings, safety := r.measured(governing)
	switch {
	case d.Mode == fleet.Inherit && !safety.Revert && settings.Schedule == nil && settings.Recreate:
		return e // only the VPA applies
	case !e.Selectable: // it could own no record
		e.Skip = reason.NoRecord
		return e
	case e.Workload.Key.Kind == "CronJob" && e.Workload.Key.Group == "":
		e.Skip = reason.JobNotResized
		return e
	}
	e.setUpdateMode(vpaMode, generated, settings.Recreate)
	e.Policy = governing
	e.Rollout = &Rollout{Mode: d.Mode, Settings: settings, Safety: safety, Observed: d.Mode != fleet.Inherit || safety.Revert}
	if !generated {
		e.Max = d.UserMax()
	}
	if e.Mode != fleet.Inherit {
		e.ShortHistory = convert.AnyHasShortHistory(vpa, d.Policy.MinHistory)
		scaled := r.HPAs.Resources(snapshot.TargetOf(vpa))
		if e.HasHPA = len(scaled) > 0; !d.Policy.IgnoresHPAs {
			e.ScaledByHPA = scaled
		}
	}
	return e
}

// setUpdateMode combines the mode of the VPA with the policy, which allows evictions with mayEvict.
func (e *Effective) setUpdateMode(vpaMode disruption.Mode, generated, mayEvict bool) {
	switch {
	case vpaMode == disruption.InPlace && !generated: // stays, and needs the feature gate
	case vpaMode == disruption.Recreate && !mayEvict:
		e.Skip = reason.EvictionNotAllowed // earlier changes are still judged
	case vpaMode == disruption.Recreate: // stays
	case mayEvict:
		e.Update = disruption.InPlaceOrRecreate
	default:
		e.Update, e.Ungated = disruption.InPlace, true
	}
}

// measured disables throttling and pressure without Prometheus.
func (r *Resolver) measured(p *sizing.Policy) (rollout.Settings, rollout.Safety) {
	settings, safety := p.Settings, p.Safety
	if !r.HasPrometheus {
		settings.MetricsMissing = safety.Revert && (safety.Throttle > 0 || safety.Pressure > 0)
		safety.Throttle, safety.Pressure = 0, 0
	}
	return settings, safety
}

// PolicyGone reports whether no SizingPolicy selects the workload of a generated VPA any more.
func (r *Resolver) PolicyGone(e *Effective) bool {
	return e.Skip == reason.PolicyUnknown && e.Decision.Policy == nil && e.Decision.Reason == e.Skip && r.Policies != nil && r.Policies.Readable()
}

// Scopes returns the scope of pod data that an iteration needs, by VPA.
func (r *Resolver) Scopes(vpas []snapshot.VPA, all []Effective) []snapshot.Scope {
	scopes := make([]snapshot.Scope, len(vpas))
	for i := range vpas {
		switch e := &all[i]; {
		case r.PolicyGone(e):
			scopes[i] = snapshot.Shared
		case e.Skip != "", ChangesPods(e.Update) && vpas[i].Unreadable != "":
			scopes[i] = snapshot.Names
		case ChangesPods(e.Update):
			scopes[i] = snapshot.States
		case e.Shares:
			scopes[i] = snapshot.Count
		}
	}
	return scopes
}

// StopReason returns why a planned change must stop, or "": the VPA was deleted, has another mode
// or target, or a policy holds its pods. Shares do not depend on the mode.
func (r *Resolver) StopReason(planned *vpav1.VerticalPodAutoscaler, share bool) reason.Reason {
	if planned == nil {
		return ""
	}
	current, err := r.VPAs.VerticalPodAutoscalers(planned.Namespace).Get(planned.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && convert.Mode(current) != convert.Mode(planned):
		return reason.ModeOff
	case err == nil && convert.UnreadableReason(current) != "":
		return reason.VPAUnreadable
	case err == nil && snapshot.TargetOf(current) != snapshot.TargetOf(planned):
		return reason.StatusOutdated
	case err == nil:
		e := r.Permitted(current)
		if e.Skip == "" && !share && !ChangesPods(e.Update) {
			return reason.ModeOff
		}
		return e.Skip
	}
	return ""
}

// Limits bounds the rollouts of all workloads of one policy in an iteration.
type Limits struct {
	Policy *loadlinev1alpha1.SizingPolicy
	Trip   rollout.Trip // of the fuse; At is zero if it has not tripped
	Starts int          // further workloads that may start
	// StartsBy are the starts so far, by namespace.
	StartsBy map[string]rollout.StartCount

	hash      string
	workloads map[records.Name]target.Workload // under the policy; several VPAs may have one
}

// Limits returns the limits of each policy that governs one of the VPAs, by name. They count the
// records of all workloads, including workloads without pods or with held pods.
func (r *Resolver) Limits(all []Effective, now time.Time) map[string]*Limits {
	limits, policies := map[string]*Limits{}, r.Policies.Snapshot()
	for i := range all {
		e := &all[i]
		if e.Decision.Policy == nil || !e.Selectable || e.Skip == "" && e.Policy == nil && !e.Shares {
			continue
		}
		name := e.Decision.Policy.Name
		p := policies.Policy(name)
		if p == nil {
			continue
		}
		if limits[name] == nil {
			limits[name] = &Limits{Policy: p.Object, hash: e.Decision.Policy.RolloutHash, workloads: map[records.Name]target.Workload{}}
		}
		limits[name].workloads[records.NameOf(e.Workload.Key)] = e.Workload
	}
	for name, l := range limits {
		rounds, p := r.rounds(l), policies.Policy(name)
		l.Trip = convert.FuseTrip(l.Policy, rounds, now)
		l.Starts, l.StartsBy = rounds.Starts(p.Settings.StartRate, p.Safety.Period, now)
	}
	return limits
}

// UpdateTrips adds fuses that have tripped since Limits was called.
func (r *Resolver) UpdateTrips(limits map[string]*Limits, now time.Time) {
	for _, l := range limits {
		if !l.Trip.HoldsPolicy() {
			l.Trip = convert.FuseTrip(l.Policy, r.rounds(l), now)
		}
	}
}

func (r *Resolver) rounds(l *Limits) *rollout.PolicyRounds {
	rounds := &rollout.PolicyRounds{}
	for name, workload := range l.workloads {
		if state, err := r.Records.StateAs(name, workload); err == nil { // otherwise its pods are held
			rounds.Add(name.Namespace, name.Name, state, l.hash)
		}
	}
	return rounds
}

// Status writes conditions of SizingPolicies.
type Status struct {
	Client versioned.Interface // nil: no writes
}

// Write replaces the conditions of a policy, unless another client has written it meanwhile.
func (s Status) Write(ctx context.Context, p *loadlinev1alpha1.SizingPolicy, conditions []metav1.Condition) error {
	if s.Client == nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("print the conditions: %w", err)
	}
	_, err = s.Client.LoadlineV1alpha1().SizingPolicies().Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
