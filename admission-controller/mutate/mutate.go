// Package mutate computes the patch of the webhook for a new pod: resources, startup boosts, and
// annotations.
//
// The resources come from policy.Fit and the boost, cut to the remaining quota (Room) and to the
// largest node. Config.Patch is pure: equal input gives an equal patch, byte for byte.
// ExampleConfig_Patch shows a complete patch.
//
// Only ordinary containers change, never init containers or native sidecars. Containers without a
// recommendation change only for a startup boost, or if a LimitRange would reject the pod
// otherwise.
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

// Config holds the settings of mutations.
type Config struct {
	Boost    bool             // apply startup boosts
	MaxBoost resources.Amount // max boosted CPU in millicores, 0: no maximum
}

// Mutation is the result for one pod.
type Mutation struct {
	Patch    []client.PatchOperation // never empty: it always sets an annotation
	Resized  bool                    // it sets resources, even if equal to the old ones
	Exceeds  bool                    // the pod exceeded every node available to it
	Warnings []string                // for the creator of the pod
}

// Constraints holds the bounds and the sharing of one pod. The zero value has no bounds.
type Constraints struct {
	Ranges convert.LimitRanges
	Room   Room // for this pod
	// Nodes bounds the pod, nil: no bound. Its placement is decoded from Written, the pod as JSON.
	Nodes   *nodefit.Nodes
	Written []byte
	Sharing *policy.Sharing // by its SizingPolicy, nil: no sharing
	Outer   *policy.Rules   // its maxAllowed bounds a user VPA, nil: none
}

// Patch returns the changes that the VPA makes to the pod, with a test of each changed container's
// name. It fails only if a boost cannot be computed: the pod must then stay unchanged.
func (c Config) Patch(pod *corev1.Pod, vpa *vpav1.VerticalPodAutoscaler, namespace Constraints) (Mutation, error) {
	m := mutation{config: c, pod: pod, vpa: vpa, ranges: namespace.Ranges}
	m.steps = make([]client.PatchOperation, 0, annotationSteps+containerSteps*len(pod.Spec.Containers))
	if pod.Annotations == nil { // server.DecodePod returns an empty map otherwise
		m.add("/metadata/annotations", client.EmptyObject)
	}
	if convert.HasPodLevelResources(pod) {
		m.warnings = []string{"VerticalPodAutoscaler " + vpa.Name + ": containers left unchanged, because spec.resources of the pod bounds them"}
	} else {
		sizes, err := m.fitContainers(namespace, m.sharing(namespace))
		if err != nil {
			return Mutation{}, err
		}
		printer := convert.NewPrinter(vpa, namespace.Ranges)
		fitted := make([]policy.ContainerTarget, len(sizes))
		for i, s := range sizes {
			fitted[i] = s.ContainerTarget
			// Number format of the deciding values. No request exceeds a limit that stays.
			m.patchContainer(i, s, printer.Sizes(s.ContainerTarget, pod.Spec.Containers[i].Resources))
		}
		// Annotations of a new pod are ignored: they may be copied from another pod.
		if text, some := convert.MergeDeclared(nil, fitted); some {
			m.annotate(convert.DeclaredAnnotation, text)
		}
	}
	if m.resized() {
		m.annotate(convert.UpdatesAnnotation, m.updates.String())
	}
	m.annotate(convert.ObservedAnnotation, convert.FormatObserved(pod))
	return Mutation{Patch: m.steps, Resized: m.resized(), Exceeds: m.exceeds, Warnings: m.warnings}, nil
}

// Patch operations for the annotations, and for each container that declares its resources.
const (
	annotationSteps = 4
	containerSteps  = 1 + 2*resources.Kinds
)

type mutation struct {
	config      Config
	pod         *corev1.Pod
	vpa         *vpav1.VerticalPodAutoscaler
	ranges      convert.LimitRanges
	recommended map[string]resources.Bounds      // recommendation by container
	capped      map[string][resources.Kinds]bool // to the largest node, by container

	steps    []client.PatchOperation
	updates  strings.Builder // value of vpaUpdates, empty: no change
	exceeds  bool
	hasNote  bool // the current container has a note in updates
	warnings []string
}

func (m *mutation) resized() bool { return m.updates.Len() > 0 }

func (m *mutation) add(path string, value any) {
	m.steps = append(m.steps, client.PatchAdd(path, value))
}

func (m *mutation) annotate(key, value string) {
	m.add(client.PatchPath("metadata", "annotations", key), value)
}

type containerSize struct {
	policy.ContainerTarget
	boosted bool
}

// fitContainers returns recommendation and boost of each container, cut to quotas and nodes.
func (m *mutation) fitContainers(namespace Constraints, shares *policy.Sharing) ([]containerSize, error) {
	current, rules := convert.NewPod(m.pod), convert.Rules(m.vpa)
	rules.Sharing, rules.Outer, m.recommended = shares, namespace.Outer, m.recommendation()
	current.StaysBurstable = rules.KeepsClass && convert.StaysBurstable(m.pod)
	fitted := policy.Fit(current, m.recommended, rules, m.ranges.Ranges).Containers
	unboosted := slices.Clone(fitted)
	sizes, ruleOf := make([]containerSize, len(fitted)), rules.Lookup()
	for i := range fitted {
		rule := ruleOf(fitted[i].Name)
		sizes[i].boosted = m.config.Boost && !rule.Off && rule.Boost.Type != policy.NoBoost
		if !sizes[i].boosted {
			continue
		}
		var err error
		if fitted[i], err = rule.ApplyBoost(current.Containers[i], fitted[i], m.config.MaxBoost); err != nil {
			return nil, err
		}
	}
	fitted = m.ranges.Admit(current, unboosted, fitted) // a boost may break a LimitRange
	minimum := func() []policy.ContainerTarget {        // the pod's own requests, or lower bounds where it has none
		rules.Sharing = nil // sharing would change limits
		targets := policy.Fit(current, unsized(current, m.recommended), rules, m.ranges.Ranges).Containers
		for i := range targets {
			if sizes[i].boosted && !targets[i].Requests.Has(resources.CPU) {
				targets[i].Requests = targets[i].Requests.With(resources.CPU, current.Containers[i].Requests.Value(resources.CPU))
			}
		}
		return targets
	}
	if room := namespace.Room; room != (Room{}) {
		var changes []Change
		fitted, changes = room.Cut(current, minimum(), fitted)
		m.warnQuotaCuts(changes)
	}
	if namespace.Nodes != nil {
		var has resources.List
		if has, m.exceeds = largestNode(m.pod, namespace, podRequests(m.pod, current, fitted)); m.exceeds {
			var changes []Change
			fitted, changes = (Room{Requests: has}).subtractExtras(m.pod).Cut(current, minimum(), fitted)
			m.warnNodeCuts(changes)
		}
	}
	for i, f := range m.ranges.Admit(current, make([]policy.ContainerTarget, len(fitted)), fitted) { // Cut ignores LimitRanges
		sizes[i].ContainerTarget = f
	}
	return sizes, nil
}

func podRequests(pod *corev1.Pod, current policy.Pod, fitted []policy.ContainerTarget) (sum resources.List) {
	for i, c := range current.Containers {
		for k := range resources.Kind(resources.Kinds) {
			request, has := fitted[i].Requests.Get(k)
			if !has {
				request = max(c.Requests.Value(k), 0)
			}
			sum = sum.With(k, sum.Value(k).Add(request))
		}
	}
	forEachExtra(pod, func(requests, _ corev1.ResourceList) {
		more := convert.Resources(requests)
		for k := range resources.Kind(resources.Kinds) {
			sum = sum.With(k, sum.Value(k).Add(more.Value(k)))
		}
	})
	return sum
}

// sharing keeps a CPU limit if a quota rejects pods without one.
func (m *mutation) sharing(namespace Constraints) *policy.Sharing {
	s := namespace.Sharing
	if s == nil || s.CPULimit != sharing.RemoveLimit || !namespace.Room.Limits.Has(resources.CPU) {
		return s
	}
	m.warn("CPU limits stay although the pod shares its node, because a ResourceQuota of namespace %s requires them", m.pod.Namespace)
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

// unsized returns the smallest recommendation: the pod's own request, or the lower bound where it
// has no request.
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

func (m *mutation) warnQuotaCuts(changes []Change) {
	for _, c := range changes {
		from, to := convert.Quantity(c.Kind, c.From), convert.Quantity(c.Kind, c.To)
		if c.From == c.To {
			m.warn("container %s: %s does not fit the ResourceQuotas of namespace %s even with %s; the pod will probably be refused", c.Container, c.Kind, m.pod.Namespace, to.String())
			continue
		}
		m.warn("container %s: %s cut from %s to %s to fit the ResourceQuotas of namespace %s", c.Container, c.Kind, from.String(), to.String(), m.pod.Namespace)
	}
}

func (m *mutation) warnNodeCuts(changes []Change) {
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

// patchContainer adds the operations for one container. The sizes have the number format of users.
func (m *mutation) patchContainer(i int, fitted containerSize, sizes corev1.ResourceRequirements) {
	container := &m.pod.Spec.Containers[i]
	if len(sizes.Requests)+len(sizes.Limits) == 0 && fitted.WithoutLimit == [resources.Kinds]bool{} {
		return
	}
	m.steps = append(m.steps, client.PatchTestName(i, container))
	if fitted.boosted {
		m.annotate(convert.BoostAnnotation(*container))
	}
	m.steps = client.AppendResources(m.steps, i, container, sizes)
	for k, gone := range fitted.WithoutLimit {
		if gone {
			m.steps = append(m.steps, client.PatchRemove(client.PatchPath("spec", "containers", strconv.Itoa(i), "resources", "limits", resources.Kind(k).String())))
		}
	}
	m.beginNotes(i)
	m.addNotes(fitted.ContainerTarget)
	for k, capped := range m.capped[fitted.Name] {
		if capped {
			m.note(resources.Kind(k).String(), " capped to the largest node")
		}
	}
	m.warnMoves(container, fitted.ContainerTarget)
	m.noteResources(sizes.Requests, " request")
	m.noteResources(sizes.Limits, " limit")
	for k, gone := range fitted.WithoutLimit {
		if gone {
			m.note(resources.Kind(k).String(), " limit removed")
		}
	}
}

func (m *mutation) noteResources(sizes corev1.ResourceList, what string) {
	for k := range resources.Kind(resources.Kinds) {
		if _, ok := sizes[convert.ResourceName(k)]; ok {
			m.note(k.String(), what)
		}
	}
}

func (m *mutation) beginNotes(i int) {
	if m.resized() {
		m.updates.WriteString("; ")
	} else {
		m.updates.Grow(256) // enough for a few containers
		m.updates.WriteString("Pod resources updated by ")
		m.updates.WriteString(m.vpa.Name)
		m.updates.WriteString(": ")
	}
	m.updates.WriteString("container " + strconv.Itoa(i) + ": ")
	m.hasNote = false
}

func (m *mutation) note(words ...string) {
	if m.hasNote {
		m.updates.WriteString(", ")
	}
	for _, word := range words {
		m.updates.WriteString(word)
	}
	m.hasNote = true
}

// addNotes writes the reference VPA's notes. Rejections and cut recommendations become warnings.
func (m *mutation) addNotes(fitted policy.ContainerTarget) {
	for _, about := range [2]bool{false, true} {
		for _, n := range fitted.Notes {
			if n.Annotated() && n.AboutLimit() == about {
				m.note(n.String())
			}
		}
	}
	var cut [resources.Kinds]policy.Reason // the last reason of a kind decides
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
		from, to := m.recommended[fitted.Name].Target.Value(k), fitted.Bounds.Target.Value(k)
		if cut[k] != 0 && to < from {
			was, is := convert.Quantity(k, from), convert.Quantity(k, to)
			m.warn("container %s: %s cut from %s to %s to fit %s", fitted.Name, k, was.String(), is.String(), m.bound(cut[k]))
		}
	}
}

func (m *mutation) warnMoves(container *corev1.Container, fitted policy.ContainerTarget) {
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
