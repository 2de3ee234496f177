package recommender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/backfill"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/policies"
	"loadline.dev/loadline/recommender/recommend"
	"loadline.dev/loadline/recommender/status"
)

type assembly struct {
	ctx    context.Context
	cancel context.CancelFunc
	config *Config
	parts  dependencies

	controllers, pods informers.SharedInformerFactory
	vpas              externalversions.SharedInformerFactory
	targets           *target.Resolver
	keys              *target.SelectorKeys
	nodes             *recommend.Nodes
	policies          *sizing.Policies
	background        sync.WaitGroup
}

func newAssembly(ctx context.Context, c *Config, p dependencies) *assembly {
	ctx, cancel := context.WithCancel(ctx)
	measured := client.WithSizes(p.metrics.sizes)
	return &assembly{
		ctx: ctx, cancel: cancel, config: c, parts: p,
		controllers: client.Factory(p.clients.Kube, c.Kube.Namespace, client.ControllerResync, "", measured),
		pods:        client.Factory(p.clients.Kube, c.Kube.Namespace, client.ObjectResync, client.NotPending, measured),
		vpas:        client.VPAFactory(p.clients.VPA, c.Kube.Namespace, measured),
	}
}

func (a *assembly) stop() {
	a.cancel()
	a.background.Wait()
	a.controllers.Shutdown()
	a.pods.Shutdown()
	a.vpas.Shutdown()
}

// start fills the caches, loads history and returns the loop, ready for its first iteration.
func (a *assembly) start() (*Loop, error) {
	resolver := target.New(a.controllers, a.parts.scale.Scale)
	a.targets = resolver
	var err error
	if a.keys, err = resolver.SelectorKeys(); err != nil {
		return nil, err
	}
	if a.policies, err = sizing.Watch(a.vpas, a.controllers, resolver, fleet.Options{OwnNamespace: lease.Namespace(""), Foreign: a.config.Policies.ForeignAnnotations}); err != nil {
		return nil, err
	}
	nodesSynced, err := a.watchNodes()
	if err != nil {
		return nil, err
	}
	records, err := policies.WatchRecords(a.vpas)
	pods := a.pods.Core().V1().Pods().Informer()
	if err = errors.Join(err, a.policies.WatchPods(pods), a.parts.metrics.writes.WatchPods(pods)); err != nil {
		return nil, err
	}
	ooms := &model.KillQueue{}
	changes := model.NewChanges(ooms)
	synced, err := a.register(changes)
	if err != nil {
		return nil, err
	}
	maps.Copy(synced, resolver.Synced())
	maps.Copy(synced, a.policies.Synced())
	maps.Copy(synced, records.Synced())
	synced["selectors of controllers"], synced["nodes"] = a.keys.Synced, nodesSynced
	a.controllers.Start(a.ctx.Done())
	a.pods.Start(a.ctx.Done())
	a.vpas.Start(a.ctx.Done())
	a.background.Go(func() { resolver.Run(a.ctx, a.parts.scale.Reset) })
	a.background.Go(func() { model.NewEvictions(a.parts.clients.Kube, a.config.Kube.Namespace, ooms).Run(a.ctx) })
	if err := client.Sync(a.ctx, synced); err != nil {
		return nil, err
	}
	loop, err := a.loop(changes, ooms)
	if err != nil {
		return nil, err
	}
	keeper := &policies.Keeper{
		Client: a.parts.policies, Policies: a.policies, Records: records,
		VPAs: loop.Roster.VPAs, Pods: a.pods.Core().V1().Pods().Lister(), Workloads: resolver, Kinds: a.parts.scale,
		Name: a.config.Name, Namespaces: a.config.Kube.Namespaces, Metrics: a.parts.metrics.policies,
		Guard: model.NewGuard(stepPolicies, a.parts.metrics.panics),
	}
	a.background.Go(func() { keeper.Run(a.ctx) })
	if a.config.Checkpoints.InPrometheus() {
		return loop, a.backfill(loop)
	}
	return loop, loop.load(a.ctx, a.parts.clients, a.parts.now)
}

// watchNodes returns the sync function. A recommender of one namespace may not read nodes.
func (a *assembly) watchNodes() (cache.InformerSynced, error) {
	a.nodes = recommend.NewNodes(a.pods.Core().V1().Pods().Lister())
	if a.config.Kube.Namespace != "" {
		return func() bool { return true }, nil
	}
	nodes := a.controllers.Core().V1().Nodes().Informer()
	_, failed := nodes.AddEventHandler(a.nodes)
	known, err := client.OptionalSync(nodes, "Cannot read nodes, so usage samples are dropped only above the largest possible capacity of any node")
	if err = errors.Join(failed, err, nodes.SetTransform(recommend.TrimNode)); err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return known, nil
}

func (a *assembly) storeConfig(nodes usage.Nodes) usage.StoreConfig {
	config := a.config.Aggregation.Store()
	config.Nodes = nodes
	return config
}

func (a *assembly) register(changes *model.Changes) (map[string]cache.InformerSynced, error) {
	pods, err := a.pods.Core().V1().Pods().Informer().AddEventHandler(changes)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	own := a.vpas.Autoscaling().V1()
	checkpoints := own.VerticalPodAutoscalerCheckpoints().Informer()
	if err := checkpoints.SetTransform(checkpoint.Trim); err != nil {
		return nil, fmt.Errorf("trim checkpoints: %w", err)
	}
	return map[string]cache.InformerSynced{
		"pods":                             pods.HasSynced,
		"verticalpodautoscalers":           own.VerticalPodAutoscalers().Informer().HasSynced,
		"verticalpodautoscalercheckpoints": checkpoints.HasSynced,
	}, nil
}

func (a *assembly) loop(changes *model.Changes, ooms *model.KillQueue) (*Loop, error) {
	c, own, m := a.config, a.vpas.Autoscaling().V1(), a.parts.metrics
	book, err := recipe.NewCache(c.Recipe, c.Estimate.Config)
	if err != nil {
		return nil, err
	}
	pods := &recommend.Pods{PodLister: a.pods.Core().V1().Pods().Lister()}
	config := a.storeConfig(a.nodes)
	store := usage.NewStore(config)
	cluster := model.NewModel(model.Config{
		Store: store, MemorySaver: c.MemorySaver, PerVPA: c.Gates.PerVPAConfig, Backfills: c.Checkpoints.InPrometheus(),
		Keys: a.keys, Owners: a.targets,
	})
	a.parts.usageSource.attach(cluster)
	keeper := &recommend.SketchKeeper{Book: book, Model: cluster, Pods: pods, Limits: pods, Backfills: c.Checkpoints.InPrometheus()}
	advisor := &recommend.Advisor{
		Store: store, Shape: config.Shape, Recipe: *book.ForAnnotation("").Recipe, Pods: pods,
		Format: c.Output.Format(), Limits: c.Output.Limits(), History: m.history,
	}
	roster := &model.Roster{Name: c.Name, Namespaces: c.Kube.Namespaces, VPAs: own.VerticalPodAutoscalers().Lister(), Targets: a.targets}
	checkpoints := &checkpoints.Maintainer{
		Saver: checkpoints.NewSaver(checkpoints.Config{
			Client:   a.parts.clients.VPA,
			Lister:   own.VerticalPodAutoscalerCheckpoints().Lister(),
			Workers:  c.Workers,
			Expiry:   c.Aggregation.Interval * time.Duration(c.Aggregation.Count),
			Interval: c.Checkpoints.Interval,
			Timeout:  c.Checkpoints.Timeout,
			Writes:   m.writes, Advisor: advisor, OOMs: ooms, Health: a.parts.health, Guard: model.NewGuard(stepCheckpoints, m.panics),
		}),
		Disabled: c.Checkpoints.InPrometheus(),
		Model:    cluster, Store: store, Roster: roster, CollectInterval: c.Checkpoints.CollectInterval, Results: m.checkpoints,
	}
	return &Loop{
		Config:      c,
		Metrics:     m,
		Health:      a.parts.health,
		Roster:      roster,
		Policies:    a.policies,
		Changes:     changes,
		Store:       store,
		Model:       cluster,
		Sketches:    keeper,
		Ambiguities: a.parts.usageSource.Ambiguities,
		Ingester: &Ingester{
			Source: a.parts.usageSource, Name: a.parts.usageSource.Name, Timeout: max(c.Interval, minSourceTimeout), OOMs: ooms, Store: store, Model: cluster,
			Health: a.parts.health, Sketches: keeper, Guard: model.NewGuard(stepMetrics, m.panics), Quality: m.quality, Samples: m.samples, Kills: m.ooms, Responses: m.responses,
		},
		Advisor: advisor,
		Publisher: &recommend.Publisher{
			Advisor: advisor, Checkpoints: checkpoints, Writer: status.Writer{Client: a.parts.clients.VPA}, Quality: m.quality,
			Workers: c.Workers, Tolerance: c.Output.Tolerance, Latency: m.latency, Results: m.statuses,
			Health: a.parts.health, Guard: model.NewGuard(stepUpdate, m.panics),
		},
		Checkpoints: checkpoints,
		restoring:   map[string]*pendingRestore{},
		removed:     map[cache.ObjectName]struct{}{},
	}, nil
}

const minSourceTimeout = 10 * time.Second

// backfill starts to load history from Prometheus and waits for the first attempt.
func (a *assembly) backfill(loop *Loop) error {
	c := a.config
	config := c.Prometheus.History(c.Kube.Namespace)
	config.Client, config.Store = a.parts.usageSource.Client, a.storeConfig(recommend.PastNodes{})
	config.Ambiguities = a.parts.usageSource.Ambiguities
	config.MemorySaver, config.PerVPA, config.Keys = c.MemorySaver, c.Gates.PerVPAConfig, a.keys
	config.Sketches, config.Policies, config.Results = loop.Sketches, a.policies, a.parts.metrics.historySamples
	config.VPAs, config.Pods = loop.Roster, a.pods.Core().V1().Pods().Lister()
	config.AttemptToken = make(chan struct{}, 1)
	config.AttemptToken <- struct{}{}
	loop.Backfill = backfill.New(config, a.parts.now())
	a.parts.metrics.history.Begin(loop.Backfill.Progress().Total)
	loop.LateBackfill = backfill.NewLateLoader(config, loop.Backfill)
	a.background.Go(func() { loop.Backfill.Run(a.ctx) })
	a.background.Go(func() { loop.LateBackfill.Run(a.ctx) })
	select {
	case <-loop.Backfill.FirstAttempt():
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}
