package updater

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/nodeload"
	"loadline.dev/loadline/updater/observe"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/view"
)

// caches are the objects of the cluster that the updater reads.
type caches struct {
	controllers, pods informers.SharedInformerFactory
	surroundings      informers.SharedInformerFactory // nodes, quotas and what else guards pods
	retry             time.Duration                   // of what may not be read; 0: client.RetryForbidden at first
	whole             bool                            // all namespaces are seen, so nodes can be judged
	loads             bool                            // the load of nodes is looked at
	static            labels.Selector                 // nodes with the static CPU manager policy
	vpas              externalversions.SharedInformerFactory
	targets           *target.Resolver
	policies          *sizing.Policies
	hpas              *sizing.HorizontalPodAutoscalers
	records           *records.Store
	recordsKnown      cache.InformerSynced // they are, or cannot be read
	own               versioned.Interface
	dryRun            bool
	foreign           bool // annotations of other projects count
	generations       target.Generations
	forget            func() // looks kinds up again
	freshness         *client.Freshness
	kube              kubernetes.Interface
	refreshing        sync.WaitGroup
}

func newCaches(config *Config, clients *client.Clients, sizes *cachesize.Sizes) *caches {
	namespace := config.Kube.Namespace
	scales, freshness := client.NewScales(clients.Kube), &client.Freshness{}
	tracked, measured := client.Tracked(freshness), client.Measured(sizes)
	c := &caches{
		controllers: client.Factory(clients.Kube, namespace, client.ControllerResync, "", tracked, measured),
		pods:        client.Factory(clients.Kube, namespace, client.ObjectResync, client.Running, tracked, measured),
		vpas:        client.VPAFactory(clients.VPA, namespace, tracked, measured),
		freshness:   freshness,
		forget:      scales.Reset,
		kube:        clients.Kube,
		own:         clients.VPA,
		dryRun:      config.DryRun,
		foreign:     config.Policies.Foreign,

		surroundings: client.Factory(clients.Kube, namespace, client.ControllerResync, "", tracked, measured),
		whole:        namespace == "",
		loads:        config.NodeLoad.Mode != nodeload.Off,
	}
	c.static, _ = view.ParseStaticCPUNodes(config.Static) // has been validated
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
	if err := c.surround(); err != nil {
		return err
	}
	if err := c.watchPolicies(); err != nil {
		return err
	}
	maps.Copy(synced, c.policies.Synced())
	synced["sizingrecords"], synced["horizontalpodautoscalers"] = c.recordsKnown, c.hpas.Synced
	if err := c.targets.Remember(); err != nil {
		return err
	}
	vpas := c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer()
	if err := errors.Join(c.generations.Watch(vpas), vpas.AddIndexers(target.Indexers())); err != nil {
		return err
	}
	c.surroundings.Start(ctx.Done())
	c.controllers.Start(ctx.Done())
	c.pods.Start(ctx.Done())
	c.vpas.Start(ctx.Done())
	c.refreshing.Go(func() { c.targets.Run(ctx, c.forget) })
	return client.Sync(ctx, synced)
}

// watchPolicies makes the informers of SizingPolicies, SizingRecords and namespaces.
func (c *caches) watchPolicies() (err error) {
	c.policies, err = sizing.Watch(c.vpas, c.controllers, c.targets, fleet.Options{OwnNamespace: lease.Namespace(""), Foreign: c.foreign})
	if err != nil {
		return err
	}
	if err := c.policies.See(c.pods.Core().V1().Pods().Informer()); err != nil {
		return err
	}
	all := c.vpas.Loadline().V1alpha1().SizingRecords()
	synced, err := client.OptionalSync(all.Informer(), "SizingRecords cannot be read, so no pod is changed because of a SizingPolicy in mode OneShot, Canary or Auto")
	if err != nil {
		return fmt.Errorf("watch SizingRecords: %w", err)
	}
	c.recordsKnown = synced
	c.records, err = records.Watch(c.own, all, c.targets, c.dryRun)
	return err
}

// surround makes the informers of nodes and quotas. Without permission to list them,
// nothing is known of these; that must not keep the updater from its work.
func (c *caches) surround() error {
	quotas := c.surroundings.Core().V1().ResourceQuotas().Informer()
	if err := client.Optional(quotas, c.retry, "ResourceQuotas cannot be read, so it is not asked whether they have room for a change"); err != nil {
		return fmt.Errorf("watch resource quotas: %w", err)
	}
	disruptions := c.surroundings.Policy().V1().PodDisruptionBudgets().Informer()
	if err := errors.Join(disruptions.SetTransform(actuate.TrimBudget), client.Optional(disruptions, c.retry,
		"PodDisruptionBudgets cannot be read, so all pods of a namespace count as if they shared one, and resizes restart one after the other")); err != nil {
		return fmt.Errorf("watch PodDisruptionBudgets: %w", err)
	}
	var err error
	if c.hpas, err = sizing.WatchHPAs(c.surroundings, c.targets.From, "HorizontalPodAutoscalers cannot be read, so no pod is changed because of a SizingPolicy in mode OneShot, Canary or Auto"); err != nil {
		return err
	}
	if !c.whole && !c.loads {
		return nil
	}
	nodes, trim := c.surroundings.Core().V1().Nodes().Informer(), view.TrimNode(c.static)
	if c.loads {
		trim = nodeload.Trim(trim)
	}
	err = errors.Join(nodes.SetTransform(trim),
		client.Optional(nodes, c.retry, "Nodes cannot be read, so it is not asked whether they have room for a change, and which have the static CPU manager policy shows only when they refuse"))
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

// reader returns what takes snapshots.
func (c *caches) reader(config *Config) *view.Reader {
	reader := &view.Reader{
		VPAs:         c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister(),
		VPAIndex:     c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().GetIndexer(),
		Pods:         c.pods.Core().V1().Pods().Lister(),
		LimitRanges:  c.controllers.Core().V1().LimitRanges().Lister(),
		Targets:      c.targets,
		Serves:       config.Kube.Serves,
		PerVPAConfig: config.Gates.PerVPAConfig,
		Generations:  &c.generations,
		Policies:     c.policies,
		Records:      c.records,
		HPAs:         c.hpas,
		Quotas:       c.surroundings.Core().V1().ResourceQuotas().Lister(),
		Measures:     config.Evidence.Address != "",

		SharingMinAge: config.SharingMinAge,
	}
	if c.whole {
		nodes := c.surroundings.Core().V1().Nodes()
		reader.Nodes, reader.NodesSynced = nodes.Lister(), nodes.Informer().HasSynced
	}
	return reader
}

// capacity returns what reports whether a change fits.
func (c *caches) capacity(config *Config) (r view.CapacityReader) {
	if config.Room == roomOff {
		return r
	}
	return c.roomOf(config)
}

// roomOf is capacity whatever --eviction-room says: pods share no more than there is.
func (c *caches) roomOf(config *Config) (r view.CapacityReader) {
	quotas := c.surroundings.Core().V1().ResourceQuotas()
	r.Pods, r.Quotas, r.QuotasSynced = c.pods.Core().V1().Pods().Lister(), quotas.Lister(), quotas.Informer().HasSynced
	if c.whole {
		nodes := c.surroundings.Core().V1().Nodes()
		r.Nodes, r.NodesSynced = nodes.Lister(), nodes.Informer().HasSynced
		if config.Room == roomAuto {
			r.Growth = &view.Growth{Kube: c.kube, Nodes: r.Nodes, Synced: r.NodesSynced}
		}
	}
	return r
}

// policyStatus returns the writer of conditions. In a dry run it writes nothing.
func (c *caches) policyStatus(config *Config) policyStatus {
	if config.DryRun {
		return policyStatus{}
	}
	return policyStatus{client: c.own}
}

// sharingConditions returns what knows which policies share what nodes have left, and says so on
// them; in a dry run it writes nothing, and another updater stands in nobody's way.
func (c *caches) sharingConditions(config *Config) *sharingConditions {
	conditions := &sharingConditions{status: c.policyStatus(config), policies: c.policies, confined: !c.whole}
	if c.whole {
		nodes := c.surroundings.Core().V1().Nodes()
		conditions.nodes = nodes.Informer().HasSynced
		conditions.growth = &view.Growth{Kube: c.kube, Nodes: nodes.Lister(), Synced: conditions.nodes}
	}
	if election := config.Election; !election.Enabled && !config.DryRun {
		conditions.holder = func(ctx context.Context, now time.Time) (string, error) {
			return lease.Holder(ctx, c.kube, election, now)
		}
	}
	return conditions
}

// pinning returns what knows which nodes have the static CPU manager policy.
func (c *caches) pinning() *view.StaticCPUNodes {
	if !c.whole {
		return &view.StaticCPUNodes{}
	}
	nodes := c.surroundings.Core().V1().Nodes()
	return &view.StaticCPUNodes{Selector: c.static, Lister: nodes.Lister(), Synced: nodes.Informer().HasSynced}
}

// disruptions returns what knows which PodDisruptionBudgets count a pod.
func (c *caches) disruptions() *actuate.BudgetReader {
	known := c.surroundings.Policy().V1().PodDisruptionBudgets()
	return &actuate.BudgetReader{Pods: c.pods.Core().V1().Pods().Lister(), Budgets: known.Lister(), Synced: known.Informer().HasSynced}
}

// memoryRises returns the collector of VPAs that recommend more memory than before, or than killed
// containers have.
func (c *caches) memoryRises() (*memoryRises, error) {
	return watchRises(c.vpas.Autoscaling().V1().VerticalPodAutoscalers(), c.targets, c.pods.Core().V1().Pods().Informer())
}

// boosts returns the queue that takes startup boosts back.
func (c *caches) boosts(config *Config, loop *Loop, m *metrics) *observe.BoostQueue {
	return observe.NewBoostQueue(observe.BoostConfig{
		Reader: c.reader(config), Pods: c.pods.Core().V1().Pods().Lister(), Executor: loop.executor,
		Plan: config.planning(), Workers: config.BoostSyncs, Static: loop.nodes.Static, Done: m.Unboosted,
	})
}

// observer returns the queue that judges changes and takes back what did harm. It has an executor
// of its own: nothing that a pass does may hold it up.
func (c *caches) observer(config *Config, executor observe.Executor, p parts) (*observe.Queue, error) {
	settings := observe.Config{Reader: c.reader(config), Pods: c.pods.Core().V1().Pods().Lister(), Records: c.records, Executor: executor, Metrics: p.metrics}
	if !config.DryRun && p.removals != nil {
		settings.Remover = &actuate.Cluster{Kube: p.removals}
	}
	if config.Evidence.Address != "" {
		var err error
		if settings.Prometheus, err = observe.NewEvidenceSource(p.env, config.Evidence); err != nil {
			return nil, fmt.Errorf("--prometheus-address: %w", err)
		}
	}
	return observe.New(settings), nil
}

// nodeLoad returns what keeps new pods off overloaded nodes: it works until its context ends, in
// the mode off only as long as taints of before are left. A dry run of the whole updater writes
// no nodes either.
func (c *caches) nodeLoad(config *Config, p parts) (func(context.Context), error) {
	settings := config.NodeLoad
	switch {
	case settings.Mode == nodeload.Off && config.DryRun:
		return func(context.Context) {}, nil
	case settings.Mode == nodeload.Off:
		return func(ctx context.Context) { nodeload.Clear(ctx, p.nodes) }, nil
	case config.DryRun:
		settings.Mode = nodeload.DryRun
	}
	source, err := nodeload.NewSource(p.env, settings, config.Evidence.Client(config.Evidence.Address), config.Evidence.Matchers)
	if err != nil {
		return nil, fmt.Errorf("--prometheus-address: %w", err)
	}
	nodes := c.surroundings.Core().V1().Nodes()
	watcher := &nodeload.Watcher{Config: settings, Source: source, Kube: p.nodes, Nodes: nodes.Lister(), Synced: nodes.Informer().HasSynced, Metrics: p.metrics}
	return watcher.Run, nil
}

// shutdown waits until everything that fill started has ended.
func (c *caches) shutdown() {
	c.controllers.Shutdown()
	c.pods.Shutdown()
	c.vpas.Shutdown()
	c.surroundings.Shutdown()
	c.refreshing.Wait()
}
