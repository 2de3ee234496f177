package main

import (
	"context"
	"maps"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/boost"
	"loadline.dev/loadline/updater/tally"
	"loadline.dev/loadline/updater/view"
)

// caches are the objects of the cluster that the updater reads.
type caches struct {
	controllers, pods informers.SharedInformerFactory
	vpas              externalversions.SharedInformerFactory
	targets           *target.Resolver
	forget            func() // looks kinds up again
	refreshing        sync.WaitGroup
}

func newCaches(config *Config, clients *client.Clients) *caches {
	namespace := config.Kube.Namespace
	scales := client.NewScales(clients.Kube)
	c := &caches{
		controllers: client.Factory(clients.Kube, namespace, client.ControllerResync, ""),
		pods:        client.Factory(clients.Kube, namespace, client.ObjectResync, client.Running),
		vpas:        client.VPAFactory(clients.VPA, namespace),
		forget:      scales.Reset,
	}
	c.targets = target.New(c.controllers, scales.Scale)
	return c
}

// fill starts the caches and returns when they are complete.
func (c *caches) fill(ctx context.Context) error {
	synced := map[string]cache.InformerSynced{
		"pods":                   c.pods.Core().V1().Pods().Informer().HasSynced,
		"limitranges":            c.controllers.Core().V1().LimitRanges().Informer().HasSynced,
		"verticalpodautoscalers": c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().HasSynced,
	}
	maps.Copy(synced, c.targets.Synced())
	c.controllers.Start(ctx.Done())
	c.pods.Start(ctx.Done())
	c.vpas.Start(ctx.Done())
	c.refreshing.Go(func() { c.targets.Run(ctx, c.forget) })
	return client.Sync(ctx, synced)
}

// reader returns what takes snapshots.
func (c *caches) reader(config *Config) *view.Reader {
	return &view.Reader{
		VPAs:         c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister(),
		Pods:         c.pods.Core().V1().Pods().Lister(),
		LimitRanges:  c.controllers.Core().V1().LimitRanges().Lister(),
		Targets:      c.targets,
		Serves:       config.Kube.Serves,
		PerVPAConfig: config.Gates.PerVPAConfig,
	}
}

// boosts returns the queue that takes startup boosts back.
func (c *caches) boosts(config *Config, carrier boost.Carrier, m *tally.Metrics) *boost.Queue {
	return boost.New(boost.Config{
		Reader: c.reader(config), Pods: c.pods.Core().V1().Pods().Lister(), Carrier: carrier,
		Plan: config.planning(), Workers: config.BoostSyncs, Done: m.Unboosted,
	})
}

// shutdown waits until everything that fill started has ended.
func (c *caches) shutdown() {
	c.controllers.Shutdown()
	c.pods.Shutdown()
	c.vpas.Shutdown()
	c.refreshing.Wait()
}
