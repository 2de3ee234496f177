package prometheus

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// WaitingMetric is the usual counter of the seconds in which work waited for CPU. Kubelets
// have it from Kubernetes 1.34 on, on nodes with cgroup v2.
const WaitingMetric = "container_pressure_cpu_waiting_seconds_total"

// The counters of the periods of a CPU limit, and of those in which it was reached. A
// container without limit has none; while nothing runs, periods are not counted.
const (
	PeriodsMetric   = "container_cpu_cfs_periods_total"
	ThrottledMetric = "container_cpu_cfs_throttled_periods_total"
)

// Usage names the metrics of the usage of containers, and their labels.
type Usage struct {
	CPUMetric    string // counter of seconds
	MemoryMetric string // gauge of bytes
	Job          string // value of the label job; empty = any
	Namespace    string // the only one that matters; empty = all
	Matchers     string // further ones, as PromQL has them between braces; empty = none

	NamespaceLabel, PodLabel, ContainerLabel string
}

// DefaultUsage returns the names that kubelets and the usual exporters use.
func DefaultUsage() Usage {
	return Usage{
		CPUMetric: "container_cpu_usage_seconds_total", MemoryMetric: "container_memory_working_set_bytes",
		NamespaceLabel: "namespace", PodLabel: "pod", ContainerLabel: "container",
	}
}

// CPU returns the query for the use of CPU in cores, as a mean over window.
func (u Usage) CPU(window time.Duration) string {
	return u.Rate(u.CPUMetric, window)
}

// Rate returns the query for the increase of a counter of the same containers each second, as a mean over window.
func (u Usage) Rate(metric string, window time.Duration) string {
	return "rate(" + u.Selector(metric) + "[" + FormatDuration(window) + "])"
}

// periodsPerSecond are those of a limit with a period of 100 ms, which is usual.
const periodsPerSecond = 10

// Throttled returns the query for the share of the time in which containers reached their CPU limit, as a mean over
// window. Where a kubelet has shorter periods it is the share of the periods, which is more for what seldom runs.
func (u Usage) Throttled(window time.Duration) string {
	return u.Each(u.Rate(ThrottledMetric, window)) + " / clamp_min(" + u.Each(u.Rate(PeriodsMetric, window)) + ", " + strconv.Itoa(periodsPerSecond) + ")"
}

// Memory returns the query for the use of memory in bytes.
func (u Usage) Memory() string { return u.Selector(u.MemoryMetric) }

// Peak returns the query for the highest use of memory in bytes within window.
func (u Usage) Peak(window time.Duration) string {
	return "max_over_time(" + u.Memory() + "[" + FormatDuration(window) + "])"
}

// Each returns the query for one value a container, the highest where it has several runs, such as before and after a
// restart. Series that differ in other labels stay apart, for Distinct.
func (u Usage) Each(query string) string {
	return "max without (" + strings.Join(u.runLabels(), ", ") + ") (" + query + ")"
}

// runLabels returns the labels that differ between the runs of a container.
func (u Usage) runLabels() []string {
	return slices.DeleteFunc(slices.Clone(runLabels), func(name string) bool {
		return name == u.NamespaceLabel || name == u.PodLabel || name == u.ContainerLabel
	})
}

// Selector returns what selects the series of a metric.
func (u Usage) Selector(metric string) string { return metric + "{" + u.selector() + "}" }

// Query returns the query for one kind.
func (u Usage) Query(k resources.Kind, window time.Duration) string {
	if k == resources.CPU {
		return u.CPU(window)
	}
	return u.Memory()
}

// selector leaves out what is no container: the sums of pods, and the sandbox.
func (u Usage) selector() string {
	var parts []string
	if u.Job != "" {
		parts = append(parts, "job="+strconv.Quote(u.Job))
	}
	parts = append(parts, u.PodLabel+`=~".+"`, u.ContainerLabel+`!="POD"`, u.ContainerLabel+`!=""`)
	if u.Namespace != "" {
		parts = append(parts, u.NamespaceLabel+"="+strconv.Quote(u.Namespace))
	}
	if u.Matchers != "" {
		parts = append(parts, u.Matchers)
	}
	return strings.Join(parts, ", ")
}

// JoinMatchers returns all matchers of some lists, which may be empty.
func JoinMatchers(lists ...string) string {
	lists = slices.DeleteFunc(lists, func(list string) bool { return strings.TrimSpace(list) == "" })
	return strings.Join(lists, ", ")
}

// plainSelector is an expression that selects series, and does nothing else with them.
var plainSelector = regexp.MustCompile(`^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\})?\s*(\[[^][]*\])?\s*$`)

// AddMatchers adds matchers to an expression that is a metric or a selector. Any other expression
// must have them itself.
func AddMatchers(expression, matchers string) string {
	parts := plainSelector.FindStringSubmatch(expression)
	if parts == nil || strings.TrimSpace(matchers) == "" {
		return expression
	}
	return parts[1] + "{" + JoinMatchers(strings.TrimRight(parts[2], ", "), matchers) + "}" + parts[3]
}

// StateLabel returns a label of a series of kube-state-metrics. A server that does not honor labels
// gives it the prefix exported_, and the name alone to kube-state-metrics itself.
func StateLabel(labels map[string]string, name string) string {
	return cmp.Or(labels[exported+name], labels[name])
}

const exported = "exported_"

// Container returns the container a series is of, or false if a label is missing.
func (u Usage) Container(labels map[string]string) (c usage.ContainerKey, ok bool) {
	c = usage.ContainerKey{Namespace: labels[u.NamespaceLabel], Pod: labels[u.PodLabel], Container: labels[u.ContainerLabel]}
	return c, c.Namespace != "" && c.Pod != "" && c.Container != ""
}

// Amount converts a value of a series, cores or bytes, dropping the fraction. A
// negative one becomes -1, so that the store rejects and counts it.
func Amount(k resources.Kind, value float64) resources.Amount {
	if k == resources.CPU {
		value *= 1000
	}
	if value < 0 {
		return -1
	}
	return resources.FromFloat(value)
}
