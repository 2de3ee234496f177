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
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/budgets"
	"loadline.dev/loadline/updater/nodeload"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

type caches struct {
	config            *Config
	clients           *client.Clients
	controllers, pods informers.SharedInformerFactory
	constraints       informers.SharedInformerFactory // nodes, quotas, budgets, autoscalers
	forbiddenRetry    time.Duration                   // after a forbidden list; 0: client.RetryForbidden
	nodes             corelisters.NodeLister          // nil if only one namespace is watched
	nodeInformer      cache.SharedIndexInformer       // set with nodes
	staticCPU         labels.Selector                 // nodes with the static CPU manager policy
	vpas              externalversions.SharedInformerFactory
	targets           *target.Resolver
	policies          *sizing.Policies
	hpas              *sizing.HorizontalPodAutoscalers
	records           *records.Store
	recordsSynced     cache.InformerSynced // true once synced, or if forbidden
	generations       target.Generations
	resetScales       func() // discovers scalable kinds again
	freshness         *client.Freshness
	refreshing        sync.WaitGroup
}

// newCaches builds all informers. sizes may be nil.
func newCaches(config *Config, clients *client.Clients, sizes *cachesize.Sizes, overridden overrides) (*caches, error) {
	namespace := config.Kube.Namespace
	scales, freshness := client.NewScales(clients.Kube), &client.Freshness{}
	tracked, measured := client.WithFreshness(freshness), client.WithSizes(sizes)
	c := &caches{
		config:         config,
		clients:        clients,
		controllers:    client.Factory(clients.Kube, namespace, client.ControllerResync, "", tracked, measured),
		pods:           client.Factory(clients.Kube, namespace, client.ObjectResync, client.Running, tracked, measured),
		vpas:           client.VPAFactory(clients.VPA, namespace, tracked, measured),
		freshness:      freshness,
		resetScales:    scales.Reset,
		forbiddenRetry: overridden.forbiddenRetry,

		constraints: client.Factory(clients.Kube, namespace, client.ControllerResync, "", tracked, measured),
	}
	c.staticCPU, _ = plan.ParseStaticCPUNodes(config.StaticCPUNodes) // checked by Validate
	scale := target.Scale(scales.Scale)
	if overridden.scale != nil {
		scale = overridden.scale
	}
	c.targets = target.New(c.controllers, scale)
	vpas := c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer()
	return c, errors.Join(c.watchConstraints(), c.watchPolicies(), c.targets.MemoizeWorkloads(), c.generations.Watch(vpas), vpas.AddIndexers(target.Indexers()))
}

func (c *caches) start(ctx context.Context) error {
	synced := map[string]cache.InformerSynced{
		"pods":                     c.pods.Core().V1().Pods().Informer().HasSynced,
		"limitranges":              c.controllers.Core().V1().LimitRanges().Informer().HasSynced,
		"verticalpodautoscalers":   c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().HasSynced,
		"sizingrecords":            c.recordsSynced,
		"horizontalpodautoscalers": c.hpas.Synced,
	}
	maps.Copy(synced, c.targets.Synced())
	maps.Copy(synced, c.policies.Synced())
	c.constraints.Start(ctx.Done())
	c.controllers.Start(ctx.Done())
	c.pods.Start(ctx.Done())
	c.vpas.Start(ctx.Done())
	c.refreshing.Go(func() { c.targets.Run(ctx, c.resetScales) })
	return client.Sync(ctx, synced)
}

func (c *caches) watchPolicies() (err error) {
	c.policies, err = sizing.Watch(c.vpas, c.controllers, c.targets, fleet.Options{OwnNamespace: lease.Namespace(""), Foreign: c.config.Policies.ForeignAnnotations})
	if err != nil {
		return err
	}
	if err := c.policies.WatchPods(c.pods.Core().V1().Pods().Informer()); err != nil {
		return err
	}
	all := c.vpas.Loadline().V1alpha1().SizingRecords()
	c.recordsSynced, err = client.OptionalSync(all.Informer(), "Cannot read SizingRecords: skipping changes of SizingPolicies in mode OneShot, Canary or Auto")
	if err != nil {
		return fmt.Errorf("watch SizingRecords: %w", err)
	}
	c.records, err = records.Watch(c.clients.VPA, all, c.targets, c.config.DryRun)
	return err
}

// watchConstraints builds informers for objects that the updater may lack permission to list.
func (c *caches) watchConstraints() error {
	quotas := c.constraints.Core().V1().ResourceQuotas().Informer()
	if err := client.Optional(quotas, c.forbiddenRetry, "Cannot read ResourceQuotas: planning changes without quota checks"); err != nil {
		return fmt.Errorf("watch resource quotas: %w", err)
	}
	disruptions := c.constraints.Policy().V1().PodDisruptionBudgets().Informer()
	if err := errors.Join(disruptions.SetTransform(budgets.Trim), client.Optional(disruptions, c.forbiddenRetry,
		"Cannot read PodDisruptionBudgets: treating all pods of a namespace as one budget and restarting them one after the other")); err != nil {
		return fmt.Errorf("watch PodDisruptionBudgets: %w", err)
	}
	var err error
	if c.hpas, err = sizing.WatchHPAs(c.constraints, c.targets.OwnerChain, "Cannot read HorizontalPodAutoscalers: skipping changes of SizingPolicies in mode OneShot, Canary or Auto"); err != nil {
		return err
	}
	whole, loads := c.config.Kube.Namespace == "", c.config.NodeLoad.Mode != nodeload.Off
	if !whole && !loads {
		return nil
	}
	nodes, trim := c.constraints.Core().V1().Nodes(), plan.TrimNode(c.staticCPU)
	if whole {
		c.nodes, c.nodeInformer = nodes.Lister(), nodes.Informer()
	}
	if loads {
		trim = nodeload.Trim(trim)
	}
	err = errors.Join(nodes.Informer().SetTransform(trim),
		client.Optional(nodes.Informer(), c.forbiddenRetry, "Cannot read nodes: planning changes without capacity checks, and detecting the static CPU manager policy only from refused resizes"))
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

func (c *caches) reader(config *Config) *snapshot.Reader {
	vpas := c.vpas.Autoscaling().V1().VerticalPodAutoscalers()
	return &snapshot.Reader{
		VPAs:         vpas.Lister(),
		VPAIndex:     vpas.Informer().GetIndexer(),
		Pods:         c.pods.Core().V1().Pods().Lister(),
		LimitRanges:  c.controllers.Core().V1().LimitRanges().Lister(),
		Targets:      c.targets,
		Namespaces:   config.Kube.Namespaces,
		PerVPAConfig: config.Gates.PerVPAConfig,
		Generations:  &c.generations,
	}
}

func (c *caches) resolver(config *Config) *policies.Resolver {
	return &policies.Resolver{
		VPAs:     c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister(),
		Policies: c.policies, Records: c.records, HPAs: c.hpas, HasPrometheus: config.Evidence.Address != "",
	}
}

func (c *caches) workloads() *rollouts.Facts {
	return &rollouts.Facts{Targets: c.targets, Nodes: c.nodes, NodeInformer: c.nodeInformer}
}

func (c *caches) sharing(config *Config) *shares.Sharing {
	return shares.New(shares.Config{
		Pods: c.pods.Core().V1().Pods().Lister(), Nodes: c.nodes, NodeInformer: c.nodeInformer,
		Quotas: c.constraints.Core().V1().ResourceQuotas().Lister(),
		HPAs:   c.hpas, Records: c.records, MinAge: config.SharingMinAge,
	})
}

func (c *caches) capacity(config *Config) (r snapshot.CapacityReader) {
	quotas := c.constraints.Core().V1().ResourceQuotas()
	r.Pods, r.Quotas, r.QuotaInformer = c.pods.Core().V1().Pods().Lister(), quotas.Lister(), quotas.Informer()
	r.Nodes, r.NodeInformer = c.nodes, c.nodeInformer
	if c.nodes != nil && config.EvictionRoom == roomAuto {
		r.NodeAutoscaler = &snapshot.NodeAutoscaler{Kube: c.clients.Kube, Nodes: c.nodes, Informer: c.nodeInformer}
	}
	return r
}

func (c *caches) policyStatus(config *Config) policies.Status {
	if config.DryRun {
		return policies.Status{}
	}
	return policies.Status{Client: c.clients.VPA}
}

// sharingConditions ignores other updaters in a dry run, and writes nothing.
func (c *caches) sharingConditions(config *Config) *shares.Conditions {
	conditions := &shares.Conditions{Status: c.policyStatus(config), Policies: c.policies, Confined: c.nodes == nil,
		Nodes: c.nodeInformer, Kube: c.clients.Kube}
	if c.nodes != nil {
		conditions.NodeAutoscaler = &snapshot.NodeAutoscaler{Kube: c.clients.Kube, Nodes: c.nodes, Informer: c.nodeInformer}
	}
	if !config.Election.Enabled && !config.DryRun {
		conditions.Election = &config.Election
	}
	return conditions
}

// shutdown waits until the informers have ended. The context of start must be done.
func (c *caches) shutdown() {
	c.controllers.Shutdown()
	c.pods.Shutdown()
	c.vpas.Shutdown()
	c.constraints.Shutdown()
	c.refreshing.Wait()
}
