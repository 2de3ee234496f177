package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// separateLimitPod is a young pod. Its limit in MiB is out of bounds outside of 0.95 to 1.3 times
// its target.
func separateLimitPod(request, limit, wantRequest, wantLimit resources.Amount) Pod {
	p := small("p0")
	p.Started = noon.Add(-time.Hour)
	c := container(100, request, 100, wantRequest)
	c.Actual.Limits = c.Actual.Limits.With(resources.Memory, limit<<20)
	c.Spec = c.Actual
	c.Target.Limits = c.Target.Limits.With(resources.Memory, wantLimit<<20)
	c.Target.MemoryLimit = policy.LimitSpan{Min: (wantLimit << 20).Scale(0.95), Max: (wantLimit << 20).Scale(1.3)}
	p.Containers = []Container{c}
	return p
}

func TestSeparateLimit_IsDueIndependently(t *testing.T) {
	const old = 24 * time.Hour
	for _, tc := range []struct {
		name string
		pod  Pod
		age  time.Duration
		want string
	}{
		{
			name: "limit below its bounds",
			pod:  separateLimitPod(100, 190, 100, 201), age: time.Hour,
			want: "resize or evict p0: OutOfBounds",
		},
		{name: "limit slightly below its target", pod: separateLimitPod(100, 196, 100, 200), age: time.Hour, want: "skip p0: TooYoung"},
		{
			name: "limit above its bounds",
			pod:  separateLimitPod(100, 262, 100, 200), age: time.Hour,
			want: "resize or evict p0: OutOfBounds",
		},
		{name: "limit above its target", pod: separateLimitPod(100, 258, 100, 200), age: time.Hour, want: "skip p0: TooYoung"},
		{
			name: "limit above its target for a day",
			pod:  separateLimitPod(100, 258, 100, 200), age: old,
			want: "resize or evict p0: Changed",
		},
		{
			name: "limit slightly below its target for a day",
			pod:  separateLimitPod(100, 192, 100, 200), age: old,
			want: "skip p0: SmallChange",
		},
		{
			name: "two small changes count as the larger one",
			pod:  separateLimitPod(94, 200, 100, 209), age: old,
			want: "skip p0: SmallChange",
		},
		{
			name: "request below its bounds",
			pod:  separateLimitPod(49, 200, 100, 200), age: time.Hour,
			want: "resize or evict p0: OutOfBounds",
		},
		{name: "request and limit at their targets", pod: separateLimitPod(100, 200, 100, 200), age: old, want: "skip p0: Unchanged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.pod.Started = noon.Add(-tc.age)
			c := Config{MinReplicas: 1, Tolerance: 1, Threshold: 0.1, Lifetime: 12 * time.Hour}
			require.Equal(t, []string{tc.want}, formatPlan(planAtNoon(t, deployment(InPlaceOrRecreate, 1, tc.pod), c)))
		})
	}
}

func TestSeparateLimit_IncreaseIsGrowth(t *testing.T) {
	for limit, grows := range map[resources.Amount]bool{240: true, 200: false, 160: false} {
		p := separateLimitPod(100, 200, 100, limit)
		require.Equal(t, grows, p.Distance().Grows, "%d", limit)
	}
	p := separateLimitPod(49, 200, 100, 200)
	require.True(t, p.Distance().Grows, "by its request alone")
}

func TestChange_IncludesSeparateLimits(t *testing.T) {
	p := separateLimitPod(100, 150, 90, 200)
	added := p.Containers[0]
	added.Spec.Name, added.Observed = "added", false
	p.Containers = append(p.Containers, added)
	c := p.Change()
	require.Len(t, c.After, 2)
	require.Equal(t, resources.Amount(-10<<20), c.step(p.Containers[0].Spec.Name, resources.Memory))
	require.Equal(t, resources.Amount(50<<20), c.step(p.Containers[0].Spec.Name+limitSuffix, resources.Memory))
	p.Containers[0].Target.MemoryLimit = policy.LimitSpan{}
	require.Len(t, p.Change().After, 1)
}

func TestSeparateLimit_DoesNotReverseChange(t *testing.T) {
	up, down := separateLimitPod(100, 150, 100, 200), separateLimitPod(100, 200, 100, 150)
	r := ChangeRecord{}.Changed(up.Change(), noon, noon).Changed(down.Change(), noon, noon.Add(time.Minute))
	require.Zero(t, r.Reversals)

	shrinks, grows := separateLimitPod(120, 200, 100, 200), separateLimitPod(100, 240, 120, 200)
	r = ChangeRecord{}.Changed(shrinks.Change(), noon, noon)
	require.False(t, r.Holds(grows.Change(), time.Hour, noon.Add(time.Minute)), "more is requested, though the limit is lower")
	back := separateLimitPod(100, 200, 120, 200)
	r = r.Changed(back.Change(), noon, noon.Add(time.Minute))
	require.Equal(t, 1, r.Reversals)
	require.Equal(t, 1, r.Changed(back.Change(), noon, noon.Add(2*time.Minute)).Reversals, "the same once more")
	require.Zero(t, r.Changed(up.Change(), noon, noon.Add(2*time.Minute)).Reversals, "another change")
}

func TestSeparateLimit_IncreaseIsOOMResize(t *testing.T) {
	killed := func(p Pod) Pod {
		p.Ready = false
		p.Containers[0].OOM = OOM{noon.Add(-time.Minute), noon.Add(-time.Second)}
		return p
	}
	more, same := killed(separateLimitPod(100, 200, 100, 240)), killed(separateLimitPod(100, 200, 100, 200))
	require.True(t, more.IsOOMResize())
	require.False(t, same.IsOOMResize())
	more.MemoryOnly, more.Held = true, "AnyReason"
	only := more.onlyOOMMemory()
	require.Equal(t, resources.Amount(240<<20), only.Containers[0].Target.Limits.Value(resources.Memory))
	bystanders := more
	fewer, unseen, alive := killed(separateLimitPod(100, 200, 80, 200)).Containers[0], more.Containers[0], separateLimitPod(100, 200, 100, 240).Containers[0]
	unseen.Observed = false
	bystanders.Containers = []Container{more.Containers[0], fewer, unseen, alive}
	only = bystanders.onlyOOMMemory()
	require.False(t, only.Containers[0].Target.Limits.Empty())
	for i, why := range []string{"gets less", "was not seen by the webhook", "was not killed"} {
		require.True(t, only.Containers[i+1].Target.Requests.Empty() && only.Containers[i+1].Target.Limits.Empty(), "one that %s", why)
	}
	follows := killed(separateLimitPod(100, 200, 100, 240))
	follows.Containers[0].Target.MemoryLimit = policy.LimitSpan{}
	require.False(t, follows.IsOOMResize(), "a limit that follows does not grow alone")
}

// A webhook without support for separate limits applies the request but not the limit. The pods
// must not be evicted repeatedly.
func TestSeparateLimit_MissingLimitIsIneffective(t *testing.T) {
	const minute = time.Minute
	for _, tc := range []struct {
		name      string
		was, came Pod
		backsOff  bool
	}{
		{
			name: "limit did not change",
			was:  separateLimitPod(100, 150, 100, 200), came: separateLimitPod(100, 150, 100, 200),
			backsOff: true,
		},
		{
			name: "request changed without the limit",
			was:  separateLimitPod(140, 150, 100, 200), came: separateLimitPod(100, 150, 100, 200),
			backsOff: true,
		},
		{name: "limit was cut", was: separateLimitPod(100, 150, 100, 200), came: separateLimitPod(100, 170, 100, 200), backsOff: true},
		{name: "request and limit changed", was: separateLimitPod(140, 150, 100, 200), came: separateLimitPod(100, 200, 100, 200)},
		{
			name: "limit follows another recommendation",
			was:  separateLimitPod(100, 150, 100, 200), came: separateLimitPod(100, 220, 100, 220),
		},
		{
			name: "limit changed and more is recommended",
			was:  separateLimitPod(100, 150, 100, 200), came: separateLimitPod(100, 200, 100, 300),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ChangeRecord{}
			for i := range 3 {
				at := noon.Add(time.Duration(i) * 10 * minute)
				r = r.Changed(tc.was.Change(), at.Add(-minute), at)
				r = r.Observe(at.Add(minute), tc.came.Change(), at.Add(2*minute))
				require.Equal(t, tc.backsOff, r.BacksOff(at.Add(3*minute)), "iteration %d", i)
			}
			require.Equal(t, tc.backsOff, r.BacksOff(noon.Add(35*minute)), "longer each time")
		})
	}
}

func TestSeparateLimit_IncreaseIsNewAttempt(t *testing.T) {
	var m PodStates
	first, more := separateLimitPod(100, 150, 100, 200), separateLimitPod(100, 150, 100, 300)
	for range 5 {
		m.recordAttempt(first.UID, first.Targets(), noon)
	}
	require.True(t, m.BacksOff(&first, noon.Add(time.Minute)))
	require.False(t, m.BacksOff(&more, noon.Add(time.Minute)))
}
