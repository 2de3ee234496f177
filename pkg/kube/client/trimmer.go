package client

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
)

// Trimmer trims the objects of informers and shares equal labels, containers and resource lists,
// because pods of a ReplicaSet differ little. Unused parts are released. Returned objects must not
// be changed in place. The zero value is ready to use. It is safe for concurrent use.
type Trimmer struct {
	mu           sync.Mutex
	text         digestInput // buffer for the current digest
	lists        pool[corev1.ResourceList]
	labels       pool[map[string]string]
	ownerFields  pool[ownerFields]
	policies     pool[[]corev1.ContainerResizePolicy]
	shapes       pool[shape]
	statusFields pool[statusFields]
	vpas         vpaBudget
	pods         podBudget
	revision     *ReplicaSet // the previous one
}

type sharedLists []*part[corev1.ResourceList]

type ownerFields struct {
	namespace   string
	annotations map[string]string
	owners      []metav1.OwnerReference
	priority    string
	class       corev1.PodQOSClass
	restart     corev1.RestartPolicy
}

type shape struct {
	containers, init []corev1.Container
	lists            sharedLists
	policies         []*part[[]corev1.ContainerResizePolicy]
}

type statusFields struct {
	phase            corev1.PodPhase
	containers, init []corev1.ContainerStatus
	lists            sharedLists // without lists of the shape
}

// Trim is a cache.TransformFunc: the function Trim with pods as *Pod. A trimmed object is
// unchanged, because informers call it twice while they fill their caches.
func (t *Trimmer) Trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		t.mu.Lock()
		defer t.mu.Unlock()
		p := t.sharePod(trimPod(o))
		if !t.pods.admit(p) {
			return t.sharePod(refusePod(trimPod(o))), nil
		}
		p.recordStarts(o.Status.ContainerStatuses[:min(len(o.Status.ContainerStatuses), maxContainers)])
		if slices.ContainsFunc(o.Status.ContainerStatuses, wasOOMKilled) {
			p.ensureRare().resized = resizedAt(o.ManagedFields)
		}
		return p, nil
	case *Pod: // already trimmed
		return o, nil
	case *appsv1.ReplicaSet:
		return t.shareOwner(trimReplicaSet(o)), nil
	case *vpav1.VerticalPodAutoscaler:
		return t.admitVPA(trimVPA(o)), nil
	}
	return Trim(object)
}

func (t *Trimmer) releaseLists(amounts sharedLists) {
	for _, list := range amounts {
		t.lists.release(list)
	}
}

func sharePart[T any](t *Trimmer, values *pool[T], value T, write func(*digestInput, T)) *part[T] {
	t.text = t.text[:0]
	write(&t.text, value)
	return values.share(t.text.digest(), value)
}

func (t *Trimmer) shareLabels(labels map[string]string) *part[map[string]string] {
	t.text = t.text[:0]
	t.text.stringMap(labels)
	d := t.text.digest()
	if found := t.labels.find(d); found != nil {
		return found
	}
	return t.labels.add(d, internLabels(labels))
}

func (t *Trimmer) shareOwnerFields(p *corev1.Pod) *part[ownerFields] {
	t.text = t.text[:0]
	t.text.word(p.Namespace)
	t.text.stringMap(p.Annotations)
	t.text.owners(p.OwnerReferences)
	t.text.word(p.Spec.PriorityClassName)
	t.text.word(string(p.Status.QOSClass))
	t.text.word(string(p.Spec.RestartPolicy))
	return t.ownerFields.share(t.text.digest(), ownerFields{p.Namespace, p.Annotations, p.OwnerReferences, p.Spec.PriorityClassName, p.Status.QOSClass, p.Spec.RestartPolicy})
}

func (t *Trimmer) shareLists(uses sharedLists, lists ...*corev1.ResourceList) sharedLists {
	for _, list := range lists {
		if *list == nil {
			continue
		}
		known := sharePart(t, &t.lists, *list, (*digestInput).list)
		*list, uses = known.value, append(uses, known)
	}
	return uses
}

// shapeOf returns the digest of the containers of a trimmed or untrimmed pod.
func (t *Trimmer) shapeOf(p *corev1.Pod) digest {
	t.text = t.text[:0]
	for _, containers := range [...][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		t.text.number(int64(len(containers)))
		for i := range containers {
			c := &containers[i]
			t.text.word(c.Name)
			t.text.boolean(c.RestartPolicy != nil)
			if c.RestartPolicy != nil {
				t.text.word(string(*c.RestartPolicy))
			}
			t.text.policy(c.ResizePolicy)
			t.text.resources(&c.Resources)
		}
	}
	return t.text.digest()
}

func (t *Trimmer) shareShape(p *corev1.Pod) *part[shape] {
	d := t.shapeOf(p)
	if known := t.shapes.find(d); known != nil {
		return known
	}
	count := len(p.Spec.Containers) + len(p.Spec.InitContainers)
	added := shape{containers: p.Spec.Containers, init: p.Spec.InitContainers,
		lists: make(sharedLists, 0, 2*count), policies: make([]*part[[]corev1.ContainerResizePolicy], 0, count)}
	for _, containers := range [...][]corev1.Container{added.containers, added.init} {
		for i := range containers {
			c := &containers[i]
			added.lists = t.shareLists(added.lists, &c.Resources.Requests, &c.Resources.Limits)
			if c.ResizePolicy != nil {
				policy := sharePart(t, &t.policies, c.ResizePolicy, (*digestInput).policy)
				c.ResizePolicy, added.policies = policy.value, append(added.policies, policy)
			}
		}
	}
	return t.shapes.add(d, added)
}

func (t *Trimmer) shareStatuses(p *corev1.Pod, specs *shape) *part[statusFields] {
	t.text = t.text[:0]
	t.text.word(string(p.Status.Phase))
	for _, statuses := range [...][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		t.text.number(int64(len(statuses)))
		for i := range statuses {
			t.text.status(&statuses[i])
		}
	}
	d := t.text.digest()
	if known := t.statusFields.find(d); known != nil {
		return known
	}
	added := statusFields{phase: p.Status.Phase, containers: p.Status.ContainerStatuses, init: p.Status.InitContainerStatuses}
	for _, part := range [...]struct {
		statuses   []corev1.ContainerStatus
		containers []corev1.Container
	}{{added.containers, specs.containers}, {added.init, specs.init}} {
		for i := range part.statuses {
			s := &part.statuses[i]
			if s.Resources == nil {
				continue
			}
			if spec := t.specResources(s, part.containers); spec != nil {
				s.Resources = spec
				continue
			}
			added.lists = t.shareLists(added.lists, &s.Resources.Requests, &s.Resources.Limits)
		}
	}
	return t.statusFields.add(d, added)
}

// specResources returns the resources in the spec if they equal the actual ones, otherwise nil.
func (t *Trimmer) specResources(s *corev1.ContainerStatus, containers []corev1.Container) *corev1.ResourceRequirements {
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
	if at < 0 {
		return nil
	}
	t.text = t.text[:0]
	t.text.resources(s.Resources)
	has := len(t.text)
	t.text.resources(&containers[at].Resources)
	if !bytes.Equal(t.text[:has], t.text[has:]) {
		return nil
	}
	return &containers[at].Resources
}

func (t *digestInput) status(s *corev1.ContainerStatus) {
	t.word(s.Name)
	t.boolean(s.Ready)
	t.number(int64(s.RestartCount))
	t.state(&s.State)
	t.state(&s.LastTerminationState)
	t.boolean(s.Resources != nil)
	if s.Resources != nil {
		t.resources(s.Resources)
	}
}

func (t *digestInput) state(s *corev1.ContainerState) {
	t.boolean(s.Waiting != nil)
	if s.Waiting != nil {
		t.word(s.Waiting.Reason)
	}
	t.boolean(s.Running != nil)
	t.boolean(s.Terminated != nil)
	if end := s.Terminated; end != nil {
		t.word(end.Reason)
		t.word(end.ContainerID)
		t.number(end.StartedAt.UnixNano())
		t.number(end.FinishedAt.UnixNano())
	}
}

func (t *Trimmer) shareVPA(v *vpav1.VerticalPodAutoscaler) (uses sharedLists) {
	if policy := v.Spec.ResourcePolicy; policy != nil {
		for i := range policy.ContainerPolicies {
			uses = t.shareLists(uses, &policy.ContainerPolicies[i].MinAllowed, &policy.ContainerPolicies[i].MaxAllowed)
		}
	}
	if r := v.Status.Recommendation; r != nil {
		for i := range r.ContainerRecommendations {
			c := &r.ContainerRecommendations[i]
			uses = t.shareLists(uses, &c.Target, &c.LowerBound, &c.UpperBound, &c.UncappedTarget)
		}
	}
	return slices.Clone(uses)
}

// Bounds of a cached VPA.
const (
	maxVPAContainers  = 300      // with a policy, or with a recommendation
	maxVPASpec        = 64 << 10 // bytes of the names in the spec
	maxVPAConditions  = 32
	maxVPAAnnotations = 8 << 10 // bytes; above, only known annotations are kept
)

// trimVPA also shares equal lists of a recommendation, which are most of the memory of a VPA.
func trimVPA(v *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	trimmed := &vpav1.VerticalPodAutoscaler{TypeMeta: v.TypeMeta, ObjectMeta: v.ObjectMeta, Spec: v.Spec, Status: v.Status}
	trimmed.ManagedFields, trimmed.Labels, trimmed.Annotations, trimmed.Finalizers = nil, nil, vpaAnnotations(v.Annotations), nil
	trimmed.OwnerReferences, trimmed.GenerateName = fullOwners(v.OwnerReferences), ""
	trimmed.SelfLink = "" //nolint:staticcheck // a user may still write it
	trimmed.Kind, trimmed.APIVersion = boundString(v.Kind), boundString(v.APIVersion)
	if policy, generated := v.Labels[fleet.PolicyLabel]; generated {
		if trimmed.Labels = boundLabels(v.Labels); Dropped(trimmed.Labels) {
			trimmed.Labels = map[string]string{droppedKey: "", fleet.PolicyLabel: boundString(policy)}
		}
	}
	if problem := SpecTooLarge(&v.Spec); problem != "" {
		refuseSpec(trimmed, problem)
	}
	trimmed.Spec.TargetRef = boundTarget(trimmed.Spec.TargetRef)
	trimmed.Spec.ResourcePolicy = BoundPolicy(trimmed.Spec.ResourcePolicy)
	trimmed.Status.Conditions = boundConditions(v.Status.Conditions)
	if v.Status.Recommendation == nil {
		return trimmed
	}
	list := v.Status.Recommendation.ContainerRecommendations
	list = slices.Clone(list[:min(len(list), maxVPAContainers)])
	for i := range list {
		c := &list[i]
		c.ContainerName = boundString(c.ContainerName)
		c.Target, c.UncappedTarget = mainResources(c.Target), mainResources(c.UncappedTarget)
		c.LowerBound, c.UpperBound = mainResources(c.LowerBound), mainResources(c.UpperBound)
		if apiequality.Semantic.DeepEqual(c.UncappedTarget, c.Target) {
			c.UncappedTarget = c.Target
		}
	}
	trimmed.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: list}
	return trimmed
}

// vpaAnnotations drops kubectl's annotation, and above maxVPAAnnotations all except the known ones.
func vpaAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	foreign := 0
	for key, value := range annotations {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
		foreign += len(key) + len(value)
	}
	if foreign <= maxVPAAnnotations {
		return kept
	}
	kept = knownAnnotations(kept)
	kept[droppedKey] = ""
	return kept
}

func refuseSpec(trimmed *vpav1.VerticalPodAutoscaler, problem string) {
	trimmed.Spec = unusableSpec(&trimmed.Spec)
	if _, known := trimmed.Annotations[vpav1.UnreadableAnnotation]; !known {
		metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, vpav1.UnreadableAnnotation, problem)
	}
}

// BoundPolicy bounds a policy for a cache, with only CPU and memory in minAllowed and maxAllowed.
func BoundPolicy(p *vpav1.PodResourcePolicy) *vpav1.PodResourcePolicy {
	if p == nil {
		return nil
	}
	kept := &vpav1.PodResourcePolicy{ContainerPolicies: slices.Clone(p.ContainerPolicies)}
	for i := range kept.ContainerPolicies {
		c := &kept.ContainerPolicies[i]
		c.MinAllowed, c.MaxAllowed = mainResources(c.MinAllowed), mainResources(c.MaxAllowed)
	}
	return kept
}

func boundConditions(all []vpav1.VerticalPodAutoscalerCondition) []vpav1.VerticalPodAutoscalerCondition {
	kept := slices.Clone(all[:min(len(all), maxVPAConditions)])
	for i := range kept {
		c := &kept[i]
		c.Type, c.Status, c.Reason = boundString(c.Type), boundString(c.Status), boundString(c.Reason)
		c.Message = truncate(c.Message, convert.MaxConditionMessage)
	}
	return kept
}

// SpecTooLarge returns the reason why the spec of a VPA is not cached, empty if it is. Resources
// that BoundPolicy drops do not count.
func SpecTooLarge(s *vpav1.VerticalPodAutoscalerSpec) string {
	size := boostSize(s.StartupBoost)
	for _, r := range s.Recommenders {
		if size += valueOverhead; r != nil {
			size += len(r.Name)
		}
	}
	if p := s.UpdatePolicy; p != nil {
		size += optionalSize(p.UpdateMode)
		for _, r := range p.EvictionRequirements {
			if size += valueOverhead; r != nil {
				size += sizeOf(r.Resources) + len(r.ChangeRequirement)
			}
		}
	}
	if s.ResourcePolicy != nil {
		if n := len(s.ResourcePolicy.ContainerPolicies); n > maxVPAContainers {
			return fmt.Sprintf("spec.resourcePolicy.containerPolicies: must have at most %d entries, has %d", maxVPAContainers, n)
		}
		for i := range s.ResourcePolicy.ContainerPolicies {
			p := &s.ResourcePolicy.ContainerPolicies[i]
			size += len(p.ContainerName) + optionalSize(p.Mode) + optionalSize(p.ControlledValues) + boostSize(p.StartupBoost)
			if p.ControlledResources != nil {
				size += sizeOf(*p.ControlledResources)
			}
		}
	}
	if size > maxVPASpec {
		return fmt.Sprintf("spec: its names and lists must have at most %d KiB", maxVPASpec>>10)
	}
	return ""
}

func sizeOf(names []corev1.ResourceName) (n int) {
	for _, name := range names {
		n += len(name) + valueOverhead
	}
	return n
}

func optionalSize[T ~string](text *T) int {
	if text == nil {
		return 0
	}
	return len(*text)
}

func boostSize(b *vpav1.StartupBoost) int {
	if b == nil || b.CPU == nil {
		return 0
	}
	return len(b.CPU.Type)
}

// unusableSpec keeps the target and an unambiguous recommender. Its update mode is Off.
func unusableSpec(s *vpav1.VerticalPodAutoscalerSpec) vpav1.VerticalPodAutoscalerSpec {
	off := vpav1.UpdateModeOff
	kept := vpav1.VerticalPodAutoscalerSpec{TargetRef: s.TargetRef, UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &off}}
	switch {
	case len(s.Recommenders) > 1: // no recommender serves it
		kept.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{}}
	case len(s.Recommenders) == 1 && s.Recommenders[0] != nil:
		kept.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: boundString(s.Recommenders[0].Name)}}
	}
	return kept
}

// boundTarget truncates a reference that is too long to match any object.
func boundTarget(ref *autoscalingv1.CrossVersionObjectReference) *autoscalingv1.CrossVersionObjectReference {
	if ref == nil || len(ref.APIVersion)+len(ref.Kind)+len(ref.Name) <= maxReference {
		return ref
	}
	return &autoscalingv1.CrossVersionObjectReference{APIVersion: boundString(ref.APIVersion), Kind: boundString(ref.Kind), Name: boundString(ref.Name)}
}

func boundHPATarget(ref autoscalingv2.CrossVersionObjectReference) autoscalingv2.CrossVersionObjectReference {
	return autoscalingv2.CrossVersionObjectReference(*boundTarget((*autoscalingv1.CrossVersionObjectReference)(&ref)))
}
