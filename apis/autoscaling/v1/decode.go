package v1

import "encoding/json"

// UnreadableBucket is a bucket that no histogram has. It stands for weights that
// are stored but are no map of bucket numbers to whole numbers.
const UnreadableBucket = -1

// UnmarshalJSON reads a histogram. The schema lets any object pass as
// bucketWeights; one that cannot be read must not spoil the list it is in, so it
// becomes an UnreadableBucket.
func (h *HistogramCheckpoint) UnmarshalJSON(raw []byte) error {
	type plain HistogramCheckpoint
	var read struct {
		*plain
		BucketWeights json.RawMessage `json:"bucketWeights"`
	}
	*h = HistogramCheckpoint{}
	read.plain = (*plain)(h)
	if err := json.Unmarshal(raw, &read); err != nil {
		return err
	}
	if len(read.BucketWeights) == 0 {
		return nil
	}
	if err := json.Unmarshal(read.BucketWeights, &h.BucketWeights); err != nil {
		h.BucketWeights = map[int]uint32{UnreadableBucket: 1}
	}
	return nil
}
