package main

import (
	"fmt"
	"time"

	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/core/histogram"
)

type options struct {
	Scheme                                    string
	MaxValue, FirstBucketSize, Ratio, Epsilon float64
}

func (o options) build() (*histogram.Scheme, error) {
	switch o.Scheme {
	case "exponential":
		return histogram.NewExponentialScheme(o.FirstBucketSize, o.Ratio, o.MaxValue, o.Epsilon), nil
	case "linear":
		return histogram.NewExponentialScheme(o.FirstBucketSize, 1, o.MaxValue, o.Epsilon), nil
	}
	return nil, fmt.Errorf("input: scheme %q is unknown", o.Scheme)
}

type bucketingInput struct {
	Options options
	Values  []float64
	Buckets []int
}

type valueBucket struct {
	Value  float64 `json:"value"`
	Bucket int     `json:"bucket"`
}

type bucketStart struct {
	Bucket int     `json:"bucket"`
	Start  float64 `json:"start"`
}

type bucketingOutput struct {
	NumBuckets  int           `json:"numBuckets"`
	FindBucket  []valueBucket `json:"findBucket"`
	BucketStart []bucketStart `json:"bucketStart"`
}

func bucketing(in bucketingInput) (out bucketingOutput, err error) {
	scheme, err := in.Options.build()
	if err != nil {
		return out, err
	}
	out.NumBuckets = scheme.Buckets()
	for _, v := range in.Values {
		out.FindBucket = append(out.FindBucket, valueBucket{v, scheme.Find(v)})
	}
	for _, b := range in.Buckets {
		out.BucketStart = append(out.BucketStart, bucketStart{b, scheme.Start(b)})
	}
	return out, nil
}

// histogramState is a histogram in the format of checkpoints. Null is the zero time.
type histogramState struct {
	ReferenceTimestamp *time.Time     `json:"referenceTimestamp"`
	TotalWeight        float64        `json:"totalWeight"`
	BucketWeights      map[int]uint32 `json:"bucketWeights"`
}

func (s histogramState) image() histogram.Image {
	reference := vectors.ValueOr(s.ReferenceTimestamp, time.Time{})
	return histogram.Image{Reference: reference, Total: s.TotalWeight, Weights: s.BucketWeights}
}

func stateOf(i histogram.Image) histogramState {
	s := histogramState{TotalWeight: i.Total, BucketWeights: i.Weights}
	if !i.Reference.IsZero() {
		s.ReferenceTimestamp = &i.Reference
	}
	return s
}

type operation struct {
	Op            string
	Value, Weight float64
	Time          time.Time
}

type histogramInput struct {
	Options               options
	HalfLifeSeconds       float64
	Checkpoint            *histogramState
	Operations, MergeWith []operation
	Percentiles           []float64
}

type percentile struct {
	Percentile float64 `json:"percentile"`
	Value      float64 `json:"value"`
}

type histogramOutput struct {
	Error       bool            `json:"error,omitempty"`
	IsEmpty     *bool           `json:"isEmpty,omitempty"`
	Percentiles []percentile    `json:"percentiles,omitempty"`
	Checkpoint  *histogramState `json:"checkpoint,omitempty"`
}

func dump(h *histogram.Histogram, percentiles []float64) histogramOutput {
	out := histogramOutput{IsEmpty: new(h.Empty()), Checkpoint: new(stateOf(h.Image()))}
	for _, p := range percentiles {
		out.Percentiles = append(out.Percentiles, percentile{p, h.Quantile(p)})
	}
	return out
}

func histograms(in histogramInput) (out histogramOutput, err error) {
	scheme, err := in.Options.build()
	if err != nil {
		return out, err
	}
	decay := histogram.NewDecay(vectors.Seconds(in.HalfLifeSeconds))
	h := histogram.New(scheme, decay)
	if in.Checkpoint != nil {
		if refused := h.Load(in.Checkpoint.image()); refused != nil {
			return histogramOutput{Error: true}, nil //nolint:nilerr // that it is refused is the expected output
		}
	}
	if err := apply(&h, in.Operations); err != nil {
		return out, err
	}
	if len(in.MergeWith) > 0 {
		other := histogram.New(scheme, decay)
		if err := apply(&other, in.MergeWith); err != nil {
			return out, err
		}
		other.MergeInto(&h)
	}
	return dump(&h, in.Percentiles), nil
}

func apply(h *histogram.Histogram, operations []operation) error {
	for _, o := range operations {
		switch o.Op {
		case "add":
			h.Add(o.Value, o.Weight, o.Time)
		case "subtract":
			h.Subtract(o.Value, o.Weight, o.Time)
		default:
			return fmt.Errorf("input: operation %q is unknown", o.Op)
		}
	}
	return nil
}
