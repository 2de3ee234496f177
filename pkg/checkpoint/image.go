package checkpoint

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/histogram"
	"loadline.dev/loadline/pkg/core/usage"
)

// Version is the format that is written, and the only one that is read.
const Version = "v3"

// Image returns what a checkpoint holds. Weights and times are not checked
// here; loading the image into a profile does.
func Image(s *vpav1.VerticalPodAutoscalerCheckpointStatus) (usage.ProfileImage, error) {
	if s.Version != Version {
		return usage.ProfileImage{}, fmt.Errorf("status.version is %q, only %q can be read", s.Version, Version)
	}
	if s.TotalSamplesCount < 0 {
		return usage.ProfileImage{}, fmt.Errorf("status.totalSamplesCount is %d, must not be negative", s.TotalSamplesCount)
	}
	err := errors.Join(readable("cpuHistogram", s.CPUHistogram), readable("memoryHistogram", s.MemoryHistogram))
	if err != nil {
		return usage.ProfileImage{}, err
	}
	return usage.ProfileImage{
		CPU:     histogramImage(s.CPUHistogram),
		Memory:  histogramImage(s.MemoryHistogram),
		First:   s.FirstSampleStart.Time,
		Last:    s.LastSampleStart.Time,
		Samples: int64(s.TotalSamplesCount),
	}, nil
}

// maxTotal is more than any sum of weights: within a hundred half-lives the
// weight of a sample grows to 1e30.
const maxTotal = 1e60

func readable(field string, h vpav1.HistogramCheckpoint) error {
	if h.BucketWeights[vpav1.UnreadableBucket] > 0 {
		return fmt.Errorf("status.%s.bucketWeights cannot be read, must map bucket numbers to whole numbers from 1 to 10000", field)
	}
	if h.TotalWeight > maxTotal {
		return fmt.Errorf("status.%s.totalWeight is %g, must be at most %g", field, h.TotalWeight, maxTotal)
	}
	return nil
}

func histogramImage(h vpav1.HistogramCheckpoint) histogram.Image {
	return histogram.Image{Reference: h.ReferenceTimestamp.Time, Total: h.TotalWeight, Weights: h.BucketWeights}
}

// Status returns the checkpoint of an image, written at now.
func Status(i usage.ProfileImage, now time.Time) vpav1.VerticalPodAutoscalerCheckpointStatus {
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

// someAnnotation stands for annotations in the cache: Saver must know only whether
// there are any.
var someAnnotation = map[string]string{OpenWindows: ""}

// Trim is a cache.TransformFunc that drops the histograms and annotations of
// checkpoints, because only Load needs them. That there are annotations stays
// visible.
func Trim(object any) (any, error) {
	c, ok := object.(*vpav1.VerticalPodAutoscalerCheckpoint)
	if !ok {
		return object, nil
	}
	trimmed := &vpav1.VerticalPodAutoscalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, CreationTimestamp: c.CreationTimestamp},
		Spec:       c.Spec,
		Status: vpav1.VerticalPodAutoscalerCheckpointStatus{
			Version:           c.Status.Version,
			LastUpdateTime:    c.Status.LastUpdateTime,
			LastSampleStart:   c.Status.LastSampleStart,
			TotalSamplesCount: c.Status.TotalSamplesCount,
		},
	}
	if len(c.Annotations) > 0 {
		trimmed.Annotations = someAnnotation
	}
	return trimmed, nil
}
