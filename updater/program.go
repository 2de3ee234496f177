package updater

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/boost"
	"loadline.dev/loadline/updater/budgets"
	"loadline.dev/loadline/updater/nodeload"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
)

// clients reach the API server. Each client has its own rate limit, so that iterations, reverts and
// the requests below do not delay each other.
type clients struct {
	*client.Clients                      // of iterations
	events          kubernetes.Interface // writes events
	reverts         kubernetes.Interface // reverts changes
	nodes           kubernetes.Interface // writes taints
	evictionChecks  kubernetes.Interface // checks evictions
	noteRemovals    kubernetes.Interface // removes invalid notes from pods
}

// dependencies are built before this process leads.
type dependencies struct {
	env     process.Environment
	metrics *metrics
	clients clients
}

// overrides replaces parts of a program in tests.
type overrides struct {
	clock          actuate.Clock        // of changes
	events         record.EventRecorder // replaces the recorder of the API server
	scale          target.Scale
	forbiddenRetry time.Duration // after a forbidden list of optional objects
}

type program struct {
	config          *Config
	caches          *caches
	loop            *Loop
	explainer       *explainer
	memoryIncreases *memoryIncreases
	boosts          *boost.Queue
	observer        *rollouts.Queue
	nodeLoad        func(ctx context.Context)
	stopEvents      func()
}

// newProgram builds an updater. start starts its informers. Events are written until ctx ends.
func newProgram(ctx context.Context, config *Config, d dependencies, overridden overrides) (*program, error) {
	c, err := newCaches(config, d.clients.Clients, d.metrics.cacheSizes, overridden)
	if err != nil {
		return nil, err
	}
	recorder, stopEvents, err := newRecorder(ctx, d.clients.events, overridden.events)
	if err != nil {
		return nil, err
	}
	changeTally, reader := &tally{}, c.reader(config)
	staticCPU := &plan.StaticCPUNodes{Selector: c.staticCPU, Lister: c.nodes, Informer: c.nodeInformer}
	restarts := budgets.New(c.pods.Core().V1().Pods().Lister(), c.constraints.Policy().V1().PodDisruptionBudgets())
	executor, reverter := newExecutors(config, d, executorParts{recorder, c, restarts, changeTally, overridden.clock})
	pods, vpas := c.pods.Core().V1().Pods(), c.vpas.Autoscaling().V1().VerticalPodAutoscalers()
	increases, increasesErr := watchMemoryIncreases(vpas, c.targets, pods.Informer())
	announcer, resolver, sharing := &report.Announcer{Recorder: executor, VPAs: vpas.Lister()}, c.resolver(config), c.sharing(config)
	loop := &Loop{
		reader: reader, policies: resolver,
		shareRounds: &shares.Rounds{Sharing: sharing, Interval: config.SharingInterval, Conditions: c.sharingConditions(config), Metrics: d.metrics},
		rollouts: &rollouts.Rollouts{Facts: c.workloads(), Policies: resolver, Records: c.records, Pods: pods.Lister(), Plan: config.planning(),
			Status: c.policyStatus(config), Announcer: announcer, Metrics: d.metrics},
		planner: &plan.Planner{Config: config.planning(), Nodes: staticCPU, Pods: pods.Lister(), Capacity: c.capacity(config), Budgets: restarts},
		runner:  &actuate.Runner{Executor: executor, Policies: resolver, Sharing: sharing, Pods: pods.Lister(), Limiter: disruption.NewRateLimiter(config.Pace, time.Now())},
		metrics: d.metrics, alive: heartbeat(config.Heartbeat, d.clients.Kube), stale: c.freshness.Stale, memoryIncreases: increases,
		announcer: announcer, skips: report.Skips{After: config.SkipEventDelay}, tally: changeTally, countedVPAs: map[cache.ObjectName]bool{},
	}
	boosts := boost.New(boost.Config{
		Reader: c.reader(config), Policies: resolver, Pods: pods.Lister(), Executor: executor,
		Plan: config.planning(), Workers: config.BoostWorkers, StaticCPU: staticCPU, Metrics: d.metrics,
	})
	observer, observerErr := newObserver(config, d, c, reverter)
	nodeLoad, loadErr := newNodeLoad(config, d, c.constraints.Core().V1().Nodes())
	if err := errors.Join(increasesErr, observerErr, loadErr); err != nil {
		return nil, err
	}
	d.metrics.cacheAges.SetSource(c.freshness.Ages)
	explain := &explainer{reader: c.reader(config), policies: resolver, rollouts: loop.rollouts, sharing: sharing, skips: &loop.skips, dryRun: config.DryRun, clock: overridden.clock}
	return &program{config: config, caches: c, loop: loop, explainer: explain, memoryIncreases: increases, boosts: boosts, observer: observer, nodeLoad: nodeLoad, stopEvents: stopEvents},
		errors.Join(d.metrics.writes.WatchPods(pods.Informer()), boosts.Watch(pods.Informer()), observer.Watch(pods.Informer()))
}

func (p *program) start(ctx context.Context) error { return p.caches.start(ctx) }

func (p *program) run(ctx context.Context, health *serving.Health) {
	ctx, stop := context.WithCancel(ctx)
	var queues sync.WaitGroup
	defer func() { stop(); queues.Wait() }()
	queues.Go(func() { p.loop.planner.Nodes.Await(ctx); p.boosts.Run(ctx) })
	queues.Go(func() { p.observer.Run(ctx) })
	queues.Go(func() { p.nodeLoad(ctx) })
	health.Activate()
	// An iteration, early or not, may take one interval.
	withTimeout := func(do func(ctx context.Context, now time.Time)) func(now time.Time) {
		return func(now time.Time) {
			ctx, cancel := context.WithTimeout(ctx, p.config.Interval)
			defer cancel()
			do(ctx, now)
		}
	}
	serving.RunEvery(ctx, p.config.Interval, p.memoryIncreases.Wake(), withTimeout(func(ctx context.Context, now time.Time) {
		p.loop.RunOnce(ctx, now)
		health.Tick()
	}), withTimeout(func(ctx context.Context, now time.Time) { p.loop.RunEarly(ctx, now, p.memoryIncreases.Drain()) }))
}

// shutdown waits for events and informers. The context of start must be done.
func (p *program) shutdown() {
	p.stopEvents()
	p.caches.shutdown()
}

func heartbeat(h Heartbeat, kube kubernetes.Interface) func(ctx context.Context, now time.Time) (bool, error) {
	if !h.Required {
		return nil
	}
	beat := &lease.Heartbeat{Client: kube.CoordinationV1(), Namespace: lease.Namespace(h.Namespace), Name: h.Name}
	return (&lease.Monitor{Heartbeat: beat, Timeout: h.Timeout}).Alive
}

func newRecorder(ctx context.Context, kube kubernetes.Interface, replacement record.EventRecorder) (record.EventRecorder, func(), error) {
	if replacement != nil {
		return replacement, func() {}, nil
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), vpav1.AddToScheme(scheme), loadlinev1alpha1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	events.StartStructuredLogging(6)
	return events.NewRecorder(scheme, corev1.EventSource{Component: "vpa-updater"}), events.Shutdown, nil
}

type executorParts struct {
	recorder record.EventRecorder
	caches   *caches
	budgets  *budgets.Budgets
	changes  *tally
	clock    actuate.Clock // nil: time.Now
}

func newExecutors(config *Config, d dependencies, p executorParts) (actuate.Executor, rollouts.Reverter) {
	checker := &actuate.Checker{Kube: d.clients.evictionChecks, Targets: p.caches.targets, Config: new(config.planning()), Clock: p.clock}
	if config.DryRun {
		return &actuate.DryRun{Out: d.env.Stdout(), Checker: checker}, &actuate.DryRun{Out: d.env.Stdout()}
	}
	return &actuate.Cluster{
		Kube: d.clients.Kube, Events: p.recorder, Clock: p.clock,
		Resizes:   actuate.NewLimiter(config.Disruption.Rate, config.Disruption.Burst),
		Evictions: actuate.NewLimiter(config.Disruption.Rate, config.Disruption.Burst),
		Budgets:   p.budgets,
		Threshold: config.Disruption.Threshold,
		Checker:   checker,
		Caches:    p.caches.freshness,
		Usage:     actuate.NewMeter(d.clients.Kube.CoreV1().RESTClient()),
	}, &actuate.Cluster{Kube: d.clients.reverts, Events: p.recorder, Clock: p.clock, Reverts: p.changes}
}

// newObserver gets a separate executor, so that iterations do not delay reverts.
func newObserver(config *Config, d dependencies, c *caches, reverter rollouts.Reverter) (*rollouts.Queue, error) {
	settings := rollouts.QueueConfig{Reader: c.reader(config), Policies: c.resolver(config), Facts: c.workloads(), Pods: c.pods.Core().V1().Pods().Lister(), Records: c.records, Executor: reverter, Metrics: d.metrics}
	if !config.DryRun {
		settings.Remover = &actuate.Cluster{Kube: d.clients.noteRemovals}
	}
	if config.Evidence.Address != "" {
		var err error
		if settings.Prometheus, err = rollouts.NewEvidenceSource(d.env, config.Evidence); err != nil {
			return nil, fmt.Errorf("--prometheus-address: %w", err)
		}
	}
	return rollouts.NewQueue(settings), nil
}

// newNodeLoad returns a function that runs until its context ends. Mode off removes old taints.
func newNodeLoad(config *Config, d dependencies, nodes coreinformers.NodeInformer) (func(context.Context), error) {
	settings := config.NodeLoad
	switch {
	case settings.Mode == nodeload.Off && config.DryRun:
		return func(context.Context) {}, nil
	case settings.Mode == nodeload.Off:
		return func(ctx context.Context) { nodeload.Clear(ctx, d.clients.nodes) }, nil
	case config.DryRun:
		settings.Mode = nodeload.DryRun
	}
	source, err := nodeload.NewSource(d.env, settings, config.Evidence.Client(config.Evidence.Address), config.Evidence.Matchers)
	if err != nil {
		return nil, fmt.Errorf("--prometheus-address: %w", err)
	}
	watcher := &nodeload.Watcher{Config: settings, Source: source, Kube: d.clients.nodes, Nodes: nodes.Lister(), Informer: nodes.Informer(), Metrics: d.metrics}
	return watcher.Run, nil
}

const startTimeout = time.Minute

// Run applies recommendations until ctx ends. The Config must be valid.
func Run(ctx context.Context, config *Config, env process.Environment) error {
	for _, line := range append(config.Kube.Warnings(), config.Evidence.Warnings()...) {
		klog.FromContext(ctx).Info("Questionable setting", "flag", line)
	}
	registry := serving.NewRegistry()
	health := serving.NewHealth(5 * config.Interval)
	server := serving.New(env, config.Serving.Address, config.Serving.Profiling, registry, health.Check)
	explain := explanations{pods: explanation.NewHandler(), skips: report.NewHandler()}
	if config.Explain {
		server.Handle(explanation.PodPath, explain.pods)
		server.Handle(explanation.SkipsPath, explain.skips)
	}
	m := newMetrics(registry)
	server.Handle(cachesize.Path, m.cacheSizes)
	if err := server.Listen(); err != nil {
		return err
	}
	return server.RunWith(ctx, func(ctx context.Context) error {
		go m.cacheSizes.Run(ctx)
		return connect(ctx, config, dependencies{env: env, metrics: m}, health, &explain)
	})
}

type explanations struct {
	pods  *explanation.Handler
	skips *report.Handler
}

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
	return lease.Lead(ctx, d.env, d.clients.Kube, election, func(ctx context.Context) error { return runLeader(ctx, config, d, health, explain) })
}

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
	return clients{Clients: all[0], events: all[1].Kube, reverts: all[2].Kube, nodes: all[3].Kube, evictionChecks: all[4].Kube, noteRemovals: all[5].Kube}, nil
}

// runLeader builds the program and runs it until ctx ends. Everything that it starts ends before it
// returns, since the Lease is released after it.
func runLeader(ctx context.Context, config *Config, d dependencies, health *serving.Health, explain *explanations) error {
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

func logResizeSupport(ctx context.Context, kube kubernetes.Interface) {
	resources, err := kube.Discovery().ServerResourcesForGroupVersion(corev1.SchemeGroupVersion.String())
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Failed to detect whether the API server supports in-place resize", "reason", err)
		return
	}
	if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" }) {
		klog.FromContext(ctx).Info("The API server does not support in-place resize, which requires Kubernetes 1.33. Mode InPlaceOrRecreate evicts instead, mode InPlace does nothing")
	}
}
