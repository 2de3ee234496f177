package target

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/kube/client"
)

// caches are the informer caches of the well-known kinds.
type caches struct {
	deployments  appslisters.DeploymentLister
	replicaSets  cache.Store // of client.ReplicaSet
	statefulSets appslisters.StatefulSetLister
	daemonSets   appslisters.DaemonSetLister
	controllers  corelisters.ReplicationControllerLister
	jobs         batchlisters.JobLister
	cronJobs     batchlisters.CronJobLister

	synced    map[string]cache.InformerSynced
	informers []cache.SharedIndexInformer

	memo *memo // nil: every answer is read again
}

func newCaches(f informers.SharedInformerFactory) caches {
	apps, batch, core := f.Apps().V1(), f.Batch().V1(), f.Core().V1()
	return caches{
		deployments:  apps.Deployments().Lister(),
		replicaSets:  apps.ReplicaSets().Informer().GetStore(),
		statefulSets: apps.StatefulSets().Lister(),
		daemonSets:   apps.DaemonSets().Lister(),
		controllers:  core.ReplicationControllers().Lister(),
		jobs:         batch.Jobs().Lister(),
		cronJobs:     batch.CronJobs().Lister(),
		informers: []cache.SharedIndexInformer{
			apps.Deployments().Informer(), apps.ReplicaSets().Informer(), apps.StatefulSets().Informer(), apps.DaemonSets().Informer(),
			core.ReplicationControllers().Informer(), batch.Jobs().Informer(), batch.CronJobs().Informer(),
		},
		synced: map[string]cache.InformerSynced{
			"deployments":            apps.Deployments().Informer().HasSynced,
			"replicasets":            apps.ReplicaSets().Informer().HasSynced,
			"statefulsets":           apps.StatefulSets().Informer().HasSynced,
			"daemonsets":             apps.DaemonSets().Informer().HasSynced,
			"replicationcontrollers": core.ReplicationControllers().Informer().HasSynced,
			"jobs":                   batch.Jobs().Informer().HasSynced,
			"cronjobs":               batch.CronJobs().Informer().HasSynced,
		},
	}
}

// Synced returns, by resource name, what tells whether a cache is filled.
func (r *Resolver) Synced() map[string]cache.InformerSynced { return r.caches.synced }

// Owners calls seen with the controlling owner of each object of the well-known
// kinds if that owner is of another kind, when the object appears and with each
// resync of the informers. It must be called before they start.
func (r *Resolver) Owners(seen func(Key)) error {
	look := func(object any) {
		o, ok := object.(metav1.Object)
		if !ok {
			return
		}
		if key, found := Controller(o.GetNamespace(), o.GetOwnerReferences()); found && !key.wellKnown() {
			seen(key)
		}
	}
	for _, informer := range r.caches.informers {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, object any) { look(object) }}); err != nil {
			return fmt.Errorf("watch the owners of workloads: %w", err)
		}
	}
	return nil
}

// workload is what the package needs of an object of a well-known kind.
type workload struct {
	selector *metav1.LabelSelector
	owners   []metav1.OwnerReference
	replicas *int32 // nil: not said
	rolling  bool   // a rollout is under way
}

// lookup reads an object of a well-known kind from its cache.
func (c *caches) lookup(key Key) (workload, error) {
	w, at, known := c.memo.get(key)
	if known {
		return w, nil
	}
	w, err := c.read(key)
	if err == nil {
		c.memo.put(key, w, at)
		return w, nil
	}
	if apierrors.IsNotFound(err) {
		return workload{}, fmt.Errorf("%s does not exist in namespace %s", key, key.Namespace)
	}
	return workload{}, fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
}

func (c *caches) read(key Key) (workload, error) {
	switch key.Kind {
	case "Deployment":
		o, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
		if err != nil {
			return workload{}, err
		}
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, deploymentRolls(o)}, nil
	case "ReplicaSet":
		object, found, err := c.replicaSets.GetByKey(key.Namespace + "/" + key.Name)
		if err != nil {
			return workload{}, err
		}
		o, trimmed := object.(*client.ReplicaSet)
		if !found || !trimmed {
			return workload{}, apierrors.NewNotFound(appsv1.Resource("replicasets"), key.Name)
		}
		return workload{o.Selector(), o.GetOwnerReferences(), o.Replicas(), false}, nil
	case "StatefulSet":
		o, err := c.statefulSets.StatefulSets(key.Namespace).Get(key.Name)
		if err != nil {
			return workload{}, err
		}
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, setRolls(o)}, nil
	case "DaemonSet":
		o, err := c.daemonSets.DaemonSets(key.Namespace).Get(key.Name)
		if err != nil {
			return workload{}, err
		}
		return workload{o.Spec.Selector, o.OwnerReferences, &o.Status.DesiredNumberScheduled, daemonsRoll(o)}, nil
	case "ReplicationController":
		o, err := c.controllers.ReplicationControllers(key.Namespace).Get(key.Name)
		if err != nil {
			return workload{}, err
		}
		return workload{metav1.SetAsLabelSelector(o.Spec.Selector), o.OwnerReferences, o.Spec.Replicas, false}, nil
	case "Job":
		o, err := c.jobs.Jobs(key.Namespace).Get(key.Name)
		if err != nil {
			return workload{}, err
		}
		return workload{o.Spec.Selector, o.OwnerReferences, nil, false}, nil
	}
	o, err := c.cronJobs.CronJobs(key.Namespace).Get(key.Name)
	if err != nil {
		return workload{}, err
	}
	return workload{metav1.SetAsLabelSelector(o.Spec.JobTemplate.Spec.Template.Labels), o.OwnerReferences, nil, false}, nil
}
