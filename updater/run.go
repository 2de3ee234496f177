package updater

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/observe"
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
	left := &leftAlone{}
	server.Handle(leftAlonePath, left)
	m := newMetrics(registry)
	server.Handle(cachesize.Path, m.sizes)
	if err := server.Listen(); err != nil {
		return err
	}
	return server.RunWith(ctx, func(ctx context.Context) error {
		go m.sizes.Run(ctx)
		return connect(ctx, config, parts{env: env, health: health, metrics: m, leftAlone: left})
	})
}

// parts are made before this process leads.
type parts struct {
	env       process.Environment
	health    *serving.Health
	metrics   *metrics
	leftAlone *leftAlone
	// events writes events, and judge takes changes back, each at a rate of its own: a change
	// must not wait because the event of the one before it is being written, and what did harm
	// not because a pass has much to do. So has nodes, which writes the taints of nodes, checks,
	// which makes the checks before evictions, and removals, which removes invalid notes from pods.
	events, judge, nodes, checks, removals kubernetes.Interface
}

// connect reaches the API server and works while this process leads.
func connect(ctx context.Context, config *Config, p parts) error {
	clients, err := p.dial(config.Kube)
	if err != nil {
		return err
	}
	if err := clients.WaitForServer(ctx, startTimeout); err != nil {
		return err
	}
	logResizeSupport(ctx, clients.Kube)
	election := config.Election
	if config.DryRun {
		election.Enabled = false
	}
	return lease.Lead(ctx, p.env, clients.Kube, election, func(ctx context.Context) error { return work(ctx, config, p, clients) })
}

// dial returns the clients of passes, and makes the others.
func (p *parts) dial(kube flags.Kube) (*client.Clients, error) {
	rest, err := p.env.RESTConfig(kube, "loadline-updater")
	if err != nil {
		return nil, err
	}
	p.metrics.writes.Limit(rest)
	var all [6]*client.Clients
	for i := range all {
		if all[i], err = client.New(rest); err != nil {
			return nil, err
		}
	}
	p.events, p.judge, p.nodes, p.checks, p.removals = all[1].Kube, all[2].Kube, all[3].Kube, all[4].Kube, all[5].Kube
	return all[0], nil
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

// work fills the caches and makes a pass at every interval.
func work(ctx context.Context, config *Config, p parts, clients *client.Clients) error {
	// Everything that was started ends before the lease is given back.
	ctx, stop := context.WithCancel(ctx)
	caches := newCaches(config, clients, p.metrics.sizes)
	defer caches.shutdown()
	defer stop()
	if err := caches.fill(ctx); err != nil {
		return err
	}
	loop := newLoop(config.planning(), caches.reader(config), p.metrics)
	loop.records, loop.status, loop.sharing.conditions = caches.records, caches.policyStatus(config), caches.sharingConditions(config)
	loop.sharing.interval = config.SharingInterval
	loop.capacity = caches.capacity(config)
	loop.sharing.capacity = caches.roomOf(config)
	loop.nodes, loop.budgets = caches.pinning(), caches.disruptions()
	loop.limiter = disruption.NewRateLimiter(config.Pace, time.Now())
	loop.reporter.After = config.EventAfter
	loop.stale = caches.freshness.Stale
	p.metrics.cacheAges.Show(caches.freshness.Ages)
	p.leftAlone.reporter.Store(&loop.reporter)
	judge, shutdown, err := executors(ctx, config, p, clients, loop)
	if err != nil {
		return err
	}
	defer shutdown()
	if h := config.Heartbeat; h.Required {
		beat := &lease.Beat{Client: clients.Kube.CoordinationV1(), Namespace: lease.Namespace(h.Namespace), Name: h.Name}
		pulse := &lease.Pulse{Beat: beat, Timeout: h.Timeout}
		loop.alive = pulse.Alive
	}
	boosts, pods := caches.boosts(config, loop, p.metrics), caches.pods.Core().V1().Pods().Informer()
	if err := errors.Join(p.metrics.writes.WatchPods(pods), boosts.Watch(pods)); err != nil {
		return err
	}
	observer, err := caches.observer(config, judge, p)
	if err != nil {
		return err
	}
	if err := observer.Watch(pods); err != nil {
		return err
	}
	watchLoad, err := caches.nodeLoad(config, p)
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	working.Go(func() { loop.nodes.Await(ctx); boosts.Run(ctx) })
	working.Go(func() { observer.Run(ctx) })
	working.Go(func() { watchLoad(ctx) })
	defer func() { stop(); working.Wait() }()
	rises, err := caches.memoryRises()
	if err != nil {
		return err
	}
	loop.killed = func(ctx context.Context) bool { return loop.reader.HasOOMKilled(ctx, rises.Pending(), time.Now()) }
	p.health.Activate()
	// A pass, or an early one for OOM kills, may take one interval.
	within := func(do func(ctx context.Context, now time.Time)) func(now time.Time) {
		return func(now time.Time) {
			ctx, cancel := context.WithTimeout(ctx, config.Interval)
			defer cancel()
			do(ctx, now)
		}
	}
	serving.RunEvery(ctx, config.Interval, rises.Wake(), within(func(ctx context.Context, now time.Time) {
		loop.RunOnce(ctx, now)
		p.health.Tick()
	}), within(func(ctx context.Context, now time.Time) { loop.Early(ctx, now, rises.Take()) }))
	return ctx.Err()
}

// executors gives a loop what carries its plans out, and returns what carries out the verdicts about
// changes under observation. Events are written until shutdown is called.
func executors(ctx context.Context, config *Config, p parts, clients *client.Clients, loop *Loop) (judge observe.Executor, shutdown func(), err error) {
	checker := &actuate.Checker{Kube: p.checks, Targets: loop.reader.Targets, Config: &loop.config}
	if config.DryRun {
		loop.executor = &actuate.Rehearsal{Out: p.env.Stdout(), Checker: checker}
		return &actuate.Rehearsal{Out: p.env.Stdout()}, func() {}, nil
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	recorder, err := recordEvents(events, p.events)
	if err != nil {
		events.Shutdown()
		return nil, nil, err
	}
	loop.executor = &actuate.Cluster{
		Kube: clients.Kube, Events: recorder,
		Resizes:   actuate.Limiter(config.Disruption.Rate, config.Disruption.Burst),
		Evictions: actuate.Limiter(config.Disruption.Rate, config.Disruption.Burst),
		Budgets:   loop.budgets,
		Threshold: config.Disruption.Threshold,
		Checker:   checker,
		Stale:     loop.stale,
		Memory:    actuate.Memory(clients.Kube.CoreV1().RESTClient()),
	}
	return &actuate.Cluster{Kube: p.judge, Events: recorder, Reverted: loop.tally.reverted}, events.Shutdown, nil
}

// recordEvents returns a recorder whose events reach the API server.
func recordEvents(events record.EventBroadcaster, kube kubernetes.Interface) (record.EventRecorder, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), vpav1.AddToScheme(scheme), loadlinev1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	events.StartStructuredLogging(6)
	return events.NewRecorder(scheme, corev1.EventSource{Component: "vpa-updater"}), nil
}
