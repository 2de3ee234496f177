package rollouts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
)

// Kubelet counters of a container, all at /metrics/cadvisor. Periods require a CPU limit. Waiting
// time requires Kubernetes 1.34, cgroup v2 and a kernel with pressure stall information.
const (
	periodsMetric   = prometheus.PeriodsMetric
	throttledMetric = prometheus.ThrottledMetric
	waitingMetric   = prometheus.WaitingMetric

	fullWindowWaiting = waitingMetric + " from the start of the window"
)

const (
	window = 5 * time.Minute
	// podsPerQuery bounds the length of a query, which lists pod names.
	podsPerQuery = 100
	// counterLabel marks the counter of a series in a combined query.
	counterLabel = "loadline_counter"
)

// responseLimits cover a hundred pods with dozens of containers each, and labels of a few KB.
var responseLimits = prometheus.Limits{Bytes: 32 << 20, SeriesBytes: 1 << 20, Series: 20_000}

// ContainerKey identifies a container in a namespace.
type ContainerKey struct{ Pod, Container string }

// CPUPressure is the CPU shortage of a container over five minutes. Each fraction is from 0 to 1,
// or NaN if unknown.
type CPUPressure struct {
	Throttled float64 // fraction of CPU limit periods
	Waiting   float64 // fraction of time waiting for CPU
}

// PressureOf returns the pressure of a container, or NaN values if it is missing.
func PressureOf(shares map[ContainerKey]CPUPressure, pod, container string) CPUPressure {
	if s, found := shares[ContainerKey{pod, container}]; found {
		return s
	}
	return CPUPressure{math.NaN(), math.NaN()}
}

// EvidenceSource queries Prometheus for the CPU pressure of changed pods. Values are NaN if nothing
// was scraped, the server is unavailable, or the series are implausible for one container. Errors
// are for logging only. It is safe for concurrent use.
type EvidenceSource struct {
	client  *prometheus.Client
	usage   prometheus.Usage // labels and job
	timeout time.Duration    // total for all queries of one CPUPressure call
}

// NewEvidenceSource returns a source. The settings must be valid and have an address.
func NewEvidenceSource(env process.Environment, c EvidenceConfig) (*EvidenceSource, error) {
	settings := c.Client(c.Address)
	settings.Limits = responseLimits
	client, err := prometheus.New(env, settings)
	if err != nil {
		return nil, err
	}
	usage := prometheus.Usage{Job: c.Job, Matchers: c.Matchers, NamespaceLabel: c.NamespaceLabel, PodLabel: c.PodLabel, ContainerLabel: c.ContainerLabel}
	return &EvidenceSource{client, usage, settings.Timeout}, nil
}

// CPUPressure returns the pressure of pods of a namespace over the five minutes before at. Read it
// with PressureOf. The error explains missing containers, and returned values are valid. Pods are
// queried in name order, so callers that repeat the call for the remaining pods reach the last one.
func (s *EvidenceSource) CPUPressure(ctx context.Context, namespace string, pods []string, at time.Time) (map[ContainerKey]CPUPressure, error) {
	shares := map[ContainerKey]CPUPressure{}
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
		return shares, fmt.Errorf("query CPU pressure: invalid namespace %.100q: %s", namespace, wrong[0])
	}
	names, errs := validNames(pods)
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("%w within %s (--prometheus-query-timeout)", prometheus.ErrTimeout, s.timeout))
	defer cancel()
	for batch := range slices.Chunk(names, podsPerQuery) {
		err := s.queryBatch(ctx, namespace, batch, at, shares)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("query CPU pressure of %d pods of namespace %s starting with %s: %w", len(batch), namespace, batch[0], err))
		if !prometheus.IsTooExpensive(err) || errors.Is(err, prometheus.ErrTimeout) {
			break // otherwise the batch was too large, the next may be smaller
		}
	}
	return shares, errors.Join(errs...)
}

func validNames(pods []string) (names []string, errs []error) {
	for _, pod := range pods {
		if wrong := validation.IsDNS1123Subdomain(pod); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("query CPU pressure: invalid pod name %.100q: %s", pod, wrong[0]))
			continue
		}
		names = append(names, pod)
	}
	slices.Sort(names)
	return slices.Compact(names), errs
}

// query covers the rates of all counters, and waiting since the start of the window.
func (s *EvidenceSource) query(namespace string, pods []string) string {
	u := s.usage
	u.Namespace, u.Matchers = namespace, prometheus.JoinMatchers(u.Matchers, fmt.Sprintf("%s=~%q", u.PodLabel, prometheus.OneOf(pods)))
	marked := func(counter, rate string) string {
		return fmt.Sprintf(`label_replace(%s, %q, %q, "", "")`, rate, counterLabel, counter)
	}
	waited := u.Rate(waitingMetric, window)
	return strings.Join([]string{
		marked(periodsMetric, u.Rate(periodsMetric, window)),
		marked(throttledMetric, u.Rate(throttledMetric, window)),
		marked(waitingMetric, waited),
		marked(fullWindowWaiting, waited+" and "+u.Selector(waitingMetric)+" offset "+prometheus.FormatDuration(window)),
	}, " or ")
}

// queryBatch adds the pressure of the containers of some pods. Incomplete responses add nothing.
func (s *EvidenceSource) queryBatch(ctx context.Context, namespace string, pods []string, at time.Time, shares map[ContainerKey]CPUPressure) error {
	found := map[ContainerKey]*rates{}
	answer, err := s.client.Instant(ctx, s.query(namespace, pods), at, func(labels map[string]string, points []prometheus.Point) {
		c, _ := s.usage.Container(labels)
		if _, asked := slices.BinarySearch(pods, c.Pod); !asked || c.Namespace != namespace || c.Container == "" {
			return
		}
		key := ContainerKey{c.Pod, c.Container}
		if found[key] == nil {
			found[key] = &rates{counters: map[string]rate{}}
		}
		found[key].add(labels, points[len(points)-1].Value)
	})
	switch {
	case err != nil:
		return err
	case answer.Type != "vector":
		return fmt.Errorf("unexpected result type %s, expected vector", answer.Type)
	case len(answer.Warnings) > 0:
		return fmt.Errorf("result may be incomplete: %.500s", strings.Join(answer.Warnings, "; "))
	}
	for key, r := range found {
		shares[key] = r.pressure()
	}
	if answer.Broken > 0 {
		return fmt.Errorf("failed to parse %d series, such as: %w", answer.Broken, answer.Last)
	}
	return nil
}

// EvidenceConfig selects the Prometheus server and the labels of container series.
type EvidenceConfig struct {
	prometheus.Access

	Address string // empty: Prometheus is not queried
	Job     string // value of the job label of the series; empty: any

	NamespaceLabel, PodLabel, ContainerLabel string
}

// maxQueryTimeout bounds the query timeout because a harmful change stays until the response.
const maxQueryTimeout = time.Minute

// DefaultEvidenceConfig returns the labels of current kubelets.
func DefaultEvidenceConfig() EvidenceConfig {
	c := EvidenceConfig{Access: prometheus.DefaultAccess(), NamespaceLabel: "namespace", PodLabel: "pod", ContainerLabel: "container"}
	c.QueryTimeout = "10s"
	return c
}

// AddFlags binds the group to fs. Flags shared with the recommender have the same names.
func (c *EvidenceConfig) AddFlags(fs *pflag.FlagSet) {
	c.Access.AddFlags(fs)
	text := func(field *string, name, usage string) { fs.StringVar(field, name, *field, usage) }
	text(&c.Address, "prometheus-address", "URL of the Prometheus server to query for throttling and CPU pressure of containers with reduced CPU, and with --node-load-taint for node load. If empty, Prometheus is not queried, and no change is reverted for these reasons.")
	text(&c.Job, "prometheus-cadvisor-job-name", "Value of the job label of container metrics. If empty, any job matches, and a container scraped by several jobs has no CPU evidence.")
	text(&c.NamespaceLabel, "container-namespace-label", "Label with the namespace in the metrics of containers.")
	text(&c.PodLabel, "container-pod-name-label", "Label with the name of the pod in the metrics of containers.")
	text(&c.ContainerLabel, "container-name-label", "Label with the name of the container in the metrics of containers.")
}

// Validate allows one authentication method. Other settings must be valid if Prometheus is used.
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
	problems = append(problems, flags.Check(timeout <= maxQueryTimeout, "prometheus-query-timeout", c.QueryTimeout, "must be at most "+maxQueryTimeout.String()))
	for _, label := range []struct{ flag, name string }{
		{"container-namespace-label", c.NamespaceLabel}, {"container-pod-name-label", c.PodLabel}, {"container-name-label", c.ContainerLabel},
	} {
		problems = append(problems, flags.Check(model.LegacyValidation.IsValidLabelName(label.name), label.flag, label.name,
			"must be the name of a label: letters, digits and underscores, no digit first"))
	}
	return errors.Join(problems...)
}
