package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/external"
	"loadline.dev/loadline/pkg/source/metricsserver"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/backfill"
	"loadline.dev/loadline/recommender/feed"
	"loadline.dev/loadline/recommender/options"
)

// sources are where usage comes from.
type sources struct {
	samples func(context.Context, func(usage.Sample)) error // live
	name    string                                          // of that, for people; empty = the metrics API
	attach  func(*feed.Model)                               // tells the model whose pods are asked for; nil = nobody needs it
	client  *prometheus.Client                              // nil = Prometheus is not asked
}

// sources builds what the flags choose.
func (c *Config) sources(config *rest.Config, m *metrics) (sources, error) {
	var s sources
	var err error
	live := c.Prometheus.UsageSource == options.UsageFromPrometheus
	if live || c.fromPrometheus() {
		s.client, err = prometheus.New(c.Prometheus.Client(func(code, method string, took time.Duration) {
			m.prometheusRequests.WithLabelValues(code, method).Inc()
			m.prometheusDuration.WithLabelValues(code, method).Observe(took.Seconds())
		}))
		if err != nil {
			return s, err
		}
	}
	switch {
	case live:
		s.name = "Prometheus"
		s.samples = (&prometheus.Live{Client: s.client, Usage: c.Prometheus.Usage(c.Kube.Namespace), Window: c.Prometheus.RateWindow}).Samples
	case c.External.Use:
		s.name = "The external metrics API"
		pods := &podsOfVPAs{}
		s.attach = func(m *feed.Model) { pods.model = m }
		source, err := external.New(config, external.Config{
			Metrics: c.External.Metrics(), ContainerLabel: c.Prometheus.ContainerLabel, Pods: pods.each,
		})
		if err != nil {
			return s, err
		}
		s.samples = source.Samples
	default:
		source, err := metricsserver.New(config, c.Kube.Namespace)
		if err != nil {
			return s, err
		}
		s.samples = source.Samples
	}
	return s, nil
}

// podsOfVPAs yields the pods that VPAs select, with the selector.
type podsOfVPAs struct{ model *feed.Model }

func (p *podsOfVPAs) each(yield func(external.Pod) bool) {
	for _, v := range p.model.VPAs() {
		for _, name := range v.PodNames() {
			if !yield(external.Pod{Namespace: v.Object.Namespace, Name: name, Selector: v.Selector()}) {
				return
			}
		}
	}
}

// backfill begins to load history from Prometheus, and waits for the end of the
// first attempt: what it gives is there for the first pass.
func (a *assembly) backfill(loop *Loop) error {
	c := a.config
	config := c.Prometheus.History(c.Kube.Namespace)
	config.Client, config.Store = a.parts.from.client, c.Aggregation.Store()
	config.MemorySaver, config.PerVPA = c.MemorySaver, c.Gates.PerVPAConfig
	config.VPAs = func(ctx context.Context) []feed.Observed {
		observed, err := loop.observe(ctx, func() {})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot list VPAs, loading history without them")
		}
		return observed
	}
	pods := a.pods.Core().V1().Pods().Lister()
	config.Pods = func() []*corev1.Pod {
		list, err := pods.List(labels.Everything())
		if err != nil {
			klog.FromContext(a.ctx).Error(err, "Cannot list pods, loading history without their labels")
		}
		return list
	}
	config.Count = func(result string, n int) { a.parts.metrics.past.WithLabelValues(result).Add(float64(n)) }
	loop.Backfill = backfill.New(config, a.parts.now())
	a.parts.metrics.history.Begin(loop.Backfill.Progress().Total)
	a.background.Go(func() { loop.Backfill.Run(a.ctx) })
	select {
	case <-loop.Backfill.First():
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// absorb takes what was loaded of the past since the last pass. When that was all
// of it, what is known of a container is all that there was.
func (l *Loop) absorb(now time.Time) {
	if l.Metrics.history.Complete() {
		return
	}
	progress := l.Backfill.Progress() // before Take: all that it counts can be taken
	for _, past := range l.Backfill.Take() {
		l.Model.Absorb(past.Model, now)
	}
	if progress.State != backfill.Complete {
		l.Metrics.history.Loaded(progress.Done)
		return
	}
	l.Metrics.history.Done()
	scratch := profile.New(l.Config.Aggregation.Store().Shape)
	for _, v := range l.Model.VPAs() {
		for container := range v.Doubted {
			scratch.Reset()
			l.Store.Profile(&scratch, v.Series(container)...)
			if !scratch.Empty() {
				delete(v.Doubted, container)
				v.Touch()
			}
		}
	}
}
