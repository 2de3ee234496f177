package recommender

import (
	"context"
	"time"

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
	Namespace  string                                        // empty: all
	History    bool                                          // from Prometheus
	Requested  func(code, method string, took time.Duration) // told each request to Prometheus
}

// usageSource is where usage comes from.
type usageSource struct {
	Samples     func(context.Context, func(usage.Sample)) error // live
	Name        string                                          // of that, for people; empty = the metrics API
	Attach      func(*model.Model)                              // must be told the model that gets the samples
	Ambiguities *prometheus.Ambiguities                         // containers whose usage in Prometheus is left out
	Client      *prometheus.Client                              // nil = Prometheus is not asked
}

// newUsageSource builds what the settings choose; config is that of the API server.
func newUsageSource(env process.Environment, config *rest.Config, c sourceConfig) (usageSource, error) {
	var o usageSource
	var err error
	vpas := &wishes{}
	o.Ambiguities = &prometheus.Ambiguities{}
	o.Attach = func(m *model.Model) { vpas.model = m }
	fromPrometheus := c.Prometheus.UsageSource == UsageFromPrometheus
	if fromPrometheus || c.History {
		o.Client, err = prometheus.New(env, c.Prometheus.Client(c.Requested))
		if err != nil {
			return o, err
		}
	}
	switch {
	case fromPrometheus:
		o.Name = "Prometheus"
		o.Samples = (&prometheus.Live{
			Client: o.Client, Usage: c.Prometheus.Usage(c.Namespace), Window: c.Prometheus.RateWindow,
			Ambiguities: o.Ambiguities, Waiting: c.Prometheus.WaitingMetric, Wanted: vpas.pressure, Throttling: vpas.throttling,
			Unknown: func(ctx context.Context) {
				vpas.noPressure(ctx, "Prometheus has no series of "+c.Prometheus.WaitingMetric)
			},
		}).Samples
		if c.Prometheus.WaitingMetric == "" {
			o.Samples = vpas.without("--history-cpu-waiting-metric is empty", o.Samples)
		}
	case c.External.Use:
		o.Name = "The external metrics API"
		source, err := newExternalMetrics(config, externalConfig{
			Metrics: c.External.Metrics(), ContainerLabel: c.Prometheus.ContainerLabel, Pods: vpas.pods,
		})
		if err != nil {
			return o, err
		}
		o.Samples = vpas.without("external metrics do not have it", source.Samples)
	default:
		source, err := client.NewPodMetrics(config, c.Namespace)
		if err != nil {
			return o, err
		}
		o.Samples = vpas.without("the metrics API does not have it", source.Samples)
	}
	return o, nil
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

// without returns a source that does not know how long work waited for CPU, and says so once a
// recipe wants to know.
func (w *wishes) without(why string, samples func(context.Context, func(usage.Sample)) error) func(context.Context, func(usage.Sample)) error {
	return func(ctx context.Context, yield func(usage.Sample)) error {
		if !w.plainSaid && w.pressure() {
			w.noPressure(ctx, why)
		}
		return samples(ctx, yield)
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
