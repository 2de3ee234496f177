package play

import (
	"bytes"
	"fmt"
)

type sample struct {
	namespace, pod, container string
	meter                     Meter
	used                      float64 // core-seconds in the last step
}

type series struct {
	name, kind, help string
	value            func(Meter) float64
}

// Usage of a node without its pods, in cores and bytes.
const (
	nodeCPU    = 0.02
	nodeMemory = 200 << 20
)

// page renders the part of a kubelet's /metrics/resource that metrics-server reads. Counters have
// the timestamp of their step, so rates between two scrapes are exact. cpuSeconds is the node's own
// counter.
func page(samples []sample, cpuSeconds float64, millis int64) []byte {
	all := []series{
		{"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time in core-seconds", func(m Meter) float64 { return m.CPUSeconds }},
		{"container_memory_working_set_bytes", "gauge", "Working set in bytes", func(m Meter) float64 { return m.Memory }},
		{"container_start_time_seconds", "gauge", "Start time since the unix epoch", func(m Meter) float64 { return float64(m.Started.Unix()) }},
	}
	var out bytes.Buffer
	memory := float64(nodeMemory)
	for _, s := range all {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n", s.name, s.help, s.name, s.kind)
		for _, c := range samples {
			fmt.Fprintf(&out, "%s{container=%q,namespace=%q,pod=%q} %g %d\n",
				s.name, c.container, c.namespace, c.pod, s.value(c.meter), c.meter.At.UnixMilli())
		}
	}
	for _, c := range samples {
		memory += c.meter.Memory
	}
	fmt.Fprintf(&out, "# HELP node_cpu_usage_seconds_total Cumulative cpu time in core-seconds\n# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total %g %d\n", cpuSeconds, millis)
	fmt.Fprintf(&out, "# HELP node_memory_working_set_bytes Working set in bytes\n# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes %g %d\n", memory, millis)
	return out.Bytes()
}
