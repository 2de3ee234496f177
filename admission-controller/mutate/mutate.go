package mutate

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/patch"
)

// Config is what the command line decides about mutations.
type Config struct {
	Boost    bool          // startup boosts are applied
	MaxBoost amount.Amount // most CPU of a boosted container in millicores; 0: no maximum
}

// Mutation is what is done to one pod.
type Mutation struct {
	Patch    []patch.Operation // never empty: the observed containers are always noted
	Resized  bool              // at least one container gets other resources
	Warnings []string          // for the person who creates the pod
}

// Patch returns what the pod gets from its VPA. Before it changes a container it
// tests the container's name. It fails, and nothing must be changed, only when
// a boost cannot be computed.
func (c Config) Patch(pod *corev1.Pod, vpa *vpav1.VerticalPodAutoscaler, ranges convert.LimitRanges) (Mutation, error) {
	m := mutation{config: c, pod: pod, vpa: vpa, ranges: ranges}
	if pod.Annotations == nil {
		m.add(map[string]string{}, "metadata", "annotations")
	}
	current := convert.NewPod(pod)
	rules := convert.Rules(vpa)
	for i, fitted := range m.fit(current, rules) {
		if convert.SizedAsWhole(pod) {
			m.warnings = []string{"VerticalPodAutoscaler " + vpa.Name + ": containers left unchanged, because spec.resources of the pod bounds them"}
			break
		}
		if err := m.container(i, current.Containers[i], fitted, rules.For(fitted.Name)); err != nil {
			return Mutation{}, err
		}
	}
	if len(m.updates) > 0 {
		m.annotate(convert.UpdatesAnnotation, "Pod resources updated by "+vpa.Name+": "+strings.Join(m.updates, "; "))
	}
	m.annotate(convert.ObservedAnnotation, convert.Observation(pod))
	return Mutation{Patch: m.steps, Resized: len(m.updates) > 0, Warnings: m.warnings}, nil
}

// mutation is a patch under construction.
type mutation struct {
	config Config
	pod    *corev1.Pod
	vpa    *vpav1.VerticalPodAutoscaler
	ranges convert.LimitRanges

	steps    []patch.Operation
	updates  []string // what vpaUpdates tells, one text for each container
	warnings []string
}

func (m *mutation) add(value any, path ...string) {
	m.steps = append(m.steps, patch.Add(patch.Path(path...), value))
}

func (m *mutation) annotate(key, value string) { m.add(value, "metadata", "annotations", key) }

// fit returns what the recommendation gives each container; in mode Off it
// gives nothing.
func (m *mutation) fit(current policy.Pod, rules policy.Rules) []policy.Fitted {
	var recommendation map[string]amount.Bounds
	if convert.Mode(m.vpa) != vpav1.UpdateModeOff {
		recommendation = convert.Recommendation(m.vpa.Status.Recommendation)
	}
	return policy.Fit(current, recommendation, rules, m.ranges.Ranges).Containers
}

func (m *mutation) container(i int, current policy.Container, fitted policy.Fitted, rule policy.Rule) error {
	boosted := m.config.Boost && !rule.Off && rule.Boost.Type != policy.NoBoost
	if boosted {
		var err error
		if fitted, err = rule.Boosted(current, fitted, m.config.MaxBoost); err != nil {
			return err
		}
	}
	container := m.pod.Spec.Containers[i]
	sizes := convert.Sizes(fitted, container.Resources, m.vpa, m.ranges)
	if len(sizes.Requests)+len(sizes.Limits) == 0 {
		return nil
	}
	index := strconv.Itoa(i)
	m.steps = append(m.steps, patch.Test(patch.Path("spec", "containers", index, "name"), container.Name))
	if boosted {
		m.annotate(convert.BoostAnnotation(container))
	}
	if !convert.HasResources(&container) {
		m.add(map[string]string{}, "spec", "containers", index, "resources")
	}
	notes := m.notes(fitted)
	notes = append(notes, m.list(index, "request", container.Resources.Requests, sizes.Requests)...)
	notes = append(notes, m.list(index, "limit", container.Resources.Limits, sizes.Limits)...)
	m.updates = append(m.updates, "container "+index+": "+strings.Join(notes, ", "))
	return nil
}

// list adds the steps for the requests or the limits of one container and
// returns what they do in words.
func (m *mutation) list(index, word string, present, sizes corev1.ResourceList) (notes []string) {
	if len(sizes) == 0 {
		return nil
	}
	field := word + "s"
	if present == nil {
		m.add(map[string]string{}, "spec", "containers", index, "resources", field)
	}
	for k := range amount.Kind(amount.Kinds) {
		if q, ok := sizes[convert.ResourceName(k)]; ok {
			m.add(q.String(), "spec", "containers", index, "resources", field, k.String())
			notes = append(notes, k.String()+" "+word)
		}
	}
	return notes
}

// notes returns the notes of the reference VPA and turns those about a refusal
// into warnings.
func (m *mutation) notes(fitted policy.Fitted) (texts []string) {
	for _, about := range [2]bool{false, true} {
		for _, n := range fitted.Notes {
			if n.Annotated() && n.AboutLimit() == about {
				texts = append(texts, n.String())
			}
		}
	}
	for _, n := range fitted.Notes {
		if n.Refused() {
			m.warnings = append(m.warnings, fmt.Sprintf("VerticalPodAutoscaler %s: container %s: %s; the pod will probably be refused", m.vpa.Name, fitted.Name, n))
		}
	}
	return texts
}
