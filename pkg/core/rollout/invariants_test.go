package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// world is one workload with its pods, its record, and a program that dies at any time.
type world struct {
	*rapid.T
	now    time.Time
	set    Settings
	safety Safety
	mode   fleet.Mode
	paused bool
	target resources.List
	pods   []*body
	born   int
	record State // as it is stored

	ended  map[string]Outcome // of changes, by pod and time
	bad    []taken
	until  time.Time // the end of the cooldown, as the test counts it
	counts map[string]bool
}

// body is a pod of the world.
type body struct {
	uid      string
	sizes    policy.Container
	note     *Change
	restarts int
	killed   time.Time
	deferred bool
	foreign  bool // somebody else changed it since its change
	given    bool // its change was taken back, and that is not stored
}

// taken is a change that was taken back.
type taken struct {
	cpu resources.Amount
	at  time.Time
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: noon, safety: careful, ended: map[string]Outcome{}, counts: map[string]bool{}}
	w.safety.Throttle, w.safety.Pressure = 0, 0
	w.set = settings()
	w.set.Percentage = rapid.SampledFrom([]int{1, 10, 50, 100}).Draw(t, "percentage")
	w.set.MaxConcurrent = rapid.IntRange(0, 3).Draw(t, "concurrent")
	w.set.Cooldown = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "cooldown")
	w.mode = rapid.SampledFrom([]fleet.Mode{fleet.OneShot, fleet.Canary, fleet.Canary, fleet.Auto}).Draw(t, "mode")
	w.target = resources.Of(200, 100)
	w.add(rapid.IntRange(1, 12).Draw(t, "pods"))
	return w
}

func (w *world) add(n int) {
	for range n {
		w.born++
		w.pods = append(w.pods, &body{uid: fmt.Sprintf("p%02d", w.born), sizes: requests("app", 500, 0)})
		b := w.pods[len(w.pods)-1]
		b.sizes.Requests = resources.Of(500, 300)
	}
}

// wanted is what a pod would get.
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
		view.Stopped = fleet.PolicyPaused
	}
	for _, b := range w.pods {
		p := Pod{UID: b.uid, Name: b.uid, Running: true, Ready: true, Deferred: b.deferred, Due: b.sizes.Requests != w.wanted(), Node: Node{Known: true}}
		if b.note != nil {
			p.Observed = b.note.At
		}
		view.Pods = append(view.Pods, p)
	}
	return view
}

// happens lets something happen that the program has no say in.
func (w *world) happens() {
	if len(w.pods) == 0 {
		w.add(1)
	}
	i := rapid.IntRange(0, len(w.pods)-1).Draw(w.T, "pod")
	switch b := w.pods[i]; rapid.IntRange(0, 15).Draw(w.T, "event") {
	case 0, 1, 2:
		b.restarts += rapid.IntRange(1, 2).Draw(w.T, "restarts")
	case 3:
		b.killed = w.now
	case 4:
		w.pods = slices.Delete(w.pods, i, i+1)
	case 5:
		w.add(rapid.IntRange(1, 3).Draw(w.T, "new"))
	case 6, 7:
		w.target = resources.Of(resources.Amount(rapid.IntRange(50, 600).Draw(w.T, "cpu")), resources.Amount(rapid.IntRange(50, 400).Draw(w.T, "memory")))
	case 8:
		w.paused = !w.paused
	case 9:
		w.set.Hash = rapid.SampledFrom([]string{"h", "i"}).Draw(w.T, "hash")
	case 10:
		if b.note != nil {
			b.foreign, b.deferred, b.sizes.Requests = true, false, resources.Of(1, 1)
		}
	case 11, 12:
		w.hurt()
	case 13:
		if b.deferred {
			b.deferred, b.note.Pending, b.note.At = false, false, w.now.Add(-time.Second)
		}
	}
}

// hurt lets the target do harm everywhere. More is recommended then.
func (w *world) hurt() {
	for _, b := range w.pods {
		b.restarts += 2
	}
	w.target = w.target.With(resources.CPU, min(w.target.Value(resources.CPU)*6/5+1, 480))
}

// judge ends what can be ended.
func (w *world) judge() {
	for _, b := range w.pods {
		if b.note == nil {
			continue
		}
		c := *b.note
		lowersMemory := c.Containers[0].lowers(resources.Memory)
		hurt := c.lowers() && (b.restarts >= c.Containers[0].Restarts+2 || lowersMemory && b.killed.After(c.At))
		seen := !b.foreign && !c.Pending && (b.given || w.now.Sub(c.At) <= w.safety.Period+tolerated)
		v := Judge(c, Evidence{NodeReady: true, Measured: true, Containers: []Witness{{Container: b.sizes, Restarts: b.restarts, OOMKilled: b.killed}}}, w.safety, w.now)
		require.Equal(w, hurt && seen, v.Outcome == Reverted, "a revert if and only if it hurts")
		if v.Outcome == "" {
			continue
		}
		if v.Outcome == Reverted {
			w.giveBack(b, c, v)
			if rapid.IntRange(0, 9).Draw(w.T, "dies before the end is stored") == 0 {
				b.given = true
				continue
			}
		}
		w.end(b, c, v)
		if rapid.IntRange(0, 9).Draw(w.T, "dies before the note is off") == 0 {
			b.given = v.Outcome == Reverted
			continue
		}
		b.note, b.foreign, b.given = nil, false, false
	}
}

func (w *world) giveBack(b *body, c Change, v Verdict) {
	for _, f := range c.GiveBack(running(b.sizes), v.Harm) {
		for k := range resources.Kind(resources.Kinds) {
			if a, ok := f.Requests.Get(k); ok {
				require.Greater(w, a, b.sizes.Requests.Value(k), "nothing is lowered")
				b.sizes.Requests = b.sizes.Requests.With(k, a)
			}
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		require.GreaterOrEqual(w, b.sizes.Requests.Value(k), c.Containers[0].From.Requests.Value(k), "all is given back")
	}
}

// end stores the end of a change, and counts with it.
func (w *world) end(b *body, c Change, v Verdict) {
	id := fmt.Sprint(b.uid, c.At)
	stored := w.record
	w.record = w.record.End(Ending{UID: b.uid, Change: c, Outcome: v.Outcome, Harm: v.Harm}, w.set, w.now)
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
		w.bad = append(w.bad, taken{c.Containers[0].To.Requests.Value(resources.CPU), w.now})
	}
	of := slices.IndexFunc(w.record.Rounds, func(r Round) bool { return !c.At.Before(r.Time) })
	require.True(w, of < 0 || w.record.Rounds[of].Outcome == Reverted, "its round is a reverted one")
	require.LessOrEqual(w, reverted(w.record), reverted(stored)+1, "a round counts once")
}

func reverted(s State) (rounds int) {
	for _, r := range s.Rounds {
		if r.Outcome == Reverted {
			rounds++
		}
	}
	return rounds
}

// inARow is how many of the last rounds were reverted since one did well.
func inARow(rounds []Round) (reverts int) {
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

// count follows the rounds that ended since the last time.
func (w *world) count(before State) {
	newest := State{}
	if len(w.record.Rounds) > 0 && w.record.Rounds[0].Outcome != "" {
		newest = w.record
	}
	if len(newest.Rounds) == 0 {
		return
	}
	key := fmt.Sprint(newest.Rounds[0].Time, newest.Rounds[0].Outcome)
	if w.counts[key] {
		return
	}
	w.counts[key] = true
	pause := w.set.Cooldown
	for range min(inARow(newest.Rounds), 4) {
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

// pass holds pods and changes some of the others.
func (w *world) pass() {
	view := w.workload()
	before := w.record
	h := Hold(w.record, view, w.set, w.now)
	w.record = h.State
	w.count(before)
	if before.Hash != w.record.Hash {
		w.bad = nil // another policy may try it again
	}
	again := Hold(h.State, view, w.set, w.now)
	require.Equal(w, h, again, "nothing changes by looking twice")
	if before.Hash == w.record.Hash && before.Phase == PhaseCanary && w.record.Phase == PhaseCanary && len(before.Members) > 0 {
		require.LessOrEqual(w, len(w.record.Members), len(before.Members), "a canary does not grow")
	}
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

func (w *world) resize(b *body) {
	to := policy.Container{Name: "app", Requests: w.wanted()}
	cpu := to.Requests.Value(resources.CPU)
	for _, bad := range w.bad {
		if w.now.Sub(bad.at) < keptFor {
			require.False(w, cpu <= bad.cpu && cpu < b.sizes.Requests.Value(resources.CPU), "what did harm is not tried again")
		}
	}
	b.note = &Change{At: w.now, Ready: true, Containers: []Sizing{{From: b.sizes, To: to, Restarts: b.restarts}}}
	b.sizes.Requests = to.Requests
	if rapid.IntRange(0, 5).Draw(w.T, "deferred") == 0 {
		b.deferred, b.note.Pending = true, true
	}
	if rapid.IntRange(0, 9).Draw(w.T, "dies before the change is stored") > 0 {
		w.record = w.record.Changed(*b.note)
	}
}

func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		hard := rapid.IntRange(0, 3).Draw(t, "hard") == 0
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if hard && rapid.Bool().Draw(t, "hurts") {
				w.hurt()
			}
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute, 20 * time.Minute, 2 * time.Hour, 24 * time.Hour}).Draw(t, "later"))
			w.happens()
			w.judge()
			w.count(w.record)
			w.pass()
		}
	})
}
