package recommender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

type sourceConfig struct {
	Prometheus Prometheus
	External   External
	Namespace  string // empty: all
	History    bool   // history also comes from Prometheus
	metrics    *metrics
}

type sampleSource interface {
	Samples(ctx context.Context, yield func(usage.Sample)) error
}

type usageSource struct {
	sampleSource
	Name        string                          // display name, empty: the metrics API
	Ambiguities *prometheus.AmbiguousContainers // containers with ignored usage
	Client      *prometheus.Client              // nil: Prometheus is not used
	needs       *sourceNeeds                    // nil: independent of the model
}

func (s *usageSource) attach(m *model.Model) {
	if s.needs != nil {
		s.needs.model = m
	}
}

func newUsageSource(env process.Environment, config *rest.Config, c sourceConfig) (usageSource, error) {
	w := &sourceNeeds{}
	o := usageSource{Ambiguities: &prometheus.AmbiguousContainers{}, needs: w}
	var err error
	fromPrometheus := c.Prometheus.UsageSource == UsageFromPrometheus
	if fromPrometheus || c.History {
		o.Client, err = prometheus.New(env, c.Prometheus.Client(c.metrics.observePrometheus))
		if err != nil {
			return o, err
		}
	}
	switch {
	case fromPrometheus:
		o.Name = "Prometheus"
		o.sampleSource = &prometheusSource{w, prometheus.LiveReader{
			Client: o.Client, Usage: c.Prometheus.Usage(c.Namespace), Window: c.Prometheus.RateWindow,
			Ambiguities: o.Ambiguities, Waiting: c.Prometheus.WaitingMetric,
		}}
		if c.Prometheus.WaitingMetric == "" {
			o.sampleSource = noPressureSource{o.sampleSource, w, "--history-cpu-waiting-metric is empty"}
		}
	case c.External.Use:
		o.Name = "The external metrics API"
		source, err := newExternalMetrics(config, externalConfig{
			Metrics: c.External.Metrics(), ContainerLabel: c.Prometheus.ContainerLabel, pods: w.pods,
		})
		if err != nil {
			return o, err
		}
		o.sampleSource = noPressureSource{source, w, "external metrics do not include it"}
	default:
		source, err := client.NewPodMetrics(config, c.Namespace)
		if err != nil {
			return o, err
		}
		o.sampleSource = noPressureSource{source, w, "the metrics API does not include it"}
	}
	return o, nil
}

type prometheusSource struct {
	needs *sourceNeeds
	live  prometheus.LiveReader
}

func (s *prometheusSource) Samples(ctx context.Context, yield func(usage.Sample)) error {
	live := s.live
	if !s.needs.pressure() {
		live.Waiting = ""
	}
	live.Throttling = s.needs.throttling()
	err := live.Samples(ctx, yield)
	if live.WaitingUnknown {
		s.needs.logMissingPressure(ctx, "Prometheus has no series of "+live.Waiting)
	}
	return err
}

// noPressureSource has no CPU waiting times, and logs this once if a recipe needs them.
type noPressureSource struct {
	sampleSource
	needs  *sourceNeeds
	reason string
}

func (s noPressureSource) Samples(ctx context.Context, yield func(usage.Sample)) error {
	if !s.needs.missingLogged && s.needs.pressure() {
		s.needs.logMissingPressure(ctx, s.reason)
	}
	return s.sampleSource.Samples(ctx, yield)
}

type sourceNeeds struct {
	model         *model.Model // nil: no VPAs yet
	missingLogged bool         // missing CPU waiting times were logged
}

func (w *sourceNeeds) pressure() bool {
	return w.model != nil && recommend.AnyNeeds(w.model, func(n sketch.Needs) bool { return n.Pressure })
}

func (w *sourceNeeds) logMissingPressure(ctx context.Context, why string) {
	if !w.missingLogged {
		w.missingLogged = true
		klog.FromContext(ctx).Info("A recipe needs CPU waiting times, but they are not available, using CPU usage unchanged", "reason", why)
	}
}

func (w *sourceNeeds) throttling() bool {
	return w.model != nil && recommend.AnyNeeds(w.model, func(n sketch.Needs) bool { return n.Throttling() })
}

func (w *sourceNeeds) pods(yield func(externalPod) bool) {
	for _, v := range w.model.VPAs() {
		for _, name := range v.PodNames() {
			if !yield(externalPod{Namespace: v.Object.Namespace, Name: name, Selector: v.Selector()}) {
				return
			}
		}
	}
}

type externalConfig struct {
	Metrics        [resources.Kinds]string // metric names by kind, empty: not queried
	ContainerLabel string                  // metric label with the container name
	pods           iter.Seq[externalPod]
}

type externalPod struct{ Namespace, Name, Selector string }

// externalMetrics reads the external metrics API (external.metrics.k8s.io). It sends one request
// for each pod of each VPA and configured metric, within the rate limit of the client. A metric
// without a value gives no sample, and a failed request does not stop the others.
type externalMetrics struct {
	client *rest.RESTClient
	config externalConfig
}

const (
	externalWorkers   = 8 // parallel requests
	maxReportedErrors = 3 // in one error message
)

func newExternalMetrics(config *rest.Config, c externalConfig) (*externalMetrics, error) {
	client, err := client.Raw(config, "external.metrics.k8s.io")
	if err != nil {
		return nil, err
	}
	return &externalMetrics{client: client, config: c}, nil
}

type externalRequest struct {
	pod  externalPod
	kind resources.Kind
}

// Samples never calls yield concurrently. Failed requests are one error after all samples.
func (s *externalMetrics) Samples(ctx context.Context, yield func(usage.Sample)) error {
	var requests []externalRequest // listed first, because the pods belong to the caller
	for pod := range s.config.pods {
		for k, metric := range s.config.Metrics {
			if metric != "" {
				requests = append(requests, externalRequest{pod, resources.Kind(k)})
			}
		}
	}
	errs := make([]error, len(requests))
	// Yield here, where the caller can recover from a panic of yield.
	results := make(chan []usage.Sample, externalWorkers)
	go func() {
		defer close(results)
		workqueue.ParallelizeUntil(context.WithoutCancel(ctx), externalWorkers, len(requests), func(i int) {
			q := requests[i]
			samples, err := s.fetch(ctx, q)
			if err != nil {
				errs[i] = fmt.Errorf("%s of pod %s/%s: %w", s.config.Metrics[q.kind], q.pod.Namespace, q.pod.Name, err)
			}
			results <- samples
		})
	}()
	defer func() {
		for range results { // also after a panic, so that the workers end
		}
	}()
	for samples := range results {
		for _, sample := range samples {
			yield(sample)
		}
	}
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("read external metrics: %d of %d failed, such as: %w", len(failed), len(requests), errors.Join(failed[:min(len(failed), maxReportedErrors)]...))
}

func (s *externalMetrics) fetch(ctx context.Context, q externalRequest) ([]usage.Sample, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	selector := "pod=" + q.pod.Name
	if q.pod.Selector != "" {
		selector = q.pod.Selector + "," + selector
	}
	text, err := client.Body(s.client.Get().Namespace(q.pod.Namespace).Resource(s.config.Metrics[q.kind]).Param("labelSelector", selector).Do(ctx))
	if err != nil {
		return nil, err
	}
	return decodeExternal(text, q.pod, q.kind, s.config.ContainerLabel)
}

const missingValue resource.Format = "absent"

// decodeExternal decodes a response for one pod and kind. Values without the container label are
// ignored. Values are rounded up. A negative one becomes -1, so that the store rejects and counts
// it. Unreadable values are an error in addition to the other samples.
func decodeExternal(text []byte, pod externalPod, k resources.Kind, label string) ([]usage.Sample, error) {
	var list struct {
		Items *[]json.RawMessage `json:"items"` // decoded one by one, so that an error affects one item
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if list.Items == nil {
		return nil, fmt.Errorf("response has no items: expected an ExternalMetricValueList")
	}
	var samples []usage.Sample
	var last error
	for _, item := range *list.Items {
		v := v1beta1.ExternalMetricValue{Value: resource.Quantity{Format: missingValue}}
		err := json.Unmarshal(item, &v)
		container := v.MetricLabels[label]
		if err != nil {
			last = fmt.Errorf("container %q: %w", container, err)
			continue
		}
		if container == "" {
			continue
		}
		if v.Value.Format == missingValue || v.Timestamp.IsZero() {
			last = fmt.Errorf("container %q has no value or no timestamp", container)
			continue
		}
		samples = append(samples, usage.Sample{
			Container: usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: container},
			Kind:      k, At: v.Timestamp.UTC(), Amount: convert.MeasuredAmount(k, v.Value),
		})
	}
	return samples, last
}
