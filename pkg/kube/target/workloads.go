package target

import (
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
)

type workloads struct {
	informers map[string]cache.SharedIndexInformer // by kind

	mu      sync.RWMutex
	changes uint64           // number of changes of any object
	known   map[Key]workload // results until their object changes; nil: not cached
}

func newWorkloads(f informers.SharedInformerFactory) *workloads {
	apps, batch, core := f.Apps().V1(), f.Batch().V1(), f.Core().V1()
	return &workloads{informers: map[string]cache.SharedIndexInformer{
		"Deployment": apps.Deployments().Informer(), "ReplicaSet": apps.ReplicaSets().Informer(), "StatefulSet": apps.StatefulSets().Informer(),
		"DaemonSet": apps.DaemonSets().Informer(), "ReplicationController": core.ReplicationControllers().Informer(),
		"Job": batch.Jobs().Informer(), "CronJob": batch.CronJobs().Informer(),
	}}
}

// Synced returns the sync functions of the caches by resource name.
func (r *Resolver) Synced() map[string]cache.InformerSynced {
	synced := map[string]cache.InformerSynced{}
	for kind, informer := range r.workloads.informers {
		synced[strings.ToLower(kind)+"s"] = informer.HasSynced
	}
	return synced
}

// watch calls changed when an object of a well-known kind is added, updated, deleted or resynced. A
// missing object is nil. The returned functions report whether changed has received all objects of
// the informers.
func (w *workloads) watch(what string, changed func(kind string, before, after any)) (heard []cache.InformerSynced, err error) {
	for kind, informer := range w.informers {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { changed(kind, nil, object) },
			UpdateFunc: func(before, after any) { changed(kind, before, after) },
			DeleteFunc: func(object any) {
				if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = tombstone.Obj
				}
				changed(kind, object, nil)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch the %s of workloads: %w", what, err)
		}
		heard = append(heard, handler.HasSynced)
	}
	return heard, nil
}

// Owners calls seen with the controller of each object of the well-known kinds, if it has another
// kind, after each change and resync. Call it before the informers start.
func (r *Resolver) Owners(seen func(Key)) error {
	_, err := r.workloads.watch("owners", func(_ string, _, after any) {
		if o, ok := after.(metav1.Object); ok {
			if key, found := Controller(o.GetNamespace(), o.GetOwnerReferences()); found && !key.wellKnown() {
				seen(key)
			}
		}
	})
	return err
}

// MemoizeWorkloads caches the parsed form of well-known objects until an informer reports a change.
// It is for programs with repeated reads. Call it before the informers start.
func (r *Resolver) MemoizeWorkloads() error {
	w := r.workloads
	w.known = map[Key]workload{}
	_, err := w.watch("changes", func(kind string, before, after any) {
		if after == nil {
			after = before
		}
		if o, ok := after.(metav1.Object); ok {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changes++
			delete(w.known, Key{Namespace: o.GetNamespace(), Kind: kind, Name: o.GetName()})
		}
	})
	return err
}

type workload struct {
	selector    *metav1.LabelSelector
	owners      []metav1.OwnerReference
	replicas    *int32 // nil: unset or not applicable
	rolling     bool   // a rollout is in progress
	settling    bool   // see Resolver.Settling
	observed    bool   // its controller has observed its newest spec
	replacement replacement
}

func (w *workloads) lookup(key Key) (workload, error) {
	w.mu.RLock()
	found, known := w.known[key]
	changes := w.changes
	w.mu.RUnlock()
	if known {
		return found, nil
	}
	object, _, err := w.informers[key.Kind].GetStore().GetByKey(key.Namespace + "/" + key.Name)
	if err != nil {
		return workload{}, fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
	}
	found, there := describe(object)
	if !there {
		return workload{}, fmt.Errorf("%s does not exist in namespace %s", key, key.Namespace)
	}
	if w.known != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.changes == changes { // otherwise the result may be outdated
			w.known[key] = found
		}
	}
	return found, nil
}

// cached returns the zero value for an unreadable object or another kind.
func (r *Resolver) cached(key Key) workload {
	if !key.wellKnown() {
		return workload{}
	}
	w, _ := r.workloads.lookup(key) // zero after an error
	return w
}

func describe(object any) (workload, bool) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, deploymentRolls(o), deploymentSettles(o), o.Status.ObservedGeneration >= o.Generation, replacement{}}, true
	case *client.ReplicaSet:
		return workload{o.Selector(), o.GetOwnerReferences(), o.Replicas(), false, false, false, replacement{}}, true
	case *appsv1.ReplicaSet: // not in caches of client.Factory
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, false, false, false, replacement{}}, true
	case *appsv1.StatefulSet:
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, statefulSetRolls(o), statefulSetSettles(o), o.Status.ObservedGeneration >= o.Generation, statefulSetReplacement(o)}, true
	case *appsv1.DaemonSet:
		return workload{o.Spec.Selector, o.OwnerReferences, &o.Status.DesiredNumberScheduled, daemonSetRolls(o), daemonSetSettles(o), o.Status.ObservedGeneration >= o.Generation, daemonSetReplacement(o)}, true
	case *corev1.ReplicationController:
		return workload{metav1.SetAsLabelSelector(o.Spec.Selector), o.OwnerReferences, o.Spec.Replicas, false, false, false, replacement{}}, true
	case *batchv1.Job:
		return workload{o.Spec.Selector, o.OwnerReferences, nil, false, false, false, replacement{ignoresDisruption: ignoresDisruption(o.Spec.PodFailurePolicy)}}, true
	case *batchv1.CronJob:
		return workload{metav1.SetAsLabelSelector(o.Spec.JobTemplate.Spec.Template.Labels), o.OwnerReferences, nil, false, false, false, replacement{}}, true
	}
	return workload{}, false
}

// Workload is an object that a policy can select. Kinds that are not listed (fleet.Listed) have no
// labels and annotations here, because only their scale subresource can be read.
type Workload struct {
	Key        Key
	APIVersion string
	UID        types.UID
	// As kept by client.Trim, TemplateAnnotations from the pod template. They must not be changed.
	Labels, Annotations, TemplateAnnotations map[string]string
	Created                                  time.Time // zero: unknown
}

// Each calls seen with each Deployment, StatefulSet, DaemonSet and CronJob not being deleted.
func (r *Resolver) Each(seen func(Workload)) {
	for _, kind := range fleet.ListedKinds() {
		for _, object := range r.workloads.informers[kind].GetStore().List() {
			if o, ok := object.(metav1.Object); ok && o.GetDeletionTimestamp() != nil {
				continue
			}
			if w, ok := WorkloadOf(object); ok {
				seen(w)
			}
		}
	}
}

// Workload returns a workload from the caches, even while it is being deleted, because it still
// applies to its pods. Run reads a missing scale subresource of an unlisted kind soon. The result
// is false if the workload is missing, unknown, or its kind has no scale subresource.
func (r *Resolver) Workload(key Key) (Workload, bool) {
	if !fleet.Listed(key.Group, key.Kind) {
		w, err := r.ReadCached(key)
		return w, err == nil
	}
	object, _, err := r.workloads.informers[key.Kind].GetStore().GetByKey(key.Namespace + "/" + key.Name)
	if err != nil {
		return Workload{}, false
	}
	return WorkloadOf(object)
}

// PodOwnerChain yields the cached controllers above a pod, bottom up.
func (r *Resolver) PodOwnerChain(pod *corev1.Pod) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		if key, owned := Controller(pod.Namespace, pod.OwnerReferences); owned {
			r.OwnerChain(key)(yield)
		}
	}
}

// OwnerChain yields a workload and its cached controllers, also from scale subresources.
func (r *Resolver) OwnerChain(key Key) iter.Seq[Key] {
	return upward(key, r.cachedOwners)
}

func upward(key Key, owners func(Key) []metav1.OwnerReference) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		owned := true
		for step := 0; owned && step < maxOwnerDepth && yield(key); step++ {
			key, owned = Controller(key.Namespace, owners(key))
		}
	}
}

func (r *Resolver) cachedOwners(key Key) []metav1.OwnerReference {
	if key.Custom() {
		a, _, _ := r.scales.lookup(key, false)
		return a.owners
	}
	return r.cached(key).owners
}

// WorkloadOf returns the workload of an object, and false if its kind cannot be selected by labels.
func WorkloadOf(object any) (w Workload, ok bool) {
	var meta metav1.ObjectMeta
	switch o := object.(type) {
	case *appsv1.Deployment:
		w.Key.Kind, meta, w.TemplateAnnotations = "Deployment", o.ObjectMeta, o.Spec.Template.Annotations
	case *appsv1.StatefulSet:
		w.Key.Kind, meta, w.TemplateAnnotations = "StatefulSet", o.ObjectMeta, o.Spec.Template.Annotations
	case *appsv1.DaemonSet:
		w.Key.Kind, meta, w.TemplateAnnotations = "DaemonSet", o.ObjectMeta, o.Spec.Template.Annotations
	case *batchv1.CronJob:
		w.Key.Kind, meta, w.TemplateAnnotations = "CronJob", o.ObjectMeta, o.Spec.JobTemplate.Spec.Template.Annotations
	default:
		return Workload{}, false
	}
	w.APIVersion, _ = fleet.ListedVersion(w.Key.Kind)
	w.Key.Namespace, w.Key.Name, w.UID, w.Labels, w.Annotations = meta.Namespace, meta.Name, meta.UID, meta.Labels, meta.Annotations
	w.Created = meta.CreationTimestamp.Time
	return w, true
}

// Rolling reports whether a rollout is in progress. It is false if the rollout is paused, has
// missed its deadline, or waits for users to delete pods, and for kinds other than Deployments,
// StatefulSets and DaemonSets.
func (r *Resolver) Rolling(key Key) bool {
	return r.cached(key).rolling
}

// Replacing reports whether pods are being replaced because of a newer template. Unlike Rolling, it
// is false for a workload that is only scaled.
func (r *Resolver) Replacing(key Key) bool {
	w := r.cached(key)
	return w.rolling && w.observed
}

// Settling reports whether too few pods have the newest template or are available. It is false for
// kinds other than Deployments, StatefulSets and DaemonSets.
func (r *Resolver) Settling(key Key) bool {
	return r.cached(key).settling
}

func deploymentSettles(d *appsv1.Deployment) bool {
	wanted := 1
	if d.Spec.Replicas != nil {
		wanted = int(*d.Spec.Replicas)
	}
	return d.Status.ObservedGeneration < d.Generation || rollout.RollingOut(wanted, int(d.Status.UpdatedReplicas), int(d.Status.AvailableReplicas))
}

func statefulSetSettles(s *appsv1.StatefulSet) bool {
	wanted, updated := 1, int(s.Status.UpdatedReplicas)
	if s.Spec.Replicas != nil {
		wanted = int(*s.Spec.Replicas)
	}
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		updated += int(*u.Partition) // pods below the partition are not updated
	}
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || s.Status.CurrentRevision == s.Status.UpdateRevision {
		updated = wanted // no rollout, or it waits for users to delete pods
	}
	return s.Status.ObservedGeneration < s.Generation || rollout.RollingOut(wanted, updated, int(s.Status.AvailableReplicas))
}

func daemonSetSettles(d *appsv1.DaemonSet) bool {
	wanted, updated := int(d.Status.DesiredNumberScheduled), int(d.Status.UpdatedNumberScheduled)
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		updated = wanted
	}
	return d.Status.ObservedGeneration < d.Generation || rollout.RollingOut(wanted, updated, int(d.Status.NumberAvailable))
}

func deploymentRolls(d *appsv1.Deployment) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return false
		}
	}
	return !d.Spec.Paused && (d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > d.Status.UpdatedReplicas)
}

func statefulSetRolls(s *appsv1.StatefulSet) bool {
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return false
	}
	wanted := s.Status.Replicas
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		wanted -= *u.Partition
	}
	return s.Status.ObservedGeneration < s.Generation ||
		s.Status.CurrentRevision != s.Status.UpdateRevision && s.Status.UpdatedReplicas < wanted
}

func daemonSetRolls(d *appsv1.DaemonSet) bool {
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return false
	}
	return d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedNumberScheduled < d.Status.CurrentNumberScheduled
}
