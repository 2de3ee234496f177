package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// revertRetention is how long reverted resources are not applied again.
const revertRetention = 7 * 24 * time.Hour

// targetThreshold is the relative change that makes a target a different one.
const targetThreshold = 0.1

// RecordChange returns the state after a change of a pod.
func (s State) RecordChange(c Change) State {
	s = s.clone()
	if s.round() == nil { // the record was deleted since the round began
		s.openRound(c.At)
	}
	r := s.round()
	r.recordChange(c)
	r.Pods, r.Last = r.Pods+1, later(r.Last, c.At)
	s.recordStart(c.At)
	return s
}

func (s *State) recordStart(at time.Time) {
	if s.Started.IsZero() {
		s.Started = at
	}
	s.StartPending = Condition{}
}

// maxContainers limits the containers with recorded resources.
const maxContainers = 300

// prune drops resources of containers that are not in the target. An empty target is unknown.
func (s *State) prune(target []policy.Container) {
	if len(target) == 0 {
		return
	}
	target = target[:min(len(target), maxContainers)]
	names := make(map[string]bool, len(target))
	for _, c := range target {
		names[c.Name] = true
	}
	s.ProvenResources = slices.DeleteFunc(s.ProvenResources, func(c policy.Container) bool { return !names[c.Name] })
	s.RevertedResources = slices.DeleteFunc(s.RevertedResources, func(r RevertedResources) bool { return !names[r.Name] })
}

// RecordResizeStart returns the state after a node started a resize that had been deferred, or that
// was in progress during a revert. The resize belongs to the newest round.
func (s State) RecordResizeStart(at time.Time) State {
	s = s.clone()
	if len(s.Rounds) > 0 {
		s.Rounds[0].Last = later(s.Rounds[0].Last, at)
	}
	return s
}

// HadRoundAt reports whether a round was in progress at the time of a note, else the note is forged:
// the start of a round is stored before a pod changes.
func (s State) HadRoundAt(at time.Time) bool {
	for i := range s.Rounds {
		r := &s.Rounds[i]
		if !at.Before(r.Time) && (r.Outcome == "" || !at.After(later(r.Ended, later(r.Time, r.Last)))) {
			return true
		}
	}
	return false
}

// HasAdvanced reports whether the rollout differs, except in a round without changed pods.
func (s State) HasAdvanced(before State) bool {
	return s.Phase != before.Phase || s.Hash != before.Hash || s.Mode != before.Mode || !s.CooldownUntil.Equal(before.CooldownUntil) ||
		!s.Started.Equal(before.Started) || len(s.RevertedResources) != len(before.RevertedResources) || s.ended() != before.ended() || s.Degraded.Reason != before.Degraded.Reason ||
		s.ResizeBlocked.Reason != before.ResizeBlocked.Reason || s.ScheduleBlocked.Reason != before.ScheduleBlocked.Reason ||
		s.EvidenceMissing.Reason != before.EvidenceMissing.Reason || s.progress() != before.progress()
}

// progress differs from the stored one if a change of the newest round could not be stored.
func (s State) progress() (changed struct {
	pods int
	last int64
}) {
	if len(s.Rounds) > 0 {
		changed.pods, changed.last = s.Rounds[0].Pods, s.Rounds[0].Last.Unix()
	}
	return changed
}

func (s State) ended() (round struct {
	began int64
	as    Outcome
}) {
	for _, r := range s.Rounds {
		if r.Outcome != "" {
			round.began, round.as = r.Time.Unix(), r.Outcome
			return round
		}
	}
	return round
}

func (r *Round) recordChange(c Change) {
	if !r.begun() {
		r.Time = c.At
	}
	if len(r.From) > 0 {
		return
	}
	for _, container := range c.Containers {
		r.From, r.To = append(r.From, container.From), append(r.To, container.To)
	}
}

// ObservationEnd is a change with a completed observation.
type ObservationEnd struct {
	UID     string
	Change  Change
	Outcome Outcome
	Harm    Harm
}

// EndObservation returns the state after the observation of a change. A reverted change ends its
// round at once. Store the state before the change is removed from the pod: the same end counts
// only once.
func (s State) EndObservation(e ObservationEnd, set Settings, now time.Time) State {
	s = s.clone()
	switch e.Outcome {
	case Success:
		s.recordSuccess(e.Change, now)
	case Reverted, RevertDeferred:
		s.recordHarm(e.Change, now)
		s.setMemberOutcome(e.UID, "") // the outcome of an earlier change does not count
		s.markReverted(e, set, now)
		return s
	}
	s.setMemberOutcome(e.UID, e.Outcome)
	r := s.round()
	if r == nil || e.Change.At.Before(r.Time) {
		return s
	}
	r.recordChange(e.Change)
	if e.Outcome != Failed { // the process may have ended before it counted the change
		r.Pods = max(r.Pods, 1)
	}
	if e.Outcome == Evicted {
		s.recordStart(e.Change.At)
	}
	if o := leadingOutcome(r.SoFar, e.Outcome); o != r.SoFar {
		r.SoFar, r.Reason = o, e.Harm
	}
	return s
}

// setMemberOutcome sets the outcome of a canary member. Empty: its change is retried.
func (s *State) setMemberOutcome(uid string, o Outcome) {
	for i := range s.Members {
		if s.Members[i].UID == uid {
			s.Members[i].Outcome = o
		}
	}
}

// markReverted marks the round of a change as reverted. It also ends a later round in progress, which may
// have the same target.
func (s *State) markReverted(e ObservationEnd, set Settings, now time.Time) {
	if len(s.Rounds) == 0 { // the record was deleted
		s.openRound(e.Change.At)
	}
	index := slices.IndexFunc(s.Rounds, func(r Round) bool { return !e.Change.At.Before(r.Time) })
	if index < 0 {
		return
	}
	if s.Rounds[index].Outcome.reverted() {
		if e.Outcome == RevertDeferred {
			s.Rounds[index].Outcome = e.Outcome
		}
		return
	}
	s.Rounds[index].recordChange(e.Change)
	s.Rounds[index].Pods = max(s.Rounds[index].Pods, 1)
	s.Rounds[index].Outcome, s.Rounds[index].Reason, s.Rounds[index].SoFar, s.Rounds[index].Ended = e.Outcome, e.Harm, "", now
	if r := s.round(); r != nil && r.begun() {
		r.Outcome, r.SoFar, r.Ended = cmp.Or(r.SoFar, Superseded), "", now
	} else if r != nil {
		s.Rounds, index = s.Rounds[1:], index-1
	}
	s.startCooldown(set.Cooldown, now)
	s.CanarySince = time.Time{} // the canary period restarts
	for i := range s.Members {
		s.Members[i].Outcome = ""
	}
	if s.Phase != "" && degraded(s.Rounds[index:]) && degraded(s.Rounds[index+1:]) { // the second revert in a row
		s.Phase = PhaseHalted
	}
}

func (o Outcome) reverted() bool { return o == Reverted || o == RevertDeferred }

// precedence lists outcomes of changes. The first one that occurs is the outcome of the round.
var precedence = []Outcome{Success, Evicted, Failed, Unobserved, Superseded}

func leadingOutcome(a, b Outcome) Outcome {
	for _, o := range precedence {
		if a == o || b == o {
			return o
		}
	}
	return ""
}

// recordSuccess stores the resources of a change, except any that did harm to another pod.
func (s *State) recordSuccess(c Change, now time.Time) {
	for _, container := range c.Containers {
		proven, harmful := s.provenEntry(container.From.Name), s.harmful(container.From.Name, now)
		for k := range resources.Kind(resources.Kinds) {
			proven.Requests = withProven(k, proven.Requests, container.To.Requests, harmful.Requests)
			proven.Limits = withProven(k, proven.Limits, container.To.Limits, harmful.Limits)
		}
	}
}

func withProven(k resources.Kind, proven, successful, harmful resources.List) resources.List {
	if a, ok := successful.Get(k); ok && (!harmful.Has(k) || a > harmful.Value(k)) {
		return proven.With(k, a)
	}
	return proven
}

func (s *State) harmful(name string, now time.Time) RevertedResources {
	for _, r := range s.RevertedResources {
		if r.Name == name && !r.expired(now) {
			return r
		}
	}
	return RevertedResources{}
}

func (s *State) provenEntry(name string) *policy.Container {
	i, found := slices.BinarySearchFunc(s.ProvenResources, name, func(c policy.Container, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		s.ProvenResources = slices.Insert(s.ProvenResources, i, policy.Container{Name: name})
	}
	return &s.ProvenResources[i]
}

// recordHarm stores the lowered resources, and replaces proven ones that are not above them.
func (s *State) recordHarm(c Change, now time.Time) {
	for i := range c.Containers {
		container := &c.Containers[i]
		if !container.lowersAny() {
			continue
		}
		harmful, proven := RevertedResources{Container: policy.Container{Name: container.From.Name}, At: now}, s.provenEntry(container.From.Name)
		for k := range resources.Kind(resources.Kinds) {
			if container.lowersRequest(k) {
				harmful.Requests = harmful.Requests.With(k, container.To.Requests.Value(k))
				proven.Requests = provenAbove(k, proven.Requests, container.To.Requests, container.From.Requests)
			}
			if container.lowersLimit(k) {
				harmful.Limits = harmful.Limits.With(k, container.To.Limits.Value(k))
				proven.Limits = provenAbove(k, proven.Limits, container.To.Limits, container.From.Limits)
			}
		}
		at, found := slices.BinarySearchFunc(s.RevertedResources, harmful.Name, func(r RevertedResources, name string) int { return cmp.Compare(r.Name, name) })
		if !found {
			s.RevertedResources = slices.Insert(s.RevertedResources, at, harmful)
			continue
		}
		if before := s.RevertedResources[at]; !before.expired(now) {
			harmful = harmful.merged(before)
			if !c.At.After(before.At) { // a repeated harmful change, or this end was stored already
				harmful.At = before.At
			}
		}
		s.RevertedResources[at] = harmful
	}
}

func provenAbove(k resources.Kind, proven, to, from resources.List) resources.List {
	if proven.Has(k) && proven.Value(k) > to.Value(k) {
		return proven
	}
	return withCopied(k, proven, from)
}

// merged returns the maximum of both, because all of them did harm.
func (r RevertedResources) merged(before RevertedResources) RevertedResources {
	r.Requests, r.Limits = r.Requests.Larger(before.Requests), r.Limits.Larger(before.Limits)
	return r
}

func (r RevertedResources) expired(now time.Time) bool {
	return now.Sub(r.At) >= revertRetention || r.At.Sub(now) > skew
}

// Floor returns the minimum requests of a container, also for new pods: the last successful
// requests, for kinds with a target at most 10% above the reverted request. It expires after seven
// days or with the policy hash. An empty hash is not compared. Without a floor, a fluctuating
// target would apply harmful resources again and again.
func (s State) Floor(container string, target resources.List, hash string, now time.Time) (floor resources.List) {
	if hash != "" && hash != s.Hash {
		return floor
	}
	r := s.harmful(container, now)
	at := slices.IndexFunc(s.ProvenResources, func(c policy.Container) bool { return c.Name == container })
	if at < 0 {
		return floor
	}
	for k := range resources.Kind(resources.Kinds) {
		bad, did := r.Requests.Get(k)
		wanted, recommended := target.Get(k)
		if !did || !recommended || float64(wanted) > (1+targetThreshold)*float64(bad) {
			continue
		}
		if kept, ok := s.ProvenResources[at].Requests.Get(k); ok && kept > wanted {
			floor = floor.With(k, kept)
		}
	}
	return floor
}

// Floors returns the floors by container for a recommended target, or nil.
func (s State) Floors(target []policy.Container, hash string, now time.Time) (floors map[string]resources.List) {
	if len(s.RevertedResources) == 0 {
		return nil
	}
	for _, c := range target {
		if floor := s.Floor(c.Name, c.Requests, hash, now); !floor.Empty() {
			if floors == nil {
				floors = map[string]resources.List{}
			}
			floors[c.Name] = floor
		}
	}
	return floors
}

const (
	minCooldown  = time.Minute
	maxDoublings = 4
	// skew is the maximum lead of the clock that wrote a stored time.
	skew = time.Hour

	degradedWindow  = 5 // rounds
	degradedReverts = 3 // reverted rounds within degradedWindow
	maxRounds       = 20

	highRevertRate = "HighRevertRate"
)

// Cooldown returns base x 2^min(reverts, 4), with a base of at least one minute; 0 disables it.
func Cooldown(base time.Duration, reverts int) time.Duration {
	if base <= 0 {
		return 0
	}
	return max(base, minCooldown) << min(reverts, maxDoublings)
}

// Reverts counts the reverted rounds since the last Success. Other outcomes are no evidence.
func (s State) Reverts() (count int) {
	for _, r := range s.Rounds {
		switch r.Outcome {
		case Success:
			return count
		case Reverted, RevertDeferred:
			count++
		}
	}
	return count
}

// cooldown returns the end of the cooldown, and whether it is active. A stored end beyond the
// current settings, from older ones or a clock ahead, is cut to a full cooldown from now, or
// ignored if over one hour too late.
func (s State) cooldown(base time.Duration, now time.Time) (until time.Time, active bool) {
	latest := now.Add(Cooldown(base, s.Reverts()))
	until = s.CooldownUntil
	if until.After(latest) {
		if until.After(latest.Add(skew)) {
			return time.Time{}, false
		}
		until = latest
	}
	return until, now.Before(until)
}

func degraded(rounds []Round) bool {
	seen, reverts := 0, 0
	for _, r := range rounds {
		if r.Outcome == "" {
			continue
		}
		if seen++; seen > degradedWindow {
			break
		}
		if r.Outcome.reverted() {
			reverts++
		}
	}
	return reverts >= degradedReverts
}

func (s *State) openRound(now time.Time) {
	s.Rounds = append([]Round{{Time: now}}, s.Rounds[:min(len(s.Rounds), maxRounds-1)]...)
}

func (s *State) closeRound(o Outcome, base time.Duration, now time.Time) {
	s.Rounds[0].Outcome, s.Rounds[0].SoFar, s.Rounds[0].Ended = o, "", now
	s.startCooldown(base, now)
}

func (s *State) startCooldown(base time.Duration, now time.Time) {
	s.CooldownUntil = time.Time{}
	if pause := Cooldown(base, s.Reverts()); pause > 0 {
		s.CooldownUntil = now.Add(pause)
	}
	reason := ""
	if degraded(s.Rounds) {
		reason = highRevertRate
	}
	s.Degraded.set(reason, now)
}
