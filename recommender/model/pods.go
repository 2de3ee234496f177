package model

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// PutPod adds or updates a pod. It retains only strings of the object.
func (m *Model) PutPod(object *corev1.Pod, now time.Time) {
	s := m.namespaceState(object.Namespace)
	p := s.pods[object.Name]
	if p == nil {
		p = &pod{name: object.Name}
		s.pods[p.name] = p
	}
	p.finished = object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
	former, owner := p.set, m.ownerOf(p, object)
	if former == nil || !former.labels.equal(object.Labels) || !former.accepts(owner) {
		p.stale = true
		m.move(p, m.labelSetFor(s, object.Labels, owner))
		if former != nil {
			former.countEnded(p.podTemplate)
		}
	}
	if ratios := limitRatios(object); !p.matches(object.Spec.Containers, ratios) {
		m.updateTemplate(p, object.Spec.Containers, ratios)
	}
	m.track(p, now)
	if former != nil && former != p.set {
		m.retire(former)
	}
	m.limitEnded(s)
}

func (f *podTemplate) matches(containers []corev1.Container, ratios func(*corev1.Container) sketch.LimitRatio) bool {
	if f == nil || len(f.containers) != len(containers) {
		return false
	}
	for i := range containers {
		if f.containers[i] != containers[i].Name || f.limitRatio[i] != ratios(&containers[i]) {
			return false
		}
	}
	return true
}

// limitRatios returns the memory limit ratio that a container was declared with or resized to.
func limitRatios(object *corev1.Pod) func(*corev1.Container) sketch.LimitRatio {
	declared := convert.ParseDeclared(object.Annotations) // usually empty, without an allocation
	return func(c *corev1.Container) sketch.LimitRatio {
		is := policy.Container{Requests: convert.Resources(c.Resources.Requests), Limits: convert.Resources(c.Resources.Limits), Declared: declared[c.Name]}
		kept := is.MemoryProportion()
		return sketch.LimitRatioOf(kept.Request, kept.Limit)
	}
}

// updateTemplate shares the template within the label set, and untracks removed containers.
func (m *Model) updateTemplate(p *pod, containers []corev1.Container, ratios func(*corev1.Container) sketch.LimitRatio) {
	former := p.podTemplate
	if p.podTemplate = p.set.pods[0].podTemplate; !p.matches(containers, ratios) {
		p.podTemplate = &podTemplate{}
		for i := range containers {
			p.containers = append(p.containers, strings.Clone(containers[i].Name))
			p.limitRatio = append(p.limitRatio, ratios(&containers[i]))
		}
	}
	if former != nil && slices.Equal(former.containers, p.containers) {
		return
	}
	p.stale = true
	if former == nil {
		return
	}
	for _, name := range former.containers {
		if !slices.Contains(p.containers, name) {
			m.untrack(p, name)
			p.set.namespace.endedWeight += p.set.weight()
		}
	}
}

func (m *Model) move(p *pod, set *labelSet) {
	if former := p.set; former != nil {
		last := former.pods[len(former.pods)-1]
		former.pods[p.at], last.at = last, p.at
		former.pods[len(former.pods)-1] = nil
		former.pods = former.pods[:len(former.pods)-1]
	}
	if p.set = set; set != nil {
		p.at = int32(len(set.pods))
		set.pods = append(set.pods, p)
	}
}

// labelSetFor first tries the last result, which often matches because pods arrive by name.
func (m *Model) labelSetFor(s *namespaceState, podLabels labels.Set, owner target.Key) *labelSet {
	if s.recent != nil && s.recent.labels.equal(podLabels) && s.recent.accepts(owner) {
		return s.recent
	}
	s.recent = m.findLabelSet(s, podLabels, owner)
	return s.recent
}

func (m *Model) findLabelSet(s *namespaceState, podLabels labels.Set, owner target.Key) *labelSet {
	m.keys = slices.AppendSeq(m.keys[:0], maps.Keys(podLabels))
	slices.Sort(m.keys)
	m.text = m.text[:0]
	for _, key := range m.keys {
		m.text = append(append(append(append(m.text, key...), '='), podLabels[key]...), ',')
	}
	m.text = m.text[:max(len(m.text)-1, 0)]
	if set := s.sets[string(m.text)]; set != nil { // usually, without an allocation
		if m.assignOwner(set, owner) {
			return set
		}
		m.text = append(append(m.text, ownerMark...), owner.String()...)
		if set := s.sets[string(m.text)]; set != nil {
			return set
		}
	}
	text := string(m.text)
	set := &labelSet{namespace: s, text: text, labels: newLabelList(m.keys, podLabels, text)}
	s.sets[text] = set
	m.assignOwner(set, owner)
	s.selectors.matching(set.labels, func(v *VPA) {
		if s.owns(v, set) {
			m.link(v, set)
		}
	})
	return set
}

func (m *Model) track(p *pod, now time.Time) {
	if !p.stale || m.config.MemorySaver && len(p.set.vpas) == 0 && !p.tracked {
		return
	}
	p.tracked, p.stale = true, false
	grown := false
	for _, name := range p.containers {
		key := usage.ContainerKey{Namespace: p.set.namespace.name, Pod: p.name, Container: name}
		if series, found := p.set.seriesOf(name); found {
			m.config.Store.Feed(key, series)
			continue
		}
		series, _ := m.config.Store.Track(key, usage.SeriesKey{Namespace: key.Namespace, Container: name, Labels: p.set.text}, now)
		m.addSeries(p.set, name, series, m.marksNewSeries)
		grown = true
	}
	if grown {
		m.seriesChanged(p.set)
	}
}

func (set *labelSet) seriesOf(container string) (series usage.Series, found bool) {
	for i := range set.series {
		if set.series[i].container == container {
			return set.series[i].series, true
		}
	}
	return 0, false
}

func (set *labelSet) find(series usage.Series) *namedSeries {
	for i := range set.series {
		if set.series[i].series == series {
			return &set.series[i]
		}
	}
	return nil
}

// addSeries must be followed by seriesChanged.
func (m *Model) addSeries(set *labelSet, container string, series usage.Series, missing bool) {
	set.series = append(set.series, namedSeries{container, series, missing})
	for int(series) >= len(m.seriesLocations) {
		m.seriesLocations = append(m.seriesLocations, seriesLocation{})
	}
	m.seriesLocations[series] = seriesLocation{set, container}
}

// removeSeries must be followed by seriesChanged.
func (m *Model) removeSeries(series usage.Series) {
	set := m.seriesLocations[series].set
	set.series = slices.DeleteFunc(set.series, func(n namedSeries) bool { return n.series == series })
	m.seriesLocations[series] = seriesLocation{}
}

func (m *Model) seriesChanged(set *labelSet) {
	for _, v := range set.vpas {
		v.Invalidate()
	}
	m.applyRules(set)
}

func (m *Model) untrack(p *pod, container string) {
	m.config.Store.Forget(usage.ContainerKey{Namespace: p.set.namespace.name, Pod: p.name, Container: container})
}

// RemovePod removes a pod and retains its history. An unknown pod is ignored.
func (m *Model) RemovePod(namespace, name string) {
	s := m.namespaces[namespace]
	if s == nil || s.pods[name] == nil {
		return
	}
	p := s.pods[name]
	for _, container := range p.containers {
		m.untrack(p, container)
	}
	delete(s.pods, name)
	delete(m.unresolvedOwners, p)
	s.removed++
	set := p.set
	m.move(p, nil)
	set.countEnded(p.podTemplate)
	m.retire(set)
	m.limitEnded(s)
}

func (m *Model) dropEmptySet(set *labelSet) {
	if len(set.pods) > 0 || len(set.series) > 0 {
		return
	}
	for _, v := range set.vpas {
		delete(v.sets, set)
		v.Invalidate()
	}
	delete(set.namespace.sets, set.text)
	set.namespace.releaseOwner(set)
	set.namespace.recent = nil
	m.dropEmptyNamespace(set.namespace)
}

func (m *Model) dropEmptyNamespace(s *namespaceState) {
	if len(s.vpas)+len(s.sets)+len(s.pods) == 0 {
		delete(m.namespaces, s.name)
	}
}

// Expire drops idle series, and orphaned label sets after OrphanGrace. A series without CPU samples
// is kept while one of its pods runs or a VPA that selects it has a usable target.
func (m *Model) Expire(now time.Time) {
	m.sweep(m.config.Store.CredibleTime(now))
	expired := m.config.Store.Expire(now, func(series usage.Series) bool {
		return int(series) < len(m.seriesLocations) && m.seriesLocations[series].set != nil && m.seriesLocations[series].set.contributes()
	})
	for _, series := range expired {
		if int(series) >= len(m.seriesLocations) || m.seriesLocations[series].set == nil {
			continue
		}
		set := m.seriesLocations[series].set
		m.removeSeries(series)
		m.seriesChanged(set)
		m.dropEmptySet(set)
	}
	m.compact()
}

// ExpireRestored drops old restored histories of containers without series. Histories without CPU
// samples count from the start of the program.
func (m *Model) ExpireRestored(now, started time.Time) {
	now = m.config.Store.CredibleTime(now)
	for _, v := range m.VPAs() {
		for container, restored := range v.Restored {
			last := restored.Last()
			if last.IsZero() {
				last = started
			}
			if len(v.Series(container)) == 0 && now.Sub(last) >= v.RulesOf(container).Age() {
				delete(v.Restored, container)
				v.Invalidate()
			}
		}
	}
}

func (m *Model) compact() {
	for _, s := range m.namespaces {
		if s.removed < 64 || s.removed < len(s.pods)/16 {
			continue
		}
		pods, sets := make(map[string]*pod, len(s.pods)), make(map[string]*labelSet, len(s.sets))
		maps.Copy(pods, s.pods)
		maps.Copy(sets, s.sets)
		s.pods, s.sets, s.removed = pods, sets, 0
	}
	end := len(m.seriesLocations)
	for end > 0 && m.seriesLocations[end-1].set == nil {
		end--
	}
	if end < len(m.seriesLocations)*15/16 {
		m.seriesLocations = slices.Clone(m.seriesLocations[:end])
	}
}

func (set *labelSet) contributes() bool {
	return slices.ContainsFunc(set.pods, func(p *pod) bool { return !p.finished }) ||
		slices.ContainsFunc(set.vpas, func(v *VPA) bool { return v.TargetError == nil })
}

// applyRules sets the rules of the controlling VPA. Unset rules return to the defaults.
func (m *Model) applyRules(set *labelSet) {
	if !m.config.PerVPA {
		return
	}
	for _, n := range set.series {
		rules := m.config.Store.Rules()
		if len(set.vpas) > 0 {
			rules = override(rules, convert.ContainerPolicy(set.vpas[0].Object, n.container))
		}
		m.config.Store.SetRules(n.series, rules)
	}
}

// RulesOf returns the rules of a container with the overrides of v.
func (v *VPA) RulesOf(container string) usage.Rules {
	rules := v.model.config.Store.Rules()
	if !v.model.config.PerVPA {
		return rules
	}
	return override(rules, convert.ContainerPolicy(v.Object, container)).Normalized()
}

// override applies a container policy. Quantities are rounded up to thousandths.
func override(rules usage.Rules, p *vpav1.ContainerResourcePolicy) usage.Rules {
	if p == nil {
		return rules
	}
	if q := p.OOMBumpUpRatio; q != nil {
		rules.OOMRatio = float64(q.MilliValue()) / 1000
	}
	if q := p.OOMMinBumpUp; q != nil {
		rules.OOMMinBump = resources.Amount(math.Ceil(float64(q.MilliValue()) / 1000))
	}
	if s := p.MemoryAggregationIntervalSeconds; s != nil {
		rules.Interval = time.Duration(*s) * time.Second
	}
	if n := p.MemoryAggregationIntervalCount; n != nil {
		rules.Count = *n
	}
	return rules
}
