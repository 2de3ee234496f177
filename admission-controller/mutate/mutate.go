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
	m.steps = make([]patch.Operation, 0, fewSteps+stepsEach*len(pod.Spec.Containers))
	if pod.Annotations == nil {
		m.add("/metadata/annotations", emptyObject)
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
	if m.resized() {
		m.annotate(convert.UpdatesAnnotation, m.updates.String())
	}
	m.annotate(convert.ObservedAnnotation, convert.Observation(pod))
	return Mutation{Patch: m.steps, Resized: m.resized(), Warnings: m.warnings}, nil
}

// How many steps a patch has: for the annotations, and for each container that
// has its resources already.
const (
	fewSteps  = 3
	stepsEach = 1 + 2*amount.Kinds
)

// emptyObject is the value of steps that add an object; nobody writes to it.
var emptyObject = map[string]string{}

// mutation is a patch under construction.
type mutation struct {
	config Config
	pod    *corev1.Pod
	vpa    *vpav1.VerticalPodAutoscaler
	ranges convert.LimitRanges

	steps    []patch.Operation
	updates  strings.Builder // what vpaUpdates tells; empty: nothing was changed
	told     bool            // the present container has a note in updates
	warnings []string
}

func (m *mutation) resized() bool { return m.updates.Len() > 0 }

func (m *mutation) add(path string, value any) { m.steps = append(m.steps, patch.Add(path, value)) }

func (m *mutation) annotate(key, value string) {
	m.add(patch.Path("metadata", "annotations", key), value)
}

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
	container := &m.pod.Spec.Containers[i]
	sizes := convert.Sizes(fitted, container.Resources, m.vpa, m.ranges)
	if len(sizes.Requests)+len(sizes.Limits) == 0 {
		return nil
	}
	index := strconv.Itoa(i)
	path := "/spec/containers/" + index
	m.steps = append(m.steps, patch.Test(path+"/name", container.Name))
	if boosted {
		m.annotate(convert.BoostAnnotation(*container))
	}
	resources := path + "/resources"
	if !convert.HasResources(container) {
		m.add(resources, emptyObject)
	}
	m.begin(index)
	m.notes(fitted)
	m.list(resources+"/requests", container.Resources.Requests, sizes.Requests, requestNotes)
	m.list(resources+"/limits", container.Resources.Limits, sizes.Limits, limitNotes)
	return nil
}

// The notes about what is written, by kind.
var (
	requestNotes = [amount.Kinds]string{amount.CPU: "cpu request", amount.Memory: "memory request"}
	limitNotes   = [amount.Kinds]string{amount.CPU: "cpu limit", amount.Memory: "memory limit"}
)

// list adds the steps for the requests or the limits of one container, and the
// notes that tell of them.
func (m *mutation) list(path string, present, sizes corev1.ResourceList, notes [amount.Kinds]string) {
	if len(sizes) == 0 {
		return
	}
	if present == nil {
		m.add(path, emptyObject)
	}
	for k := range amount.Kind(amount.Kinds) {
		if q, ok := sizes[convert.ResourceName(k)]; ok {
			m.add(path+"/"+k.String(), q.String())
			m.note(notes[k])
		}
	}
}

// begin starts what vpaUpdates tells about a container.
func (m *mutation) begin(index string) {
	if m.resized() {
		m.updates.WriteString("; container ")
	} else {
		m.updates.Grow(usualText)
		m.updates.WriteString("Pod resources updated by ")
		m.updates.WriteString(m.vpa.Name)
		m.updates.WriteString(": container ")
	}
	m.updates.WriteString(index)
	m.updates.WriteString(": ")
	m.told = false
}

// usualText is enough for the text of vpaUpdates about some containers.
const usualText = 256

func (m *mutation) note(text string) {
	if m.told {
		m.updates.WriteString(", ")
	}
	m.updates.WriteString(text)
	m.told = true
}

// notes tells the notes of the reference VPA and turns those about a refusal
// into warnings.
func (m *mutation) notes(fitted policy.Fitted) {
	for _, about := range [2]bool{false, true} {
		for _, n := range fitted.Notes {
			if n.Annotated() && n.AboutLimit() == about {
				m.note(n.String())
			}
		}
	}
	for _, n := range fitted.Notes {
		if n.Refused() {
			m.warnings = append(m.warnings, fmt.Sprintf("VerticalPodAutoscaler %s: container %s: %s; the pod will probably be refused", m.vpa.Name, fitted.Name, n))
		}
	}
}
