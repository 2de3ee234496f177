package play

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/hack/cluster/trace"
)

// Prefix is the prefix of the annotations that control the simulation, on a pod or its pod
// template. Annotations marked "per container" are overridden for a container by an annotation with
// a dot and the container name appended.
const (
	Prefix = "sim.loadline.dev/"

	// CPUAnnotation is a fixed CPU usage, such as 250m, per container.
	CPUAnnotation = Prefix + "cpu"
	// MemoryAnnotation is a fixed memory usage, such as 100Mi, per container.
	MemoryAnnotation = Prefix + "memory"
	// TraceAnnotation is the trace to play, as NAME or NAME:CPUCOLUMN,MEMORYCOLUMN, per container.
	// It overrides fixed amounts.
	TraceAnnotation = Prefix + "trace"
	// SpeedAnnotation is the number of seconds of a trace that pass in one second, per container.
	SpeedAnnotation = Prefix + "speed"
	// OffsetAnnotation is the position in the trace at which a pod starts, such as 5m, per
	// container.
	OffsetAnnotation = Prefix + "offset"
	// RampAnnotation is the time in which a restarted container regains its former memory usage,
	// such as 45s, per container.
	RampAnnotation = Prefix + "restart-ramp"
	// OOMAnnotation names a container to OOM kill once. The player then removes the annotation.
	OOMAnnotation = Prefix + "oom"
)

const (
	defaultCPU    = 0.001   // cores
	defaultMemory = 1 << 20 // bytes
	defaultRamp   = 30 * time.Second
	maxSpeed      = 10_000 // bounds the part of a trace in one step
)

// Demand is the unlimited usage of one container.
type Demand struct {
	Trace  *trace.Trace  // nil: fixed amounts
	CPU    float64       // cores
	Memory float64       // bytes
	Speed  float64       // seconds of the trace per second
	Offset float64       // seconds into the trace
	Ramp   time.Duration // time to full memory after a restart
}

type annotationReader struct {
	pod       *corev1.Pod
	container string
	err       error
}

// ReadDemand reads the annotations for one container of a pod. speed is the default. The error is
// the first problem, with the name of the annotation and the expected format.
func ReadDemand(pod *corev1.Pod, container string, speed float64, library *trace.Library) (Demand, error) {
	r := annotationReader{pod: pod, container: container}
	demand := Demand{
		CPU:    r.quantity(CPUAnnotation, defaultCPU),
		Memory: r.quantity(MemoryAnnotation, defaultMemory),
		Speed:  r.factor(SpeedAnnotation, speed),
		Offset: r.duration(OffsetAnnotation, 0).Seconds(),
		Ramp:   r.duration(RampAnnotation, defaultRamp),
	}
	if r.traced() && r.err == nil {
		name, columns, err := traceName(r.text(TraceAnnotation))
		if err == nil {
			demand.Trace, err = library.Trace(name, columns)
		}
		if err != nil {
			r.err = fmt.Errorf("annotation %s: %w", TraceAnnotation, err)
		}
	}
	return demand, r.err
}

// traced reports whether the container plays a trace. Its own fixed amount overrides a trace of the
// pod.
func (r *annotationReader) traced() bool {
	annotations := r.pod.Annotations
	if _, own := annotations[TraceAnnotation+"."+r.container]; own {
		return true
	}
	_, cpu := annotations[CPUAnnotation+"."+r.container]
	_, memory := annotations[MemoryAnnotation+"."+r.container]
	_, shared := annotations[TraceAnnotation]
	return shared && !cpu && !memory
}

func (r *annotationReader) text(annotation string) string {
	if text, own := r.pod.Annotations[annotation+"."+r.container]; own {
		return text
	}
	return r.pod.Annotations[annotation]
}

func (r *annotationReader) fail(annotation, want, got string) {
	if r.err == nil {
		r.err = fmt.Errorf("annotation %s of container %s: want %s, got %q", annotation, r.container, want, got)
	}
}

func (r *annotationReader) quantity(annotation string, otherwise float64) float64 {
	text := r.text(annotation)
	if text == "" {
		return otherwise
	}
	amount, err := resource.ParseQuantity(text)
	if err != nil || amount.Sign() < 0 {
		r.fail(annotation, "a quantity such as 250m or 100Mi", text)
		return otherwise
	}
	return amount.AsApproximateFloat64()
}

func (r *annotationReader) factor(annotation string, otherwise float64) float64 {
	text := r.text(annotation)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value > 0) || value > maxSpeed {
		r.fail(annotation, fmt.Sprintf("a number above 0 and up to %d", maxSpeed), text)
		return otherwise
	}
	return value
}

func (r *annotationReader) duration(annotation string, otherwise time.Duration) time.Duration {
	text := r.text(annotation)
	if text == "" {
		return otherwise
	}
	value, err := time.ParseDuration(text)
	if err != nil || value < 0 {
		r.fail(annotation, "a duration such as 90s or 5m", text)
		return otherwise
	}
	return value
}

func traceName(text string) (string, trace.Columns, error) {
	name, list, named := strings.Cut(text, ":")
	if !named {
		return name, trace.Columns{}, nil
	}
	cpu, memory, both := strings.Cut(list, ",")
	if !both || cpu == "" || memory == "" {
		return "", trace.Columns{}, fmt.Errorf("want NAME or NAME:CPUCOLUMN,MEMORYCOLUMN, got %q", text)
	}
	return name, trace.Columns{CPU: cpu, Memory: memory}, nil
}

// simulationAnnotations returns the annotations that control usage.
func simulationAnnotations(pod *corev1.Pod) map[string]string {
	kept := map[string]string{}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, Prefix) && key != OOMAnnotation {
			kept[key] = value
		}
	}
	return kept
}
