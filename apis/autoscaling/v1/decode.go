package v1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnreadableBucket is a bucket number that no histogram uses. It replaces stored weights that are
// not a map of bucket numbers to whole numbers.
const UnreadableBucket = -1

// UnmarshalJSON decodes a histogram. The schema accepts any object as bucketWeights. Invalid
// weights become an UnreadableBucket, so that decoding a list does not fail because of one item.
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

// UnmarshalJSON decodes a checkpoint. The schema accepts some invalid times, such as
// 2026-01-02t12:00:00z. A checkpoint that cannot be decoded gets the error as its status version,
// which no reader supports, so that decoding a list does not fail because of one item.
func (c *VerticalPodAutoscalerCheckpoint) UnmarshalJSON(raw []byte) error {
	type plain VerticalPodAutoscalerCheckpoint
	*c = VerticalPodAutoscalerCheckpoint{}
	problem := json.Unmarshal(raw, (*plain)(c))
	if problem == nil {
		return nil
	}
	var identity metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &identity); err != nil {
		return err
	}
	var parts struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	*c = VerticalPodAutoscalerCheckpoint{TypeMeta: identity.TypeMeta, ObjectMeta: identity.ObjectMeta}
	if len(parts.Spec) > 0 && json.Unmarshal(parts.Spec, &c.Spec) != nil {
		c.Spec = VerticalPodAutoscalerCheckpointSpec{}
	}
	c.Status.Version = "unreadable: " + problem.Error()
	return nil
}
