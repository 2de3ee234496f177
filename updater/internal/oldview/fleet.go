package oldview

import (
	"time"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/records"
)

// PolicyLimits limit the rollouts of all workloads of one policy in a pass.
type PolicyLimits struct {
	Policy *loadlinev1alpha1.SizingPolicy
	Trip   rollout.Trip // of the fuse; its At is zero if the fuse has not tripped
	Starts int          // further workloads that may start
	// StartsBy are the starts so far, by namespace.
	StartsBy map[string]rollout.StartCount
}

// Limits returns the limits of each policy that governs a VPA of the last Snapshot, by name. It
// reads what is remembered of all its workloads, also of those without pods or whose pods are held.
func (r *Reader) Limits(now time.Time) map[string]*PolicyLimits {
	if r.memo == nil || len(r.memo.ruled) == 0 {
		return nil
	}
	r.sumUpRounds()
	limits := make(map[string]*PolicyLimits, len(r.memo.rounds))
	for name, rounds := range r.memo.rounds {
		policy := r.Policies.Now().Policy(name)
		if policy == nil {
			delete(r.memo.rounds, name)
			continue
		}
		l := &PolicyLimits{Policy: policy.Object, Trip: convert.FuseTrip(policy.Object, rounds, now)}
		l.Starts, l.StartsBy = rounds.Starts(policy.Settings.StartRate, policy.Safety.Period, now)
		limits[name] = l
	}
	return limits
}

// UpdateTrips adds fuses that have tripped since Limits was called.
func (r *Reader) UpdateTrips(limits map[string]*PolicyLimits, now time.Time) {
	r.sumUpRounds()
	for name, l := range limits {
		if rounds := r.memo.rounds[name]; rounds != nil && !l.Trip.HoldsPolicy() {
			l.Trip = convert.FuseTrip(l.Policy, rounds, now)
		}
	}
}

// sumUpRounds sums up the rounds of each policy.
func (r *Reader) sumUpRounds() {
	for _, rounds := range r.memo.rounds {
		rounds.Reset()
	}
	counted := make(map[records.Name]bool, len(r.memo.ruled)) // a workload may have several VPAs
	for _, v := range r.memo.ruled {
		policy := v.answer.Policy
		if policy == nil || !v.answer.Known || counted[v.record()] {
			continue
		}
		name := v.record()
		counted[name] = true
		rounds := r.memo.rounds[policy.Name]
		if rounds == nil {
			rounds = &rollout.PolicyRounds{}
			r.memo.rounds[policy.Name] = rounds
		}
		if state, err := r.Records.StateAs(name, v.answer.Workload); err == nil { // else its pods are held for that
			rounds.Add(name.Namespace, name.Name, state, policy.RolloutHash)
		}
	}
}
