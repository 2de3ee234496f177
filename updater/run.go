package updater

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/report"
)

// startTimeout is how long a start waits for the API server.
const startTimeout = time.Minute

// Run applies recommendations until ctx ends. The Config must be valid.
func Run(ctx context.Context, config *Config, env process.Environment) error {
	for _, line := range append(config.Kube.Warnings(), config.Evidence.Warnings()...) {
		klog.FromContext(ctx).Info("Questionable setting", "flag", line)
	}
	registry := serving.NewRegistry()
	health := serving.NewHealth(5 * config.Interval)
	server := serving.New(env, config.Serving.Address, config.Serving.Profiling, registry, health.Check)
	explain := explanations{pods: explanation.NewHandler()}
	if config.Explain {
		server.Handle(explanation.PodPath, explain.pods)
		server.Handle(explanation.SkipsPath, &explain.skips)
	}
	m := newMetrics(registry)
	server.Handle(cachesize.Path, m.sizes)
	if err := server.Listen(); err != nil {
		return err
	}
	return server.RunWith(ctx, func(ctx context.Context) error {
		go m.sizes.Run(ctx)
		return connect(ctx, config, dependencies{env: env, metrics: m}, health, &explain)
	})
}

// explanations serve explanations while this process leads.
type explanations struct {
	pods  *explanation.Handler
	skips report.Handler
}

// connect connects to the API server and works while this process leads.
func connect(ctx context.Context, config *Config, d dependencies, health *serving.Health, explain *explanations) (err error) {
	if d.clients, err = dial(config.Kube, d); err != nil {
		return err
	}
	if err := d.clients.WaitForServer(ctx, startTimeout); err != nil {
		return err
	}
	logResizeSupport(ctx, d.clients.Kube)
	election := config.Election
	if config.DryRun {
		election.Enabled = false
	}
	return lease.Lead(ctx, d.env, d.clients.Kube, election, func(ctx context.Context) error { return work(ctx, config, d, health, explain) })
}

// dial returns the clients.
func dial(kube flags.Kube, d dependencies) (c clients, err error) {
	rest, err := d.env.RESTConfig(kube, "loadline-updater")
	if err != nil {
		return c, err
	}
	d.metrics.writes.Limit(rest)
	var all [6]*client.Clients
	for i := range all {
		if all[i], err = client.New(rest); err != nil {
			return c, err
		}
	}
	return clients{Clients: all[0], events: all[1].Kube, judge: all[2].Kube, nodes: all[3].Kube, checks: all[4].Kube, removals: all[5].Kube}, nil
}

// work builds the program and runs it until ctx ends. Everything that it starts ends before it returns, since
// the Lease is released after it.
func work(ctx context.Context, config *Config, d dependencies, health *serving.Health, explain *explanations) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p, err := newProgram(ctx, config, d, overrides{})
	if err != nil {
		return err
	}
	defer func() { stop(); p.shutdown() }()
	if err := p.start(ctx); err != nil {
		return err
	}
	explain.skips.Serve(&p.loop.skips)
	explain.pods.Serve(p.explainer)
	defer func() { explain.pods.Stop(); explain.skips.Serve(nil) }()
	p.run(ctx, health)
	return ctx.Err()
}

// logResizeSupport logs at the start when the server cannot resize pods.
func logResizeSupport(ctx context.Context, kube kubernetes.Interface) {
	resources, err := kube.Discovery().ServerResourcesForGroupVersion(corev1.SchemeGroupVersion.String())
	if err != nil {
		klog.FromContext(ctx).V(1).Info("It is not known whether the API server resizes pods in place", "reason", err)
		return
	}
	if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" }) {
		klog.FromContext(ctx).Info("The API server does not resize pods in place: that needs Kubernetes 1.33. Mode InPlaceOrRecreate evicts instead, mode InPlace does nothing")
	}
}
