package v1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBucketWeights_InvalidWeightsKeepOtherCheckpoints(t *testing.T) {
	for weights, want := range map[string]map[int]uint32{
		`{"3":10000}`: {3: 10000}, `{}`: {}, `null`: nil,
		`{"x":1}`: {UnreadableBucket: 1}, `{"1":-1}`: {UnreadableBucket: 1}, `{"1":1.5}`: {UnreadableBucket: 1},
		`{"1":4294967296}`: {UnreadableBucket: 1}, `{"1":"1"}`: {UnreadableBucket: 1}, `[1]`: {UnreadableBucket: 1}, `7`: {UnreadableBucket: 1},
	} {
		var list VerticalPodAutoscalerCheckpointList
		text := `{"items":[{"status":{"cpuHistogram":{"totalWeight":2,"bucketWeights":` + weights + `}}},{"status":{"totalSamplesCount":5}}]}`
		require.NoError(t, json.Unmarshal([]byte(text), &list), weights)
		require.Equal(t, want, list.Items[0].Status.CPUHistogram.BucketWeights, weights)
		require.Equal(t, 2.0, list.Items[0].Status.CPUHistogram.TotalWeight, weights)
		require.Equal(t, 5, list.Items[1].Status.TotalSamplesCount)
	}
}

// FuzzBucketWeights decodes arbitrary weights, because any object passes the schema. The decoded
// weights must survive a round trip.
func FuzzBucketWeights(f *testing.F) {
	f.Add([]byte(`{"0":1,"175":10000}`))
	f.Fuzz(func(t *testing.T, weights []byte) {
		if !json.Valid(weights) {
			return
		}
		var read HistogramCheckpoint
		require.NoError(t, json.Unmarshal([]byte(`{"totalWeight":2,"bucketWeights":`+string(weights)+`}`), &read))
		require.Equal(t, 2.0, read.TotalWeight)
		raw, err := json.Marshal(read)
		require.NoError(t, err)
		var again HistogramCheckpoint
		require.NoError(t, json.Unmarshal(raw, &again))
		require.Len(t, again.BucketWeights, len(read.BucketWeights))
		for bucket, weight := range read.BucketWeights {
			require.Equal(t, weight, again.BucketWeights[bucket])
		}
	})
}
