// Package mutate computes what the webhook changes in a new pod.
//
// Config.Patch takes a pod, the VPA that controls it and what its namespace demands, and returns a JSON patch: the
// resources that policy.Fit gives, the startup boost, both cut to what the quotas have left (Room), and annotations:
// vpaUpdates, vpaObservedContainers, one for each boost, and one with the memory that was declared. It is pure: equal
// input gives an equal patch, byte for byte. ExampleConfig_Patch shows a whole one.
//
// Only ordinary containers are changed; init containers and native sidecars are left as they are. So are containers
// without a recommendation, but for a startup boost, and where a LimitRange of the pod would refuse it else. It neither
// looks for the VPA (package target) nor speaks HTTP (package server).
package mutate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodefit"
)

// Config is what the command line decides about mutations.
type Config struct {
	Boost    bool             // startup boosts are applied
	MaxBoost resources.Amount // most CPU of a boosted container in millicores; 0: no maximum
}

// Mutation is what is done to one pod.
type Mutation struct {
	Patch    []client.PatchOperation // never empty: the observed containers are always noted
	Resized  bool                    // the patch writes the resources of a container, be they equal to those that it has
	Exceeds  bool                    // the pod was larger than any node that it can go to
	Warnings []string                // for the person who creates the pod
}

// Namespace is what a namespace demands of one of its pods, and how that shares its node. The
// zero value demands nothing.
type Namespace struct {
	Ranges convert.LimitRanges
	Room   Room // for this pod
	// Nodes bound what this pod gets; nil: they do not. Written is the pod as JSON, which says where it can go.
	Nodes   *nodefit.Nodes
	Written []byte
	Sharing *policy.Sharing // by its SizingPolicy; nil: it does not share
	Outer   *policy.Rules   // of its SizingPolicy, whose maxAllowed bounds the VPA; nil: none
}

// Patch returns what the pod gets from its VPA. Before it changes a container it tests the container's name. It fails,
// and nothing must be changed, only when a boost cannot be computed.
func (c Config) Patch(pod *corev1.Pod, vpa *vpav1.VerticalPodAutoscaler, namespace Namespace) (Mutation, error) {
	m := mutation{config: c, pod: pod, vpa: vpa, ranges: namespace.Ranges}
	m.steps = make([]client.PatchOperation, 0, fewSteps+stepsEach*len(pod.Spec.Containers))
	if pod.Annotations == nil { // server.DecodePod reads an empty map where all are of others
		m.add("/metadata/annotations", client.EmptyObject)
	}
	if convert.SizedAsWhole(pod) {
		m.warnings = []string{"VerticalPodAutoscaler " + vpa.Name + ": containers left unchanged, because spec.resources of the pod bounds them"}
	} else {
		sizes, err := m.sizes(namespace, m.sharing(namespace))
		if err != nil {
			return Mutation{}, err
		}
		printer := convert.NewPrinter(vpa, namespace.Ranges)
		fitted := make([]policy.ContainerTarget, len(sizes))
		for i, s := range sizes {
			fitted[i] = s.ContainerTarget
			// The amounts in the number format of the values that decided. A request is at most a limit that stays.
			m.container(i, s, printer.Sizes(s.ContainerTarget, pod.Spec.Containers[i].Resources))
		}
		// What a new pod says of itself counts for nothing: it may come from another one.
		if text, some := convert.DeclaredText(nil, fitted); some {
			m.annotate(convert.DeclaredAnnotation, text)
		}
	}
	if m.resized() {
		m.annotate(convert.UpdatesAnnotation, m.updates.String())
	}
	m.annotate(convert.ObservedAnnotation, convert.Observation(pod))
	return Mutation{Patch: m.steps, Resized: m.resized(), Exceeds: m.exceeds, Warnings: m.warnings}, nil
}

// How many steps a patch has: for the annotations, and for each container that has its resources already.
const (
	fewSteps  = 4
	stepsEach = 1 + 2*resources.Kinds
)

// mutation is a patch under construction.
type mutation struct {
	config Config
	pod    *corev1.Pod
	vpa    *vpav1.VerticalPodAutoscaler
	ranges convert.LimitRanges
	given  map[string]resources.Bounds      // what is recommended, by container
	capped map[string][resources.Kinds]bool // to the largest node, by container

	steps    []client.PatchOperation
	updates  strings.Builder // the value of vpaUpdates; empty: nothing was changed
	exceeds  bool
	noted    bool // the container that is added has a note in updates
	warnings []string
}

func (m *mutation) resized() bool { return m.updates.Len() > 0 }

func (m *mutation) add(path string, value any) {
	m.steps = append(m.steps, client.PatchAdd(path, value))
}

func (m *mutation) annotate(key, value string) {
	m.add(client.PatchPath("metadata", "annotations", key), value)
}

// size is what a container gets.
type size struct {
	policy.ContainerTarget
	boosted bool
}

// sizes returns what each container gets: from the recommendation, with its boost, and as far as the quotas have room.
func (m *mutation) sizes(namespace Namespace, shares *policy.Sharing) ([]size, error) {
	current, rules := convert.NewPod(m.pod), convert.Rules(m.vpa)
	rules.Sharing, rules.Outer, m.given = shares, namespace.Outer, m.recommendation()
	current.StaysBurstable = rules.KeepsClass && convert.StaysBurstable(m.pod)
	fitted := policy.Fit(current, m.given, rules, m.ranges.Ranges).Containers
	unboosted := slices.Clone(fitted)
	sizes, ruleOf := make([]size, len(fitted)), rules.Lookup()
	for i := range fitted {
		rule := ruleOf(fitted[i].Name)
		sizes[i].boosted = m.config.Boost && !rule.Off && rule.Boost.Type != policy.NoBoost
		if !sizes[i].boosted {
			continue
		}
		var err error
		if fitted[i], err = rule.Boosted(current.Containers[i], fitted[i], m.config.MaxBoost); err != nil {
			return nil, err
		}
	}
	fitted = m.ranges.Admit(current, unboosted, fitted)
	kept := func() []policy.ContainerTarget { // the pod without any change
		rules.Sharing = nil // would change limits
		kept := policy.Fit(current, unsized(current, m.given), rules, m.ranges.Ranges).Containers
		for i := range kept {
			if sizes[i].boosted && !kept[i].Requests.Has(resources.CPU) {
				kept[i].Requests = kept[i].Requests.With(resources.CPU, current.Containers[i].Requests.Value(resources.CPU))
			}
		}
		return kept
	}
	if room := namespace.Room; room != (Room{}) {
		var changes []Change
		fitted, changes = room.Cut(current, kept(), fitted)
		m.cuts(changes)
	}
	if namespace.Nodes != nil {
		var has resources.List
		if has, m.exceeds = largestNode(m.pod, namespace, takes(m.pod, current, fitted)); m.exceeds {
			var changes []Change
			fitted, changes = (Room{Requests: has}).ordinary(m.pod).Cut(current, kept(), fitted)
			m.nodeCuts(changes)
		}
	}
	for i, f := range m.ranges.Admit(current, make([]policy.ContainerTarget, len(fitted)), fitted) { // a cut moves containers one by one
		sizes[i].ContainerTarget = f
	}
	return sizes, nil
}

// takes returns the requests of a pod with some sizes, as a node counts them.
func takes(pod *corev1.Pod, current policy.Pod, fitted []policy.ContainerTarget) (sum resources.List) {
	for i, c := range current.Containers {
		for k := range resources.Kind(resources.Kinds) {
			request, has := fitted[i].Requests.Get(k)
			if !has {
				request = max(c.Requests.Value(k), 0)
			}
			sum = sum.With(k, sum.Value(k).Add(request))
		}
	}
	beside(pod, func(requests, _ corev1.ResourceList) {
		more := convert.Resources(requests)
		for k := range resources.Kind(resources.Kinds) {
			sum = sum.With(k, sum.Value(k).Add(more.Value(k)))
		}
	})
	return sum
}

// sharing returns how the pod shares its node. A CPU limit stays where a quota refuses pods without one.
func (m *mutation) sharing(namespace Namespace) *policy.Sharing {
	s := namespace.Sharing
	if s == nil || s.CPULimit != sharing.RemoveLimit || !namespace.Room.Limits.Has(resources.CPU) {
		return s
	}
	m.warn("CPU limits stay although the pod shares its node, because a ResourceQuota of namespace %s demands them", m.pod.Namespace)
	kept := *s
	kept.CPULimit = sharing.KeepLimit
	return &kept
}

func (m *mutation) recommendation() map[string]resources.Bounds {
	if convert.Mode(m.vpa) == vpav1.UpdateModeOff {
		return nil
	}
	return convert.Recommendation(m.vpa.Status.Recommendation)
}

// unsized is the recommendation that leaves the pod as it is: its own requests, also as what a
// limit protects, or, where it has none, the lower bound.
func unsized(current policy.Pod, recommendation map[string]resources.Bounds) map[string]resources.Bounds {
	kept := make(map[string]resources.Bounds, len(recommendation))
	for _, c := range current.Containers {
		b, ok := recommendation[c.Name]
		if !ok {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if own, ok := c.Requests.Get(k); ok && own > 0 && b.Target.Has(k) {
				b.Target, b.Upper = b.Target.With(k, own), b.Upper.With(k, own)
			} else if lower, ok := b.Lower.Get(k); ok && b.Target.Has(k) {
				b.Target = b.Target.With(k, lower)
			}
		}
		kept[c.Name] = b
	}
	return kept
}

// cuts warns of what the quotas of the namespace did to the pod.
func (m *mutation) cuts(changes []Change) {
	for _, c := range changes {
		from, to := convert.Quantity(c.Kind, c.From), convert.Quantity(c.Kind, c.To)
		if c.From == c.To {
			m.warn("container %s: %s does not fit the ResourceQuotas of namespace %s even with %s; the pod will probably be refused", c.Container, c.Kind, m.pod.Namespace, to.String())
			continue
		}
		m.warn("container %s: %s cut from %s to %s to fit the ResourceQuotas of namespace %s", c.Container, c.Kind, from.String(), to.String(), m.pod.Namespace)
	}
}

// nodeCuts warns of what the largest node did to the pod.
func (m *mutation) nodeCuts(changes []Change) {
	for _, c := range changes {
		from, to := convert.Quantity(c.Kind, c.From), convert.Quantity(c.Kind, c.To)
		if c.From == c.To {
			m.warn("container %s: no node that the pod can go to can hold it, even with %s of %s; the pod will probably stay pending", c.Container, to.String(), c.Kind)
			continue
		}
		m.warn("container %s: %s cut from %s to %s, because no node that the pod can go to can hold more", c.Container, c.Kind, from.String(), to.String())
		if m.capped == nil {
			m.capped = map[string][resources.Kinds]bool{}
		}
		kinds := m.capped[c.Container]
		kinds[c.Kind] = true
		m.capped[c.Container] = kinds
	}
}

func (m *mutation) warn(format string, args ...any) {
	m.warnings = append(m.warnings, "VerticalPodAutoscaler "+m.vpa.Name+": "+fmt.Sprintf(format, args...))
}

// container adds the steps for one container; sizes is what it gets in numbers as people write them.
func (m *mutation) container(i int, fitted size, sizes corev1.ResourceRequirements) {
	container := &m.pod.Spec.Containers[i]
	if len(sizes.Requests)+len(sizes.Limits) == 0 && fitted.WithoutLimit == [resources.Kinds]bool{} {
		return
	}
	m.steps = append(m.steps, client.PatchName(i, container))
	if fitted.boosted {
		m.annotate(convert.BoostAnnotation(*container))
	}
	m.steps = client.AppendSizes(m.steps, i, container, sizes)
	for k, gone := range fitted.WithoutLimit {
		if gone {
			m.steps = append(m.steps, client.PatchRemove(client.PatchPath("spec", "containers", strconv.Itoa(i), "resources", "limits", resources.Kind(k).String())))
		}
	}
	m.begin(i)
	m.notes(fitted.ContainerTarget)
	for k, capped := range m.capped[fitted.Name] {
		if capped {
			m.note(resources.Kind(k).String(), " capped to the largest node")
		}
	}
	m.moves(container, fitted.ContainerTarget)
	m.listed(sizes.Requests, " request")
	m.listed(sizes.Limits, " limit")
	for k, gone := range fitted.WithoutLimit {
		if gone {
			m.note(resources.Kind(k).String(), " limit removed")
		}
	}
}

func (m *mutation) listed(sizes corev1.ResourceList, what string) {
	for k := range resources.Kind(resources.Kinds) {
		if _, ok := sizes[convert.ResourceName(k)]; ok {
			m.note(k.String(), what)
		}
	}
}

// begin starts what vpaUpdates says about a container.
func (m *mutation) begin(i int) {
	if m.resized() {
		m.updates.WriteString("; ")
	} else {
		m.updates.Grow(256) // enough for some containers
		m.updates.WriteString("Pod resources updated by ")
		m.updates.WriteString(m.vpa.Name)
		m.updates.WriteString(": ")
	}
	m.updates.WriteString("container " + strconv.Itoa(i) + ": ")
	m.noted = false
}

func (m *mutation) note(words ...string) {
	if m.noted {
		m.updates.WriteString(", ")
	}
	for _, word := range words {
		m.updates.WriteString(word)
	}
	m.noted = true
}

// notes writes the notes of the reference VPA and makes those about a refusal, and
// about less than was recommended, warnings.
func (m *mutation) notes(fitted policy.ContainerTarget) {
	for _, about := range [2]bool{false, true} {
		for _, n := range fitted.Notes {
			if n.Annotated() && n.AboutLimit() == about {
				m.note(n.String())
			}
		}
	}
	var cut [resources.Kinds]policy.Reason // the last of a kind is the one that decided
	for _, n := range fitted.Notes {
		switch {
		case n.Refused():
			m.warn("container %s: %s; the pod will probably be refused", fitted.Name, n)
		case n.Reason == policy.LimitStays, n.Reason == policy.HeldByRange:
			m.warn("container %s: %s", fitted.Name, n)
		case n.Cut():
			cut[n.Kind] = n.Reason
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		from, to := m.given[fitted.Name].Target.Value(k), fitted.Bounds.Target.Value(k)
		if cut[k] != 0 && to < from {
			was, is := convert.Quantity(k, from), convert.Quantity(k, to)
			m.warn("container %s: %s cut from %s to %s to fit %s", fitted.Name, k, was.String(), is.String(), m.bound(cut[k]))
		}
	}
}

// moves warns about sizes that a container gets although nothing is recommended for it.
func (m *mutation) moves(container *corev1.Container, fitted policy.ContainerTarget) {
	for _, n := range fitted.Notes {
		if n.Reason != policy.MovedWithOthers {
			continue
		}
		was, is := container.Resources.Requests[convert.ResourceName(n.Kind)], convert.Quantity(n.Kind, fitted.Requests.Value(n.Kind))
		m.warn("container %s: %s changed from %s to %s without a recommendation, because the pod would not fit the LimitRanges of namespace %s",
			fitted.Name, n.Kind, was.String(), is.String(), m.pod.Namespace)
	}
}

func (m *mutation) bound(r policy.Reason) string {
	switch r {
	case policy.CutToMax:
		return "maxAllowed"
	case policy.CutToLimit:
		return "the limit of the container, which stays"
	}
	return "the LimitRanges of namespace " + m.pod.Namespace
}
