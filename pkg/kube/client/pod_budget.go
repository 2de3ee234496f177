package client

import (
	"fmt"
	"runtime"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/cachesize"
)

const (
	// maxLargePods limits the large parts of cached pods in a namespace, in bytes.
	maxLargePods = 32 << 20
	// largePart is the size in bytes above which a part of a pod is charged.
	largePart = 8 << 10
	// listOverhead and resourceOverhead are the memory of a resource list and of each entry.
	listOverhead, resourceOverhead = 300, 200
)

// podBudget bounds the memory of large pods in each namespace. Pods that share a part share its
// charge, and ordinary pods are not charged. The owner holds the lock.
type podBudget struct {
	namespaces map[string]*largePods
	charges    map[any]podCharge // by part
}

type largePods struct {
	bytes  int64
	logged bool
}

type podCharge struct {
	namespace string
	bytes     int64
}

func (b *podBudget) admit(p *Pod) bool {
	owner, shape, states := &p.ownerFields.value, &p.shape.value, &p.statusFields.value
	parts := [...]struct {
		part any
		size int64
	}{
		{p.ownerFields, int64(mapSize(owner.annotations))},
		{p.shape, sizeOfContainers(shape.containers) + sizeOfContainers(shape.init)},
		{p.statusFields, sizeOfStatuses(states.containers) + sizeOfStatuses(states.init)},
	}
	needs := int64(0)
	for i := range parts {
		if _, charged := b.charges[parts[i].part]; charged || parts[i].size <= largePart {
			parts[i].size = 0
			continue
		}
		parts[i].size -= largePart
		needs += parts[i].size
	}
	if needs == 0 {
		return true
	}
	if b.charges == nil {
		b.namespaces, b.charges = map[string]*largePods{}, map[any]podCharge{}
	}
	n := b.namespaces[owner.namespace]
	if n == nil {
		n = &largePods{}
		b.namespaces[owner.namespace] = n
	}
	if n.bytes+needs > maxLargePods {
		if !n.logged {
			n.logged = true
			klog.InfoS("Ignoring further large pods of a namespace because of their memory", "namespace", owner.namespace, "limit", maxLargePods)
		}
		return false
	}
	n.bytes += needs
	for _, part := range parts {
		if part.size > 0 {
			b.charges[part.part] = podCharge{owner.namespace, part.size}
		}
	}
	return true
}

func (b *podBudget) release(part any) {
	charge, charged := b.charges[part]
	if !charged {
		return
	}
	delete(b.charges, part)
	n := b.namespaces[charge.namespace]
	if n.bytes -= charge.bytes; n.bytes == 0 {
		delete(b.namespaces, charge.namespace)
	}
}

func sizeOfContainers(containers []corev1.Container) (n int64) {
	for i := range containers {
		c := &containers[i]
		n += int64(unsafe.Sizeof(*c)) + int64(len(c.Name)) + sizeOfResources(&c.Resources)
	}
	return n
}

func sizeOfStatuses(statuses []corev1.ContainerStatus) (n int64) {
	for i := range statuses {
		s := &statuses[i]
		n += int64(unsafe.Sizeof(*s)) + int64(len(s.Name)) + sizeOfState(&s.State) + sizeOfState(&s.LastTerminationState)
		if s.Resources != nil {
			n += sizeOfResources(s.Resources)
		}
	}
	return n
}

func sizeOfState(s *corev1.ContainerState) (n int64) {
	if s.Waiting != nil {
		n += int64(unsafe.Sizeof(*s.Waiting)) + int64(len(s.Waiting.Reason))
	}
	if end := s.Terminated; end != nil {
		n += int64(unsafe.Sizeof(*end)) + int64(len(end.Reason)+len(end.ContainerID))
	}
	return n
}

func sizeOfResources(r *corev1.ResourceRequirements) (n int64) {
	for _, list := range [...]corev1.ResourceList{r.Requests, r.Limits} {
		if list == nil {
			continue
		}
		n += listOverhead
		for name := range list {
			n += resourceOverhead + int64(len(name))
		}
	}
	return n
}

// refusePod replaces the containers of a trimmed pod by a nameless one with their resources,
// because the pod still occupies its node. It drops the labels, so that no VPA selects the pod.
func refusePod(p *corev1.Pod) *corev1.Pod {
	var all, sidecars, first corev1.ResourceRequirements
	add := func(sum, r *corev1.ResourceRequirements) {
		addResources(&sum.Requests, r.Requests)
		addResources(&sum.Limits, r.Limits)
	}
	for i := range p.Spec.Containers {
		add(&all, &p.Spec.Containers[i].Resources)
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(&sidecars, &c.Resources)
			continue
		}
		raiseResources(&first.Requests, c.Resources.Requests)
		raiseResources(&first.Limits, c.Resources.Limits)
	}
	add(&all, &sidecars)
	add(&first, &sidecars)
	p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{{Resources: all}}, nil
	if first.Requests != nil || first.Limits != nil {
		p.Spec.InitContainers = []corev1.Container{{Resources: first}}
	}
	p.Status.ContainerStatuses, p.Status.InitContainerStatuses = nil, nil
	p.Labels = droppedLabels
	if mapSize(p.Annotations) > largePart {
		p.Annotations = map[string]string{}
	}
	return p
}

func raiseResources(maxima *corev1.ResourceList, list corev1.ResourceList) {
	for _, name := range mainNames {
		q, has := list[name]
		if before := (*maxima)[name]; !has || before.Cmp(q) >= 0 {
			continue
		}
		if *maxima == nil {
			*maxima = corev1.ResourceList{}
		}
		(*maxima)[name] = q
	}
}

const (
	// maxNamespaceVPAs limits the memory of cached VPAs in a namespace, in bytes.
	maxNamespaceVPAs = 64 << 20
	// vpaStep is the granularity of charges, in bytes. A cached VPA may grow within its charge.
	vpaStep = 4 << 10
	// readmitLimit leaves room for recommendations when a refused VPA is cached again.
	readmitLimit = maxNamespaceVPAs / 4 * 3
	// vpaOverhead is the memory for keys and charge of a cached VPA.
	vpaOverhead       = 400
	listShareOverhead = 96
)

// NamespaceFull is the reason why the spec of a VPA is not cached.
var NamespaceFull = fmt.Sprintf("the VPAs of the namespace take more than %d MiB of memory: delete some, or use fewer container policies", maxNamespaceVPAs>>20)

// vpaBudget bounds the memory of cached VPAs in each namespace. The owner holds the lock.
type vpaBudget map[string]*namespaceVPAs

type namespaceVPAs struct {
	bytes int64
	vpas  map[string]*vpaCharge // by name, of the newest version
}

type vpaCharge struct {
	bytes   int64
	refused bool
}

// VPARefused reports whether a cached VPA lacks spec and recommendation because of the memory limit
// of its namespace. Its stored recommendation is unknown then.
func VPARefused(v *vpav1.VerticalPodAutoscaler) bool {
	return v.Annotations[vpav1.UnreadableAnnotation] == NamespaceFull
}

// admit charges a trimmed VPA. A VPA that exceeds the limit loses its spec and its recommendation.
func (b vpaBudget) admit(v *vpav1.VerticalPodAutoscaler) *vpaCharge {
	n := b[v.Namespace]
	if n == nil {
		n = &namespaceVPAs{vpas: map[string]*vpaCharge{}}
		b[v.Namespace] = n
	}
	charge, before, limit := &vpaCharge{bytes: chargeOfVPA(v)}, n.vpas[v.Name], int64(maxNamespaceVPAs)
	fits := false
	if before != nil {
		n.bytes -= before.bytes
		fits = !before.refused && charge.bytes <= before.bytes
		if before.refused {
			limit = readmitLimit
		}
	}
	charge.refused = VPARefused(v) // informers trim twice
	if !fits && n.bytes+charge.bytes > limit && !charge.refused {
		refuseVPA(v)
		charge.refused, charge.bytes = true, chargeOfVPA(v)
	}
	n.bytes += charge.bytes
	n.vpas[v.Name] = charge
	return charge
}

// refuseVPA keeps the target, the condition with the limit, and the marks of a generated VPA.
func refuseVPA(v *vpav1.VerticalPodAutoscaler) {
	refuseSpec(v, NamespaceFull)
	annotations := map[string]string{droppedKey: "", vpav1.UnreadableAnnotation: NamespaceFull}
	if since, marked := v.Annotations[fleet.UnselectedAnnotation]; marked {
		annotations[fleet.UnselectedAnnotation] = boundAnnotation(fleet.UnselectedAnnotation, since)
	}
	v.Annotations = annotations
	if policy, generated := v.Labels[fleet.PolicyLabel]; generated {
		v.Labels = map[string]string{droppedKey: "", fleet.PolicyLabel: boundString(policy)}
	}
	for i := range v.Status.Conditions {
		v.Status.Conditions[i].Message = truncate(v.Status.Conditions[i].Message, maxMessage)
	}
	if v.Status.Recommendation != nil {
		v.Status.Recommendation = &vpav1.RecommendedPodResources{}
	}
}

func chargeOfVPA(v *vpav1.VerticalPodAutoscaler) int64 {
	return (sizeOfVPA(v) + vpaStep - 1) / vpaStep * vpaStep
}

func sizeOfVPA(v *vpav1.VerticalPodAutoscaler) int64 {
	lists := 0
	if p := v.Spec.ResourcePolicy; p != nil {
		lists += 2 * len(p.ContainerPolicies)
	}
	if r := v.Status.Recommendation; r != nil {
		lists += 3 * len(r.ContainerRecommendations)
	}
	return cachesize.EstimateSize(v) + vpaOverhead + int64(lists)*listShareOverhead
}

// release returns the charge of a deleted object, unless a newer version has replaced it.
func (b vpaBudget) release(namespace, name string, charge *vpaCharge) {
	n := b[namespace]
	if n == nil || n.vpas[name] != charge {
		return
	}
	n.bytes -= charge.bytes
	if delete(n.vpas, name); len(n.vpas) == 0 {
		delete(b, namespace)
	}
}

type chargedVPA struct {
	trimmer         *Trimmer
	namespace, name string
	charge          *vpaCharge
	lists           sharedLists
}

func (t *Trimmer) admitVPA(v *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vpas == nil {
		t.vpas = vpaBudget{}
	}
	charge := t.vpas.admit(v)
	runtime.AddCleanup(v, chargedVPA.release, chargedVPA{t, v.Namespace, v.Name, charge, t.shareVPA(v)})
	return v
}

func (c chargedVPA) release() {
	c.trimmer.mu.Lock()
	defer c.trimmer.mu.Unlock()
	c.trimmer.releaseLists(c.lists)
	c.trimmer.vpas.release(c.namespace, c.name, c.charge)
}
