// Package recommender observes the usage of pods and writes recommendations into the status of
// VerticalPodAutoscalers. It changes no pod.
//
// Run serves metrics and health, an assembly holds the informers, and Loop.RunOnce is one
// iteration: read changes, add usage, publish, save. Package model is the state of the cluster,
// recommend and status publish, checkpoints saves usage histories, backfill loads them from
// Prometheus, and policies generates VPAs for SizingPolicies.
package recommender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender/recommend"
)

const (
	startTimeout = 30 * time.Second // for the API server
	healthFactor = 5                // intervals without an iteration
)

// Run publishes recommendations until ctx ends. The Config must be valid.
func Run(ctx context.Context, c *Config, env process.Environment) error {
	for _, line := range c.warnings() {
		klog.FromContext(ctx).Info("Questionable setting", "setting", line)
	}
	registry := serving.NewRegistry()
	m := newMetrics(registry)
	if c.Output.WorkloadMetrics {
		m.quality.Workloads = recommend.NewWorkloadQuality(registry)
	}
	health := serving.NewHealth(healthFactor * c.Interval)
	server := serving.New(env, c.Serving.Address, c.Serving.Profiling, registry, health.Check)
	server.Handle(cachesize.Path, m.sizes)
	explanations := explanation.NewHandler()
	if c.Explain {
		server.Handle(explanation.VPAPath, explanations)
	}
	if err := server.Listen(); err != nil {
		return err
	}
	return server.RunWith(ctx, func(ctx context.Context) error {
		go m.sizes.Run(ctx)
		return lead(ctx, c, env, m, health, explanations)
	})
}

func lead(ctx context.Context, c *Config, env process.Environment, m *metrics, health *serving.Health, explanations *explanation.Handler) error {
	config, err := env.RESTConfig(c.Kube, "loadline-recommender")
	if err != nil {
		return err
	}
	m.writes.Limit(config)
	clients, err := client.New(config)
	if err != nil {
		return err
	}
	if err := clients.WaitForServer(ctx, startTimeout); err != nil {
		return err
	}
	policies, err := newPolicyClient(config)
	if err != nil {
		return err
	}
	usageSource, err := newUsageSource(env, config, c.usageSourceConfig(m))
	if err != nil {
		return err
	}
	return runElected(ctx, c, env, dependencies{clients: clients, policies: policies, usageSource: usageSource, scale: client.NewScales(clients.Kube), metrics: m, health: health, explanations: explanations, now: time.Now})
}

// newPolicyClient returns a client without a rate limit, so that status and checkpoint writes do
// not wait for thousands of generated VPAs. The policies controller limits its own rate.
func newPolicyClient(config *rest.Config) (versioned.Interface, error) {
	own := client.Bounded(config)
	own.QPS, own.WarningHandler = -1, rest.NoWarnings{}
	clientset, err := versioned.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create the policy client for %s: %w", config.Host, err)
	}
	return clientset, nil
}

func runElected(ctx context.Context, c *Config, env process.Environment, p dependencies) error {
	return lease.Lead(ctx, env, p.clients.Kube, c.Election, func(leading context.Context) error { return runLoop(leading, c, p) })
}

type dependencies struct {
	clients     *client.Clients
	policies    versioned.Interface
	usageSource usageSource
	scale       *client.Scales
	metrics     *metrics
	health      *serving.Health
	now         func() time.Time

	explanations *explanation.Handler
}

// runLoop saves once more if the program must stop. A replica that lost the lease writes nothing.
func runLoop(ctx context.Context, c *Config, p dependencies) error {
	a := newAssembly(ctx, c, p)
	defer a.stop()
	loop, err := a.start()
	if err != nil {
		return err
	}
	p.health.Activate()
	defer p.explanations.Stop()
	serving.RunEvery(ctx, c.Interval, loop.Ingester.OOMs.Wake(), func(now time.Time) {
		loop.RunOnce(ctx, now)
		p.explanations.Serve(loop)
		p.health.Tick()
	}, func(now time.Time) { loop.HandleOOMs(ctx, now) })
	if errors.Is(context.Cause(ctx), lease.ErrStopRequested) {
		loop.Close(ctx, p.now())
	}
	return nil
}

// load reads the checkpoints of the served VPAs without a time limit, because recommendations would
// start from zero without them.
func (l *Loop) load(ctx context.Context, clients *client.Clients, now func() time.Time) error {
	l.loadedVPAs = map[checkpoint.Owner]bool{}
	l.loader = &checkpoint.Loader{
		Client:    clients.VPA,
		Namespace: l.Config.Kube.Namespace,
		Shape:     l.Config.Aggregation.Store().Shape,
		MaxSkew:   l.Config.Aggregation.Ahead(l.Config.Gates.PerVPAConfig),
	}
	history, problems, err := l.loader.LoadWithRetry(ctx, func(o checkpoint.Owner) bool {
		l.loadedVPAs[o] = l.Roster.Has(o.Namespace, o.VPA)
		return l.loadedVPAs[o]
	}, now)
	if err != nil {
		return err
	}
	l.reportCheckpoints(ctx, problems)
	l.Restored = history
	l.Checkpoints.Saver.MarkLoaded(history)
	return nil
}

func (l *Loop) reportCheckpoints(ctx context.Context, problems []checkpoint.Problem) {
	for _, p := range problems {
		result, message := "rejected", "Rejecting checkpoint, its history is lost"
		if errors.Is(p.Err, checkpoint.ErrWindows) || errors.Is(p.Err, checkpoint.ErrFuture) {
			result, message = "mended", "Using only part of a checkpoint"
		}
		l.Metrics.checkpoints.WithLabelValues(result).Inc()
		klog.FromContext(ctx).Error(p.Err, message, "checkpoint", p.Object)
	}
}
