package usage

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

type naive struct {
	rules      Rules
	series     map[SeriesKey]*naiveSeries
	containers map[ContainerKey]*naiveContainer
	restored   map[string]*naiveSeries // from before the last restart, by name of the container
}

type naiveSeries struct {
	cores   []float64
	peaks   []float64 // final ones
	created time.Time
	last    time.Time // last CPU sample
}

type naiveContainer struct {
	feeds             SeriesKey
	lastCPU, lastPeak time.Time
	end               time.Time // of the window; zero: none yet
	usage, oom        resources.Amount
	kill              time.Time // latest
	ids               []string  // of all kills
	need              resources.Amount
	steps             int
}

func (c *naiveContainer) peak() resources.Amount { return max(c.usage, c.oom) }

func (n *naive) finish(c *naiveContainer) {
	if c.peak() >= 0 {
		s := n.series[c.feeds]
		s.peaks = append(s.peaks, float64(c.peak()))
	}
	c.usage, c.oom = -1, -1
}

func (n *naive) track(c ContainerKey, key SeriesKey, now time.Time) {
	if n.series[key] == nil {
		n.series[key] = &naiveSeries{created: now}
	}
	if n.containers[c] == nil {
		n.containers[c] = &naiveContainer{feeds: key, usage: -1, oom: -1}
	} else if n.containers[c].feeds != key {
		n.finish(n.containers[c])
		n.containers[c].feeds = key
	}
}

func (n *naive) forget(c ContainerKey) {
	if n.containers[c] != nil {
		n.finish(n.containers[c])
		delete(n.containers, c)
	}
}

func (n *naive) cpu(c *naiveContainer, at time.Time, a resources.Amount) {
	if !at.After(c.lastCPU) {
		return
	}
	s := n.series[c.feeds]
	c.lastCPU, s.last = at, at
	s.cores = append(s.cores, float64(a)/1000)
}

func (n *naive) memory(c *naiveContainer, at time.Time) {
	c.lastPeak = at
	if c.end.IsZero() {
		c.end = at
	}
	if !at.Before(c.end) {
		n.finish(c)
	}
	for !at.Before(c.end) {
		c.end = c.end.Add(n.rules.Interval)
	}
}

func (n *naive) oom(c *naiveContainer, o OOM) {
	known := slices.Contains(c.ids[max(0, len(c.ids)-RememberedKills):], o.ID)
	if known || !c.lastPeak.IsZero() && c.lastPeak.Sub(o.At) > n.rules.Interval {
		return
	}
	used := max(o.Memory, c.usage)
	if c.usage <= 0 {
		used = max(used, o.Limit)
	}
	switch {
	case c.kill.IsZero() || o.At.Sub(c.kill) > n.rules.Interval:
		c.steps = 0
	case c.need >= 0 && max(o.Memory, o.Limit) >= c.need:
		c.steps = min(c.steps+1, maxSteps)
	}
	if o.At.After(c.kill) {
		c.kill = o.At
	}
	c.ids, c.need = append(c.ids, o.ID), n.rules.memoryNeed(used, c.steps)
	n.memory(c, o.At)
	c.oom = max(c.oom, c.need)
}

func (n *naive) fold(from, into SeriesKey) {
	for _, c := range n.containers {
		if c.feeds == from {
			return
		}
	}
	s, to := n.series[from], n.series[into]
	if s == nil || from == into {
		return
	}
	delete(n.series, from)
	if to == nil {
		n.series[into] = s
		return
	}
	to.cores, to.peaks = append(to.cores, s.cores...), append(to.peaks, s.peaks...)
	if to.created.Before(s.created) {
		to.created = s.created
	}
	if to.last.Before(s.last) {
		to.last = s.last
	}
}

func (n *naive) expire(now time.Time) {
	for key, s := range n.series {
		last := s.last
		if last.IsZero() {
			last = s.created
		}
		if now.Sub(last) < n.rules.Age() {
			continue
		}
		*s = naiveSeries{created: now}
		fed := false
		for _, c := range n.containers {
			if c.feeds == key {
				c.usage, c.oom, fed = -1, -1, true
			}
		}
		if !fed {
			delete(n.series, key)
		}
	}
}

func (n *naive) restart(now time.Time) {
	for key, s := range n.series {
		r := n.restored[key.Container]
		if r == nil {
			r = &naiveSeries{}
			n.restored[key.Container] = r
		}
		r.cores, r.peaks = append(r.cores, s.cores...), append(r.peaks, s.peaks...)
	}
	old, containers := n.restored, n.containers
	n.series, n.containers = map[SeriesKey]*naiveSeries{}, map[ContainerKey]*naiveContainer{}
	for key, c := range containers {
		n.track(key, c.feeds, now)
		fresh := n.containers[key]
		if c.peak() >= 0 && now.Before(c.end) {
			fresh.end, fresh.usage, fresh.oom = c.end, c.usage, c.oom
		} else if c.peak() >= 0 {
			old[key.Container].peaks = append(old[key.Container].peaks, float64(c.peak()))
		}
		if !c.kill.IsZero() && now.Sub(c.kill) <= n.rules.Interval {
			fresh.kill, fresh.ids, fresh.need = c.kill, c.ids, fresh.oom
		}
	}
}

func (n *naive) image(shape ProfileShape, container string) ProfileImage {
	p := NewProfile(shape)
	add := func(s *naiveSeries) {
		for _, cores := range s.cores {
			p.AddCPU(cores, morning)
		}
		for _, peak := range s.peaks {
			p.AddPeak(peak, morning)
		}
	}
	for key, s := range n.series {
		if key.Container == container {
			add(s)
		}
	}
	for key, c := range n.containers {
		if key.Container == container && c.peak() >= 0 {
			p.AddPeak(float64(c.peak()), morning)
		}
	}
	if s := n.restored[container]; s != nil {
		add(s)
	}
	return p.Image()
}

type storeUnderTest struct {
	*Store
	restored map[string]*Profile
}

func (r *storeUnderTest) all(container string) (list []Series) {
	for series, key := range r.All() {
		if key.Container == container {
			list = append(list, series)
		}
	}
	return list
}

func (r *storeUnderTest) profile(container string) *Profile {
	p := NewProfile(r.config.Shape)
	r.Profile(&p, r.all(container)...)
	if restored := r.restored[container]; restored != nil {
		restored.MergeInto(&p)
	}
	return &p
}

func (r *storeUnderTest) restart(n *naive, now time.Time) {
	next, windows := NewStore(r.config), map[ContainerKey]Window{}
	for _, container := range names {
		p := r.profile(container)
		r.RemovePeaks(p, now, r.all(container)...)
		maps.Insert(windows, r.Windows(now, r.all(container)...))
		r.restored[container] = p
	}
	for key := range n.containers {
		series, _ := r.SeriesOf(key)
		next.Track(key, r.Key(series), now)
	}
	for key, w := range windows {
		next.RestoreWindow(key, w)
	}
	r.Store = next
}

var names = []string{"a", "b"}

func TestStore_MatchesNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := StoreConfig{Shape: NewProfileShape(0, 0), Rules: Rules{OOMRatio: 1.2, OOMMinBump: 100 * mi, Interval: time.Hour, Count: 3}}
		r := &storeUnderTest{Store: NewStore(config), restored: map[string]*Profile{}}
		n := &naive{rules: r.Rules(), series: map[SeriesKey]*naiveSeries{}, containers: map[ContainerKey]*naiveContainer{}, restored: map[string]*naiveSeries{}}
		now := morning
		pods, sets := rapid.SampledFrom([]string{"p1", "p2", "p3"}), rapid.SampledFrom([]string{"x", "y", "z"})
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			c := ContainerKey{"ns", pods.Draw(t, "pod"), rapid.SampledFrom(names).Draw(t, "container")}
			key := SeriesKey{"ns", c.Container, sets.Draw(t, "labels")}
			used := resources.Amount(rapid.IntRange(0, 4000).Draw(t, "used"))
			model := n.containers[c]
			switch rapid.SampledFrom([]string{"wait", "track", "cpu", "memory", "memory", "oom", "fold", "forget", "expire", "restart"}).Draw(t, "do") {
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 50).Draw(t, "minutes")) * time.Minute)
				r.newest = now.UnixNano() // other containers have samples
			case "track":
				r.Track(c, key, now)
				n.track(c, key, now)
			case "cpu":
				r.Observe(Sample{Container: c, Kind: resources.CPU, At: now, Amount: used})
				if model != nil {
					n.cpu(model, now, used)
				}
			case "memory":
				r.Observe(Sample{Container: c, Kind: resources.Memory, At: now, Amount: used * mi})
				if model != nil && !now.Before(model.lastPeak) {
					n.memory(model, now)
					if used*mi > model.peak() { // lower usage is ignored, as in the reference VPA
						model.usage = used * mi
					}
				}
			case "oom":
				o := OOM{Container: c, At: now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "late")) * time.Second),
					Memory: used * mi, Limit: 2 * used * mi, ID: rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}).Draw(t, "id")}
				r.ObserveOOM(o)
				if model != nil {
					n.oom(model, o)
				}
			case "fold":
				from := SeriesKey{"ns", c.Container, sets.Draw(t, "from")}
				if series, found := r.Find(from); found {
					r.Rekey(series, key)
				}
				n.fold(from, key)
			case "forget":
				require.Equal(t, model != nil, r.Forget(c))
				n.forget(c)
			case "expire":
				r.Expire(now, func(Series) bool { return true })
				n.expire(now)
			case "restart":
				r.restart(n, now)
				n.restart(now)
			}
			require.Equal(t, len(n.containers), r.Containers())
			require.Equal(t, len(n.series), r.Len())
			for _, container := range names {
				want, got := n.image(config.Shape, container), r.profile(container).Image()
				require.Equal(t, want.Samples, got.Samples)
				require.Equal(t, want.Memory, got.Memory)
				require.InDelta(t, want.CPU.Total, got.CPU.Total, 1e-9)
				require.ElementsMatch(t, slices.Collect(maps.Keys(want.CPU.Weights)), slices.Collect(maps.Keys(got.CPU.Weights)))
			}
		}
	})
}
