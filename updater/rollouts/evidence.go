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

// The counters of a container that kubelets have, all at /metrics/cadvisor: periods only of one with a limit of CPU,
// time waited from Kubernetes 1.34 on, on nodes with cgroup v2 and a kernel that has pressure stall information.
const (
	periodsMetric   = prometheus.PeriodsMetric
	throttledMetric = prometheus.ThrottledMetric
	waitingMetric   = prometheus.WaitingMetric

	wholeWaiting = waitingMetric + " from the start of the window"
)

const (
	// window is the time over which shares are taken.
	window = 5 * time.Minute
	// podsPerQuery bounds the text of a query, which has their names.
	podsPerQuery = 100
	// counterLabel says in an answer of which counter a series is.
	counterLabel = "loadline_counter"
)

// answerLimits bound an answer: a hundred pods with dozens of containers each, labels of a few
// KB, and some series too many.
var answerLimits = prometheus.Limits{Bytes: 32 << 20, SeriesBytes: 1 << 20, Series: 20_000}

// ContainerKey names a container.
type ContainerKey struct{ Pod, Container string }

// Share is what is known of a container over five minutes, each from 0 to 1; NaN: not known.
type Share struct {
	Throttled float64 // of the periods of its CPU limit
	Waiting   float64 // of the time, for CPU
}

// ShareOf returns the share of a container among those of Shares: nothing is known of one that is not there.
func ShareOf(shares map[ContainerKey]Share, pod, container string) Share {
	if s, found := shares[ContainerKey{pod, container}]; found {
		return s
	}
	return Share{math.NaN(), math.NaN()}
}

// EvidenceSource asks Prometheus what the CPU that a changed pod got did to its containers: in which share of the
// periods they were throttled, and for which share of the time their work waited. It is safe for concurrent use.
//
// What is not known is NaN: nothing was scraped, the server is away, or what it says cannot be true
// of one container. A failure is never more than that, so errors are for the log alone.
type EvidenceSource struct {
	client  *prometheus.Client
	usage   prometheus.Usage // labels and job
	timeout time.Duration    // of all queries for Shares together
}

// NewEvidenceSource returns a source. The settings must be valid and have an address.
func NewEvidenceSource(env process.Environment, c EvidenceConfig) (*EvidenceSource, error) {
	settings := c.Client(c.Address)
	settings.Limits = answerLimits
	client, err := prometheus.New(env, settings)
	if err != nil {
		return nil, err
	}
	usage := prometheus.Usage{Job: c.Job, Matchers: c.Matchers, NamespaceLabel: c.NamespaceLabel, PodLabel: c.PodLabel, ContainerLabel: c.ContainerLabel}
	return &EvidenceSource{client, usage, settings.Timeout}, nil
}

// Shares returns the shares over the five minutes before at of the containers of some pods of
// a namespace. Read them with ShareOf. The error says why some may not be known; the others are
// right. It takes no longer than the time-out of a query, however many are sent: pods come by
// name, and who asks again for those that are not judged yet gets to the last.
func (s *EvidenceSource) Shares(ctx context.Context, namespace string, pods []string, at time.Time) (map[ContainerKey]Share, error) {
	shares := map[ContainerKey]Share{}
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
		return shares, fmt.Errorf("shares of pods: the namespace %.100q: %s", namespace, wrong[0])
	}
	names, errs := validNames(pods)
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("%w within %s (--prometheus-query-timeout)", prometheus.ErrTimeout, s.timeout))
	defer cancel()
	for batch := range slices.Chunk(names, podsPerQuery) {
		err := s.ask(ctx, namespace, batch, at, shares)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("shares of %d pods of namespace %s from %s on: %w", len(batch), namespace, batch[0], err))
		if !prometheus.Heavy(err) || errors.Is(err, prometheus.ErrTimeout) {
			break // else it was too much, and the next may be less
		}
	}
	return shares, errors.Join(errs...)
}

// validNames returns the names that a pod can have, sorted, and what is wrong with the others.
func validNames(pods []string) (names []string, errs []error) {
	for _, pod := range pods {
		if wrong := validation.IsDNS1123Subdomain(pod); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("shares of the pod %.100q: %s", pod, wrong[0]))
			continue
		}
		names = append(names, pod)
	}
	slices.Sort(names)
	return slices.Compact(names), errs
}

// query returns what is asked of some pods: the rates of all counters, and of the time
// waited once more where the series was there when the window began.
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
		marked(wholeWaiting, waited+" and "+u.Selector(waitingMetric)+" offset "+prometheus.FormatDuration(window)),
	}, " or ")
}

// ask adds the shares of the containers of some pods, as far as a whole answer has them.
func (s *EvidenceSource) ask(ctx context.Context, namespace string, pods []string, at time.Time, shares map[ContainerKey]Share) error {
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
		return fmt.Errorf("the answer is a %s: want a vector", answer.Type)
	case len(answer.Warnings) > 0:
		return fmt.Errorf("the answer may lack something: %.500s", strings.Join(answer.Warnings, "; "))
	}
	for key, r := range found {
		shares[key] = r.share()
	}
	if answer.Broken > 0 {
		return fmt.Errorf("%d series cannot be read, such as: %w", answer.Broken, answer.Last)
	}
	return nil
}

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
