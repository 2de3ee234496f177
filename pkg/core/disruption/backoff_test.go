package disruption

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func takeN(l *RateLimiter, namespace string, wanted int, now time.Time) (n int) {
	for range wanted {
		if l.Take(namespace, now) {
			n++
		}
	}
	return n
}

func TestRateLimiter_SpreadsMassEvents(t *testing.T) {
	l := NewRateLimiter(RateLimits{Cluster: 30, Namespace: 10}, noon)
	require.Equal(t, 10, takeN(l, "shop", 100, noon), "a namespace")
	require.Equal(t, 10, takeN(l, "a", 100, noon))
	require.Equal(t, 10, takeN(l, "b", 100, noon))
	require.Equal(t, 0, takeN(l, "c", 100, noon), "the cluster")
	require.Equal(t, 5, takeN(l, "shop", 100, noon.Add(30*time.Second)))
	require.Equal(t, 10, takeN(l, "shop", 100, noon.Add(time.Hour)), "nothing is saved up")
	require.Equal(t, 0, takeN(l, "shop", 1, noon), "a clock that goes back gives nothing")

	require.Equal(t, 1000, takeN(NewRateLimiter(RateLimits{}, noon), "shop", 1000, noon), "no limit")
}

func TestRateLimiter_SlowStart(t *testing.T) {
	l := NewRateLimiter(RateLimits{Cluster: 60, SlowStart: 10 * time.Minute}, noon)
	require.Equal(t, 10, takeN(l, "a", 100, noon), "a workload of usual size is not slowed down")
	require.Equal(t, 10, takeN(l, "a", 100, noon.Add(time.Minute)))
	require.Equal(t, 30, takeN(l, "a", 100, noon.Add(5*time.Minute)))
	require.Equal(t, 60, takeN(l, "a", 100, noon.Add(10*time.Minute)))
	require.Equal(t, 4, takeN(NewRateLimiter(RateLimits{Cluster: 4, SlowStart: time.Minute}, noon), "a", 100, noon))
}

func TestRateLimiter_ReturnsUnusedTokens(t *testing.T) {
	l := NewRateLimiter(RateLimits{Cluster: 1, Namespace: 1}, noon)
	for range 5 {
		require.True(t, l.Take("a", noon))
		l.Return("a")
	}
	require.True(t, l.Take("a", noon))
	require.False(t, l.Take("a", noon))
}

func TestRateLimiter_NamespacesTakeTurns(t *testing.T) {
	l := NewRateLimiter(RateLimits{Cluster: 10, Namespace: 10}, noon)
	require.Equal(t, 10, takeN(l, "greedy", 100, noon))
	require.Equal(t, 0, takeN(l, "shop", 1, noon))
	for pass, want := range []struct{ greedy, shop int }{{greedy: 0, shop: 1}, {greedy: 1, shop: 0}, {greedy: 0, shop: 1}, {greedy: 1, shop: 0}} {
		now := noon.Add(time.Duration(pass+1) * 6 * time.Second)
		require.Equal(t, want.greedy, takeN(l, "greedy", 100, now), "pass %d", pass)
		require.Equal(t, want.shop, takeN(l, "shop", 1, now), "pass %d", pass)
	}
	require.Equal(t, 0, takeN(l, "greedy", 100, noon.Add(30*time.Second)), "shop waits")
	require.Equal(t, 2, takeN(l, "greedy", 100, noon.Add(36*time.Second)), "no other namespace waits any longer")
}

func TestRateLimiter_ForgetsIdleNamespaces(t *testing.T) {
	l := NewRateLimiter(RateLimits{Namespace: 5}, noon)
	for i := range 1000 {
		l.Take(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Second))
	}
	require.LessOrEqual(t, len(l.namespaces), 62)
}

func podChange(has, gets PodResources) Change { return Change{has, gets} }

func sizes(cpu, memory resources.Amount) PodResources {
	return PodResources{"app": resources.NewList(cpu, memory)}
}

func change(from, to resources.Amount) Change { return Change{sizes(from, 100), sizes(to, 100)} }

func TestBackoff_IneffectiveChangesDoubleDelay(t *testing.T) {
	r := ChangeRecord{}.Observe(noon, podChange(sizes(1, 1), sizes(2, 2)), noon)
	require.Equal(t, ChangeRecord{}, r, "nothing was changed yet")
	created, now := noon.Add(-time.Hour), noon
	for i, wait := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute} {
		r = r.Changed(change(100, 200), created, now)
		require.Equal(t, r, r.Observe(created, podChange(sizes(100, 100), sizes(200, 100)), now), "it was there before")
		created = created.Add(time.Minute)
		now = now.Add(time.Minute)
		r = r.Observe(created, podChange(sizes(100, 100), sizes(200, 100)), now)
		require.Equal(t, i+1, r.Ineffective)
		require.Equal(t, r, r.Observe(created, podChange(sizes(100, 100), sizes(200, 100)), now.Add(time.Minute)), "a change is judged once")
		require.True(t, r.BacksOff(now.Add(wait-1)))
		require.False(t, r.BacksOff(now.Add(wait)))
		now = now.Add(wait)
	}
	require.Equal(t, r, r.Observe(created.Add(time.Second), podChange(sizes(150, 100), sizes(150, 100)), now), "another recommendation came meanwhile")
	r = r.Observe(created.Add(time.Second), podChange(sizes(200, 100), sizes(200, 100)), now)
	require.Zero(t, r.Ineffective, "a new pod has it")
	require.False(t, r.BacksOff(now))

	for range 100 {
		r = r.Changed(change(100, 200), created, now).Observe(created.Add(time.Second), podChange(sizes(100, 100), sizes(200, 100)), now)
	}
	require.Equal(t, now.Add(12*time.Hour), r.Until)
	require.False(t, r.Expired(now.Add(24*time.Hour)))
	require.True(t, r.Expired(now.Add(24*time.Hour+1)))
}

// A quota may leave less than the recommendation, so that the webhook cuts the new pod.
func TestBackoff_PartialChangeIsIneffective(t *testing.T) {
	after := func(last Change, has, gets PodResources) int {
		return ChangeRecord{}.Changed(last, noon, noon).Observe(noon.Add(time.Second), podChange(has, gets), noon).Ineffective
	}
	for cpu, want := range map[resources.Amount]int{100: 1, 150: 1, 199: 1, 200: 0, 250: 0} {
		require.Equal(t, want, after(change(100, 200), sizes(cpu, 100), sizes(200, 100)), "%d of 200", cpu)
	}
	require.Equal(t, 0, after(change(100, 200), sizes(190, 100), sizes(150, 100)), "less is recommended now")
	require.Equal(t, 1, after(change(200, 100), sizes(150, 100), sizes(100, 100)), "too little was taken away")
	require.Equal(t, 0, after(change(200, 100), sizes(50, 100), sizes(100, 100)))
	both := Change{sizes(100, 100), sizes(200, 200)}
	require.Equal(t, 1, after(both, sizes(200, 150), sizes(200, 200)), "memory was cut")
	require.Equal(t, 0, after(both, sizes(200, 200), sizes(300, 300)), "more is recommended now")
}

func TestBackoff_ResumesFromPod(t *testing.T) {
	left := Backoff{Ineffective: 3, Until: noon.Add(time.Hour)}
	r := ChangeRecord{}.Resumed(left, noon)
	require.True(t, r.BacksOff(noon.Add(time.Hour-1)))
	require.False(t, r.BacksOff(noon.Add(time.Hour)))
	require.Equal(t, left, r.Resumed(Backoff{1, noon.Add(time.Minute)}, noon).Backoff, "the latest counts")
	next := r.Changed(change(100, 200), noon, noon)
	require.Equal(t, next, next.Resumed(Backoff{9, noon.Add(2 * time.Hour)}, noon), "what is remembered counts")
	next = next.Observe(noon.Add(time.Second), podChange(sizes(100, 100), sizes(200, 100)), noon)
	require.Equal(t, Backoff{4, noon.Add(40 * time.Minute)}, next.Backoff, "it goes on where it was")
	require.Equal(t, ChangeRecord{}, ChangeRecord{}.Resumed(Backoff{1, noon.Add(13*time.Hour + 1)}, noon), "somebody else's")
	longest := Backoff{9, noon.Add(12 * time.Hour)}
	require.Equal(t, longest, ChangeRecord{}.Resumed(longest, noon.Add(-time.Hour)).Backoff, "the clock of this process is behind")
	require.Equal(t, longest, ChangeRecord{}.Resumed(longest, noon.Add(36*time.Hour)).Backoff, "over, but the next one is longer")
	require.Equal(t, ChangeRecord{}, ChangeRecord{}.Resumed(longest, noon.Add(36*time.Hour+1)), "over for a day: forgotten, as a record is")
	require.Equal(t, ChangeRecord{}, ChangeRecord{}.Resumed(Backoff{}, noon))
}

func TestBackoff_IgnoresLaterRecommendations(t *testing.T) {
	created := noon.Add(time.Second)
	r := ChangeRecord{}.Changed(change(100, 200), noon, noon).Observe(created, podChange(sizes(190, 100), sizes(190, 100)), noon)
	r = r.Observe(created, podChange(sizes(190, 100), sizes(300, 100)), noon.Add(time.Hour))
	require.Zero(t, r.Ineffective)
	r = r.Changed(change(190, 300), created, noon).Observe(created.Add(time.Second), podChange(sizes(200, 100), sizes(300, 100)), noon)
	require.Equal(t, 1, r.Ineffective, "the next change is judged anew")
}

func TestBackoff_LargeCountIsBounded(t *testing.T) {
	r := ChangeRecord{}.Resumed(Backoff{math.MaxInt, noon.Add(time.Minute)}, noon)
	for range 3 {
		r = r.Changed(change(100, 200), noon, noon).Observe(noon.Add(time.Second), podChange(sizes(100, 100), sizes(200, 100)), noon)
		require.Equal(t, noon.Add(maxBackoff), r.Until)
		require.Positive(t, r.Ineffective)
	}
}

func TestStabilization_PreventsFlapping(t *testing.T) {
	const hold = 10 * time.Minute
	var r ChangeRecord
	now, made := noon, 0
	small := true
	for minute := range 24 * 60 {
		now = noon.Add(time.Duration(minute) * time.Minute)
		c := change(100, 200)
		if !small {
			c = change(200, 100)
		}
		if wanted := minute%2 == 0; wanted != small || r.Holds(c, hold, now) {
			continue
		}
		r, small, made = r.Changed(c, noon, now), !small, made+1
	}
	require.LessOrEqual(t, made, 14, "1440 without")
	require.False(t, r.Holds(change(100, 200), hold, now), "growth never waits")
}

func TestStabilization_HoldsOnlyReversals(t *testing.T) {
	r := ChangeRecord{}.Changed(change(100, 200), noon, noon)
	require.True(t, r.Holds(change(200, 105), time.Minute, noon))
	require.False(t, r.Holds(change(200, 105), time.Minute, noon.Add(time.Minute)))
	require.False(t, r.Holds(change(200, 105), 0, noon))
	require.False(t, r.Holds(change(200, 150), time.Minute, noon), "it does not go back to where it was")
	require.False(t, ChangeRecord{}.Holds(change(200, 100), time.Minute, noon))
	r = r.Changed(change(200, 300), noon, noon)
	require.Zero(t, r.Reversals)
	both := Change{sizes(300, 100), sizes(200, 200)}
	r = r.Changed(Change{sizes(200, 200), sizes(300, 100)}, noon, noon)
	require.True(t, r.Holds(both, time.Minute, noon), "one kind shrinks")
}
