package rollout

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// world simulates one workload with its pods, its record, and a process that can crash at any time.
type world struct {
	*rapid.T
	now         time.Time
	set         Settings
	safety      Safety
	mode        fleet.Mode
	paused      bool
	limited     bool // limits are twice the requests
	target      resources.List
	pods        []*simulatedPod
	podsCreated int
	record      State // as stored

	ended           map[string]Outcome // of changes, by pod and time
	revertedChanges []revertedChange
	until           time.Time // end of the cooldown, computed independently
	counts          map[string]bool

	// Progress of the canary since it began or restarted, computed independently.
	since time.Time          // its first change; zero: there was none
	tried map[string]Outcome // of the last change, by pod
}

type simulatedPod struct {
	uid      string
	sizes    policy.Container
	note     *Change
	restarts int
	killed   time.Time
	unready  time.Time  // since when; zero: ready
	away     bool       // its node is not ready
	shares   [4]float64 // throttled and before, pressure and before
	deferred bool
	foreign  bool // another client changed it since its change
}

type revertedChange struct {
	cpu resources.Amount
	at  time.Time
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: noon, safety: careful, ended: map[string]Outcome{}, counts: map[string]bool{}, tried: map[string]Outcome{}}
	w.safety.Period = rapid.SampledFrom([]time.Duration{time.Minute, DefaultPeriod, 20 * time.Minute}).Draw(t, "period")
	w.safety.Throttle = rapid.SampledFrom([]float64{0, DefaultThrottle}).Draw(t, "throttle")
	w.safety.Pressure = rapid.SampledFrom([]float64{0, DefaultPressure}).Draw(t, "pressure")
	w.set = settings()
	w.set.Percentage = rapid.SampledFrom([]int{1, 10, 50, 100}).Draw(t, "percentage")
	w.set.AutoPromote = rapid.IntRange(0, 3).Draw(t, "promotes") > 0
	w.set.CanaryPeriod = rapid.SampledFrom([]time.Duration{DefaultPeriod, 3 * time.Hour}).Draw(t, "canary")
	w.set.MaxConcurrent = rapid.IntRange(0, 3).Draw(t, "concurrent")
	w.set.Cooldown = rapid.SampledFrom([]time.Duration{0, 10 * time.Second, time.Minute, time.Hour}).Draw(t, "cooldown")
	w.mode = rapid.SampledFrom([]fleet.Mode{fleet.OneShot, fleet.Canary, fleet.Canary, fleet.Auto}).Draw(t, "mode")
	w.limited = rapid.Bool().Draw(t, "limited")
	w.target = resources.NewList(200, 100)
	w.add(rapid.IntRange(1, 12).Draw(t, "pods"))
	return w
}

func (w *world) add(n int) {
	for range n {
		w.podsCreated++
		w.pods = append(w.pods, &simulatedPod{uid: fmt.Sprintf("p%02d", w.podsCreated), sizes: w.sized(resources.NewList(5000, 3000))})
	}
}

func (w *world) sized(requests resources.List) policy.Container {
	c := policy.Container{Name: "app", Requests: requests}
	for k := range resources.Kind(resources.Kinds) {
		if w.limited {
			c.Limits = c.Limits.With(k, 2*requests.Value(k))
		}
	}
	return c
}

// sidecarEvidence is the evidence of an unhealthy sidecar that no change touches.
func (w *world) sidecarEvidence() ContainerEvidence {
	return ContainerEvidence{Container: sizes("proxy", 100, 100, 100, 100), Restarts: 99, OOMKilled: w.now, Throttled: 1, Pressure: 1}
}

func (w *world) wanted() resources.List {
	floor := w.record.Floor("app", w.target, w.set.Hash, w.now)
	to := w.target
	for k := range resources.Kind(resources.Kinds) {
		to = to.With(k, max(to.Value(k), floor.Value(k)))
	}
	return to
}

func (w *world) workload() Workload {
	view := Workload{Mode: w.mode, Target: []policy.Container{{Name: "app", Requests: w.target}}}
	if w.paused {
		view.StopReason = reason.PolicyPaused
	}
	for _, b := range w.pods {
		p := Pod{UID: b.uid, Name: b.uid, Running: true, Ready: b.unready.IsZero(), Deferred: b.deferred, Due: b.sizes.Requests != w.wanted(), Node: Node{Known: true}}
		if b.note != nil {
			p.ObservedSince = b.note.At
		}
		view.Pods = append(view.Pods, p)
	}
	return view
}

func (w *world) applyEvent() {
	if len(w.pods) == 0 {
		w.add(1)
	}
	i := rapid.IntRange(0, len(w.pods)-1).Draw(w.T, "pod")
	if noted := slices.IndexFunc(w.pods, func(b *simulatedPod) bool { return b.note != nil }); noted >= 0 && rapid.Bool().Draw(w.T, "one that is observed") {
		i = noted
	}
	switch b := w.pods[i]; rapid.IntRange(0, 18).Draw(w.T, "event") {
	case 0, 1:
		b.restarts += rapid.IntRange(1, 2).Draw(w.T, "restarts")
	case 2, 3:
		b.killed = w.now
	case 4:
		w.pods = slices.Delete(w.pods, i, i+1)
	case 5:
		w.add(rapid.IntRange(1, 3).Draw(w.T, "new"))
	case 6, 7:
		w.target = resources.NewList(resources.Amount(rapid.IntRange(50, 6000).Draw(w.T, "cpu")), resources.Amount(rapid.IntRange(50, 4000).Draw(w.T, "memory")))
	case 8:
		w.paused = !w.paused
	case 9:
		w.set.Hash = rapid.SampledFrom([]string{"h", "i"}).Draw(w.T, "hash")
	case 10:
		if b.note != nil {
			b.foreign, b.deferred, b.sizes.Requests = true, false, resources.NewList(1, 1)
		}
	case 11, 12:
		w.causeHarm()
	case 13:
		if b.deferred {
			b.deferred, b.note.Pending, b.note.At = false, false, w.now.Add(-time.Second)
			w.recordStart(b.note.At)
		}
	case 14, 15:
		if b.unready.IsZero() {
			b.unready = w.now
		} else {
			b.unready = time.Time{}
		}
	case 16, 17:
		if b.away = !b.away; b.away {
			b.unready = w.now
		}
	case 18:
		w.drawMeasurements(b)
	}
}

func (w *world) drawMeasurements(b *simulatedPod) {
	for i := range b.shares {
		b.shares[i] = rapid.SampledFrom([]float64{math.NaN(), 0.1, DefaultPressure, 0.45, 0.9}).Draw(w.T, "share")
	}
}

// causeHarm makes every pod with the target restart and raises the recommendation.
func (w *world) causeHarm() {
	if !slices.ContainsFunc(w.pods, func(b *simulatedPod) bool { return b.note != nil }) {
		return
	}
	for _, b := range w.pods {
		b.restarts += 2
	}
	w.target = w.target.With(resources.CPU, min(w.target.Value(resources.CPU)*6/5+1, 4800))
}

func (w *world) recordStart(at time.Time) {
	if w.record.Phase == PhaseCanary && w.since.IsZero() {
		w.since = at
	}
}

// expectedHarm reimplements the harm rules independently of package rollout.
func (w *world) expectedHarm(b *simulatedPod) Harm {
	one, age := b.note.Containers[0], w.now.Sub(b.note.At)
	less := func(k resources.Kind, was, is resources.List) bool { return is.Value(k) < was.Value(k) }
	cpu, memory := less(resources.CPU, one.From.Requests, one.To.Requests), less(resources.Memory, one.From.Requests, one.To.Requests)
	cpuLimit, memoryLimit := less(resources.CPU, one.From.Limits, one.To.Limits), less(resources.Memory, one.From.Limits, one.To.Limits)
	throttles, waits := cpuLimit && w.safety.Throttle > 0, cpu && w.safety.Pressure > 0
	ends := w.safety.Period
	if throttles || waits {
		ends = max(ends, 5*time.Minute)
	}
	over, measured := age >= w.safety.Period, age >= w.safety.Period && age >= 5*time.Minute
	switch {
	case !cpu && !memory && !cpuLimit && !memoryLimit, age > ends+10*time.Minute:
	case (memory || memoryLimit) && b.killed.After(b.note.At):
		return OOMKill
	case b.restarts-one.Restarts >= 2:
		return Restart
	case measured && throttles && b.shares[0] > 0.5 && b.shares[1] <= 0.5:
		return Throttle
	case measured && waits && b.shares[2] > 0.3 && b.shares[2] >= 2*b.shares[3]:
		return Pressure
	case over && b.note.Ready && !b.unready.IsZero() && !b.away && !b.unready.After(b.note.At.Add(w.safety.Period)):
		return NotReady
	}
	return ""
}

func (w *world) judge() {
	for _, b := range w.pods {
		if b.note == nil {
			continue
		}
		harm := b.note.Harm // recorded harm persists, whatever the current evidence
		if harm == "" {
			harm = w.expectedHarm(b)
		}
		if b.foreign || b.note.Pending {
			harm = ""
		}
		v := Judge(*b.note, Evidence{NodeReady: !b.away, Measured: true, NotReady: !b.unready.IsZero(), NotReadySince: b.unready, Containers: []ContainerEvidence{
			{Container: b.sizes, Restarts: b.restarts, OOMKilled: b.killed, Throttled: b.shares[0], ThrottledBefore: b.shares[1], Pressure: b.shares[2], PressureBefore: b.shares[3]},
			w.sidecarEvidence(),
		}}, w.safety, w.now)
		require.Equal(w, harm != "", v.Outcome == Reverted, "a revert if and only if it hurts: %q, %+v", harm, v)
		if v.Outcome == Reverted {
			require.Equal(w, harm, v.Harm)
			b.note.Harm = v.Harm
			if w.dies("before it is given back") {
				continue
			}
			w.giveBack(b, v)
			if w.dies("before the end is stored") {
				continue
			}
		}
		if v.Outcome == "" {
			continue
		}
		w.end(b, v)
		if !w.dies("before the note is off") {
			b.note, b.foreign = nil, false
		}
	}
}

func (w *world) dies(when string) bool { return rapid.IntRange(0, 9).Draw(w.T, "dies "+when) == 0 }

func (w *world) giveBack(b *simulatedPod, v Verdict) {
	before, from := b.sizes, b.note.Containers[0].From
	for _, f := range b.note.RevertTargets(running(b.sizes, w.sidecarEvidence().Container), v.Harm) {
		require.Equal(w, "app", f.Name, "nobody else gets anything")
		for k := range resources.Kind(resources.Kinds) {
			if a, ok := f.Requests.Get(k); ok {
				b.sizes.Requests = b.sizes.Requests.With(k, a)
			}
			if a, ok := f.Limits.Get(k); ok {
				b.sizes.Limits = b.sizes.Limits.With(k, a)
			}
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		require.Equal(w, max(before.Requests.Value(k), from.Requests.Value(k)), b.sizes.Requests.Value(k), "nothing is lowered, and all is given back")
		require.Equal(w, max(before.Limits.Value(k), from.Limits.Value(k)), b.sizes.Limits.Value(k))
	}
}

func (w *world) end(b *simulatedPod, v Verdict) {
	c := *b.note
	id, stored := fmt.Sprint(b.uid, c.At), w.record
	ending := ObservationEnd{UID: b.uid, Change: c, Outcome: v.Outcome, Harm: v.Harm}
	w.record = w.record.EndObservation(ending, w.set, w.now)
	again := w.now
	if v.Outcome == Reverted {
		again = again.Add(time.Second)
	}
	require.Equal(w, w.record, w.record.EndObservation(ending, w.set, again), "the same end twice is one")
	if w.tried[b.uid] = v.Outcome; v.Outcome == Reverted {
		delete(w.tried, b.uid)
	}
	if before := w.ended[id]; before == Reverted || before == v.Outcome {
		require.Equal(w, reverted(stored), reverted(w.record), "no change ends twice")
		require.Equal(w, stored.CooldownUntil, w.record.CooldownUntil)
		return
	}
	w.ended[id] = v.Outcome
	if v.Outcome != Reverted {
		return
	}
	if c.Containers[0].lowersRequest(resources.CPU) {
		// If several pods are reverted, the first one counts. It is not earlier than the change.
		w.revertedChanges = append(w.revertedChanges, revertedChange{c.Containers[0].To.Requests.Value(resources.CPU), c.At})
	}
	of := slices.IndexFunc(w.record.Rounds, func(r Round) bool { return !c.At.Before(r.Time) })
	require.True(w, of < 0 || w.record.Rounds[of].Outcome == Reverted, "its round is a reverted one")
	require.LessOrEqual(w, reverted(w.record), reverted(stored)+1, "a round counts once")
	if reverted(w.record) > reverted(stored) {
		w.resetCanary()
	}
}

func (w *world) resetCanary() { w.since, w.tried = time.Time{}, map[string]Outcome{} }

func reverted(s State) (rounds int) {
	for _, r := range s.Rounds {
		if r.Outcome == Reverted {
			rounds++
		}
	}
	return rounds
}

func consecutiveReverts(rounds []Round) (reverts int) {
	for _, r := range rounds {
		if r.Outcome == Success {
			break
		}
		if r.Outcome == Reverted {
			reverts++
		}
	}
	return reverts
}

func (w *world) checkRounds() {
	if len(w.record.Rounds) == 0 || w.record.Rounds[0].Outcome == "" {
		return
	}
	newest := w.record
	key := fmt.Sprint(newest.Rounds[0].Time, newest.Rounds[0].Outcome)
	if w.counts[key] {
		return
	}
	w.counts[key] = true
	pause := w.set.Cooldown
	if pause > 0 {
		pause = max(pause, time.Minute)
	}
	for range min(consecutiveReverts(newest.Rounds), 4) {
		pause *= 2
	}
	w.until = w.now.Add(pause)
	if pause > 0 {
		require.Equal(w, w.until, newest.CooldownUntil)
	}
	last := 0
	for i, r := range slices.DeleteFunc(slices.Clone(newest.Rounds), func(r Round) bool { return r.Outcome == "" }) {
		if i < 5 && r.Outcome == Reverted {
			last++
		}
	}
	require.Equal(w, last >= 3, newest.Degraded.Reason != "", "degraded by rounds")
}

func (w *world) iterate() {
	view := w.workload()
	before := w.record
	h := Hold(w.record, view, w.set, w.now)
	w.record = h.State
	w.checkRounds()
	if before.Hash != w.record.Hash { // another policy may try it again
		w.revertedChanges = nil
		w.resetCanary()
		if before.Hash != "" { // possibly during a round
			w.since = w.now
		}
	}
	again := Hold(h.State, view, w.set, w.now)
	require.Equal(w, h, again, "nothing changes by looking twice")
	w.checkCanary(before)
	changed := 0
	for i, a := range h.Pods {
		if !a.Free {
			continue
		}
		changed++
		require.False(w, w.paused)
		require.False(w, w.now.Before(w.until), "no change in the cooldown")
		require.Nil(w, w.pods[i].note)
		if w.record.Phase == PhaseCanary {
			require.Contains(w, members(w.record), w.pods[i].uid, "no pod outside of the canary")
		}
		require.NotEqual(w, PhaseHalted, w.record.Phase)
		if rapid.IntRange(0, 3).Draw(w.T, "the plan leaves it alone") > 0 {
			w.resize(w.pods[i])
		}
	}
	unjudged := 0
	for _, b := range w.pods {
		if b.note != nil && !b.deferred {
			unjudged++
		}
	}
	if most := w.set.MaxConcurrent; most > 0 && changed > 0 {
		require.LessOrEqual(w, unjudged, most)
	}
	if w.mode == fleet.OneShot && changed > 0 {
		require.Equal(w, 1, changed)
		require.LessOrEqual(w, w.record.Rounds[0].Pods, 1)
	}
}

func (w *world) checkCanary(before State) {
	if w.mode != fleet.Canary {
		require.Empty(w, w.record.Phase)
		return
	}
	eligible := 0
	for _, b := range w.pods {
		if !b.deferred {
			eligible++
		}
	}
	is := members(w.record)
	switch same := before.Hash == w.record.Hash; {
	case w.record.Phase == PhaseFullRollout && same && before.Phase == PhaseFullRollout:
		return
	case w.record.Phase == PhaseFullRollout:
		require.True(w, same && before.Phase == PhaseCanary, "from %s", before.Phase)
		w.checkPromotion(members(before))
		return
	case (!same || len(before.Members) == 0) && len(is) > 0:
		require.Len(w, is, max(1, w.set.Percentage*eligible/100), "its share")
	case same:
		require.LessOrEqual(w, len(is), len(before.Members), "a canary does not grow")
		for _, uid := range members(before) {
			if slices.ContainsFunc(w.pods, func(b *simulatedPod) bool { return b.uid == uid }) {
				require.Contains(w, is, uid, "nobody leaves it")
			}
		}
	}
}

func (w *world) checkPromotion(members []string) {
	require.True(w, w.set.AutoPromote, "nobody asked for it")
	require.False(w, w.since.IsZero())
	require.GreaterOrEqual(w, w.now.Sub(w.since), w.set.CanaryPeriod)
	did := 0
	for _, b := range w.pods {
		if !slices.Contains(members, b.uid) {
			continue
		}
		require.Nil(w, b.note)
		switch w.tried[b.uid] {
		case Success:
			did++
		case "":
			require.Equal(w, w.wanted(), b.sizes.Requests, "one that was never tried")
		default:
			require.Fail(w, "a member did not do well", b.uid)
		}
	}
	require.Positive(w, did)
}

func (w *world) resize(b *simulatedPod) {
	to := w.sized(w.wanted())
	cpu := to.Requests.Value(resources.CPU)
	for _, bad := range w.revertedChanges {
		if w.now.Sub(bad.at) < revertRetention {
			require.False(w, cpu <= bad.cpu && cpu < b.sizes.Requests.Value(resources.CPU), "what did harm is not tried again")
		}
	}
	w.recordStart(w.now)
	b.note = &Change{At: w.now, Ready: b.unready.IsZero(), Containers: []ContainerChange{{From: b.sizes, To: to, Restarts: b.restarts}}}
	b.sizes = to
	w.drawMeasurements(b)
	if rapid.IntRange(0, 5).Draw(w.T, "deferred") == 0 {
		b.deferred, b.note.Pending = true, true
	}
	if !w.dies("before the change is stored") {
		w.record = w.record.RecordChange(*b.note)
	}
}

// The process may crash at any point.
func TestRollout_RandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		hard := rapid.IntRange(0, 3).Draw(t, "hard") == 0
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 6 * time.Minute, 20 * time.Minute, 2 * time.Hour, 24 * time.Hour}).Draw(t, "later"))
			if hard && rapid.Bool().Draw(t, "hurts") {
				w.causeHarm()
			}
			for range rapid.IntRange(1, 3).Draw(t, "events") {
				w.applyEvent()
			}
			w.judge()
			w.checkRounds()
			w.iterate()
		}
	})
}
