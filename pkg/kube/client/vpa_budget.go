package client

import (
	"fmt"
	"runtime"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/cachesize"
)

const (
	// maxNamespaceVPAs is the memory of the cached VPAs of a namespace, in bytes.
	maxNamespaceVPAs = 64 << 20
	// vpaStep is the unit of the charges, in bytes. A cached VPA may grow within its charge.
	vpaStep = 4 << 10
	// readmitted is the memory below which a VPA that did not fit is cached again. It leaves room for the
	// recommendations that follow.
	readmitted = maxNamespaceVPAs / 4 * 3
	// vpaOverhead is the memory of a cached VPA besides the object: its keys and its charge.
	vpaOverhead = 400
	// amountOverhead is the memory of a list of amounts that is ready to be shared, besides the list.
	amountOverhead = 96
)

// NamespaceFull is why the spec of a VPA is not cached.
var NamespaceFull = fmt.Sprintf("the VPAs of the namespace take more than %d MiB of memory: delete some, or use fewer container policies", maxNamespaceVPAs>>20)

// vpaBudget bounds the memory of cached VPAs for each namespace. The owner has the lock.
type vpaBudget map[string]*namespaceVPAs

type namespaceVPAs struct {
	bytes int64
	vpas  map[string]*vpaCharge // by name: of the newest version
}

type vpaCharge struct {
	bytes   int64
	refused bool
}

// VPARefused reports whether a cached VPA lacks its spec and its recommendation because the VPAs of
// its namespace take too much memory. The stored recommendation is unknown then.
func VPARefused(v *vpav1.VerticalPodAutoscaler) bool {
	return v.Annotations[vpav1.UnreadableAnnotation] == NamespaceFull
}

// admit charges a trimmed VPA to its namespace. One that does not fit loses its spec and its
// recommendation.
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
			limit = readmitted
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

// refuseVPA keeps of a trimmed VPA its target, the condition that reports the limit, and the fields by
// which its policy recognizes it.
func refuseVPA(v *vpav1.VerticalPodAutoscaler) {
	refuseSpec(v, NamespaceFull)
	annotations := map[string]string{droppedKey: "", vpav1.UnreadableAnnotation: NamespaceFull}
	if since, marked := v.Annotations[fleet.UnselectedAnnotation]; marked {
		annotations[fleet.UnselectedAnnotation] = boundAnnotation(fleet.UnselectedAnnotation, since)
	}
	v.Annotations = annotations
	if policy, made := v.Labels[fleet.PolicyLabel]; made {
		v.Labels = map[string]string{droppedKey: "", fleet.PolicyLabel: word(policy)}
	}
	for i := range v.Status.Conditions {
		v.Status.Conditions[i].Message = truncate(v.Status.Conditions[i].Message, maxMessage)
	}
	if v.Status.Recommendation != nil {
		v.Status.Recommendation = &vpav1.RecommendedPodResources{}
	}
}

// chargeOfVPA returns the size of a VPA in whole steps.
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
	return cachesize.Of(v) + vpaOverhead + int64(lists)*amountOverhead
}

// release returns the charge of an object that is gone, unless a newer version has replaced it.
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

// chargedVPA identifies a charge for the cleanup of its object.
type chargedVPA struct {
	of              *Trimmer
	namespace, name string
	charge          *vpaCharge
	uses            amounts
}

// keepVPA charges a trimmed VPA to its namespace, and gives it amounts that others have, too.
func (t *Trimmer) keepVPA(v *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
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
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.leave(c.uses)
	c.of.vpas.release(c.namespace, c.name, c.charge)
}
