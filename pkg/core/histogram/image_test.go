package histogram

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoad_RoundTrips(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	stored := Image{Reference: instant(t, "2024-06-01T00:00:00Z"), Total: 37.25, Weights: map[int]uint32{3: 10000, 7: 3217, 12: 41, 20: 1}}
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
		stored := Image{Reference: instant(t, "2024-06-01T00:00:00Z"), Total: 5, Weights: map[int]uint32{bucket: 10000}}
		require.NoError(t, h.Load(stored))
		require.Equal(t, stored, h.Image())
		require.Equal(t, quantile, h.Quantile(0.5))
	}
}

func TestLoad_DropsOuterBucketsBelowEpsilon(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	stored := Image{Reference: instant(t, "2024-06-01T00:00:00Z"), Total: 0.9, Weights: map[int]uint32{1: 1, 9: 10000, 30: 1}}
	require.NoError(t, h.Load(stored))
	require.Equal(t, map[int]uint32{9: 10000}, h.Image().Weights)
	require.Equal(t, 0.9, h.Image().Total)
}

func TestLoad_EmptyImageKeepsReference(t *testing.T) {
	at := instant(t, "2024-06-01T00:00:00Z")
	for _, weights := range []map[int]uint32{nil, {}, {5: 0}} {
		h := New(CPUScheme(), NewDecay(day))
		require.NoError(t, h.Load(Image{Reference: at, Total: 12, Weights: weights}))
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
	for _, tc := range []struct {
		name     string
		image    Image
		problems []string
	}{
		{name: "negative total weight", image: Image{Total: -1, Weights: map[int]uint32{1: 10000}}, problems: []string{"total weight -1"}},
		{name: "total weight is not a number", image: Image{Total: math.NaN()}, problems: []string{"total weight NaN"}},
		{name: "infinite total weight", image: Image{Total: math.Inf(1)}, problems: []string{"total weight +Inf"}},
		{
			name: "bucket above the last", image: Image{Total: 1, Weights: map[int]uint32{176: 10000}},
			problems: []string{"to 176: must be from 0 to 175"},
		},
		{name: "negative bucket", image: Image{Total: 1, Weights: map[int]uint32{-1: 10000}}, problems: []string{"buckets from -1"}},
		{
			name: "invalid total weight and buckets", image: Image{Total: -1, Weights: map[int]uint32{-7: 1, 999: 1}},
			problems: []string{"total weight -1", "buckets from -7 to 999"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := New(CPUScheme(), NewDecay(day))
			h.Add(1, 1, instant(t, "2024-06-01T00:00:00Z"))
			before := h.Image()
			err := h.Load(tc.image)
			for _, text := range tc.problems {
				require.ErrorContains(t, err, text)
			}
			require.Equal(t, before, h.Image())
		})
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
