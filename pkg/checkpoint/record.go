package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/histogram"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Content is the history of a container to store.
type Content struct {
	Target  target.Key // workload of the history, zero if unknown
	Image   usage.ProfileImage
	Windows map[string]usage.Window // by pod, Image lacks their peaks
	Sketch  []byte                  // encoded recipe state, may be empty
}

// Record is a Content in the form of its object.
type Record struct {
	Namespace, Name string
	Hash            uint64 // of everything except the write time
	Size            int    // approximate size of the object in etcd
	DropErr         error  // ErrSketch if the sketch was too large, else nil

	spec    vpav1.VerticalPodAutoscalerCheckpointSpec
	status  vpav1.VerticalPodAutoscalerCheckpointStatus
	windows string
}

// MetadataSize is the approximate size of a checkpoint in etcd without its content.
const MetadataSize = 1 << 10

// ObjectName returns the name of a checkpoint.
func ObjectName(o Owner, container string) string { return o.VPA + "-" + container }

// NewRecord returns the record of a container, written at now.
func NewRecord(o Owner, container string, c Content, now time.Time) (Record, error) {
	r := Record{
		Namespace: o.Namespace,
		Name:      ObjectName(o, container),
		spec:      vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: o.VPA, ContainerName: container},
		status:    Status(c.Image, time.Time{}),
	}
	windows, err := encodeWindows(c.Windows)
	if err != nil {
		return r, err
	}
	targetText, err := encodeTarget(c.Target)
	if err != nil {
		return r, err
	}
	raw, err := json.Marshal(r.status)
	if err != nil {
		return r, err
	}
	if !fits(targetText, windows, c.Sketch) {
		c.Sketch, r.DropErr = nil, ErrSketch
	}
	h := fnv.New64a()
	_, _ = h.Write(raw) // a hash never fails
	_, _ = h.Write(targetText)
	_, _ = h.Write(windows)
	_, _ = h.Write(c.Sketch)
	r.Hash = h.Sum64()
	r.status.LastUpdateTime = metav1.NewTime(now.Truncate(time.Second)) // truncated like the stored time
	r.windows = encodeAnnotation(targetText, windows, c.Sketch, now)
	r.Size = len(raw) + len(r.windows) + MetadataSize
	return r, nil
}

// Object returns the record as a new object.
func (r Record) Object() *vpav1.VerticalPodAutoscalerCheckpoint {
	return &vpav1.VerticalPodAutoscalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Annotations: map[string]string{OpenWindows: r.windows}},
		Spec:       r.spec,
		Status:     r.status,
	}
}

// Patch returns a JSON patch. The API server refuses it if annotated is wrong, or if the object is
// the checkpoint of another container, so that no foreign annotation is lost.
func (r Record) Patch(annotated bool) ([]byte, error) {
	steps := []client.PatchOperation{
		client.PatchTest("/spec/vpaObjectName", r.spec.VPAObjectName),
		client.PatchTest("/spec/containerName", r.spec.ContainerName),
		client.PatchAdd("/status", r.status),
	}
	if annotated {
		steps = append(steps, client.PatchAdd(client.PatchPath("metadata", "annotations", OpenWindows), r.windows))
	} else {
		steps = append(steps,
			client.PatchTest("/metadata/annotations", nil),
			client.PatchAdd("/metadata/annotations", map[string]string{OpenWindows: r.windows}))
	}
	return json.Marshal(steps)
}

// Version is the only format that is written and read.
const Version = "v3"

// Image converts a checkpoint status. Loading the image into a profile checks weights and times.
func Image(s *vpav1.VerticalPodAutoscalerCheckpointStatus) (usage.ProfileImage, error) {
	if s.Version != Version {
		return usage.ProfileImage{}, fmt.Errorf("status.version is %q, only %q can be read", s.Version, Version)
	}
	if s.TotalSamplesCount < 0 {
		return usage.ProfileImage{}, fmt.Errorf("status.totalSamplesCount is %d, must not be negative", s.TotalSamplesCount)
	}
	err := errors.Join(checkHistogram("cpuHistogram", s.CPUHistogram), checkHistogram("memoryHistogram", s.MemoryHistogram))
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

// maxTotalWeight exceeds any sum of weights: in 100 half-lives a sample's weight grows to 1e30.
const maxTotalWeight = 1e60

func checkHistogram(field string, h vpav1.HistogramCheckpoint) error {
	if h.BucketWeights[vpav1.UnreadableBucket] > 0 {
		return fmt.Errorf("status.%s.bucketWeights cannot be read, must map bucket numbers to whole numbers from 1 to 10000", field)
	}
	if h.TotalWeight > maxTotalWeight {
		return fmt.Errorf("status.%s.totalWeight is %g, must be at most %g", field, h.TotalWeight, maxTotalWeight)
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

// placeholderAnnotation replaces cached annotations: Saver only checks whether there are any.
var placeholderAnnotation = map[string]string{OpenWindows: ""}

// Trim drops histograms from cached checkpoints and replaces annotations by a placeholder.
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
		trimmed.Annotations = placeholderAnnotation
	}
	return trimmed, nil
}

// ErrFuture means that times of a checkpoint were in the future and were replaced by the current
// time. New samples would otherwise have no weight, and the history would never expire.
var ErrFuture = errors.New("time in the future was replaced by the current time, check the clocks of the nodes")

// MaxSkew limits how far checkpoint times may be ahead of the local clock. Zero means no limit.
type MaxSkew struct {
	Sample      time.Duration // first and last sample
	CPU, Memory time.Duration // reference times of the decay
	Window      time.Duration // ends of open windows
}

func (a MaxSkew) clampTimes(i *usage.ProfileImage, now time.Time) (err error) {
	for _, t := range []struct {
		field string
		at    *time.Time
		most  time.Duration
	}{
		{"status.firstSampleStart", &i.First, a.Sample},
		{"status.lastSampleStart", &i.Last, a.Sample},
		{"status.cpuHistogram.referenceTimestamp", &i.CPU.Reference, a.CPU},
		{"status.memoryHistogram.referenceTimestamp", &i.Memory.Reference, a.Memory},
	} {
		if t.most > 0 && t.at.Sub(now) > t.most {
			err = errors.Join(err, fmt.Errorf("%s is %s: %w", t.field, formatTime(*t.at), ErrFuture))
			*t.at = now
		}
	}
	return err
}

func (a MaxSkew) closeWindows(windows map[string]usage.Window, now time.Time) (err error) {
	for pod, w := range windows {
		if a.Window > 0 && w.End.Sub(now) > a.Window {
			w.End, err = now, fmt.Errorf("a window in the annotation %s ends at %s: %w", OpenWindows, formatTime(w.End), ErrFuture)
		}
		if a.Sample > 0 && w.Kill.Sub(now) > a.Sample {
			w.Kill = time.Time{} // else it would outrank all later kills
			if len(w.Kills) > 0 {
				w.Kill = now // later kills have other IDs
			}
		}
		windows[pod] = w
	}
	return err
}
