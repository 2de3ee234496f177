package policies

import (
	"time"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/records"
)

// Limits limit the rollouts of all workloads of one policy in an iteration.
type Limits struct {
	Policy *loadlinev1alpha1.SizingPolicy
	Trip   rollout.Trip // of the fuse; its At is zero if the fuse has not tripped
	Starts int          // further workloads that may start
	// StartsBy are the starts so far, by namespace.
	StartsBy map[string]rollout.StartCount

	hash      string
	workloads map[records.Name]target.Workload // under the policy; several VPAs may have one
}

// Limits returns the limits of each policy that governs one of the VPAs, by name. They count the records of all
// workloads, also of those without pods or with held pods.
func (r *Resolver) Limits(all []Effective, now time.Time) map[string]*Limits {
	var limits map[string]*Limits
	policies := r.Policies.Now()
	for i := range all {
		e := &all[i]
		if e.Decision.Policy == nil || !e.Known || e.Skip == "" && e.Policy == nil && !e.Shares {
			continue
		}
		name := e.Decision.Policy.Name
		p := policies.Policy(name)
		if p == nil {
			continue
		}
		if limits == nil {
			limits = map[string]*Limits{}
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

// rounds sums up the rounds of the workloads of a policy.
func (r *Resolver) rounds(l *Limits) *rollout.PolicyRounds {
	rounds := &rollout.PolicyRounds{}
	for name, workload := range l.workloads {
		if state, err := r.Records.StateAs(name, workload); err == nil { // otherwise its pods are held
			rounds.Add(name.Namespace, name.Name, state, l.hash)
		}
	}
	return rounds
}
