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

// workloads reads objects of the well-known kinds from informer caches.
type workloads struct {
	informers map[string]cache.SharedIndexInformer // by kind

	mu      sync.RWMutex
	changes uint64           // of any object so far
	known   map[Key]workload // what was read, until it changes; nil: every object is read again
}

func newWorkloads(f informers.SharedInformerFactory) *workloads {
	apps, batch, core := f.Apps().V1(), f.Batch().V1(), f.Core().V1()
	return &workloads{informers: map[string]cache.SharedIndexInformer{
		"Deployment": apps.Deployments().Informer(), "ReplicaSet": apps.ReplicaSets().Informer(), "StatefulSet": apps.StatefulSets().Informer(),
		"DaemonSet": apps.DaemonSets().Informer(), "ReplicationController": core.ReplicationControllers().Informer(),
		"Job": batch.Jobs().Informer(), "CronJob": batch.CronJobs().Informer(),
	}}
}

// Synced returns, by resource name, what reports whether a cache is filled.
func (r *Resolver) Synced() map[string]cache.InformerSynced {
	synced := map[string]cache.InformerSynced{}
	for kind, informer := range r.workloads.informers {
		synced[strings.ToLower(kind)+"s"] = informer.HasSynced
	}
	return synced
}

// watch calls changed for each object of the well-known kinds that comes, changes or goes, or is shown again: with nil
// for what was not there before, or is gone. It returns what reports whether changed knows what the informers know.
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

// Owners calls seen with the controlling owner of each object of the well-known kinds if that owner is of another kind,
// when the object appears and with each resync of the informers. It must be called before they start.
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

// Remember makes the resolver remember what it read of well-known objects until their informers tell of a change, so
// that reading it again costs nothing. It is for programs that ask for everything again and again, and is called before
// the informers start.
func (r *Resolver) Remember() error {
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

// workload is what the package needs of an object of a well-known kind.
type workload struct {
	selector *metav1.LabelSelector
	owners   []metav1.OwnerReference
	replicas *int32 // nil: not said
	rolling  bool   // a rollout is under way
	settling bool   // see Resolver.Settling
	seen     bool   // its controller has seen its newest spec
	replaces replacement
}

// lookup reads an object of a well-known kind from its cache.
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
		if w.changes == changes { // else what was read may be old already
			w.known[key] = found
		}
	}
	return found, nil
}

// cached returns an object of a well-known kind. The zero value: it is of another kind, or cannot be read.
func (r *Resolver) cached(key Key) workload {
	if !key.wellKnown() {
		return workload{}
	}
	w, _ := r.workloads.lookup(key) // nothing after an error
	return w
}

// describe returns what is needed of an object, and false if it is of no well-known kind.
func describe(object any) (workload, bool) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, deploymentRolls(o), deploymentSettles(o), o.Status.ObservedGeneration >= o.Generation, replacement{}}, true
	case *client.ReplicaSet:
		return workload{o.Selector(), o.GetOwnerReferences(), o.Replicas(), false, false, false, replacement{}}, true
	case *appsv1.ReplicaSet: // that no cache of client.Factory has
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, false, false, false, replacement{}}, true
	case *appsv1.StatefulSet:
		return workload{o.Spec.Selector, o.OwnerReferences, o.Spec.Replicas, setRolls(o), setSettles(o), o.Status.ObservedGeneration >= o.Generation, ofStatefulSet(o)}, true
	case *appsv1.DaemonSet:
		return workload{o.Spec.Selector, o.OwnerReferences, &o.Status.DesiredNumberScheduled, daemonsRoll(o), daemonsSettle(o), o.Status.ObservedGeneration >= o.Generation, ofDaemonSet(o)}, true
	case *corev1.ReplicationController:
		return workload{metav1.SetAsLabelSelector(o.Spec.Selector), o.OwnerReferences, o.Spec.Replicas, false, false, false, replacement{}}, true
	case *batchv1.Job:
		return workload{o.Spec.Selector, o.OwnerReferences, nil, false, false, false, replacement{ignoresDisruption: ignoresDisruption(o.Spec.PodFailurePolicy)}}, true
	case *batchv1.CronJob:
		return workload{metav1.SetAsLabelSelector(o.Spec.JobTemplate.Spec.Template.Labels), o.OwnerReferences, nil, false, false, false, replacement{}}, true
	}
	return workload{}, false
}

// Workload is an object that a policy can select. Of one that is not of the listed kinds (fleet.Listed) only its scale
// subresource can be read, so it has neither labels nor annotations here.
type Workload struct {
	Key        Key
	APIVersion string
	UID        types.UID
	// Labels and annotations of the object, and annotations of its pod template: those that
	// client.Trim keeps. They are not to be changed.
	Labels, Annotations, TemplateAnnotations map[string]string
	Created                                  time.Time // zero: not known
}

// Each calls seen with each Deployment, StatefulSet, DaemonSet and CronJob that is not about
// to be deleted, in no order.
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

// Workload returns what Each shows of a workload, also of one that is about to be deleted: until that is gone, it holds
// for its pods. One that is not listed is what its scale subresource said last; if nobody has read that yet, Run does
// so soon. False: it is not there, not known, or its kind has no scale subresource. It asks nobody.
func (r *Resolver) Workload(key Key) (Workload, bool) {
	if !fleet.Listed(key.Group, key.Kind) {
		w, err := r.Known(key)
		return w, err == nil
	}
	object, _, err := r.workloads.informers[key.Kind].GetStore().GetByKey(key.Namespace + "/" + key.Name)
	if err != nil {
		return Workload{}, false
	}
	return WorkloadOf(object)
}

// Above yields the controller of a pod, and those above it, as far as caches know them.
func (r *Resolver) Above(pod *corev1.Pod) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		if key, owned := Controller(pod.Namespace, pod.OwnerReferences); owned {
			r.From(key)(yield)
		}
	}
}

// From yields a workload and the controllers above it, as far as caches know them. The owners of a custom
// resource are those in its scale subresource.
func (r *Resolver) From(key Key) iter.Seq[Key] {
	return upward(key, r.cachedOwners)
}

// upward yields a workload and the controllers above it, from their owners.
func upward(key Key, owners func(Key) []metav1.OwnerReference) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		owned := true
		for step := 0; owned && step < longestWalk && yield(key); step++ {
			key, owned = Controller(key.Namespace, owners(key))
		}
	}
}

func (r *Resolver) cachedOwners(key Key) []metav1.OwnerReference {
	if key.Custom() {
		a, _, _ := r.scales.recall(key, false)
		return a.owners
	}
	return r.cached(key).owners
}

// WorkloadOf returns what Workload shows of an object; false: it cannot be selected by its labels.
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

// Rolling reports whether a rollout of a workload is under way. One that is paused,
// that has missed its deadline, or that waits for people to delete pods is not.
// Of other workloads than Deployments, StatefulSets and DaemonSets it is not known.
func (r *Resolver) Rolling(key Key) bool {
	return r.cached(key).rolling
}

// Replacing reports whether pods of a workload are being replaced by those of a newer template.
// Other than Rolling it is not true of one that is only scaled.
func (r *Resolver) Replacing(key Key) bool {
	w := r.cached(key)
	return w.rolling && w.seen
}

// Settling reports whether fewer pods of a workload than it wants have its newest template, or are available. Of other
// workloads than Deployments, StatefulSets and DaemonSets it is not known.
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

func setSettles(s *appsv1.StatefulSet) bool {
	wanted, updated := 1, int(s.Status.UpdatedReplicas)
	if s.Spec.Replicas != nil {
		wanted = int(*s.Spec.Replicas)
	}
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		updated += int(*u.Partition) // these stay as they are
	}
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || s.Status.CurrentRevision == s.Status.UpdateRevision {
		updated = wanted // the others wait for people, or there are none
	}
	return s.Status.ObservedGeneration < s.Generation || rollout.RollingOut(wanted, updated, int(s.Status.AvailableReplicas))
}

func daemonsSettle(d *appsv1.DaemonSet) bool {
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

func setRolls(s *appsv1.StatefulSet) bool {
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

func daemonsRoll(d *appsv1.DaemonSet) bool {
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return false
	}
	return d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedNumberScheduled < d.Status.CurrentNumberScheduled
}
