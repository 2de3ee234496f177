package histogram

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoad_RoundTrips(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	stored := Image{instant(t, "2024-06-01T00:00:00Z"), 37.25, map[int]uint32{3: 10000, 7: 3217, 12: 41, 20: 1}}
	require.NoError(t, h.Load(stored))
	require.Equal(t, stored, h.Image())
	h.Add(0.75, 0.1, instant(t, "2024-06-03T12:00:00Z"))
	require.Equal(t, map[int]uint32{3: 10000, 7: 3217, 12: 41, 20: 1, 31: 201}, h.Image().Weights)
	require.InEpsilon(t, 37.81568542494924, h.Image().Total, 1e-12)
}

// Idle containers use only the first bucket.
func TestLoad_AcceptsFirstAndLastBucket(t *testing.T) {
	for bucket, quantile := range map[int]float64{0: CPUScheme().Start(1), 175: CPUScheme().Start(175)} {
		h := New(CPUScheme(), NewDecay(day))
		stored := Image{instant(t, "2024-06-01T00:00:00Z"), 5, map[int]uint32{bucket: 10000}}
		require.NoError(t, h.Load(stored))
		require.Equal(t, stored, h.Image())
		require.Equal(t, quantile, h.Quantile(0.5))
	}
}

func TestLoad_DropsOuterBucketsBelowEpsilon(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	require.NoError(t, h.Load(Image{instant(t, "2024-06-01T00:00:00Z"), 0.9, map[int]uint32{1: 1, 9: 10000, 30: 1}}))
	require.Equal(t, map[int]uint32{9: 10000}, h.Image().Weights)
	require.Equal(t, 0.9, h.Image().Total)
}

func TestLoad_EmptyImageKeepsReference(t *testing.T) {
	at := instant(t, "2024-06-01T00:00:00Z")
	for _, weights := range []map[int]uint32{nil, {}, {5: 0}} {
		h := New(CPUScheme(), NewDecay(day))
		require.NoError(t, h.Load(Image{at, 12, weights}))
		require.True(t, h.Empty())
		require.Zero(t, h.Image().Total)
		require.Equal(t, at, h.Image().Reference)
	}
}

func TestLoad_WithoutReferenceDecaysAtFirstSample(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	require.NoError(t, h.Load(Image{Total: 10, Weights: map[int]uint32{40: 10000}}))
	require.Equal(t, CPUScheme().Start(41), h.Quantile(0.5))
	h.Add(0.5, 0.1, instant(t, "2024-06-01T00:00:00Z"))
	require.Equal(t, map[int]uint32{25: 10000}, h.Image().Weights)
	require.Equal(t, 0.1, h.Image().Total)
}

func TestLoad_RejectsInvalidImage(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	h.Add(1, 1, instant(t, "2024-06-01T00:00:00Z"))
	before := h.Image()
	for _, c := range []struct {
		image Image
		says  []string
	}{
		{Image{Total: -1, Weights: map[int]uint32{1: 10000}}, []string{"total weight -1"}},
		{Image{Total: math.NaN()}, []string{"total weight NaN"}},
		{Image{Total: math.Inf(1)}, []string{"total weight +Inf"}},
		{Image{Total: 1, Weights: map[int]uint32{176: 10000}}, []string{"to 176: must be from 0 to 175"}},
		{Image{Total: 1, Weights: map[int]uint32{-1: 10000}}, []string{"buckets from -1"}},
		{Image{Total: -1, Weights: map[int]uint32{-7: 1, 999: 1}}, []string{"total weight -1", "buckets from -7 to 999"}},
	} {
		err := h.Load(c.image)
		for _, text := range c.says {
			require.ErrorContains(t, err, text)
		}
		require.Equal(t, before, h.Image())
	}
}

func FuzzLoad(f *testing.F) {
	f.Fuzz(func(t *testing.T, seconds int64, total float64, pairs []byte) {
		image := Image{Reference: time.Unix(seconds, 0).UTC(), Total: total, Weights: map[int]uint32{}}
		valid := total >= 0 && !math.IsInf(total, 1)
		for ; len(pairs) >= 4; pairs = pairs[4:] {
			bucket := int(int16(uint16(pairs[0])<<8 | uint16(pairs[1])))
			image.Weights[bucket] = uint32(pairs[2])<<24>>(pairs[3]&31) | uint32(pairs[3])
			valid = valid && bucket >= 0 && bucket < 176
		}
		h := New(MemoryScheme(), NewDecay(day))
		h.Add(1e9, 1, time.Unix(1700000000, 0))
		before := h.Image()
		if err := h.Load(image); err != nil {
			require.False(t, valid, "refused a valid image: %v", err)
			require.Equal(t, before, h.Image())
			return
		}
		require.True(t, valid, "took an invalid image")
		if y := image.Reference.Year(); y > 1678 && y < 2262 {
			model := newDense(h.scheme, day)
			model.load(image)
			requireSame(t, model, &h)
		}
		again := New(MemoryScheme(), NewDecay(day))
		require.NoError(t, again.Load(h.Image()), "what is saved can be loaded")
		h.Add(2e9, 1, time.Unix(1710000000, 0))
		again.MergeInto(&h)
		require.GreaterOrEqual(t, h.Quantile(0.9), 0.0)
	})
}
