package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// keptFor is how long what did harm is not tried again.
const keptFor = 7 * 24 * time.Hour

// moved is the relative change of a target from which on it counts as another one.
const moved = 0.1

// Changed returns the state after a pod was changed.
func (s State) Changed(c Change) State {
	s = s.clone()
	if s.round() == nil { // the record was deleted since the round began
		s.open(c.At)
	}
	r := s.round()
	r.note(c)
	r.Pods, r.Last = r.Pods+1, later(r.Last, c.At)
	s.start(c.At)
	return s
}

// start notes the first change under the current hash.
func (s *State) start(at time.Time) {
	if s.Started.IsZero() {
		s.Started = at
	}
	s.StartPending = Condition{}
}

// maxContainers bounds the containers whose sizes are remembered.
const maxContainers = 300

// prune forgets the sizes of containers that are not in a target. An empty target is unknown.
func (s *State) prune(target []policy.Container) {
	if len(target) == 0 {
		return
	}
	target = target[:min(len(target), maxContainers)]
	names := make(map[string]bool, len(target))
	for _, c := range target {
		names[c.Name] = true
	}
	s.Kept = slices.DeleteFunc(s.Kept, func(c policy.Container) bool { return !names[c.Name] })
	s.Reverted = slices.DeleteFunc(s.Reverted, func(r RevertedSizes) bool { return !names[r.Name] })
}

// Began returns the state after a node began with a change for which it had no room before, or with
// one that was on its way while its round was reverted: it belongs to the newest round.
func (s State) Began(at time.Time) State {
	s = s.clone()
	if len(s.Rounds) > 0 {
		s.Rounds[0].Last = later(s.Rounds[0].Last, at)
	}
	return s
}

// HadRoundAt reports whether a change may have been made at a time: a round went on then. Before a pod is changed it is
// stored that a round goes on. That the pod was changed may not be stored, so the times of changes do not count.
func (s State) HadRoundAt(at time.Time) bool {
	for i := range s.Rounds {
		r := &s.Rounds[i]
		if !at.Before(r.Time) && (r.Outcome == "" || !at.After(later(r.Ended, later(r.Time, r.Last)))) {
			return true
		}
	}
	return false
}

// Turned reports whether a rollout is at another point than an earlier state says. That a round may begin, and which
// pods would be members of a canary then, is no news as long as nothing was changed.
func (s State) Turned(before State) bool {
	return s.Phase != before.Phase || s.Hash != before.Hash || s.Mode != before.Mode || !s.CooldownUntil.Equal(before.CooldownUntil) ||
		!s.Started.Equal(before.Started) || len(s.Reverted) != len(before.Reverted) || s.ended() != before.ended() || s.Degraded.Reason != before.Degraded.Reason ||
		s.ResizeBlocked.Reason != before.ResizeBlocked.Reason || s.ScheduleBlocked.Reason != before.ScheduleBlocked.Reason ||
		s.EvidenceMissing.Reason != before.EvidenceMissing.Reason || s.progress() != before.progress()
}

// progress is what the newest round has changed. It differs from the stored one where a change could not be stored.
func (s State) progress() (changed struct {
	pods int
	last int64
}) {
	if len(s.Rounds) > 0 {
		changed.pods, changed.last = s.Rounds[0].Pods, s.Rounds[0].Last.Unix()
	}
	return changed
}

// ended is when the newest of the rounds that have ended began, and what came of it.
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

// note takes over from the first change when the round began and what it brings.
func (r *Round) note(c Change) {
	if !r.begun() {
		r.Time = c.At
	}
	if len(r.From) > 0 {
		return
	}
	for _, one := range c.Containers {
		r.From, r.To = append(r.From, one.From), append(r.To, one.To)
	}
}

// Ending is a change whose observation has ended.
type Ending struct {
	UID     string // of the pod
	Change  Change
	Outcome Outcome
	Harm    Harm
}

// End returns the state after the observation of a change has ended. A change that was
// reverted ends its round at once; more of them in the same round count as one. The state
// is to be stored before the note is taken off the pod: the same end twice counts once.
func (s State) End(e Ending, set Settings, now time.Time) State {
	s = s.clone()
	switch e.Outcome {
	case Success:
		s.keep(e.Change, now)
	case Reverted, RevertDeferred:
		s.avoid(e.Change, now)
		s.tried(e.UID, "") // that of an end before does not count
		s.revert(e, set, now)
		return s
	}
	s.tried(e.UID, e.Outcome)
	r := s.round()
	if r == nil || e.Change.At.Before(r.Time) {
		return s
	}
	r.note(e.Change)
	if e.Outcome != Failed { // it was changed, and the process may have ended before it was counted
		r.Pods = max(r.Pods, 1)
	}
	if e.Outcome == Evicted {
		s.start(e.Change.At)
	}
	if o := first(r.SoFar, e.Outcome); o != r.SoFar {
		r.SoFar, r.Reason = o, e.Harm
	}
	return s
}

// tried notes what came of the last change of a pod, if it is a member of the canary; empty: it is to be tried anew.
func (s *State) tried(uid string, o Outcome) {
	for i := range s.Members {
		if s.Members[i].UID == uid {
			s.Members[i].Outcome = o
		}
	}
}

// revert makes the round that a change belongs to a Reverted one, once. Whatever round goes
// on ends: its target may be the same.
func (s *State) revert(e Ending, set Settings, now time.Time) {
	if len(s.Rounds) == 0 { // the record was deleted
		s.open(e.Change.At)
	}
	of := slices.IndexFunc(s.Rounds, func(r Round) bool { return !e.Change.At.Before(r.Time) })
	if of < 0 {
		return
	}
	if s.Rounds[of].Outcome.reverted() {
		if e.Outcome == RevertDeferred {
			s.Rounds[of].Outcome = e.Outcome
		}
		return
	}
	s.Rounds[of].note(e.Change)
	s.Rounds[of].Pods = max(s.Rounds[of].Pods, 1)
	s.Rounds[of].Outcome, s.Rounds[of].Reason, s.Rounds[of].SoFar, s.Rounds[of].Ended = e.Outcome, e.Harm, "", now
	if r := s.round(); r != nil && r.begun() {
		r.Outcome, r.SoFar, r.Ended = cmp.Or(r.SoFar, Superseded), "", now
	} else if r != nil {
		s.Rounds, of = s.Rounds[1:], of-1
	}
	s.coolDown(set.Cooldown, now)
	s.CanarySince = time.Time{} // it begins anew
	for i := range s.Members {
		s.Members[i].Outcome = ""
	}
	if s.Phase != "" && degraded(s.Rounds[of:]) && degraded(s.Rounds[of+1:]) {
		s.Phase = PhaseHalted
	}
}

// reverted reports whether a change did harm and was to be taken back.
func (o Outcome) reverted() bool { return o == Reverted || o == RevertDeferred }

// precedence is what a round ends as, of the outcomes of its changes: the first that is there.
var precedence = []Outcome{Success, Evicted, Failed, Unobserved, Superseded}

func first(a, b Outcome) Outcome {
	for _, o := range precedence {
		if a == o || b == o {
			return o
		}
	}
	return ""
}

// keep notes the sizes of a change that did well, but none that did harm to another pod.
func (s *State) keep(c Change, now time.Time) {
	for _, one := range c.Containers {
		kept, bad := s.kept(one.From.Name), s.bad(one.From.Name, now)
		for k := range resources.Kind(resources.Kinds) {
			kept.Requests = better(k, kept.Requests, one.To.Requests, bad.Requests)
			kept.Limits = better(k, kept.Limits, one.To.Limits, bad.Limits)
		}
	}
}

// better returns kept with the amount of a kind that did well, if it is above what did harm.
func better(k resources.Kind, kept, well, bad resources.List) resources.List {
	if a, ok := well.Get(k); ok && (!bad.Has(k) || a > bad.Value(k)) {
		return kept.With(k, a)
	}
	return kept
}

// bad returns the sizes of a container that did harm and are not to be tried again yet.
func (s *State) bad(name string, now time.Time) RevertedSizes {
	for _, r := range s.Reverted {
		if r.Name == name && !r.expired(now) {
			return r
		}
	}
	return RevertedSizes{}
}

// kept returns the entry of a container in Kept, which it adds if there is none.
func (s *State) kept(name string) *policy.Container {
	i, found := slices.BinarySearchFunc(s.Kept, name, func(c policy.Container, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		s.Kept = slices.Insert(s.Kept, i, policy.Container{Name: name})
	}
	return &s.Kept[i]
}

// avoid notes what a change lowered and had to give back. Sizes that were kept before but
// are no larger than that did not do well after all.
func (s *State) avoid(c Change, now time.Time) {
	for i := range c.Containers {
		one := &c.Containers[i]
		if !one.lowersAny() {
			continue
		}
		bad, kept := RevertedSizes{Container: policy.Container{Name: one.From.Name}, At: now}, s.kept(one.From.Name)
		for k := range resources.Kind(resources.Kinds) {
			if one.lowersRequest(k) {
				bad.Requests = bad.Requests.With(k, one.To.Requests.Value(k))
				kept.Requests = atLeast(k, kept.Requests, one.To.Requests, one.From.Requests)
			}
			if one.lowersLimit(k) {
				bad.Limits = bad.Limits.With(k, one.To.Limits.Value(k))
				kept.Limits = atLeast(k, kept.Limits, one.To.Limits, one.From.Limits)
			}
		}
		at, found := slices.BinarySearchFunc(s.Reverted, bad.Name, func(r RevertedSizes, name string) int { return cmp.Compare(r.Name, name) })
		if !found {
			s.Reverted = slices.Insert(s.Reverted, at, bad)
			continue
		}
		if before := s.Reverted[at]; !before.expired(now) {
			bad = bad.merged(before)
			if !c.At.After(before.At) { // it did the same harm, or this end was stored already
				bad.At = before.At
			}
		}
		s.Reverted[at] = bad
	}
}

// atLeast returns kept with the amount from where it has none above to.
func atLeast(k resources.Kind, kept, to, from resources.List) resources.List {
	if kept.Has(k) && kept.Value(k) > to.Value(k) {
		return kept
	}
	return copied(k, kept, from)
}

// merged returns r with the amounts that were reverted before: the largest of both, since all of them did harm.
func (r RevertedSizes) merged(before RevertedSizes) RevertedSizes {
	r.Requests, r.Limits = r.Requests.Larger(before.Requests), r.Limits.Larger(before.Limits)
	return r
}

func (r RevertedSizes) expired(now time.Time) bool {
	return now.Sub(r.At) >= keptFor || r.At.Sub(now) > skew
}

// Floor returns below which requests a container must not be lowered, and what a new pod gets at least: the last sizes
// that did well, of the kinds for which the target is not above what was reverted by a tenth. That lasts for seven
// days, and no longer than the policy keeps its hash; an empty hash is not compared. A target that wanders around what
// did harm would be tried again and again otherwise.
func (s State) Floor(container string, target resources.List, hash string, now time.Time) (floor resources.List) {
	if hash != "" && hash != s.Hash {
		return floor
	}
	r := s.bad(container, now)
	at := slices.IndexFunc(s.Kept, func(c policy.Container) bool { return c.Name == container })
	if at < 0 {
		return floor
	}
	for k := range resources.Kind(resources.Kinds) {
		bad, did := r.Requests.Get(k)
		wanted, recommended := target.Get(k)
		if !did || !recommended || float64(wanted) > (1+moved)*float64(bad) {
			continue
		}
		if kept, ok := s.Kept[at].Requests.Get(k); ok && kept > wanted {
			floor = floor.With(k, kept)
		}
	}
	return floor
}

// Floors returns the floor of each container that has one; nil: none has. The target is what is recommended.
func (s State) Floors(target []policy.Container, hash string, now time.Time) (floors map[string]resources.List) {
	if len(s.Reverted) == 0 {
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

// The numbers of cooldown and history.
const (
	leastCooldown = time.Minute
	mostDoublings = 4
	// skew is by how much the clock that wrote a time may be ahead of this one.
	skew = time.Hour

	degradedWindow  = 5 // rounds
	degradedReverts = 3 // of these
	mostRounds      = 20

	highRevertRate = "HighRevertRate"
)

// Cooldown returns how long after a round the next one may begin, when so many rounds in a row were reverted: base x
// 2^min(reverts, 4). A base of 0 is no cooldown, one below a minute counts as a minute.
func Cooldown(base time.Duration, reverts int) time.Duration {
	if base <= 0 {
		return 0
	}
	return max(base, leastCooldown) << min(reverts, mostDoublings)
}

// Reverts returns how many rounds in a row were reverted. A Success ends the row; Failed,
// Evicted and whatever else says nothing about the target neither count nor end it.
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

// coolsDown reports whether the cooldown lasts, and until when. A cooldown that would last
// longer than the policy now gives was begun by a clock that is ahead, or with other
// settings: by up to an hour it counts as begun now, beyond that not at all.
func (s State) coolsDown(base time.Duration, now time.Time) (until time.Time, lasts bool) {
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

// degraded reports whether at least three of the last five rounds were reverted.
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

// open begins a round at now.
func (s *State) open(now time.Time) {
	s.Rounds = append([]Round{{Time: now}}, s.Rounds[:min(len(s.Rounds), mostRounds-1)]...)
}

// close ends the newest round.
func (s *State) close(o Outcome, base time.Duration, now time.Time) {
	s.Rounds[0].Outcome, s.Rounds[0].SoFar, s.Rounds[0].Ended = o, "", now
	s.coolDown(base, now)
}

// coolDown begins the cooldown after a round has ended.
func (s *State) coolDown(base time.Duration, now time.Time) {
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
