package node

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// enforced are the limits of a container in the kernel.
type enforced struct {
	weight   int64 // cpu.shares (v1) or cpu.weight (v2)
	unified  bool  // cgroup v2
	millis   int64 // CPU limit in millicores, 0: none
	memory   int64 // memory limit in bytes, 0: none
	occupied int64 // memory usage in bytes
}

// none is the smallest value with which cgroup v1 reports that there is no memory limit.
const none = int64(1) << 60

// groupOf finds the cgroup of the pod's only container in a hierarchy, which is a separate folder
// in v1.
func groupOf(pod *corev1.Pod, hierarchy string) (string, error) {
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	var found []string
	for _, levels := range []string{"pod*", "*/pod*"} { // guaranteed pods have no QoS folder
		paths, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", hierarchy, "loadline-node-*", "kubepods", levels, id))
		if err != nil {
			return "", err
		}
		found = append(found, paths...)
	}
	if id == "" || len(found) != 1 {
		return "", fmt.Errorf("control group of container %q in hierarchy %q: want one, found %v", id, hierarchy, found)
	}
	return found[0], nil
}

func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func readEnforced(pod *corev1.Pod) (enforced, error) {
	e := enforced{unified: unified()}
	if len(pod.Status.ContainerStatuses) != 1 {
		return e, fmt.Errorf("pod %s has %d containers: want 1", pod.Name, len(pod.Status.ContainerStatuses))
	}
	cpu, memory := "cpu", "memory"
	if e.unified {
		cpu, memory = "", ""
	}
	cpuGroup, err := groupOf(pod, cpu)
	if err != nil {
		return e, err
	}
	memoryGroup, err := groupOf(pod, memory)
	if err != nil {
		return e, err
	}
	r := reader{}
	if e.unified {
		e.weight = r.number(cpuGroup, "cpu.weight")
		limit, period, _ := strings.Cut(r.text(cpuGroup, "cpu.max"), " ")
		if limit != "max" {
			e.millis = 1000 * r.parse("cpu.max", limit) / max(1, r.parse("cpu.max", period))
		}
		if r.text(memoryGroup, "memory.max") != "max" {
			e.memory = r.number(memoryGroup, "memory.max")
		}
		e.occupied = r.number(memoryGroup, "memory.current")
		return e, r.err
	}
	e.weight = r.number(cpuGroup, "cpu.shares")
	if quota := r.number(cpuGroup, "cpu.cfs_quota_us"); quota > 0 {
		e.millis = 1000 * quota / max(1, r.number(cpuGroup, "cpu.cfs_period_us"))
	}
	if limit := r.number(memoryGroup, "memory.limit_in_bytes"); limit < none {
		e.memory = limit
	}
	e.occupied = r.number(memoryGroup, "memory.usage_in_bytes")
	return e, r.err
}

// spent is the CPU usage of a pod's only container so far.
type spent struct {
	cpu time.Duration
	// Enforcement periods of the CPU limits of container and pod, and throttled ones among them.
	periods, throttled int64
}

func readSpent(pod *corev1.Pod) (s spent, err error) {
	hierarchy, of := "cpu", "cpuacct"
	if unified() {
		hierarchy, of = "", ""
	}
	group, err := groupOf(pod, hierarchy)
	if err != nil {
		return s, err
	}
	r := reader{}
	for _, level := range []string{group, filepath.Dir(group)} { // the pod has a limit, too
		stat := r.table(level, "cpu.stat")
		s.periods, s.throttled = s.periods+stat["nr_periods"], s.throttled+stat["nr_throttled"]
		if s.cpu == 0 {
			s.cpu = time.Duration(stat["usage_usec"]) * time.Microsecond
		}
	}
	if of != "" {
		if group, err = groupOf(pod, of); err != nil {
			return s, err
		}
		s.cpu = time.Duration(r.number(group, "cpuacct.usage"))
	}
	return s, r.err
}

type reader struct{ err error }

func (r *reader) text(folder, name string) string {
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil && r.err == nil {
		r.err = err
	}
	return strings.TrimSpace(string(data))
}

func (r *reader) parse(name, text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", name, err)
	}
	return value
}

func (r *reader) number(folder, name string) int64 { return r.parse(name, r.text(folder, name)) }

func (r *reader) table(folder, name string) map[string]int64 {
	values := map[string]int64{}
	for line := range strings.Lines(r.text(folder, name)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[key] = r.parse(name, value)
	}
	return values
}

// follows checks that the kernel enforces the resources of the pod's spec.
func (e enforced) follows(pod *corev1.Pod) error {
	asked := pod.Spec.Containers[0].Resources
	limit := asked.Limits.Cpu().MilliValue()
	// Quotas are rounded to microseconds and memory limits to pages.
	const page = 4096
	if memory := asked.Limits.Memory().Value(); e.millis != limit || memory-e.memory >= page || e.memory > memory {
		return fmt.Errorf("limits are %v, the kernel enforces %d thousandths of a core and %d bytes", asked.Limits, e.millis, e.memory)
	}
	if weights := weights(asked.Requests.Cpu().MilliValue(), e.unified); !slices.Contains(weights, e.weight) {
		return fmt.Errorf("requests are %v, the kernel weighs with %d: want one of %v", asked.Requests, e.weight, weights)
	}
	return nil
}

// weights returns the valid weights for a CPU request: 1024 shares per core in v1. In v2 older
// runtimes convert shares linearly, newer ones map one core to the default weight of 100.
func weights(millis int64, unified bool) []int64 {
	shares := max(2, millis*1024/1000)
	if !unified {
		return []int64{shares}
	}
	exponent := math.Log2(float64(shares))
	newer := math.Ceil(math.Pow(10, (exponent*exponent+125*exponent)/612-7.0/34))
	return []int64{1 + (shares-2)*9999/262142, int64(newer)}
}
