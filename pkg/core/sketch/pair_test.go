package sketch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

type naive struct {
	at  []int64
	use []float64
}

func (n naive) share(s *LoadShape, i int, now int64, share float64) float64 {
	weights := make([]float64, s.scheme.Buckets())
	total := 0.0
	for j, use := range n.use {
		b := s.scheme.Find(use)
		w := math.Exp2(-float64(now-n.at[j]) / float64(s.halfLives[i]))
		if s.byLoad {
			w *= s.scheme.Start(b + 1)
		}
		weights[b], total = weights[b]+w, total+w
	}
	sum := 0.0
	for b, w := range weights {
		if sum += w; sum >= share*total {
			return s.scheme.Start(b + 1)
		}
	}
	return 0
}

// The compact form is exact if usage differs by at most a hundredfold. Otherwise it errs upwards by
// some buckets.
func TestPair_MatchesNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := NewLoadShape(resources.CPU, [2]time.Duration{48 * time.Hour, 4 * time.Hour},
			[2]float64{rapid.Float64Range(0.3, 0.95).Draw(t, "slow"), rapid.Float64Range(0.3, 0.95).Draw(t, "fast")}, rapid.Bool().Draw(t, "by load"), false)
		wide := rapid.Bool().Draw(t, "wide")
		var all naive
		l, now := newLoad(shape), at(0)
		for range rapid.IntRange(1, 200).Draw(t, "uses") {
			now += int64(rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour, 9 * time.Hour}).Draw(t, "step"))
			use := math.Exp(rapid.Float64Range(-1, 1).Draw(t, "use"))
			if wide {
				use = math.Exp(rapid.Float64Range(-6, 5).Draw(t, "use"))
			}
			all.at, all.use = append(all.at, now), append(all.use, use)
			l.Observe(now, use*1000)
			require.LessOrEqual(t, len(l.uses.weights), maxLoadWeights)
		}
		for i := range 2 {
			// Distant values may have nearly equal shares, so the comparison tolerates a small
			// difference in share.
			got, share, room := l.Level(i, now)/1000, shape.shares[i], 0.001
			below, above, width := 0.94, 1.06, 0.005
			if wide { // the smallest values differ by three buckets of 0.002 and more
				room, below, above, width = 0.1, 0.8, 1.25, 0.008
			}
			require.GreaterOrEqual(t, got, all.share(shape, i, now, max(share-room, 0))*below-width, "level %d", i)
			require.LessOrEqual(t, got, all.share(shape, i, now, min(share+room, 1-1e-9))*above+width, "level %d", i)
		}
	})
}

func TestPair_BucketsBecomeFineAgain(t *testing.T) {
	l, now := newLoad(calm()), at(0)
	l.Observe(now, 900_000)
	l.Observe(now, 5)
	require.Positive(t, l.uses.coarse)
	for range 60 * 24 * 60 {
		now += int64(time.Minute)
		l.Observe(now, 1000)
	}
	require.Zero(t, l.uses.coarse)
	require.InEpsilon(t, 1011.3, l.Level(0, now), 0.001)
}

func TestLoad_Levels(t *testing.T) {
	l := newLoad(NewLoadShape(resources.CPU, [2]time.Duration{48 * time.Hour, 4 * time.Hour}, [2]float64{0.75, 0.5}, true, false))
	require.Zero(t, l.Level(0, at(0)))
	for i := range 20000 {
		l.Observe(at(time.Duration(i)*time.Minute), float64(100+i%900))
	}
	now := at(20000 * time.Minute)
	require.Greater(t, l.Level(0, now), l.Level(1, now)*0.9)
	require.Equal(t, "0.75 of the load, half-life 48h", l.shape.Name(0))
}
