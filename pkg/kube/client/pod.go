package client

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Pod is the cached form of a pod, because an empty corev1.Pod takes 1.2 KiB. Object and the
// listers of Factory return the fields that Trim keeps.
type Pod struct {
	name, version    string
	uid              types.UID
	generation       int64
	observed         int64 // generation observed by the status
	created, started int64 // nanoseconds since 1970, 0: unknown
	ownerFields      *part[ownerFields]
	labels           *part[map[string]string] // apart, because they may contain the pod name
	shape            *part[shape]
	statusFields     *part[statusFields]
	node             unique.Handle[string]
	readySince       int64       // nanoseconds since 1970, 0: unknown
	rare             *rareFields // nil: no such fields
	containerStart   uint32      // seconds since 1970, 0: unknown or different times
	ready            uint8       // index into readiness
}

// readiness lists the statuses of the condition Ready. The first means no condition.
var readiness = [...]corev1.ConditionStatus{"", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

type rareFields struct {
	deletion        *metav1.Time
	resources       *corev1.ResourceRequirements
	granted         *corev1.ResourceRequirements // of the whole pod, like allocated
	allocated       corev1.ResourceList
	overhead        corev1.ResourceList
	deadline        *int64
	affinity        *corev1.Affinity
	conditions      []corev1.PodCondition // without Ready
	containerStarts []uint32              // of each container, in the order of the statuses
	reason          string                // of the failure
	resized         resizeTime
}

// StartOf returns a container start, accurate to sameStartWindow, zero if unknown or not running.
func StartOf(pods corelisters.PodLister, namespace, pod, container string) time.Time {
	switch p := lookupPod(pods, namespace, pod).(type) {
	case *corev1.Pod:
		return secondsTime(startOf(p.Status.ContainerStatuses, startsOf(p.Status.ContainerStatuses), container))
	case *Pod:
		if p.rare != nil && p.rare.containerStarts != nil {
			return secondsTime(startOf(p.statusFields.value.containers, p.rare.containerStarts, container))
		}
		return secondsTime(p.containerStart)
	}
	return time.Time{}
}

// NodeOf returns the node name of a pod, empty if it has no node or does not exist.
func NodeOf(pods corelisters.PodLister, namespace, pod string) string {
	switch p := lookupPod(pods, namespace, pod).(type) {
	case *corev1.Pod:
		return p.Spec.NodeName
	case *Pod:
		return p.node.Value()
	}
	return ""
}

// lookupPod returns a *Pod for listers of Factory, a *corev1.Pod for others, nil if missing.
func lookupPod(pods corelisters.PodLister, namespace, name string) any {
	if cached, ok := pods.(podLister); ok {
		object, _, _ := cached.GetByKey(namespace + "/" + name) // an index in memory returns no errors
		return object
	}
	pod, err := pods.Pods(namespace).Get(name)
	if err != nil {
		return nil
	}
	return pod
}

func startOf(statuses []corev1.ContainerStatus, starts []uint32, container string) uint32 {
	at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if at < 0 {
		return 0
	}
	return starts[at]
}

// startsOf returns container starts in seconds since 1970, 0 if not running or unknown.
func startsOf(statuses []corev1.ContainerStatus) []uint32 {
	starts := make([]uint32, len(statuses))
	for i := range statuses {
		if running := statuses[i].State.Running; running != nil && !running.StartedAt.IsZero() {
			starts[i] = uint32(min(max(running.StartedAt.Unix(), 0), math.MaxUint32))
		}
	}
	return starts
}

// sameStartWindow is the distance in seconds of starts that are stored as one, the last.
const sameStartWindow = 30

func (p *Pod) recordStarts(statuses []corev1.ContainerStatus) {
	starts := startsOf(statuses)
	first, last := uint32(math.MaxUint32), uint32(0)
	for _, start := range starts {
		if start != 0 {
			first, last = min(first, start), max(last, start)
		}
	}
	if last == 0 || last-first <= sameStartWindow {
		p.containerStart = last
		return
	}
	p.ensureRare().containerStarts = starts
}

// ensureRare returns the rare fields of a pod that is not in a cache yet.
func (p *Pod) ensureRare() *rareFields {
	if p.rare == nil {
		p.rare = &rareFields{}
	}
	return p.rare
}

type resizeTime struct {
	known bool
	at    time.Time // zero: never
}

// resizedAt reads the managed fields of subresource resize. Without any the time is unknown.
func resizedAt(managed []metav1.ManagedFieldsEntry) resizeTime {
	r := resizeTime{known: len(managed) > 0}
	for _, m := range managed {
		switch {
		case m.Subresource != "resize":
		case m.Time == nil:
			return resizeTime{}
		case m.Time.After(r.at):
			r.at = m.Time.Time
		}
	}
	return r
}

// ResizedAt returns when a pod of an informer was last resized in place, zero if never, and whether
// that is known. Caches store it for pods with an out-of-memory kill.
func ResizedAt(object any) (at time.Time, known bool) {
	var r resizeTime
	switch o := object.(type) {
	case *Pod:
		if o.rare != nil {
			r = o.rare.resized
		}
	case *corev1.Pod:
		r = resizedAt(o.ManagedFields)
	}
	return r.at, r.known
}

func secondsTime(seconds uint32) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// PodOf returns the pod for an object of any pod informer.
func PodOf(object any) (*corev1.Pod, bool) {
	switch o := object.(type) {
	case *Pod:
		return o.Object(), true
	case *corev1.Pod:
		return o, true
	}
	return nil, false
}

// AnnotationsOf returns namespace and annotations of a pod of an informer without building the pod.
func AnnotationsOf(object any) (namespace string, annotations map[string]string) {
	switch o := object.(type) {
	case *Pod:
		return o.ownerFields.value.namespace, o.ownerFields.value.annotations
	case *corev1.Pod:
		return o.Namespace, o.Annotations
	}
	return "", nil
}

// Object builds a pod with the fields that Trim keeps. It shares cached memory: do not change it.
func (p *Pod) Object() *corev1.Pod {
	var built builtPod
	p.build(&built)
	return &built.Pod
}

// builtPod combines the unshared parts of a pod in one allocation.
type builtPod struct {
	corev1.Pod

	started metav1.Time
	ready   [1]corev1.PodCondition
}

// build overwrites a zero pod or a pod that it has written before. It skips fields that cached pods
// lack, because a whole corev1.Pod is over a kilobyte.
func (p *Pod) build(m *builtPod) {
	o, owner, shape, states := &m.Pod, &p.ownerFields.value, &p.shape.value, &p.statusFields.value
	p.writeMeta(&o.ObjectMeta)
	o.Spec.Containers, o.Spec.InitContainers = shape.containers, shape.init
	o.Spec.NodeName, o.Spec.PriorityClassName, o.Spec.RestartPolicy = p.node.Value(), owner.priority, owner.restart
	o.Spec.Resources, o.Spec.Overhead, o.Spec.ActiveDeadlineSeconds, o.Spec.Affinity = nil, nil, nil, nil
	o.Status.Resources, o.Status.AllocatedResources = nil, nil
	o.Status.Phase, o.Status.QOSClass, o.Status.ObservedGeneration = states.phase, owner.class, p.observed
	o.Status.ContainerStatuses, o.Status.InitContainerStatuses = states.containers, states.init
	o.Status.StartTime, o.Status.Conditions, o.Status.Reason = nil, nil, ""
	if p.started != 0 {
		m.started = instant(p.started)
		o.Status.StartTime = &m.started
	}
	if p.ready != 0 {
		m.ready[0] = corev1.PodCondition{Type: corev1.PodReady, Status: readiness[p.ready], LastTransitionTime: instant(p.readySince)}
		o.Status.Conditions = m.ready[:1:1]
	}
	if r := p.rare; r != nil {
		o.Spec.Resources, o.Spec.Overhead, o.Spec.ActiveDeadlineSeconds, o.Spec.Affinity = r.resources, r.overhead, r.deadline, r.affinity
		o.Status.Resources, o.Status.AllocatedResources = r.granted, r.allocated
		o.Status.Conditions = append(o.Status.Conditions, r.conditions...)
		o.Status.Reason = r.reason
	}
}

// EachPod calls do for each pod, in no order. The pod is only valid until do returns.
func EachPod(pods corelisters.PodLister, do func(*corev1.Pod)) error {
	cached, ok := pods.(podLister)
	if !ok {
		all, err := pods.List(labels.Everything())
		for _, pod := range all {
			do(pod)
		}
		return err
	}
	var pod builtPod
	for _, object := range cached.Indexer.List() {
		if p, ok := object.(*Pod); ok {
			p.build(&pod)
			do(&pod.Pod)
		}
	}
	return nil
}

func (p *Pod) writeMeta(m *metav1.ObjectMeta) {
	k := &p.ownerFields.value
	m.Name, m.Namespace, m.UID, m.ResourceVersion, m.Generation = p.name, k.namespace, p.uid, p.version, p.generation
	m.CreationTimestamp, m.Labels, m.Annotations, m.OwnerReferences = instant(p.created), p.labels.value, k.annotations, k.owners
	m.DeletionTimestamp = nil
	if p.rare != nil {
		m.DeletionTimestamp = p.rare.deletion
	}
}

func nanoseconds(t metav1.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(nanoseconds int64) metav1.Time {
	if nanoseconds == 0 {
		return metav1.Time{}
	}
	return metav1.Unix(0, nanoseconds)
}

// GetObjectMeta returns a copy of the metadata, for informers.
func (p *Pod) GetObjectMeta() metav1.Object {
	var m metav1.ObjectMeta
	p.writeMeta(&m)
	return &m
}

// GetNamespace returns the namespace.
func (p *Pod) GetNamespace() string { return p.ownerFields.value.namespace }

// GetObjectKind returns an empty kind, because informers need none.
func (p *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns a copy that shares immutable memory with other pods.
func (p *Pod) DeepCopyObject() kruntime.Object {
	other := *p
	return &other
}

func (t *Trimmer) sharePod(o *corev1.Pod) *Pod {
	p := &Pod{
		name: o.Name, version: o.ResourceVersion, uid: o.UID, generation: o.Generation, observed: o.Status.ObservedGeneration,
		created: nanoseconds(o.CreationTimestamp), node: unique.Make(o.Spec.NodeName),
		ownerFields: t.shareOwnerFields(o), labels: t.shareLabels(o.Labels), shape: t.shareShape(o),
	}
	p.statusFields = t.shareStatuses(o, &p.shape.value)
	if o.Status.StartTime != nil {
		p.started = nanoseconds(*o.Status.StartTime)
	}
	extra := rareFields{deletion: o.DeletionTimestamp, resources: o.Spec.Resources, overhead: o.Spec.Overhead, deadline: o.Spec.ActiveDeadlineSeconds, affinity: o.Spec.Affinity,
		granted: o.Status.Resources, allocated: o.Status.AllocatedResources, reason: o.Status.Reason}
	for _, c := range o.Status.Conditions {
		if at := slices.Index(readiness[:], c.Status); c.Type == corev1.PodReady && p.ready == 0 && at > 0 {
			p.ready, p.readySince = uint8(at), nanoseconds(c.LastTransitionTime)
		} else {
			extra.conditions = append(extra.conditions, c)
		}
	}
	if extra.deletion != nil || extra.resources != nil || extra.overhead != nil || extra.deadline != nil || extra.affinity != nil || extra.conditions != nil ||
		extra.reason != "" {
		p.rare = &extra
	}
	runtime.AddCleanup(p, podParts.release, podParts{t, p.ownerFields, p.labels, p.shape, p.statusFields})
	return p
}

type podParts struct {
	trimmer      *Trimmer
	ownerFields  *part[ownerFields]
	labels       *part[map[string]string]
	shape        *part[shape]
	statusFields *part[statusFields]
}

func (h podParts) release() {
	t := h.trimmer
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ownerFields.release(h.ownerFields) {
		t.pods.release(h.ownerFields)
	}
	t.labels.release(h.labels)
	if t.shapes.release(h.shape) {
		t.pods.release(h.shape)
		t.releaseLists(h.shape.value.lists)
		for _, policy := range h.shape.value.policies {
			t.policies.release(policy)
		}
	}
	if t.statusFields.release(h.statusFields) {
		t.pods.release(h.statusFields)
		t.releaseLists(h.statusFields.value.lists)
	}
}

// coreGroup replaces the pod lister by one that builds pods from their cached form.
type coreGroup struct{ core.Interface }

// V1 returns the informers of version v1.
func (g coreGroup) V1() coreinformers.Interface { return coreV1{g.Interface.V1()} }

type coreV1 struct{ coreinformers.Interface }

// Pods returns the informer of pods.
func (v coreV1) Pods() coreinformers.TypedPodInformer { return podInformer{v.Interface.Pods()} }

type podInformer struct{ coreinformers.TypedPodInformer }

// Lister returns the lister of the informer's pods.
func (i podInformer) Lister() corelisters.PodLister { return podLister{i.Informer().GetIndexer()} }

type podLister struct{ cache.Indexer }

// List returns the pods of all namespaces that match a selector.
func (l podLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return podsOf(l.Indexer.List(), selector), nil
}

// Pods returns the lister of one namespace.
func (l podLister) Pods(namespace string) corelisters.PodNamespaceLister {
	return namespacedPods{l.Indexer, namespace}
}

type namespacedPods struct {
	cache.Indexer

	namespace string
}

// List returns the pods of the namespace that match a selector.
func (l namespacedPods) List(selector labels.Selector) ([]*corev1.Pod, error) {
	objects, err := l.ByIndex(cache.NamespaceIndex, l.namespace)
	if err != nil {
		return nil, fmt.Errorf("list the cached pods of namespace %s: %w", l.namespace, err)
	}
	return podsOf(objects, selector), nil
}

// Get returns a pod by name.
func (l namespacedPods) Get(name string) (*corev1.Pod, error) {
	object, _, err := l.GetByKey(l.namespace + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("read the cached pod %s/%s: %w", l.namespace, name, err)
	}
	if p, ok := object.(*Pod); ok {
		return p.Object(), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func podsOf(objects []any, selector labels.Selector) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if p, ok := object.(*Pod); ok && selector.Matches(labels.Set(p.labels.value)) {
			pods = append(pods, p.Object())
		}
	}
	return pods
}
