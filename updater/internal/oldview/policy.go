package oldview

import (
	"maps"
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
	"loadline.dev/loadline/updater/records"
)

// Rollout is how the running pods of a VPA are changed under a SizingPolicy.
type Rollout struct {
	Policy   string
	Rival    string // another policy that would be responsible but for its name; empty: none
	Mode     fleet.Mode
	Workload target.Workload // the target of the VPA
	Settings rollout.Settings
	Safety   rollout.Safety
	// Observed says that each change is noted on its pod, and taken back if it does harm.
	Observed bool
	// Target is what is recommended, by container, without any of the floors.
	Target []policy.Container

	// ShortHistory reports that the recommendation rests on less usage than the policy requires.
	ShortHistory bool

	// HPA says that a HorizontalPodAutoscaler looks at a resource of the pods, or that nobody knows
	// whether one does.
	HPA bool

	// Resting says that no pod of the workload is to be changed, observed or waited for, and that
	// nothing else of the rollout can go on: package rollout need not be asked.
	Resting bool

	limits limits
	quiet  bool // see quietWith
}

// quietWith reports whether package rollout leaves what is remembered of a workload as it is, and has
// nothing to say, as long as its pods have what they would get.
func (r *Rollout) quietWith(s rollout.State, m disruption.Mode) bool {
	switch {
	case r.Mode == fleet.Inherit, r.HPA, r.LeftOut() != "": // the pods have reasons, or the VPA gets an event
		return false
	case m == disruption.Recreate && (r.Mode != fleet.Auto || !r.Settings.Recreate): // may be held for that
		return false
	case r.Mode != fleet.Canary && len(s.Rounds) == 0: // of such a workload nothing is stored
		return true
	case len(s.Rounds) == 0 || s.Rounds[0].Outcome == "", s.Mode != r.Mode, r.Settings.Hash != "" && r.Settings.Hash != s.Hash:
		return false
	case r.Settings.Unmeasured != (s.EvidenceMissing.Reason != ""):
		return false
	case r.Mode == fleet.Canary && s.Phase != rollout.PhaseFullRollout, r.Mode != fleet.Canary && s.Phase != "":
		return false
	}
	return len(s.Reverted) == 0 && s.ResizeBlocked.Reason == "" && s.ScheduleBlocked.Reason == ""
}

// limits are what a rollout takes out of a recommendation.
type limits struct {
	floors map[string]resources.List // by container, see rollout.State.Floor
	left   sizing.LookedAt           // resources that stay as they are
	max    *policy.Rules             // whose maxAllowed bounds a user VPA; nil: none
}

func (l limits) equal(other limits) bool {
	return maps.Equal(l.floors, other.floors) && maps.Equal(l.left, other.left) && l.max == other.max
}

// LeftOut says why a pod that is not to be changed may still have something else than what is
// recommended; empty: it has not.
func (r *Rollout) LeftOut() reason.Reason {
	switch {
	case len(r.limits.floors) > 0:
		return reason.RevertBackoff
	case len(r.limits.left) > 0:
		return reason.ManagedByHPA
	}
	return ""
}

// rolloutOf returns the settings and the safety of a policy. Without Prometheus, throttling and pressure are not measured.
func (r *Reader) rolloutOf(p *sizing.Policy) (rollout.Settings, rollout.Safety) {
	settings, safety := p.Settings, p.Safety
	if !r.Measures {
		settings.Unmeasured = safety.Revert && (safety.Throttle > 0 || safety.Pressure > 0)
		safety.Throttle, safety.Pressure = 0, 0
	}
	return settings, safety
}

// permission is what may be done with the running pods of a VPA.
type permission struct {
	mode    disruption.Mode
	ungated bool // mode InPlace of a policy, which needs no feature gate
	// held is why a policy, or the lack of one, holds the pods; empty: nothing does, or the mode
	// of the VPA already does that.
	held    reason.Reason
	rollout *Rollout // nil: the VPA alone decides
	shares  bool     // the policy wants the pods to share what their nodes have left
}

// spoken is what a VPA says by itself, whatever policies say.
type spoken struct {
	by   *vpav1.VerticalPodAutoscaler
	own  disruption.Mode
	made bool // for a policy
}

func listen(vpa *vpav1.VerticalPodAutoscaler) spoken {
	return spoken{by: vpa, own: mode(convert.Mode(vpa)), made: convert.MadeForPolicy(vpa)}
}

// permitted returns what may be done with the running pods of a VPA: as its own mode says
// if a person wrote it, and no more than a policy gives; as the policy says if it was made.
func (r *Reader) permitted(vpa *vpav1.VerticalPodAutoscaler) permission {
	return r.permittedTo(&ruled{spoken: listen(vpa)})
}

// permittedTo does so, with what is known of the VPA.
func (r *Reader) permittedTo(vpa *ruled) permission {
	vpa.answer = r.Policies.Answer(vpa.by, vpa.made) // the memory of the last answer is gone
	vpa.given = r.givenTo(vpa)
	of := vpa.given.rollout
	if of == nil {
		return vpa.given
	}
	of.Resting = false // until its pods are read
	if of.limits.max = nil; !vpa.made {
		of.limits.max = vpa.answer.UserMax()
	}
	if of.Mode != fleet.Inherit {
		of.ShortHistory = convert.AnyHasShortHistory(vpa.by, vpa.answer.Policy.MinHistory)
		looked := r.HPAs.LooksAt(targetOf(vpa.by))
		if of.HPA, of.limits.left = len(looked) > 0, nil; !vpa.answer.Policy.BesideHPAs {
			of.limits.left = looked
		}
	}
	return vpa.given
}

// givenTo returns what may be done after the last answer of the policies, whatever autoscalers look
// at. It writes the rollout to where one was, which nobody needs any more.
func (r *Reader) givenTo(vpa *ruled) permission {
	d := &vpa.answer.Decision
	if d.Reason != "" {
		if acts(vpa.own) || vpa.made && d.Reason != reason.ModeOff {
			return permission{mode: vpa.own, held: d.Reason}
		}
		return permission{mode: vpa.own}
	}
	var governing *sizing.Policy
	if d.Policy != nil {
		governing = r.Policies.Now().Policy(d.Policy.Name)
	}
	if governing == nil {
		return permission{mode: vpa.own}
	}
	settings, safety := r.rolloutOf(governing)
	if d.Mode == fleet.Inherit && !safety.Revert && settings.Schedule == nil && settings.Recreate { // the VPA alone decides
		return permission{mode: vpa.own}
	}
	p := permission{mode: vpa.own}
	switch recreates := settings.Recreate; {
	case vpa.own == disruption.InPlace && !vpa.made:
	case vpa.own == disruption.Recreate && !recreates:
		p.held = reason.EvictionNotAllowed // what was changed before is judged all the same
	case vpa.own == disruption.Recreate:
	case recreates:
		p.mode = disruption.InPlaceOrRecreate
	default:
		p.mode, p.ungated = disruption.InPlace, true
	}
	switch {
	case !vpa.answer.Known:
		return permission{mode: vpa.own, held: reason.NoRecord} // it could own none
	case vpa.answer.Workload.Key.Kind == "CronJob" && vpa.answer.Workload.Key.Group == "":
		return permission{mode: vpa.own, held: reason.JobNotResized}
	}
	if p.rollout = vpa.given.rollout; p.rollout == nil {
		p.rollout = &Rollout{}
	}
	*p.rollout = Rollout{
		Policy: d.Policy.Name, Rival: vpa.answer.Rival, Mode: d.Mode, Workload: vpa.answer.Workload, Settings: settings, Safety: safety,
		Observed: d.Mode != fleet.Inherit || safety.Revert,
	}
	return p
}

// ruled is a VPA that a policy has a say about.
type ruled struct {
	spoken
	permission

	answer sizing.Answer
	given  permission // see givenTo
	same   bool       // the answer still held when it was asked for last
	read   recorded
	named  *named // nil: not made yet
	pass   int32
	known  *knownVPA // as it was read last; nil: it was not
}

// recorded says whether what was read of a record still holds: nothing was taken back, which is
// remembered for a time only, and no autoscaler looked at the pods.
type recorded struct {
	lasts   bool
	changes uint64 // of records, before it was read
}

// named is what a VPA recommends, and under which names other things are asked for on its behalf,
// in each pass.
type named struct {
	target []policy.Container // see ruled.target; nil: not made yet, or nothing is recommended
	record records.Name       // see ruled.record; zero: not made yet
}

func (v *ruled) names() *named {
	if v.named == nil {
		v.named = &named{}
	}
	return v.named
}

// record returns the name of the record of the workload.
func (v *ruled) record() records.Name {
	n := v.names()
	if n.record == (records.Name{}) {
		n.record = records.NameOf(targetOf(v.by))
	}
	return n.record
}

// target returns what the VPA recommends, by name of the container.
func (v *ruled) target() []policy.Container {
	n := v.names()
	if n.target == nil {
		n.target = targets(v.by)
	}
	return n.target
}

// rule asks the policies about a VPA in a pass, with what is remembered of its workload: a policy
// can change when nothing else does.
func (r *Reader) rule(vpa *vpav1.VerticalPodAutoscaler, now time.Time) permission {
	known := r.memo.ruled[vpa]
	if known == nil {
		known = r.memo.spare
	}
	if known.by != vpa {
		known.spoken, known.named = listen(vpa), nil
	}
	p := r.permittedTo(known)
	shares := known.answer.Policy != nil && known.answer.Policy.Sharing.Mode != fleet.SharingOff
	if p.held == "" && p.rollout == nil && !shares {
		return p
	}
	if known == r.memo.spare {
		r.memo.ruled[vpa], r.memo.spare = known, &ruled{}
	}
	known.permission, known.pass = r.withFloors(p, known, now), r.memo.pass
	known.shares = shares
	return known.permission
}

// targets are what a VPA recommends, sorted by container.
func targets(vpa *vpav1.VerticalPodAutoscaler) (all []policy.Container) {
	recommendation := convert.Recommendation(vpa.Status.Recommendation)
	for _, name := range slices.Sorted(maps.Keys(recommendation)) {
		all = append(all, policy.Container{Name: name, Requests: recommendation[name].Target})
	}
	return all
}

// withFloors completes what a policy gives a VPA with what it recommends, and with what is
// remembered of its workload.
func (r *Reader) withFloors(p permission, vpa *ruled, now time.Time) permission {
	if p.rollout == nil {
		return p
	}
	before := recorded{lasts: !p.rollout.HPA, changes: r.Records.Changes()}
	if vpa.same && before.lasts && vpa.read == before {
		return p // with the floors that it had: none
	}
	vpa.read = recorded{}
	p.rollout.Target = vpa.target()
	state, err := r.Records.StateAs(vpa.record(), p.rollout.Workload)
	if err != nil { // nobody knows what did harm before
		return permission{mode: p.mode, held: reason.NoRecord}
	}
	p.rollout.limits.floors = state.Floors(p.rollout.Target, p.rollout.Settings.Hash, now)
	p.rollout.quiet = p.rollout.quietWith(state, p.mode)
	if len(state.Reverted) == 0 {
		vpa.read = before
	}
	return p
}

// within returns a reading that recommends no less than some amounts, and nothing of what is to
// stay as it is.
func (r Reading) within(l limits) Reading {
	r.Rules.Outer = l.max
	if len(l.floors) == 0 && len(l.left) == 0 {
		return r
	}
	r.Recommendation, r.floors = maps.Clone(r.Recommendation), l.floors
	for name, b := range r.Recommendation {
		left := l.left.Of(name)
		b = b.AtLeast(l.floors[name])
		for k := range resources.Kind(resources.Kinds) {
			if left[k] {
				b.Lower, b.Target, b.Upper = b.Lower.Without(k), b.Target.Without(k), b.Upper.Without(k)
			}
		}
		r.Recommendation[name] = b
	}
	return r
}
