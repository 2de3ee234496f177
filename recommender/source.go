package main

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
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
	Samples func(context.Context, func(usage.Sample)) error // live
	Name    string                                          // of that, for people; empty = the metrics API
	Attach  func(*model.Model)                              // must be told the model that gets the samples; nil = nobody needs it
	Client  *prometheus.Client                              // nil = Prometheus is not asked
}

// newUsageSource builds what the settings choose; config is that of the API server.
func newUsageSource(config *rest.Config, c sourceConfig) (usageSource, error) {
	var o usageSource
	var err error
	fromPrometheus := c.Prometheus.UsageSource == UsageFromPrometheus
	if fromPrometheus || c.History {
		o.Client, err = prometheus.New(c.Prometheus.Client(c.Requested))
		if err != nil {
			return o, err
		}
	}
	switch {
	case fromPrometheus:
		o.Name = "Prometheus"
		vpas := &wishes{}
		o.Attach = func(m *model.Model) { vpas.model = m }
		o.Samples = (&prometheus.Live{
			Client: o.Client, Usage: c.Prometheus.Usage(c.Namespace), Window: c.Prometheus.RateWindow,
			Waiting: c.Prometheus.WaitingMetric, Wanted: vpas.pressure, Throttling: vpas.throttling,
		}).Samples
	case c.External.Use:
		o.Name = "The external metrics API"
		pods := &podsOfVPAs{}
		o.Attach = func(m *model.Model) { pods.model = m }
		source, err := source.NewExternal(config, source.ExternalConfig{
			Metrics: c.External.Metrics(), ContainerLabel: c.Prometheus.ContainerLabel, Pods: pods.each,
		})
		if err != nil {
			return o, err
		}
		o.Samples = source.Samples
	default:
		source, err := source.NewMetricsServer(config, c.Namespace)
		if err != nil {
			return o, err
		}
		o.Samples = source.Samples
	}
	return o, nil
}

// wishes says what the recipes of VPAs want to know besides usage.
type wishes struct{ model *model.Model }

// pressure reports whether a recipe wants to know how long work waited for CPU.
func (w *wishes) pressure() bool {
	return w.recipe(func(n sketch.Needs) bool { return n.Pressure })
}

// throttling reports whether a recipe wants to know for how long CPU limits were reached.
func (w *wishes) throttling() bool {
	return w.recipe(func(n sketch.Needs) bool { return n.Throttling() })
}

// recipe reports whether there is a recipe that needs something.
func (w *wishes) recipe(needs func(sketch.Needs) bool) bool {
	return w.model != nil && slices.ContainsFunc(w.model.VPAs(), func(v *model.VPA) bool { return v.Recipe != nil && needs(v.Recipe.Needs) })
}

// podsOfVPAs yields the pods that VPAs select, with the selector.
type podsOfVPAs struct{ model *model.Model }

func (p *podsOfVPAs) each(yield func(source.ExternalPod) bool) {
	for _, v := range p.model.VPAs() {
		for _, name := range v.PodNames() {
			if !yield(source.ExternalPod{Namespace: v.Object.Namespace, Name: name, Selector: v.Selector()}) {
				return
			}
		}
	}
}
