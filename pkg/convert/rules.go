package convert

import (
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Mode returns the update mode of a VPA. The default is Recreate.
func Mode(vpa *vpav1.VerticalPodAutoscaler) vpav1.UpdateMode {
	p := vpa.Spec.UpdatePolicy
	if p == nil || p.UpdateMode == nil || *p.UpdateMode == "" {
		return vpav1.UpdateModeRecreate
	}
	return *p.UpdateMode
}

// HasBoost reports whether a VPA has a startup boost, for the pod or for any container.
func HasBoost(vpa *vpav1.VerticalPodAutoscaler) bool {
	if hasBoost(vpa.Spec.StartupBoost) {
		return true
	}
	return slices.ContainsFunc(containerPolicies(vpa), func(c vpav1.ContainerResourcePolicy) bool { return hasBoost(c.StartupBoost) })
}

// BoostDuration returns how long a startup boost lasts after the pod is ready, 0 without a boost.
func BoostDuration(vpa *vpav1.VerticalPodAutoscaler, container string) time.Duration {
	b := vpa.Spec.StartupBoost
	if own := ContainerPolicy(vpa, container); own != nil && hasBoost(own.StartupBoost) {
		b = own.StartupBoost
	}
	return boost(b).Duration
}

func hasBoost(b *vpav1.StartupBoost) bool { return b != nil && b.CPU != nil }

func containerPolicies(vpa *vpav1.VerticalPodAutoscaler) []vpav1.ContainerResourcePolicy {
	if vpa.Spec.ResourcePolicy == nil {
		return nil
	}
	return vpa.Spec.ResourcePolicy.ContainerPolicies
}

// ContainerPolicy returns the first entry with the name, else the last wildcard, else nil.
func ContainerPolicy(vpa *vpav1.VerticalPodAutoscaler, container string) *vpav1.ContainerResourcePolicy {
	var found *vpav1.ContainerResourcePolicy
	policies := containerPolicies(vpa)
	for i := range policies {
		switch policies[i].ContainerName {
		case container:
			return &policies[i]
		case vpav1.DefaultContainerResourcePolicy:
			found = &policies[i]
		}
	}
	return found
}

type policyIndex struct {
	named    nameIndex[vpav1.ContainerResourcePolicy]
	wildcard *vpav1.ContainerResourcePolicy
}

func readPolicies(vpa *vpav1.VerticalPodAutoscaler) policyIndex {
	all := containerPolicies(vpa)
	p := policyIndex{named: byName(all, func(p *vpav1.ContainerResourcePolicy) string { return p.ContainerName })}
	for i := range all {
		if all[i].ContainerName == vpav1.DefaultContainerResourcePolicy {
			p.wildcard = &all[i]
		}
	}
	return p
}

func (p *policyIndex) find(container string) *vpav1.ContainerResourcePolicy {
	if found := p.named.find(container); found != nil {
		return found
	}
	return p.wildcard
}

// Rules converts the policies of a VPA. Absent controlled resources mean CPU and memory, and an
// empty list means none. A startupBoost without cpu is ignored. The status reports whether memory
// limits follow requests.
func Rules(vpa *vpav1.VerticalPodAutoscaler) policy.Rules {
	policies := containerPolicies(vpa)
	rules := policy.Rules{Boost: boost(vpa.Spec.StartupBoost), Entries: make([]policy.Entry, 0, len(policies)), SeparateMemoryLimit: HasSeparateMemoryLimit(&vpa.Status), KeepsClass: keepsClass(vpa)}
	for _, c := range policies {
		rules.Entries = append(rules.Entries, policy.Entry{
			Container: c.ContainerName,
			Rule:      rule(c),
			OwnBoost:  hasBoost(c.StartupBoost),
		})
	}
	return rules
}

// keepsClass reports whether running pods of a VPA are resized in place.
func keepsClass(vpa *vpav1.VerticalPodAutoscaler) bool {
	switch Mode(vpa) {
	case vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace:
		return true
	}
	return IsGenerated(vpa)
}

func rule(c vpav1.ContainerResourcePolicy) policy.Rule {
	r := policy.Default()
	r.Off = c.Mode != nil && *c.Mode == vpav1.ContainerScalingModeOff
	r.RequestsOnly = c.ControlledValues != nil && *c.ControlledValues == vpav1.ContainerControlledValuesRequestsOnly
	r.Min, r.Max = Resources(c.MinAllowed), Resources(c.MaxAllowed)
	r.Boost = boost(c.StartupBoost)
	if c.ControlledResources != nil {
		for k := range resources.Kind(resources.Kinds) {
			r.Controlled[k] = slices.Contains(*c.ControlledResources, ResourceName(k))
		}
	}
	return r
}

// boost defaults to a factor, as the reference VPA. An unknown type means no boost.
func boost(b *vpav1.StartupBoost) policy.Boost {
	if !hasBoost(b) {
		return policy.Boost{}
	}
	var read policy.Boost
	switch b.CPU.Type {
	case "", vpav1.StartupBoostTypeFactor:
		read.Type = policy.BoostFactor
	case vpav1.StartupBoostTypeQuantity:
		read.Type = policy.BoostQuantity
	}
	if b.CPU.Factor != nil {
		read.Factor = int64(*b.CPU.Factor)
	}
	if b.CPU.Quantity != nil {
		read.Quantity = Amount(resources.CPU, *b.CPU.Quantity)
	}
	if b.CPU.DurationSeconds != nil {
		read.Duration = time.Duration(*b.CPU.DurationSeconds) * time.Second
	}
	return read
}

// maxLinearSearch is the number of items up to which a linear search is faster than a map.
const maxLinearSearch = 8

// nameIndex finds the first item with a name. It builds its map only once.
type nameIndex[T any] struct {
	items []T
	name  func(*T) string
	found map[string]*T // only with more than maxLinearSearch items
}

func byName[T any](items []T, name func(*T) string) nameIndex[T] {
	n := nameIndex[T]{items: items, name: name}
	if len(items) <= maxLinearSearch {
		return n
	}
	n.found = make(map[string]*T, len(items))
	for i := range items {
		if at := name(&items[i]); n.found[at] == nil {
			n.found[at] = &items[i]
		}
	}
	return n
}

func (n *nameIndex[T]) find(wanted string) *T {
	if n.found != nil {
		return n.found[wanted]
	}
	for i := range n.items {
		if n.name(&n.items[i]) == wanted {
			return &n.items[i]
		}
	}
	return nil
}

// LimitRanges are the combined LimitRange objects of one namespace, as core values and in their
// original format. The zero value imposes no limits.
type LimitRanges struct {
	policy.Ranges
	min, max, defaults corev1.ResourceList
}

// Ranges combines LimitRange objects: highest minimum, lowest maximum, lowest default and ratio.
// Only items for pods and containers count.
func Ranges(objects []*corev1.LimitRange) LimitRanges {
	var all LimitRanges
	for _, object := range objects {
		for i := range object.Spec.Limits {
			item := &object.Spec.Limits[i]
			r := policy.Range{Min: Resources(item.Min), Max: maximums(item.Max), MaxRatio: ratios(item.MaxLimitRequestRatio)}
			switch item.Type {
			case corev1.LimitTypePod:
				all.Pod = all.Pod.Combine(r)
			case corev1.LimitTypeContainer:
				r.Default = Resources(item.Default)
				all.Container = all.Container.Combine(r)
				all.min = effectiveQuantities(all.min, item.Min, all.Container.Min)
				all.max = effectiveQuantities(all.max, item.Max, all.Container.Max)
				all.defaults = effectiveQuantities(all.defaults, item.Default, all.Container.Default)
			}
		}
	}
	return all
}

// effectiveQuantities keeps an earlier quantity with the same value, otherwise takes the item's.
func effectiveQuantities(before, item corev1.ResourceList, values resources.List) corev1.ResourceList {
	for k := range resources.Kind(resources.Kinds) {
		name := ResourceName(k)
		a, ok := values.Get(k)
		if q, has := before[name]; !ok || has && Amount(k, q) == a {
			continue
		}
		if q, has := item[name]; has && Amount(k, q) == a {
			if before == nil {
				before = corev1.ResourceList{}
			}
			before[name] = q
		}
	}
	return before
}

// maximums converts maximums, rounded down to whole amounts.
func maximums(list corev1.ResourceList) resources.List {
	r := Resources(list)
	if q, ok := list[corev1.ResourceMemory]; ok && q.Sign() > 0 {
		if a := r.Value(resources.Memory); q.CmpInt64(int64(a)) < 0 {
			r = r.With(resources.Memory, a-1)
		}
	}
	return r
}

// ratios converts plain numbers to thousandths, rounded down.
func ratios(list corev1.ResourceList) (r resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			r = r.With(k, resources.FromFloat(q.AsApproximateFloat64()*1000))
		}
	}
	return r
}

// Recommendation converts the recommendation in the status of a VPA, by container name. A duplicate
// name keeps its first entry. Nil gives an empty map.
func Recommendation(r *vpav1.RecommendedPodResources) map[string]resources.Bounds {
	if r == nil {
		return nil
	}
	bounds := make(map[string]resources.Bounds, len(r.ContainerRecommendations))
	for _, c := range r.ContainerRecommendations {
		if _, seen := bounds[c.ContainerName]; !seen {
			bounds[c.ContainerName] = Bounds(c)
		}
	}
	return bounds
}

// Bounds converts the recommendation for one container.
func Bounds(c vpav1.RecommendedContainerResources) resources.Bounds {
	return resources.Bounds{
		Lower:  Resources(c.LowerBound),
		Target: Resources(c.Target),
		Upper:  Resources(c.UpperBound),
	}
}

// RaisesMemory reports whether a status recommends more memory for a container than an earlier one:
// a larger request, or a larger limit if limits do not follow requests.
func RaisesMemory(earlier, status *vpav1.VerticalPodAutoscalerStatus) bool {
	if status.Recommendation == nil {
		return false
	}
	separate := HasSeparateMemoryLimit(status)
	before := Recommendation(earlier.Recommendation)
	for name, bounds := range Recommendation(status.Recommendation) {
		if bounds.Target.Value(resources.Memory) > before[name].Target.Value(resources.Memory) ||
			separate && bounds.Upper.Value(resources.Memory) > before[name].Upper.Value(resources.Memory) {
			return true
		}
	}
	return false
}

// ResourceName returns the Kubernetes name of a resource.
func ResourceName(k resources.Kind) corev1.ResourceName {
	if k == resources.CPU {
		return corev1.ResourceCPU
	}
	return corev1.ResourceMemory
}

// IsGPU reports whether a resource is a GPU or a part of one: an extended resource with "gpu" in
// its name, or any NVIDIA resource.
func IsGPU(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "gpu") || strings.HasPrefix(string(name), "nvidia.com/")
}

// Amount converts a quantity to millicores or bytes, rounded up. Negative quantities become 0, and
// too large ones the largest int64.
func Amount(k resources.Kind, q resource.Quantity) resources.Amount {
	scale, units := resource.Scale(0), q.AsApproximateFloat64()
	if k == resources.CPU {
		scale, units = resource.Milli, units*1000
	}
	switch {
	case units <= 0:
		return 0
	case units >= math.MaxInt64:
		return math.MaxInt64
	}
	return resources.Amount(q.ScaledValue(scale))
}

// Resources converts the CPU and memory of a list and ignores other resources.
func Resources(list corev1.ResourceList) resources.List {
	var r resources.List
	for k := range resources.Kind(resources.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			r = r.With(k, Amount(k, q))
		}
	}
	return r
}

// Quantity converts an amount: CPU to decimal millicores, memory to binary units.
func Quantity(k resources.Kind, a resources.Amount) resource.Quantity {
	if k == resources.CPU {
		return *resource.NewMilliQuantity(int64(a), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(a), resource.BinarySI)
}

// MeasuredAmount converts an amount of a metrics API, rounded up. A negative amount becomes -1, so
// that the store rejects and counts it.
func MeasuredAmount(k resources.Kind, q resource.Quantity) resources.Amount {
	if q.Sign() < 0 {
		return -1
	}
	return Amount(k, q)
}
