package rollout

import "time"

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

// Cooldown returns how long after a round the next one may begin, when so many rounds in a
// row were reverted: base x 2^min(reverts, 4). A base of 0 is no cooldown, one below a
// minute counts as a minute.
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
