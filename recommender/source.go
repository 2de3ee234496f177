package recommender

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// sourceConfig is what chooses.
type sourceConfig struct {
	Prometheus Prometheus
	External   External
	Namespace  string // empty: all
	History    bool   // from Prometheus
	metrics    *metrics
}

// sampleSource yields the latest usage of containers.
type sampleSource interface {
	Samples(ctx context.Context, yield func(usage.Sample)) error
}

// usageSource is where usage comes from.
type usageSource struct {
	sampleSource
	Name        string                  // for people; empty = the metrics API
	Ambiguities *prometheus.Ambiguities // containers whose usage in Prometheus is left out
	Client      *prometheus.Client      // nil = Prometheus is not asked
	wishes      *wishes                 // nil: the source gives the same to each model
}

// attach sets the model that gets the samples.
func (s *usageSource) attach(m *model.Model) {
	if s.wishes != nil {
		s.wishes.model = m
	}
}

// newUsageSource builds what the settings choose; config is that of the API server.
func newUsageSource(env process.Environment, config *rest.Config, c sourceConfig) (usageSource, error) {
	w := &wishes{}
	o := usageSource{Ambiguities: &prometheus.Ambiguities{}, wishes: w}
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
		o.sampleSource = &prometheusSource{w, prometheus.Live{
			Client: o.Client, Usage: c.Prometheus.Usage(c.Namespace), Window: c.Prometheus.RateWindow,
			Ambiguities: o.Ambiguities, Waiting: c.Prometheus.WaitingMetric,
		}}
		if c.Prometheus.WaitingMetric == "" {
			o.sampleSource = withoutPressure{o.sampleSource, w, "--history-cpu-waiting-metric is empty"}
		}
	case c.External.Use:
		o.Name = "The external metrics API"
		source, err := newExternalMetrics(config, externalConfig{
			Metrics: c.External.Metrics(), ContainerLabel: c.Prometheus.ContainerLabel, pods: w.pods,
		})
		if err != nil {
			return o, err
		}
		o.sampleSource = withoutPressure{source, w, "external metrics do not have it"}
	default:
		source, err := client.NewPodMetrics(config, c.Namespace)
		if err != nil {
			return o, err
		}
		o.sampleSource = withoutPressure{source, w, "the metrics API does not have it"}
	}
	return o, nil
}

// prometheusSource requests from Prometheus what recipes need.
type prometheusSource struct {
	wishes *wishes
	live   prometheus.Live
}

// Samples yields the samples of prometheus.Live.
func (s *prometheusSource) Samples(ctx context.Context, yield func(usage.Sample)) error {
	live := s.live
	if !s.wishes.pressure() {
		live.Waiting = ""
	}
	live.Throttling = s.wishes.throttling()
	err := live.Samples(ctx, yield)
	if live.WaitingUnknown {
		s.wishes.noPressure(ctx, "Prometheus has no series of "+live.Waiting)
	}
	return err
}

// withoutPressure is a source that does not know how long work waited for CPU. It logs this once a
// recipe needs it.
type withoutPressure struct {
	sampleSource
	wishes *wishes
	reason string
}

// Samples yields the samples of the source.
func (s withoutPressure) Samples(ctx context.Context, yield func(usage.Sample)) error {
	if !s.wishes.plainSaid && s.wishes.pressure() {
		s.wishes.noPressure(ctx, s.reason)
	}
	return s.sampleSource.Samples(ctx, yield)
}

// wishes says what the VPAs of a model want to know.
type wishes struct {
	model     *model.Model // nil: there are no VPAs yet
	plainSaid bool         // that it is not known how long work waited for CPU
}

// pressure reports whether a recipe wants to know how long work waited for CPU.
func (w *wishes) pressure() bool {
	return w.model != nil && recommend.AnyNeeds(w.model, func(n sketch.Needs) bool { return n.Pressure })
}

// noPressure says, once, that nobody knows how long work waited for CPU, and why.
func (w *wishes) noPressure(ctx context.Context, why string) {
	if !w.plainSaid {
		w.plainSaid = true
		klog.FromContext(ctx).Info("A recipe wants to know how long work waited for CPU, and this is not known: CPU use counts as it is", "reason", why)
	}
}

// throttling reports whether a recipe wants to know for how long CPU limits were reached.
func (w *wishes) throttling() bool {
	return w.model != nil && recommend.AnyNeeds(w.model, func(n sketch.Needs) bool { return n.Throttling() })
}

// pods yields the pods that VPAs select, with the selector.
func (w *wishes) pods(yield func(externalPod) bool) {
	for _, v := range w.model.VPAs() {
		for _, name := range v.PodNames() {
			if !yield(externalPod{Namespace: v.Object.Namespace, Name: name, Selector: v.Selector()}) {
				return
			}
		}
	}
}
