package nodes

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

const minute = int64(time.Minute)

// recording has one sample a minute. CPU rises by 1 millicore from 1, memory by 1 MiB.
func recording(dataset string, start int64, minutes int) *replay.Recording {
	r := &replay.Recording{Dataset: dataset, Workload: "w", Container: "c"}
	for i := range minutes {
		r.At = append(r.At, start+int64(i)*minute)
		r.Use[resources.CPU] = append(r.Use[resources.CPU], float64(i+1))
		r.Use[resources.Memory] = append(r.Use[resources.Memory], float64(i+1)*(1<<20))
	}
	r.Requests = r.Requests.With(resources.CPU, 200).With(resources.Memory, 40<<20)
	return r
}

func playing() PlayOptions {
	return PlayOptions{Setup: replay.DefaultSetup(resources.CPU, resources.Memory), Store: usage.DefaultConfig(), WarmUp: 30 * time.Minute, Step: 5 * time.Minute, Scale: UnitFactors()}
}

// The scored phase of an hour begins after half of it, at the next whole step.
func TestPlay_TraceIsScoredPhaseInSteps(t *testing.T) {
	start := 1000 * day.Nanoseconds()
	o := playing()
	o.Setup.Limits[resources.Memory] = replay.Limit{}
	courses := Play(recording("d", start, 60), o, []Method{{Name: "first request"}})
	c := courses[0]
	require.Equal(t, start+30*minute, c.Start)
	require.Equal(t, 6, c.Steps())
	require.Equal(t, float32(33), c.Use[resources.CPU][0], "mean of 31 to 35")
	require.Equal(t, float32(35<<20), c.Use[resources.Memory][0], "the highest")
	require.Equal(t, []float32{200, 200, 200, 200, 200, 200}, c.Request[resources.CPU])
	require.Nil(t, c.Peak[resources.CPU])

	o.Scale = [2]float64{0.5, 2}
	scaled := Play(recording("d", start, 60), o, []Method{{}})[0]
	require.Equal(t, float32(16.5), scaled.Use[resources.CPU][0])
	require.Equal(t, float32(100), scaled.Request[resources.CPU][0])
	require.Equal(t, float32(80<<20), scaled.Request[resources.Memory][0])

	require.Equal(t, start+35*minute, Play(recording("d", start+minute, 60), playing(), []Method{{}})[0].Start)
	require.Nil(t, Play(recording("d", start, 4), playing(), []Method{{}}), "less than a step")
	require.Nil(t, Play(&replay.Recording{}, playing(), []Method{{}}))
}

// A sample covers at most three usual intervals. Beyond that, a gap counts as zero usage and keeps
// the request.
func TestPlay_GapsKeepRequests(t *testing.T) {
	r := recording("d", 0, 60)
	for i := range r.At {
		r.At[i] *= 5 // a sample every five minutes, for five hours
	}
	for i := 40; i < 46; i++ {
		r.Use[resources.CPU][i] = math.NaN()
	}
	o := playing()
	o.Step = 150 * time.Second
	c := Play(r, o, []Method{{}})[0]
	require.Equal(t, 30*minute, c.Start)
	use := c.Use[resources.CPU][(200-35)*2/5-2:]
	require.Equal(t, []float32{39, 39, 40, 40, 40, 40, 40, 40, 0, 0, 0, 0, 0, 0, 0, 0, 47, 47}, use[:18])
	for _, request := range c.Request[resources.CPU] {
		require.Equal(t, float32(200), request)
	}
}

func TestPlay_RecordsOOMKills(t *testing.T) {
	r := recording("d", 0, 60)
	for i := range r.At {
		r.Use[resources.Memory][i] = 30 << 20
		if i >= 47 {
			r.Use[resources.Memory][i] = 60 << 20
		}
	}
	vpa, err := recipe.Parse("vpa:pod-min-memory=1")
	require.NoError(t, err)
	c := Play(r, playing(), []Method{{Name: "vpa", Recipe: &vpa}})[0]
	o := options(1000, 1)
	require.Equal(t, 1, Run(fleetOf(c), []*Trace{c}, o, Variant{Factor: UnitFactors()}).Kills)
	limits := c.Limit[resources.Memory]
	require.Less(t, limits[3], float32(60<<20))
	require.Greater(t, limits[4], float32(60<<20), "raised")
}

func sharingRecipe(t *testing.T) *recipe.Recipe {
	t.Helper()
	r, err := recipe.Parse("cruisekube")
	require.NoError(t, err)
	require.NotNil(t, r.Sharing)
	return &r
}

func TestPlay_UsesBoundsFromBeforeStep(t *testing.T) {
	r := recording("d", 0, 120)
	for i := range r.At {
		r.Use[resources.CPU][i] = 100
		if i >= 90 {
			r.Use[resources.CPU][i] = 1000
		}
	}
	c := Play(r, playing(), []Method{{Recipe: sharingRecipe(t)}})[0]
	burst := int((90*minute - c.Start) / (5 * minute))
	peaks := c.Peak[resources.CPU]
	require.Equal(t, float32(1000), c.Use[resources.CPU][burst])
	require.Less(t, peaks[burst], float32(500))
	require.GreaterOrEqual(t, peaks[burst+1], float32(1000))
	for i := range peaks {
		require.LessOrEqual(t, c.Base[resources.CPU][i], peaks[i])
	}
}

// Copies of long datasets begin at the same hour and all traces of a dataset on the same day, so
// that correlated peaks stay correlated.
func TestNewFleet_CopiesPreserveCorrelation(t *testing.T) {
	o := playing()
	o.WarmUp = 24 * time.Hour
	var courses []*Trace
	for i, minutes := range []int{10 * 24 * 60, 10*24*60 - 7, 9 * 24 * 60} {
		courses = append(courses, Play(recording("days", 90*minute+int64(i)*13*minute, minutes), o, []Method{{}})[0])
	}
	o.WarmUp = 4 * time.Hour
	for i := range 2 {
		courses = append(courses, Play(recording("bed", int64(i)*20*minute, 12*60), o, []Method{{}})[0])
	}
	copies := FleetOptions{Step: 5 * time.Minute, MaxDuration: 7 * day, Copies: 6, Seed: 1}
	f := NewFleet(courses, []int{0, 1, 2, 3, 4}, copies)
	require.Equal(t, 7*288, f.Steps)
	require.Len(t, f.Pods, 30)
	begins := starts(courses, f)
	require.Equal(t, begins[0], begins[1], "the same days")
	require.Len(t, slices.Compact(begins[0]), 6, "six of them")
	for _, at := range slices.Concat(begins[:3]...) {
		require.Zero(t, at%int64(day), "midnight")
	}
	require.Len(t, slices.Compact(begins[3]), 6)
	for i, at := range begins[3] {
		begins[3][i], begins[4][i] = at%(8*60*minute), begins[4][i]%(8*60*minute)
	}
	require.ElementsMatch(t, begins[3], begins[4], "the same times of the bed, perhaps one round on")
	for _, p := range f.Pods {
		require.Less(t, p.From, p.Length)
		require.Equal(t, []int{9 * 288, 8 * 288, 7 * 288, 96, 96}[p.Trace], p.Length)
	}
	require.Equal(t, f, NewFleet(courses, []int{0, 1, 2, 3, 4}, copies))
	copies.Unaligned = true
	begins = starts(courses, NewFleet(courses, []int{0, 1, 2, 3, 4}, copies))
	require.NotEqual(t, begins[0], begins[1])
	require.Zero(t, begins[0][3]%int64(day))
	copies.Seed = 2
	require.NotEqual(t, begins, starts(courses, NewFleet(courses, []int{0, 1, 2, 3, 4}, copies)))
	short := NewFleet(courses, []int{3, 3}, FleetOptions{Step: 5 * time.Minute, MaxDuration: 7 * day, Copies: 1, Seed: 1})
	require.Equal(t, 8*60/5, short.Steps, "no longer than what was recorded")
	require.Equal(t, []FleetPod{{3, 0, 96}, {3, 0, 96}}, short.Pods)
}

func starts(courses []*Trace, f *Fleet) [][]int64 {
	all := make([][]int64, len(courses))
	for _, p := range f.Pods {
		all[p.Trace] = append(all[p.Trace], courses[p.Trace].Start+int64(p.From)*5*minute)
	}
	for i := range all {
		slices.Sort(all[i])
	}
	return all
}
