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

// WaitingMetric is the usual counter of seconds in which tasks waited for CPU. Kubelets expose it
// since Kubernetes 1.34, on nodes with cgroup v2.
const WaitingMetric = "container_pressure_cpu_waiting_seconds_total"

// Counters of CPU limit periods, and of the throttled ones. A container without limit has none.
// Periods are not counted while nothing runs.
const (
	PeriodsMetric   = "container_cpu_cfs_periods_total"
	ThrottledMetric = "container_cpu_cfs_throttled_periods_total"
)

// Usage names the metrics of container usage and their labels.
type Usage struct {
	CPUMetric    string // counter of seconds
	MemoryMetric string // gauge of bytes
	Job          string // value of label job, empty for any
	Namespace    string // only this namespace, empty for all
	Matchers     string // additional PromQL matchers without braces

	NamespaceLabel, PodLabel, ContainerLabel string
}

// DefaultUsage returns the names that kubelets and the usual exporters use.
func DefaultUsage() Usage {
	return Usage{
		CPUMetric: "container_cpu_usage_seconds_total", MemoryMetric: "container_memory_working_set_bytes",
		NamespaceLabel: "namespace", PodLabel: "pod", ContainerLabel: "container",
	}
}

// CPU returns the query for the mean CPU usage over window, in cores.
func (u Usage) CPU(window time.Duration) string {
	return u.Rate(u.CPUMetric, window)
}

// Rate returns the query for the mean increase per second of a container counter over window.
func (u Usage) Rate(metric string, window time.Duration) string {
	return "rate(" + u.Selector(metric) + "[" + FormatDuration(window) + "])"
}

// for the usual period of 100 ms
const periodsPerSecond = 10

// Throttled returns the query for the share of time in which containers were throttled, as a mean
// over window. If a kubelet has shorter periods, it is the share of throttled periods, which is
// higher for containers that seldom run.
func (u Usage) Throttled(window time.Duration) string {
	return u.PerContainer(u.Rate(ThrottledMetric, window)) + " / clamp_min(" + u.PerContainer(u.Rate(PeriodsMetric, window)) + ", " + strconv.Itoa(periodsPerSecond) + ")"
}

// Memory returns the query for memory usage in bytes.
func (u Usage) Memory() string { return u.Selector(u.MemoryMetric) }

// Peak returns the query for the maximum memory usage within window, in bytes.
func (u Usage) Peak(window time.Duration) string {
	return "max_over_time(" + u.Memory() + "[" + FormatDuration(window) + "])"
}

// PerContainer returns the query for the maximum of the runs of each container, as before and after
// a restart. Series that differ in other labels stay separate.
func (u Usage) PerContainer(query string) string {
	return "max without (" + strings.Join(u.runLabels(), ", ") + ") (" + query + ")"
}

func (u Usage) runLabels() []string {
	return slices.DeleteFunc(slices.Clone(runLabels), func(name string) bool {
		return name == u.NamespaceLabel || name == u.PodLabel || name == u.ContainerLabel
	})
}

// Selector returns the selector for the series of a metric.
func (u Usage) Selector(metric string) string { return metric + "{" + u.selector() + "}" }

// Query returns the query for one resource.
func (u Usage) Query(k resources.Kind, window time.Duration) string {
	if k == resources.CPU {
		return u.CPU(window)
	}
	return u.Memory()
}

// selector excludes series that are not containers: the sums of pods, and the sandbox.
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

// JoinMatchers joins non-empty matcher lists.
func JoinMatchers(lists ...string) string {
	lists = slices.DeleteFunc(lists, func(list string) bool { return strings.TrimSpace(list) == "" })
	return strings.Join(lists, ", ")
}

var plainSelector = regexp.MustCompile(`^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\})?\s*(\[[^][]*\])?\s*$`)

// AddMatchers adds matchers to a metric or selector. Other expressions must contain them already.
func AddMatchers(expression, matchers string) string {
	parts := plainSelector.FindStringSubmatch(expression)
	if parts == nil || strings.TrimSpace(matchers) == "" {
		return expression
	}
	return parts[1] + "{" + JoinMatchers(strings.TrimRight(parts[2], ", "), matchers) + "}" + parts[3]
}

// StateLabel returns a label of a kube-state-metrics series. A server without honor_labels adds the
// prefix exported_, because the plain name describes kube-state-metrics itself.
func StateLabel(labels map[string]string, name string) string {
	return cmp.Or(labels[exported+name], labels[name])
}

const exported = "exported_"

// Container returns the container of a series, or false if a label is missing.
func (u Usage) Container(labels map[string]string) (c usage.ContainerKey, ok bool) {
	c = usage.ContainerKey{Namespace: labels[u.NamespaceLabel], Pod: labels[u.PodLabel], Container: labels[u.ContainerLabel]}
	return c, c.Namespace != "" && c.Pod != "" && c.Container != ""
}

// Amount converts a series value in cores or bytes and drops the fraction. A negative value becomes
// -1, so that the store rejects and counts it.
func Amount(k resources.Kind, value float64) resources.Amount {
	if k == resources.CPU {
		value *= 1000
	}
	if value < 0 {
		return -1
	}
	return resources.FromFloat(value)
}
