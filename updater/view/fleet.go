package view

import (
	"time"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/rollout"
)

// Pace is what limits the rollouts of all workloads of one policy in a pass.
type Pace struct {
	Policy *loadlinev1alpha1.SizingPolicy
	Trip   rollout.Trip // of the fuse; its At is zero if the fuse has not tripped
	Starts int          // further workloads that may begin
}

// Paces returns the pace of each policy that governs a VPA of the last Snapshot, by name. It reads what
// is remembered of all its workloads, also of those without pods or whose pods are held. The answer is good
// until the next call, which uses its memory.
func (r *Reader) Paces(now time.Time) map[string]*Pace {
	if r.memo == nil || len(r.memo.ruled) == 0 {
		return nil
	}
	r.sumUpRounds()
	paces := r.memo.paces
	for name, f := range r.memo.fleets {
		object := r.Policies.Now().Object(name)
		if object == nil {
			delete(r.memo.fleets, name)
			delete(paces, name)
			continue
		}
		rule := r.ruleOf(object)
		if paces[name] == nil {
			paces[name] = &Pace{}
		}
		*paces[name] = Pace{Policy: object, Trip: convert.Fuse(object, f, now), Starts: f.Starts(rule.settings.StartRate, rule.safety.Period, now)}
	}
	return paces
}

// UpdateTrips adds fuses that have tripped since Paces was called.
func (r *Reader) UpdateTrips(paces map[string]*Pace, now time.Time) {
	r.sumUpRounds()
	for name, pace := range paces {
		if f := r.memo.fleets[name]; f != nil && pace.Trip.At.IsZero() {
			pace.Trip = convert.Fuse(pace.Policy, f, now)
		}
	}
}

// sumUpRounds fills the fleet of each policy.
func (r *Reader) sumUpRounds() {
	for _, f := range r.memo.fleets {
		f.Reset()
	}
	counted := r.memo.counted // a workload may have several VPAs
	clear(counted)
	for _, v := range r.memo.ruled {
		policy := v.answer.Policy
		if policy == nil || !v.answer.Known || counted[v.record()] {
			continue
		}
		name := v.record()
		counted[name] = true
		f := r.memo.fleets[policy.Name]
		if f == nil {
			f = &rollout.Fleet{}
			r.memo.fleets[policy.Name] = f
		}
		if state, err := r.Records.StateAs(name, v.answer.Workload); err == nil { // else its pods are held for that
			f.Add(state, policy.RolloutHash)
		}
	}
}
