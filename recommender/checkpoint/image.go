package checkpoint

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/histogram"
	"loadline.dev/loadline/pkg/core/profile"
)

// Version is the format that is written, and the only one that is read.
const Version = "v3"

// Image returns what a checkpoint holds. Weights and times are not checked
// here; loading the image into a profile does.
func Image(s *vpav1.VerticalPodAutoscalerCheckpointStatus) (profile.Image, error) {
	if s.Version != Version {
		return profile.Image{}, fmt.Errorf("status.version is %q, only %q can be read", s.Version, Version)
	}
	if s.TotalSamplesCount < 0 {
		return profile.Image{}, errors.New("status.totalSamplesCount is negative")
	}
	return profile.Image{
		CPU:     histogramImage(s.CPUHistogram),
		Memory:  histogramImage(s.MemoryHistogram),
		First:   s.FirstSampleStart.Time,
		Last:    s.LastSampleStart.Time,
		Samples: int64(s.TotalSamplesCount),
	}, nil
}

func histogramImage(h vpav1.HistogramCheckpoint) histogram.Image {
	return histogram.Image{Reference: h.ReferenceTimestamp.Time, Total: h.TotalWeight, Weights: h.BucketWeights}
}

// Status returns the checkpoint of an image, written at now.
func Status(i profile.Image, now time.Time) vpav1.VerticalPodAutoscalerCheckpointStatus {
	return vpav1.VerticalPodAutoscalerCheckpointStatus{
		LastUpdateTime:    metav1.NewTime(now),
		Version:           Version,
		CPUHistogram:      histogramStatus(i.CPU),
		MemoryHistogram:   histogramStatus(i.Memory),
		FirstSampleStart:  metav1.NewTime(i.First),
		LastSampleStart:   metav1.NewTime(i.Last),
		TotalSamplesCount: int(i.Samples),
	}
}

func histogramStatus(i histogram.Image) vpav1.HistogramCheckpoint {
	return vpav1.HistogramCheckpoint{
		ReferenceTimestamp: metav1.NewTime(i.Reference),
		BucketWeights:      i.Weights,
		TotalWeight:        i.Total,
	}
}
