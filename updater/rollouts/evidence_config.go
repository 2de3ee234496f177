package rollouts

import (
	"errors"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/source/prometheus"
)

// EvidenceConfig says which Prometheus is asked, and how it labels the series of containers.
type EvidenceConfig struct {
	prometheus.Access

	Address string // empty: no Prometheus is asked
	Job     string // value of the label job of the series; empty: any

	NamespaceLabel, PodLabel, ContainerLabel string
}

// longestTimeout bounds the time-out of a query: a change that hurts waits for the answer.
const longestTimeout = time.Minute

// DefaultEvidenceConfig returns the labels that a kubelet of today has.
func DefaultEvidenceConfig() EvidenceConfig {
	c := EvidenceConfig{Access: prometheus.DefaultAccess(), NamespaceLabel: "namespace", PodLabel: "pod", ContainerLabel: "container"}
	c.QueryTimeout = "10s"
	return c
}

// AddFlags binds the group to fs. What the recommender has too has the same name.
func (c *EvidenceConfig) AddFlags(fs *pflag.FlagSet) {
	c.Access.AddFlags(fs)
	text := func(field *string, name, usage string) { fs.StringVar(field, name, *field, usage) }
	text(&c.Address, "prometheus-address", "URL of the Prometheus that is asked whether containers with less CPU are throttled or wait for it, and with --node-load-taint for the load of nodes. Empty: none is asked, and no change is taken back for that.")
	text(&c.Job, "prometheus-cadvisor-job-name", "Value of the label job of the metrics of containers. Empty: any; of a container that several jobs scrape nothing is known then.")
	text(&c.NamespaceLabel, "container-namespace-label", "Label with the namespace in the metrics of containers.")
	text(&c.PodLabel, "container-pod-name-label", "Label with the name of the pod in the metrics of containers.")
	text(&c.ContainerLabel, "container-name-label", "Label with the name of the container in the metrics of containers.")
}

// Validate checks that one way of authentication is chosen and, if Prometheus is asked at
// all, that the other settings make sense.
func (c *EvidenceConfig) Validate() error {
	asked := c.Address != ""
	problems := []error{c.Access.Validate(asked)}
	if !asked {
		return errors.Join(problems...)
	}
	if _, err := prometheus.ParseAddress(c.Address); err != nil {
		problems = append(problems, errors.New("--prometheus-address: "+err.Error()))
	}
	timeout, _ := prometheus.ParseDuration(c.QueryTimeout)
	problems = append(problems, flags.Check(timeout <= longestTimeout, "prometheus-query-timeout", c.QueryTimeout, "must be at most "+longestTimeout.String()))
	for _, label := range []struct{ flag, name string }{
		{"container-namespace-label", c.NamespaceLabel}, {"container-pod-name-label", c.PodLabel}, {"container-name-label", c.ContainerLabel},
	} {
		problems = append(problems, flags.Check(model.LegacyValidation.IsValidLabelName(label.name), label.flag, label.name,
			"must be the name of a label: letters, digits and underscores, no digit first"))
	}
	return errors.Join(problems...)
}
