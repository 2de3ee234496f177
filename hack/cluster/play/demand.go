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

// Prefix starts every annotation that steers the simulation. The ones below
// may be set on a pod or, for a whole workload, on its pod template. Where "of
// one container" is said, a dot and the container's name may be appended, which
// then wins over the plain form.
const (
	Prefix = "sim.loadline.dev/"

	// CPUAnnotation is a fixed cpu usage, such as 250m; of one container.
	CPUAnnotation = Prefix + "cpu"
	// MemoryAnnotation is a fixed memory usage, such as 100Mi; of one container.
	MemoryAnnotation = Prefix + "memory"
	// TraceAnnotation names the trace to play, as NAME or
	// NAME:CPUCOLUMN,MEMORYCOLUMN; of one container. It wins over fixed amounts.
	TraceAnnotation = Prefix + "trace"
	// SpeedAnnotation says how many seconds of a trace pass in one second; of
	// one container.
	SpeedAnnotation = Prefix + "speed"
	// OffsetAnnotation says where in the trace a pod starts, such as 5m; of one
	// container.
	OffsetAnnotation = Prefix + "offset"
	// RampAnnotation says how long a restarted container takes to get back to
	// the memory it had, such as 45s; of one container.
	RampAnnotation = Prefix + "restart-ramp"
	// OOMAnnotation names a container to kill once for lack of memory. The
	// player removes it when that is done.
	OOMAnnotation = Prefix + "oom"
)

// Defaults of a container that says nothing, and the most it may say.
const (
	defaultCPU    = 0.001   // cores
	defaultMemory = 1 << 20 // bytes
	defaultRamp   = 30 * time.Second
	maxSpeed      = 10_000 // keeps the stretch of a trace that passes in one step small
)

// Demand is what one container would use if nothing limited it.
type Demand struct {
	Trace  *trace.Trace  // nil: the fixed amounts
	CPU    float64       // cores
	Memory float64       // bytes
	Speed  float64       // seconds of the trace per second
	Offset float64       // seconds into the trace
	Ramp   time.Duration // to full memory after a restart
}

// reading collects what is wrong with the annotations of one container.
type reading struct {
	pod       *corev1.Pod
	container string
	err       error
}

// ReadDemand reads the annotations that concern one container of a pod. speed
// is used where no annotation says otherwise. Only the first mistake is
// returned, with the annotation's name and what it should look like.
func ReadDemand(pod *corev1.Pod, container string, speed float64, library *trace.Library) (Demand, error) {
	r := reading{pod: pod, container: container}
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

// traced reports whether the container plays a trace. Its own fixed amount is
// more particular than a trace for the whole pod.
func (r *reading) traced() bool {
	annotations := r.pod.Annotations
	if _, own := annotations[TraceAnnotation+"."+r.container]; own {
		return true
	}
	_, cpu := annotations[CPUAnnotation+"."+r.container]
	_, memory := annotations[MemoryAnnotation+"."+r.container]
	_, shared := annotations[TraceAnnotation]
	return shared && !cpu && !memory
}

func (r *reading) text(annotation string) string {
	if text, own := r.pod.Annotations[annotation+"."+r.container]; own {
		return text
	}
	return r.pod.Annotations[annotation]
}

func (r *reading) fail(annotation, want, got string) {
	if r.err == nil {
		r.err = fmt.Errorf("annotation %s of container %s: want %s, got %q", annotation, r.container, want, got)
	}
}

func (r *reading) quantity(annotation string, otherwise float64) float64 {
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

func (r *reading) factor(annotation string, otherwise float64) float64 {
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

func (r *reading) duration(annotation string, otherwise time.Duration) time.Duration {
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

// simulation returns the annotations that steer usage, to notice a change.
func simulation(pod *corev1.Pod) map[string]string {
	ours := map[string]string{}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, Prefix) && key != OOMAnnotation {
			ours[key] = value
		}
	}
	return ours
}
