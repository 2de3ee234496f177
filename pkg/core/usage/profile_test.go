package usage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/histogram"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func minutes(n int) *Profile {
	p := NewProfile(NewProfileShape(day, day))
	for i := range n {
		p.AddCPU(0.2, start.Add(time.Duration(i)*time.Minute))
	}
	return &p
}

func TestConfidence_IsMinimumOfTimeAndSamples(t *testing.T) {
	require.Zero(t, minutes(0).Confidence(day), "nothing known")
	require.Zero(t, minutes(1).Confidence(day), "one sample covers no time")
	require.InDelta(t, 1.0, minutes(1441).Confidence(day), 1e-9)
	require.InDelta(t, 1.0/48, minutes(31).Confidence(day), 1e-9, "limited by time: 30 minutes")
	require.InDelta(t, 2.0, minutes(1441).Confidence(day/2), 1e-9)

	p := minutes(0)
	for i := range 192 { // eight days of one sample an hour
		p.AddCPU(0.2, start.Add(time.Duration(i)*time.Hour))
	}
	require.InDelta(t, 192.0/1440, p.Confidence(day), 1e-9, "limited by number")
}

func TestProfile_CountsOnlyCPUSamples(t *testing.T) {
	p := NewProfile(NewProfileShape(day, day))
	p.AddPeak(5e8, start)
	require.True(t, p.Empty())
	require.True(t, p.First().IsZero())
	require.Zero(t, p.Confidence(day))
	require.False(t, p.Memory.Empty())
	p.RemovePeak(5e8, start)
	require.True(t, p.Memory.Empty())
}

func TestProfileMergeInto_KeepsSource(t *testing.T) {
	a, b := minutes(10), minutes(0)
	b.AddCPU(3, start.Add(-day))
	b.AddPeak(4e8, start)
	before := b.Image()
	b.MergeInto(a)
	require.Equal(t, before, b.Image())
	require.EqualValues(t, 11, a.Samples())
	require.Equal(t, start.Add(-day), a.First())
	require.Equal(t, start.Add(9*time.Minute), a.Last())
	require.Equal(t, b.Memory.Quantile(0.9), a.Memory.Quantile(0.9))

	after := a.Image()
	minutes(0).MergeInto(a)
	require.Equal(t, after, a.Image(), "merging nothing changes nothing")
}

func TestProfile_Reset(t *testing.T) {
	p := minutes(5)
	p.AddPeak(5e8, start)
	p.Reset()
	require.Equal(t, minutes(0).Image(), p.Image())
}

func TestProfileImage_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := minutes(rapid.IntRange(0, 100).Draw(t, "samples"))
		for _, peak := range rapid.SliceOfN(rapid.Float64Range(0, 1e12), 0, 8).Draw(t, "peaks") {
			p.AddPeak(peak, start.Add(day))
		}
		q := minutes(3)
		require.NoError(t, q.Load(p.Image()))
		require.Equal(t, p.Image(), q.Image())
		require.Equal(t, p.Confidence(day), q.Confidence(day))
	})
}

func TestProfileLoad_ReportsAllProblems(t *testing.T) {
	p := minutes(3)
	err := p.Load(ProfileImage{
		CPU:     histogram.Image{Total: -1},
		Memory:  histogram.Image{Total: 1, Weights: map[int]uint32{175: 1, 500: 1}},
		Samples: -4,
	})
	require.ErrorContains(t, err, "CPU histogram: total weight -1")
	require.ErrorContains(t, err, "memory histogram: buckets from 175 to 500")
	require.ErrorContains(t, err, "number of CPU samples -4")
	require.Equal(t, minutes(0).Image(), p.Image())
}

func TestProfileLoad_MissingTimesGiveNoConfidence(t *testing.T) {
	p := minutes(0)
	for _, i := range []ProfileImage{{Samples: 5}, {Samples: 5, Last: start}, {Samples: 5, First: start}} {
		require.NoError(t, p.Load(i))
		require.Zero(t, p.Confidence(day))
		require.False(t, p.Empty())
	}
	require.NoError(t, p.Load(ProfileImage{Samples: 2000, First: start.Add(day), Last: start}))
	require.InDelta(t, 1.0, p.Confidence(day), 1e-9, "in the wrong order")
}
