package main

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/boost"
	"loadline.dev/loadline/updater/capacity"
	"loadline.dev/loadline/updater/tally"
	"loadline.dev/loadline/updater/view"
)

// caches are the objects of the cluster that the updater reads.
type caches struct {
	controllers, pods informers.SharedInformerFactory
	surroundings      informers.SharedInformerFactory // nodes and quotas
	whole             bool                            // all namespaces are seen, so nodes can be judged
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

		surroundings: client.Factory(clients.Kube, namespace, client.ControllerResync, ""),
		whole:        namespace == "",
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
	// Without permission to list them, nothing is known of nodes or quotas; that
	// must not keep the updater from its work.
	c.surroundings.Core().V1().ResourceQuotas().Informer()
	if c.whole {
		c.surroundings.Core().V1().Nodes().Informer()
	}
	if err := c.targets.Remember(c.controllers); err != nil {
		return err
	}
	c.surroundings.Start(ctx.Done())
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

// capacity returns what tells whether a change fits.
func (c *caches) capacity(config *Config) (r capacity.Reader) {
	if config.Room == roomOff {
		return r
	}
	quotas := c.surroundings.Core().V1().ResourceQuotas()
	r.Pods, r.Quotas, r.QuotasSynced = c.pods.Core().V1().Pods().Lister(), quotas.Lister(), quotas.Informer().HasSynced
	if c.whole {
		nodes := c.surroundings.Core().V1().Nodes()
		r.Nodes, r.NodesSynced = nodes.Lister(), nodes.Informer().HasSynced
	}
	return r
}

// grown returns a channel that says when a VPA recommends more memory than
// before for any container.
func (c *caches) grown() (<-chan struct{}, error) {
	grown := make(chan struct{}, 1)
	_, err := c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		was, ok := before.(*vpav1.VerticalPodAutoscaler)
		if is, same := after.(*vpav1.VerticalPodAutoscaler); ok && same && moreMemory(was.Status.Recommendation, is.Status.Recommendation) {
			select {
			case grown <- struct{}{}:
			default: // it has been said
			}
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch recommendations: %w", err)
	}
	return grown, nil
}

func moreMemory(was, is *vpav1.RecommendedPodResources) bool {
	if is == nil || was == is {
		return false
	}
	before := convert.Recommendation(was)
	for name, bounds := range convert.Recommendation(is) {
		if bounds.Target.Value(amount.Memory) > before[name].Target.Value(amount.Memory) {
			return true
		}
	}
	return false
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
	c.surroundings.Shutdown()
	c.refreshing.Wait()
}
