package checkpoint

import (
	"encoding/json"
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Content is what is kept of a container.
type Content struct {
	Target  target.Key // whose history it is; zero: not known
	Image   usage.ProfileImage
	Windows map[string]usage.Window // open ones by pod, whose peaks Image lacks
	Sketch  []byte                  // image of what a recipe knows besides; empty = nothing
}

// Record is a Content as it is written to an object.
type Record struct {
	Namespace, Name string
	Sum             uint64 // of everything but the time of writing
	Size            int    // that the object takes in etcd, about
	Lacks           error  // what had no room, so that the record is without it; nil: nothing

	spec    vpav1.VerticalPodAutoscalerCheckpointSpec
	status  vpav1.VerticalPodAutoscalerCheckpointStatus
	windows string // the annotation
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
	windows, err := encode(c.Windows)
	if err != nil {
		return r, err
	}
	of, err := encodeTarget(c.Target)
	if err != nil {
		return r, err
	}
	raw, err := json.Marshal(r.status)
	if err != nil {
		return r, err
	}
	if !fits(of, windows, c.Sketch) {
		c.Sketch, r.Lacks = nil, ErrSketch
	}
	h := fnv.New64a()
	_, _ = h.Write(raw) // a hash never fails
	_, _ = h.Write(of)
	_, _ = h.Write(windows)
	_, _ = h.Write(c.Sketch)
	r.Sum = h.Sum64()
	r.status.LastUpdateTime = metav1.NewTime(now.Truncate(time.Second)) // as it is stored
	r.windows = annotation(of, windows, c.Sketch, now)
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

// Patch returns the JSON patch of an object that has annotations, or has none.
// Where that is not so the API server refuses it, as it does if the object is the
// checkpoint of another container: no foreign annotation is wiped.
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
