package v1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBucketWeights_InvalidWeightsKeepOtherCheckpoints(t *testing.T) {
	for _, tc := range []struct {
		name    string
		weights string
		want    map[int]uint32
	}{
		{name: "one bucket", weights: `{"3":10000}`, want: map[int]uint32{3: 10000}},
		{name: "no buckets", weights: `{}`, want: map[int]uint32{}},
		{name: "null", weights: `null`},
		{name: "bucket is no number", weights: `{"x":1}`, want: map[int]uint32{UnreadableBucket: 1}},
		{name: "negative weight", weights: `{"1":-1}`, want: map[int]uint32{UnreadableBucket: 1}},
		{name: "fractional weight", weights: `{"1":1.5}`, want: map[int]uint32{UnreadableBucket: 1}},
		{name: "weight out of range", weights: `{"1":4294967296}`, want: map[int]uint32{UnreadableBucket: 1}},
		{name: "weight is a string", weights: `{"1":"1"}`, want: map[int]uint32{UnreadableBucket: 1}},
		{name: "list", weights: `[1]`, want: map[int]uint32{UnreadableBucket: 1}},
		{name: "number", weights: `7`, want: map[int]uint32{UnreadableBucket: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var list VerticalPodAutoscalerCheckpointList
			text := `{"items":[{"status":{"cpuHistogram":{"totalWeight":2,"bucketWeights":` + tc.weights +
				`}}},{"status":{"totalSamplesCount":5}}]}`
			require.NoError(t, json.Unmarshal([]byte(text), &list))
			require.Equal(t, tc.want, list.Items[0].Status.CPUHistogram.BucketWeights)
			require.Equal(t, 2.0, list.Items[0].Status.CPUHistogram.TotalWeight)
			require.Equal(t, 5, list.Items[1].Status.TotalSamplesCount)
		})
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
