package options

import (
	"errors"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
)

// Prometheus says how history is read from Prometheus. This version accepts the
// flags, so that command lines of the reference recommender parse, and refuses
// the storage that would use them.
type Prometheus struct {
	Address, CadvisorJob, QueryTimeout string
	Insecure                           bool
	Length, Resolution                 string

	CPUMetric, MemoryMetric, LabelsMetric       string
	PodLabelPrefix, PodNamespaceLabel, PodLabel string

	ContainerNamespaceLabel, ContainerPodLabel, ContainerLabel string

	Username, Password, BearerToken, BearerTokenFile string
}

// DefaultPrometheus returns the defaults of the reference recommender.
func DefaultPrometheus() Prometheus {
	return Prometheus{
		Address:                 "http://prometheus.monitoring.svc",
		CadvisorJob:             "kubernetes-cadvisor",
		QueryTimeout:            "5m",
		Length:                  "8d",
		Resolution:              "1h",
		CPUMetric:               "container_cpu_usage_seconds_total",
		MemoryMetric:            "container_memory_working_set_bytes",
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
	text := func(field *string, name, usage string) { fs.StringVar(field, name, *field, usage) }
	text(&p.Address, "prometheus-address", "URL of Prometheus.")
	fs.BoolVar(&p.Insecure, "prometheus-insecure", p.Insecure, "Do not verify the TLS certificate of Prometheus.")
	text(&p.CadvisorJob, "prometheus-cadvisor-job-name", "Value of the label job of usage metrics. Empty: any.")
	text(&p.QueryTimeout, "prometheus-query-timeout", "Timeout of one query.")
	text(&p.Length, "history-length", "How far back history is read.")
	text(&p.Resolution, "history-resolution", "Step of the history, and window of the CPU rate.")
	text(&p.CPUMetric, "history-cpu-metric", "Counter of CPU seconds.")
	text(&p.MemoryMetric, "history-memory-metric", "Gauge of memory bytes.")
	text(&p.LabelsMetric, "metric-for-pod-labels", "Expression that gives the labels of pods.")
	text(&p.PodLabelPrefix, "pod-label-prefix", "Prefix of the labels of pods in that metric.")
	text(&p.PodNamespaceLabel, "pod-namespace-label", "Label with the namespace in that metric.")
	text(&p.PodLabel, "pod-name-label", "Label with the name of the pod in that metric.")
	text(&p.ContainerNamespaceLabel, "container-namespace-label", "Label with the namespace in usage metrics.")
	text(&p.ContainerPodLabel, "container-pod-name-label", "Label with the name of the pod in usage metrics.")
	text(&p.ContainerLabel, "container-name-label", "Label with the name of the container in usage and external metrics.")
	text(&p.Username, "username", "User for basic authentication; else the variable PROMETHEUS_USERNAME.")
	text(&p.Password, "password", "Password for basic authentication; else the variable PROMETHEUS_PASSWORD.")
	text(&p.BearerToken, "prometheus-bearer-token", "Token for bearer authentication.")
	text(&p.BearerTokenFile, "prometheus-bearer-token-file", "File with that token.")
}

// Validate checks pairwise that one way of authentication is chosen.
func (p *Prometheus) Validate() error {
	return errors.Join(
		flags.Check(p.BearerToken == "" || p.BearerTokenFile == "", "prometheus-bearer-token", "(hidden)",
			"excludes --prometheus-bearer-token-file="+p.BearerTokenFile+": give only one of the two"),
		flags.Check(p.Username == "" || p.BearerToken == "" && p.BearerTokenFile == "", "username", p.Username,
			"excludes a bearer token: give either the user or the token"),
	)
}

// External says which external metrics replace the metrics API. This version
// refuses to start when they are switched on.
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

// Validate refuses external metrics.
func (e *External) Validate() error {
	return flags.Check(!e.Use, "use-external-metrics", e.Use,
		"external metrics are not available in this version: leave the flag out to use the metrics API")
}
