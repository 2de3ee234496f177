package play

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/hack/cluster/trace"
)

// Kill requests the kill of one container that exceeded its memory limit.
type Kill struct {
	Pod       *corev1.Pod
	Container string
}

// Fault is an invalid annotation. Its pod reports no usage, which is easier to notice than a
// default.
type Fault struct {
	Pod *corev1.Pod
	Err error
}

// Stage holds the meters of all running pods. Step and Page may be called concurrently.
type Stage struct {
	library *trace.Library
	speed   float64

	mu    sync.Mutex
	pods  map[types.UID]*podState
	nodes map[string]*node
}

// podState is the state of one running pod.
type podState struct {
	annotations map[string]string
	demands     map[string]Demand
	faulty      bool
	meters      map[string]*Meter
	killed      map[string]int32 // restart count at the last requested kill
}

type node struct {
	samples    []sample
	cpuSeconds float64
	at         time.Time
}

// NewStage returns an empty stage. speed is the default for pods without annotation.
func NewStage(library *trace.Library, speed float64) *Stage {
	return &Stage{library: library, speed: speed, pods: map[types.UID]*podState{}, nodes: map[string]*node{}}
}

// Step advances all running pods to now and drops the others. It returns containers to kill and new
// faults.
func (s *Stage) Step(now time.Time, pods []*corev1.Pod) (kills []Kill, faults []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.samples = nil
	}
	seen := make(map[types.UID]*podState, len(pods))
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" {
			continue
		}
		a, err := s.podState(pod)
		seen[pod.UID] = a
		if err != nil {
			faults = append(faults, Fault{pod, err})
		}
		if a.faulty {
			continue
		}
		samples, over := a.step(now, pod)
		n := s.node(pod.Spec.NodeName)
		n.samples = append(n.samples, samples...)
		for _, container := range over {
			kills = append(kills, Kill{pod, container})
		}
	}
	s.pods = seen
	for _, n := range s.nodes {
		n.advance(now)
	}
	return kills, faults
}

// podState reads the annotations of a pod again if they changed.
func (s *Stage) podState(pod *corev1.Pod) (*podState, error) {
	a, ok := s.pods[pod.UID]
	if !ok {
		a = &podState{meters: map[string]*Meter{}, killed: map[string]int32{}}
	}
	annotations := simulationAnnotations(pod)
	if ok && maps.Equal(a.annotations, annotations) {
		return a, nil
	}
	a.annotations, a.demands, a.faulty = annotations, map[string]Demand{}, false
	for _, c := range containers(pod) {
		demand, err := ReadDemand(pod, c.Name, s.speed, s.library)
		if err != nil {
			a.faulty = true
			return a, err
		}
		a.demands[c.Name] = demand
	}
	return a, nil
}

func (s *Stage) node(name string) *node {
	n, ok := s.nodes[name]
	if !ok {
		n = &node{}
		s.nodes[name] = n
	}
	return n
}

// Page returns the metrics page of a node, which need not have pods.
func (s *Stage) Page(name string, now time.Time) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(name)
	if n.at.IsZero() {
		n.advance(now)
	}
	return page(n.samples, n.cpuSeconds, n.at.UnixMilli())
}

// advance adds the usage of containers and node in this step to the node's counter, and sorts the
// samples.
func (n *node) advance(now time.Time) {
	if n.at.IsZero() {
		n.cpuSeconds = startupCPU
	} else {
		n.cpuSeconds += nodeCPU * now.Sub(n.at).Seconds()
	}
	for _, c := range n.samples {
		n.cpuSeconds += c.used
	}
	n.at = now
	slices.SortFunc(n.samples, func(a, b sample) int {
		return strings.Compare(a.namespace+"/"+a.pod+"/"+a.container, b.namespace+"/"+b.pod+"/"+b.container)
	})
}

func (a *podState) step(now time.Time, pod *corev1.Pod) (samples []sample, over []string) {
	running := map[string]bool{}
	for _, c := range containers(pod) {
		status, ok := runningStatus(pod, c.Name)
		if !ok || pod.Status.StartTime == nil {
			continue
		}
		running[c.Name] = true
		meter, ok := a.meters[c.Name]
		if !ok {
			meter = &Meter{}
			a.meters[c.Name] = meter
		}
		before := meter.CPUSeconds
		overLimit := meter.Step(now, a.demands[c.Name], Life{
			PodStarted: pod.Status.StartTime.Time,
			Started:    status.State.Running.StartedAt.Time,
			Restarted:  status.RestartCount > 0,
			Limits:     limits(c, status),
		})
		samples = append(samples, sample{pod.Namespace, pod.Name, c.Name, *meter, max(0, meter.CPUSeconds-before)})
		// Do not request the kill again until the status shows it.
		if restarts, asked := a.killed[c.Name]; overLimit && (!asked || restarts != status.RestartCount) {
			a.killed[c.Name] = status.RestartCount
			over = append(over, c.Name)
		}
	}
	maps.DeleteFunc(a.meters, func(name string, _ *Meter) bool { return !running[name] })
	return samples, over
}

// Retry allows a failed kill to be requested again.
func (s *Stage) Retry(k Kill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.pods[k.Pod.UID]; ok {
		delete(a.killed, k.Container)
	}
}

// containers returns ordinary containers and sidecars.
func containers(pod *corev1.Pod) []corev1.Container {
	all := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

func runningStatus(pod *corev1.Pod, name string) (corev1.ContainerStatus, bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, status := range list {
			if status.Name == name {
				return status, status.State.Running != nil
			}
		}
	}
	return corev1.ContainerStatus{}, false
}

// limits returns the actual limits, which change after a resize is completed.
func limits(c corev1.Container, status corev1.ContainerStatus) Limits {
	list := c.Resources.Limits
	if status.Resources != nil {
		list = status.Resources.Limits
	}
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return Limits{CPU: cpu.AsApproximateFloat64(), Memory: memory.AsApproximateFloat64()}
}
