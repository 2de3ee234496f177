package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/estimate"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/advice"
	"loadline.dev/loadline/recommender/checkpoint"
	"loadline.dev/loadline/recommender/feed"
	"loadline.dev/loadline/recommender/ingest"
	"loadline.dev/loadline/recommender/intake"
	"loadline.dev/loadline/recommender/rescue"
	"loadline.dev/loadline/recommender/status"
	"loadline.dev/loadline/recommender/upkeep"
)

// assembly is everything that runs while this replica leads.
type assembly struct {
	ctx    context.Context
	cancel context.CancelFunc
	config *Config
	parts  parts

	controllers, pods informers.SharedInformerFactory
	vpas              externalversions.SharedInformerFactory
	background        sync.WaitGroup
}

func newAssembly(ctx context.Context, c *Config, p parts) *assembly {
	ctx, cancel := context.WithCancel(ctx)
	return &assembly{
		ctx: ctx, cancel: cancel, config: c, parts: p,
		controllers: client.Factory(p.clients.Kube, c.Kube.Namespace, client.ControllerResync, ""),
		pods:        client.Factory(p.clients.Kube, c.Kube.Namespace, client.ObjectResync, client.NotPending),
		vpas:        client.VPAFactory(p.clients.VPA, c.Kube.Namespace),
	}
}

// stop ends everything that start has started, and waits for it.
func (a *assembly) stop() {
	a.cancel()
	a.background.Wait()
	a.controllers.Shutdown()
	a.pods.Shutdown()
	a.vpas.Shutdown()
}

// start fills the caches, loads history and returns the loop, ready for its
// first pass.
func (a *assembly) start() (*Loop, error) {
	resolver := target.New(a.controllers, a.parts.scale.Scale)
	ooms := &intake.OOMs{}
	changes := intake.NewChanges(ooms)
	synced, err := a.register(changes)
	if err != nil {
		return nil, err
	}
	for name, done := range resolver.Synced() {
		synced[name] = done
	}
	a.controllers.Start(a.ctx.Done())
	a.pods.Start(a.ctx.Done())
	a.vpas.Start(a.ctx.Done())
	a.background.Go(func() { resolver.Run(a.ctx, a.parts.scale.Reset) })
	a.background.Go(func() { intake.NewEvictions(a.parts.clients.Kube, a.config.Kube.Namespace, ooms).Run(a.ctx) })
	if err := client.Sync(a.ctx, synced); err != nil {
		return nil, err
	}
	loop, err := a.loop()
	if err != nil {
		return nil, err
	}
	loop.Resolve, loop.Changes, loop.Ingester.OOMs = resolver.Resolve, changes, ooms
	loop.Checkpoints.Saver.Waiting = func() bool { return len(ooms.Wake()) > 0 }
	return loop, loop.load(a.ctx, a.parts.clients, a.parts.now)
}

// register makes the informers of pods and of our own objects, and returns what
// tells whether they are filled.
func (a *assembly) register(changes *intake.Changes) (map[string]cache.InformerSynced, error) {
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

// loop builds a loop without its inputs.
func (a *assembly) loop() (*Loop, error) {
	c, own, m := a.config, a.vpas.Autoscaling().V1(), a.parts.metrics
	recipe, err := estimate.ForName("vpa", c.Estimate.Config)
	if err != nil {
		return nil, err
	}
	config := c.Aggregation.Store()
	store := usage.New(config)
	model := feed.NewModel(feed.Config{Store: store, MemorySaver: c.MemorySaver, PerVPA: c.Gates.PerVPAConfig})
	advisor := &advice.Advisor{
		Store: store, Shape: config.Shape, Recipe: recipe, Estimate: c.Estimate.Config,
		Format: c.Output.Format(), Limits: c.Output.Limits(), Complete: m.history.Complete,
	}
	progress := a.parts.health.Tick
	return &Loop{
		Config:   c,
		Metrics:  m,
		Progress: progress,
		VPAs:     own.VerticalPodAutoscalers().Lister(),
		Store:    store,
		Model:    model,
		Ingester: &ingest.Ingester{
			Source: a.parts.samples, Timeout: max(c.Interval, leastTimeout), Store: store, Model: model,
			Progress: progress, Quality: m.quality, Samples: m.samples, Kills: m.ooms, Responses: m.responses,
		},
		Advisor: advisor,
		Publisher: &status.Publisher{
			Writer: status.Writer{Client: a.parts.clients.VPA}, Workers: c.Workers, Shape: config.Shape, Recommend: advisor.Recommend,
			Changed: m.quality.Changed, Latency: m.latency, Results: m.statuses, Tolerance: c.Output.Tolerance,
			Progress: progress, Rescue: rescue.From(stepUpdate, m.panics),
		},
		Checkpoints: &upkeep.Upkeep{
			Saver: upkeep.NewSaver(upkeep.Config{
				Client:   a.parts.clients.VPA,
				Lister:   own.VerticalPodAutoscalerCheckpoints().Lister(),
				Workers:  c.Workers,
				Expiry:   c.Aggregation.Interval * time.Duration(c.Aggregation.Count),
				Interval: c.Checkpoints.Interval,
				Timeout:  c.Checkpoints.Timeout,
				Contents: advisor.Contents, Progress: progress, Rescue: rescue.From(stepCheckpoints, m.panics),
			}),
			Model: model, VPAs: own.VerticalPodAutoscalers().Lister(), Serves: c.serves,
			Ignores: func(namespace string) bool { return !c.Kube.Serves(namespace) },
			Collect: c.Checkpoints.CollectInterval, Credible: store.Credible, Results: m.checkpoints,
		},
	}, nil
}

// leastTimeout is how long a source may take even when passes are more frequent.
const leastTimeout = 10 * time.Second
