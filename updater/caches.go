package main

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/boost"
	"loadline.dev/loadline/updater/capacity"
	"loadline.dev/loadline/updater/growth"
	"loadline.dev/loadline/updater/pinning"
	"loadline.dev/loadline/updater/tally"
	"loadline.dev/loadline/updater/view"
)

// caches are the objects of the cluster that the updater reads.
type caches struct {
	controllers, pods informers.SharedInformerFactory
	surroundings      informers.SharedInformerFactory // nodes and quotas
	whole             bool                            // all namespaces are seen, so nodes can be judged
	static            labels.Selector                 // nodes with the static CPU manager policy
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
	c.static, _ = pinning.Parse(config.Static) // has been validated
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
		if err := c.surroundings.Core().V1().Nodes().Informer().SetTransform(pinning.Trim(c.static)); err != nil {
			return fmt.Errorf("watch nodes: %w", err)
		}
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

// pinning returns what tells which nodes have the static CPU manager policy.
func (c *caches) pinning() *pinning.Nodes {
	if !c.whole {
		return &pinning.Nodes{}
	}
	nodes := c.surroundings.Core().V1().Nodes()
	return &pinning.Nodes{Selector: c.static, Lister: nodes.Lister(), Synced: nodes.Informer().HasSynced}
}

// grown returns a channel that says when a VPA recommends more memory than
// before for any container.
func (c *caches) grown() (<-chan struct{}, error) {
	return growth.Watch(c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer())
}

// boosts returns the queue that takes startup boosts back.
func (c *caches) boosts(config *Config, loop *Loop, m *tally.Metrics) *boost.Queue {
	return boost.New(boost.Config{
		Reader: c.reader(config), Pods: c.pods.Core().V1().Pods().Lister(), Carrier: loop.carrier,
		Plan: config.planning(), Workers: config.BoostSyncs, Static: loop.nodes.Static, Done: m.Unboosted,
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
