// Package admission implements the admission webhook that applies VPA recommendations to new pods
// and validates VPAs and SizingPolicies.
//
// The webhook never rejects a pod. After a failure, a pod starts with the resources of its
// template.
package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/admission-controller/validate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
)

const startTimeout = 30 * time.Second

// Run answers admission requests until ctx ends. The Config must be valid.
func Run(ctx context.Context, config *Config, env process.Environment) error {
	log := klog.FromContext(ctx)
	for _, line := range config.Warnings() {
		log.Info(line)
	}
	registry := serving.NewRegistry()
	m := newMetrics(registry)
	h := server.NewHealth(time.Now())
	status := serving.New(env, config.Serving.Address, config.Serving.Profiling, registry, h.Check)
	status.Handle(cachesize.Path, m.sizes)
	if err := errors.Join(status.Listen(), portFree(env, config.Port)); err != nil {
		return err
	}
	if config.ClientCA != "" {
		if _, err := config.callers().Load(); err != nil {
			return fmt.Errorf("--webhook-client-ca-file=%s: %w", config.ClientCA, err)
		}
	}
	rest, err := env.RESTConfig(config.Kube, "admission-controller")
	if err != nil {
		return err
	}
	clients, err := client.New(rest)
	if err != nil {
		return err
	}
	keeper, err := newKeeper(ctx, config, clients, m)
	if err != nil {
		return err
	}
	return status.RunWith(ctx, func(ctx context.Context) error {
		return serve(ctx, config, env, clients, webhook{metrics: m, health: h, keeper: keeper})
	})
}

// portFree detects a port conflict early. The port opens for good once the certificate exists.
func portFree(env process.Environment, port int) error {
	s := server.New(server.Config{Environment: env, Port: port})
	if err := s.Listen(); err != nil {
		return err
	}
	return s.Close()
}

// secretInterval is how often the Secret is read while no certificate rotation is due.
const secretInterval = 2 * time.Minute

func newKeeper(ctx context.Context, config *Config, clients *client.Clients, m *metrics) (*certs.Keeper, error) {
	k := &certs.Keeper{Holder: &certs.Holder{}, Recorder: m}
	files := config.Files
	if !config.Register {
		files.CA = ""
	}
	switch {
	case files.Present():
		serving, err := files.Load(ctx, time.Time{}, nil)
		if err != nil {
			return nil, err
		}
		if k.Source = serving; config.ReloadCert {
			k.Source = files
		}
	case config.Register:
		k.Interval = secretInterval
		k.Source = &certs.Store{
			Secrets:   clients.Kube.CoreV1(),
			Namespace: config.namespace(),
			Name:      config.Secret,
			Hosts:     []string{config.host()},
			Schedule:  certs.DefaultSchedule(),
		}
	default:
		return nil, fmt.Errorf("--tls-cert-file=%s and --tls-private-key=%s do not exist: mount them, or let the program issue and publish a certificate with --register-webhook=true", files.Cert, files.Key)
	}
	return k, nil
}

type webhook struct {
	metrics *metrics
	health  *server.Health
	keeper  *certs.Keeper
}

func serve(ctx context.Context, config *Config, env process.Environment, clients *client.Clients, w webhook) error {
	if err := clients.WaitForServer(ctx, startTimeout); err != nil {
		return err
	}
	go w.metrics.sizes.Run(ctx)
	filled, err := fillCaches(ctx, config, clients, client.WithSizes(w.metrics.sizes))
	if err != nil {
		return err
	}
	if config.Register {
		w.keeper.Registrar = &certs.Registrar{Client: clients.Kube.AdmissionregistrationV1(), Config: config.registration(), Served: filled.served}
	}
	w.keeper.Run(ctx, true)
	if err := ctx.Err(); err != nil {
		return err
	}
	tls := config.tls()
	tls.GetCertificate = w.keeper.Holder.ForConnection
	s := server.New(server.Config{
		Environment: env,
		Port:        config.Port,
		TLS:         tls,
		Handlers:    filled.handlers,
		Recorder:    w.metrics,
		Callers:     config.callers(),
		Drain:       config.Drain,
	})
	if err := s.Listen(); err != nil {
		return err
	}
	b := server.Beater{Lease: config.heartbeat(env, clients.Kube.CoordinationV1()), Server: s, Service: config.serviceProbe(env), Health: w.health, Keeper: w.keeper}
	return serving.Together(ctx, filled.refresh, s.Run, b.Run, func(ctx context.Context) error {
		w.keeper.Run(ctx, false)
		return nil
	})
}

type caches struct {
	handlers []server.Handler // read from the caches
	served   servedNamespaces
	// refresh keeps other controller kinds, owners, nodes and quotas up to date until ctx ends.
	refresh func(context.Context) error
}

// servedNamespaces lists namespaces with a VPA that may change pods, on its own or under a policy.
type servedNamespaces struct {
	finder   *target.Finder
	policies *sizing.Policies
}

func (s servedNamespaces) Namespaces() []string {
	return slices.DeleteFunc(s.finder.Namespaces(), func(namespace string) bool { return !s.finder.Serves(namespace, s.policies.MayChangePods(namespace)) })
}

// policyCaches holds the informers that only policies need. They start with the first policy,
// because each watch wakes an idle program once a minute.
type policyCaches struct {
	core   informers.SharedInformerFactory
	vpas   externalversions.SharedInformerFactory
	synced map[string]cache.InformerSynced
}

func (o *policyCaches) fill(ctx context.Context, policies *sizing.Policies) error {
	select {
	case <-policies.NonEmpty():
		o.start(ctx)
		return client.Sync(ctx, o.synced)
	default:
		return nil
	}
}

// follow starts the informers once a policy exists. Until they have synced, pods under a policy
// that changes pods stay unchanged, including pods of user VPAs.
func (o *policyCaches) follow(ctx context.Context, policies *sizing.Policies) {
	select {
	case <-policies.NonEmpty():
		o.start(ctx)
	case <-ctx.Done():
	}
}

// start may be called more than once.
func (o *policyCaches) start(ctx context.Context) {
	o.core.Start(ctx.Done())
	o.vpas.Start(ctx.Done())
}

func fillCaches(ctx context.Context, config *Config, clients *client.Clients, options ...client.Option) (caches, error) {
	core := client.Factory(clients.Kube, config.Kube.Namespace, client.ControllerResync, "", options...)
	vpas := client.VPAFactory(clients.VPA, config.Kube.Namespace, options...)
	optional := &policyCaches{
		core: client.Factory(clients.Kube, config.Kube.Namespace, client.ControllerResync, "", options...),
		vpas: client.VPAFactory(clients.VPA, config.Kube.Namespace, options...),
	}
	scales := client.NewScales(clients.Kube)
	resolver := target.New(core, scales.Scale)
	finder, remembering, scout, err := findOwners(ctx, resolver)
	if err != nil {
		return caches{}, err
	}
	informer := vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer()
	registration, err := informer.AddEventHandler(finder.Handler(scout.Enqueue))
	if err = errors.Join(err, informer.AddIndexers(target.Indexers())); err != nil {
		return caches{}, fmt.Errorf("watch VerticalPodAutoscalers: %w", err)
	}
	var generations target.Generations
	if err := generations.Watch(informer); err != nil {
		return caches{}, err
	}
	limitRanges := core.Core().V1().LimitRanges()
	synced := map[string]cache.InformerSynced{
		"verticalpodautoscalers": registration.HasSynced,
		"limitranges":            limitRanges.Informer().HasSynced,
	}
	policies, err := sizing.Watch(vpas, optional.core, resolver, fleet.Options{OwnNamespace: config.namespace(), Foreign: config.Policies.ForeignAnnotations})
	records, err2 := sizing.WatchRecords(optional.vpas)
	hpas, err3 := sizing.WatchHPAs(optional.core, resolver.OwnerChain, "Failed to read HorizontalPodAutoscalers, leaving new pods with generated VPAs unchanged")
	if err = errors.Join(err, err2, err3); err != nil {
		return caches{}, err
	}
	optional.synced = map[string]cache.InformerSynced{"sizingrecords": records.Settled, "horizontalpodautoscalers": hpas.Synced}
	policiesSynced := policies.Synced()
	synced["sizingpolicies"], optional.synced["namespaces"] = policiesSynced["sizingpolicies"], policiesSynced["namespaces"]
	maps.Copy(synced, resolver.Synced())
	core.Start(ctx.Done())
	vpas.Start(ctx.Done())
	if err := client.Sync(ctx, synced); err != nil {
		return caches{}, err
	}
	if err := optional.fill(ctx, policies); err != nil {
		return caches{}, err
	}
	cluster := &validate.Cluster{Kube: clients.Kube, Namespace: config.Kube.Namespace, VPAs: informer.GetIndexer(), Targets: remembering}
	recipes, err := recipe.NewCache("", recipe.DefaultConfig())
	if err != nil {
		return caches{}, fmt.Errorf("read the recipes: %w", err)
	}
	pods := podHandler{
		serves: config.Kube.Includes, finder: finder, limitRanges: limitRanges.Lister(), quotas: cluster.Quotas, nodes: cluster,
		mutation: config.mutation(), outdated: generations.Outdated, policies: policies, records: records, hpas: hpas, recipes: recipes,
		sharingMinAge: config.SharingMinAge,
	}
	admitted := func(vpa *vpav1.VerticalPodAutoscaler) { finder.RecordAdmission(vpa, time.Now()) }
	return caches{
		handlers: []server.Handler{pods.handler(), vpaHandler(config.validation(), cluster.Advise, admitted), policyHandler(config.validation())},
		served:   servedNamespaces{finder, policies},
		refresh: func(ctx context.Context) error {
			var done sync.WaitGroup
			done.Go(func() { resolver.Run(ctx, scales.Reset) })
			done.Go(func() { scout.Run(ctx) })
			done.Go(func() { cluster.Run(ctx) })
			done.Go(func() { optional.follow(ctx, policies) })
			done.Wait()
			return nil
		},
	}, nil
}

// findOwners returns a finder that sends no requests. Its prefetcher reads unresolved owners.
func findOwners(ctx context.Context, resolver *target.Resolver) (finder *target.Finder, remembering *target.Resolver, scout *target.Prefetcher, err error) {
	scout = target.NewPrefetcher(func(ctx context.Context, key target.Key) {
		if _, _, err := resolver.Topmost(ctx, key); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(4).Info("Failed to read the owner of pods", "owner", key.String(), "namespace", key.Namespace, "reason", err)
		}
	})
	remembering = resolver.CacheOnly(scout.Enqueue)
	finder = target.NewFinder(ctx, remembering)
	if err := resolver.Owners(func(key target.Key) {
		if finder.Serves(key.Namespace, true) {
			scout.Enqueue(key)
		}
	}); err != nil {
		return nil, nil, nil, err
	}
	return finder, remembering, scout, nil
}
