package checkpoint

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// FuzzImage reads arbitrary checkpoints. Each yields a valid profile or an error, and a valid
// profile survives a round trip.
func FuzzImage(f *testing.F) {
	good, err := json.Marshal(object("web", "a", 50))
	require.NoError(f, err)
	for _, raw := range []string{
		string(good),
		strings.Replace(string(good), `"v3"`, `"v4"`, 1),
		`{"status":{"version":"v3","totalSamplesCount":-1}}`,
		`{"status":{"version":"v3","cpuHistogram":{"bucketWeights":{"0":10000,"175":1},"totalWeight":1e300}}}`,
		`{"status":{"version":"v3","cpuHistogram":{"bucketWeights":{"176":1},"totalWeight":1}}}`,
		`{"status":{"version":"v3","memoryHistogram":{"bucketWeights":{"x":{}},"totalWeight":1,"referenceTimestamp":"9999-12-31T00:00:00Z"}}}`,
		`{"status":{"version":"v3","memoryHistogram":{"bucketWeights":{"1":4294967296},"totalWeight":1}}}`,
		`{"metadata":{"annotations":{"loadline.dev/open-windows":"{\"written\":\"2026-03-02T08:00:00Z\",\"windows\":{\"p\":{\"end\":\"2026-03-02T09:00:00Z\",\"usage\":5,\"kill\":\"2027-03-02T09:00:00Z\",\"kills\":[1,2,3,4,5,6]}}}"}},"status":{"version":"v3","lastUpdateTime":"2026-03-02T08:00:00Z"}}`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c vpav1.VerticalPodAutoscalerCheckpoint
		if json.Unmarshal(raw, &c) != nil {
			return
		}
		l := Loader{Shape: shape(), MaxSkew: MaxSkew{Sample: time.Hour, CPU: 25 * time.Hour, Memory: 49 * time.Hour, Window: 25 * time.Hour}}
		past, err := l.read(&c, now())
		if past.Profile == nil {
			require.Error(t, err)
			return
		}
		if err != nil {
			require.True(t, errors.Is(err, ErrWindows) || errors.Is(err, ErrFuture), err)
		}
		p := past.Profile
		require.LessOrEqual(t, p.Last().Sub(now()), time.Hour)
		for _, quantile := range []float64{p.CPU.Quantile(0.9), p.Memory.Quantile(0.9)} {
			require.False(t, math.IsNaN(quantile) || math.IsInf(quantile, 0) || quantile < 0)
		}
		r, err := NewRecord(Owner{"ns", "web"}, "a", Content{Image: p.Image(), Windows: past.Windows}, now())
		require.NoError(t, err)
		again, err := l.read(r.Object(), now())
		require.NoError(t, err)
		require.Equal(t, p.Samples(), again.Profile.Samples())
		require.Len(t, again.Windows, len(past.Windows))
	})
}
