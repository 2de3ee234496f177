package recommender

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/backfill"
)

// Sources of live usage, the values of --usage-source.
const (
	UsageFromMetrics    = "metrics"
	UsageFromPrometheus = "prometheus"
)

// Prometheus configures the queries for history and live usage.
type Prometheus struct {
	prometheus.Access

	UsageSource string        // UsageFromMetrics or UsageFromPrometheus
	RateWindow  time.Duration // of the live CPU rate

	Address, CadvisorJob string
	Length, Resolution   string

	CPUMetric, MemoryMetric, LabelsMetric       string
	WaitingMetric                               string
	PodLabelPrefix, PodNamespaceLabel, PodLabel string

	ContainerNamespaceLabel, ContainerPodLabel, ContainerLabel string
}

// DefaultPrometheus returns the defaults of the reference recommender.
func DefaultPrometheus() Prometheus {
	return Prometheus{
		Access:                  prometheus.DefaultAccess(),
		UsageSource:             UsageFromMetrics,
		RateWindow:              5 * time.Minute,
		Address:                 "http://prometheus.monitoring.svc",
		CadvisorJob:             "kubernetes-cadvisor",
		Length:                  "8d",
		Resolution:              "1h",
		CPUMetric:               "container_cpu_usage_seconds_total",
		MemoryMetric:            "container_memory_working_set_bytes",
		WaitingMetric:           prometheus.WaitingMetric,
		LabelsMetric:            `up{job="kubernetes-pods"}`,
		PodLabelPrefix:          "pod_label_",
		PodNamespaceLabel:       "kubernetes_namespace",
		PodLabel:                "kubernetes_pod_name",
		ContainerNamespaceLabel: "namespace",
		ContainerPodLabel:       "pod_name",
		ContainerLabel:          "name",
	}
}

// AddFlags binds the group to fs.
func (p *Prometheus) AddFlags(fs *pflag.FlagSet) {
	p.Access.AddFlags(fs)
	text := func(field *string, name, usage string) { fs.StringVar(field, name, *field, usage) }
	text(&p.Address, "prometheus-address", "URL of Prometheus.")
	text(&p.CadvisorJob, "prometheus-cadvisor-job-name", "Value of the label job of usage metrics. Empty: any.")
	text(&p.Length, "history-length", "How far back history is read.")
	text(&p.Resolution, "history-resolution", "Step of the history, and window of the CPU rate.")
	text(&p.CPUMetric, "history-cpu-metric", "Counter of CPU seconds.")
	text(&p.MemoryMetric, "history-memory-metric", "Gauge of memory bytes.")
	text(&p.WaitingMetric, "history-cpu-waiting-metric", "Counter of seconds spent waiting for CPU, for recipes that need it. Empty: none.")
	text(&p.LabelsMetric, "metric-for-pod-labels", "Expression that gives the labels of pods.")
	text(&p.PodLabelPrefix, "pod-label-prefix", "Prefix of the labels of pods in that metric.")
	text(&p.PodNamespaceLabel, "pod-namespace-label", "Label with the namespace in that metric.")
	text(&p.PodLabel, "pod-name-label", "Label with the name of the pod in that metric.")
	text(&p.ContainerNamespaceLabel, "container-namespace-label", "Label with the namespace in usage metrics.")
	text(&p.ContainerPodLabel, "container-pod-name-label", "Label with the name of the pod in usage metrics.")
	text(&p.ContainerLabel, "container-name-label", "Label with the name of the container in usage and external metrics.")
	text(&p.UsageSource, "usage-source", `Where live usage comes from: "metrics", the metrics API, or "prometheus", with the flags for history.`)
	fs.DurationVar(&p.RateWindow, "prometheus-rate-window", p.RateWindow, "Averaging window of live CPU usage from Prometheus. Use at least four scrape intervals.")
}

// Validate checks the authentication and, if Prometheus is used, the other settings.
func (p *Prometheus) Validate(enabled bool) error {
	problems := []error{
		p.Access.Validate(enabled),
		flags.Check(p.UsageSource == UsageFromMetrics || p.UsageSource == UsageFromPrometheus, "usage-source", p.UsageSource,
			`must be "metrics" or "prometheus"`),
	}
	if !enabled {
		return errors.Join(problems...)
	}
	if _, err := prometheus.ParseAddress(p.Address); err != nil {
		problems = append(problems, errors.New("--prometheus-address: "+err.Error()))
	}
	problems = append(problems,
		checkSpan("history-length", p.Length), checkSpan("history-resolution", p.Resolution),
		flags.Check(p.RateWindow >= time.Second, "prometheus-rate-window", p.RateWindow, "must be at least 1s"),
		flags.Check(p.RateWindow%time.Millisecond == 0, "prometheus-rate-window", p.RateWindow, "must be whole milliseconds"),
	)
	if parseDuration(p.Length) < parseDuration(p.Resolution) {
		problems = append(problems, flags.Problem("history-resolution", p.Resolution, "must not be longer than --history-length="+p.Length))
	}
	for _, name := range []struct{ flag, value string }{
		{"history-cpu-metric", p.CPUMetric}, {"history-memory-metric", p.MemoryMetric}, {"metric-for-pod-labels", p.LabelsMetric},
		{"pod-namespace-label", p.PodNamespaceLabel}, {"pod-name-label", p.PodLabel}, {"container-namespace-label", p.ContainerNamespaceLabel},
		{"container-pod-name-label", p.ContainerPodLabel}, {"container-name-label", p.ContainerLabel},
	} {
		problems = append(problems, flags.Check(name.value != "", name.flag, `""`, "must not be empty"))
	}
	return errors.Join(problems...)
}

// parseDuration parses a Prometheus duration such as 8d, and returns 0 for an invalid one.
func parseDuration(text string) time.Duration {
	d, _ := prometheus.ParseDuration(text)
	return d
}

func checkSpan(flag, text string) error {
	return flags.Check(parseDuration(text) >= time.Second, flag, text, "must be a duration of at least 1s, such as 8d, 1h or 90s")
}

// Client returns the client settings. The client reports requests to observe.
func (p *Prometheus) Client(observe func(code, method string, took time.Duration)) prometheus.Config {
	c := p.Access.Client(p.Address)
	c.Observe = observe
	return c
}

// Usage returns the names of the usage metrics.
func (p *Prometheus) Usage(namespace string) prometheus.Usage {
	return prometheus.Usage{
		CPUMetric: p.CPUMetric, MemoryMetric: p.MemoryMetric, Job: p.CadvisorJob, Namespace: namespace, Matchers: p.Matchers,
		NamespaceLabel: p.ContainerNamespaceLabel, PodLabel: p.ContainerPodLabel, ContainerLabel: p.ContainerLabel,
	}
}

// History returns the loader settings that come from flags.
func (p *Prometheus) History(namespace string) backfill.Config {
	return backfill.Config{
		Usage: p.Usage(namespace), Waiting: p.WaitingMetric,
		Labels: backfill.Labels{Query: prometheus.AddMatchers(p.LabelsMetric, p.Matchers), Prefix: p.PodLabelPrefix, Namespace: p.PodNamespaceLabel, Pod: p.PodLabel},
		Length: parseDuration(p.Length), Step: parseDuration(p.Resolution),
	}
}

// External configures the external metrics that replace the metrics API.
type External struct {
	Use                     bool
	CPUMetric, MemoryMetric string
}

// AddFlags binds the group to fs.
func (e *External) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&e.Use, "use-external-metrics", e.Use, "Take usage from the external metrics API instead of the metrics API.")
	fs.StringVar(&e.CPUMetric, "external-metrics-cpu-metric", e.CPUMetric, "Name of the CPU metric. Empty: none.")
	fs.StringVar(&e.MemoryMetric, "external-metrics-memory-metric", e.MemoryMetric, "Name of the memory metric. Empty: none.")
}

// Validate checks that at least one metric is named.
func (e *External) Validate() error {
	return flags.Check(!e.Use || e.CPUMetric != "" || e.MemoryMetric != "", "use-external-metrics", e.Use,
		"needs --external-metrics-cpu-metric, --external-metrics-memory-metric or both")
}

// Metrics returns the names of the metrics by kind.
func (e *External) Metrics() [resources.Kinds]string {
	return [resources.Kinds]string{resources.CPU: e.CPUMetric, resources.Memory: e.MemoryMetric}
}
