package feed

import (
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
)

// PutPod takes a pod that is new or changed.
func (m *Model) PutPod(object *corev1.Pod, now time.Time) {
	s := m.space(object.Namespace)
	p := s.pods[object.Name]
	if p == nil {
		p = &pod{}
		s.pods[object.Name] = p
	}
	p.object = object
	if p.set == nil || !maps.Equal(p.set.labels, labels.Set(object.Labels)) {
		former := p.set
		p.set = m.set(s, object)
		p.set.pods[object.Name] = p
		if former != nil {
			delete(former.pods, object.Name)
			m.track(p, now)
			m.tidySet(former)
			return
		}
	}
	m.track(p, now)
}

// set returns the label set of a pod, and offers a new one to all VPAs of the
// namespace.
func (m *Model) set(s *space, object *corev1.Pod) *labelSet {
	text := labels.Set(object.Labels).String()
	if set := s.sets[text]; set != nil {
		return set
	}
	set := &labelSet{
		namespace: object.Namespace,
		text:      text,
		labels:    object.Labels,
		pods:      map[string]*pod{},
		series:    map[string]usage.Series{},
	}
	s.sets[text] = set
	for _, v := range s.vpas {
		if v.selector != nil && v.selector.Matches(set.labels) {
			m.link(v, set)
		}
	}
	return set
}

// track makes the store know the containers of a pod, and forget those it has no
// more.
func (m *Model) track(p *pod, now time.Time) {
	if m.config.MemorySaver && len(p.set.vpas) == 0 && p.tracked == nil {
		return
	}
	names := make([]string, 0, len(p.object.Spec.Containers))
	grown := false
	for i := range p.object.Spec.Containers {
		name := p.object.Spec.Containers[i].Name
		names = append(names, name)
		series, _ := m.config.Store.Track(
			usage.ContainerKey{Namespace: p.object.Namespace, Pod: p.object.Name, Container: name},
			usage.SeriesKey{Namespace: p.object.Namespace, Container: name, Labels: p.set.text}, now)
		if known, found := p.set.series[name]; !found || known != series {
			p.set.series[name] = series
			m.place(series, p.set, name)
			grown = true
		}
	}
	for _, name := range p.tracked {
		if !slices.Contains(names, name) {
			m.forget(p, name)
		}
	}
	p.tracked = names
	if grown {
		for _, v := range p.set.vpas {
			v.series = nil
		}
		m.push(p.set)
	}
}

func (m *Model) forget(p *pod, container string) {
	m.config.Store.Forget(usage.ContainerKey{Namespace: p.object.Namespace, Pod: p.object.Name, Container: container})
}

func (m *Model) place(series usage.Series, set *labelSet, container string) {
	for int(series) >= len(m.places) {
		m.places = append(m.places, nil)
	}
	m.places[series] = &place{set, container}
}

// RemovePod drops a pod; its history stays. An unknown pod is no error.
func (m *Model) RemovePod(namespace, name string) {
	s := m.spaces[namespace]
	if s == nil || s.pods[name] == nil {
		return
	}
	p := s.pods[name]
	for _, container := range p.tracked {
		m.forget(p, container)
	}
	delete(s.pods, name)
	delete(p.set.pods, name)
	m.tidySet(p.set)
}

// tidySet drops a label set that no pod has and that has no history.
func (m *Model) tidySet(set *labelSet) {
	if len(set.pods) > 0 || len(set.series) > 0 {
		return
	}
	for _, v := range set.vpas {
		delete(v.sets, set)
	}
	delete(m.spaces[set.namespace].sets, set.text)
	m.tidy(set.namespace)
}

// tidy drops a namespace that holds nothing.
func (m *Model) tidy(namespace string) {
	if s := m.spaces[namespace]; len(s.vpas)+len(s.sets)+len(s.pods) == 0 {
		delete(m.spaces, namespace)
	}
}

// Expire drops series that have been idle for too long. A series without CPU
// samples is kept while one of its pods still runs or a VPA that selects it has
// a target.
func (m *Model) Expire(now time.Time) {
	expired := m.config.Store.Expire(now, func(series usage.Series) bool {
		return m.places[series] != nil && m.places[series].set.contributes()
	})
	for _, series := range expired {
		at := m.places[series]
		if at == nil {
			continue
		}
		m.places[series] = nil
		delete(at.set.series, at.container)
		for _, v := range at.set.vpas {
			v.series = nil
		}
		m.tidySet(at.set)
	}
}

func (set *labelSet) contributes() bool {
	for _, p := range set.pods {
		if phase := p.object.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return true
		}
	}
	return slices.ContainsFunc(set.vpas, func(v *VPA) bool { return v.Trouble == nil })
}

// push gives the series of a label set the settings of the VPA that controls
// it. Settings that a VPA no longer has go back to those of the store.
func (m *Model) push(set *labelSet) {
	if !m.config.PerVPA {
		return
	}
	for container, series := range set.series {
		rules := m.config.Store.Rules()
		if len(set.vpas) > 0 {
			rules = override(rules, convert.ContainerPolicy(set.vpas[0].Object, container))
		}
		m.config.Store.SetRules(series, rules)
	}
}

// RulesOf returns the rules for a container of v, for its restored history.
func (m *Model) RulesOf(v *VPA, container string) usage.Rules {
	rules := m.config.Store.Rules()
	if !m.config.PerVPA {
		return rules
	}
	return override(rules, convert.ContainerPolicy(v.Object, container))
}

// override applies the settings of a container policy. Quantities count in
// thousandths, rounded up.
func override(rules usage.Rules, p *vpav1.ContainerResourcePolicy) usage.Rules {
	if p == nil {
		return rules
	}
	if q := p.OOMBumpUpRatio; q != nil {
		rules.OOMRatio = float64(q.MilliValue()) / 1000
	}
	if q := p.OOMMinBumpUp; q != nil {
		rules.OOMMinBump = amount.Amount(math.Ceil(float64(q.MilliValue()) / 1000))
	}
	if s := p.MemoryAggregationIntervalSeconds; s != nil {
		rules.Interval = time.Duration(*s) * time.Second
	}
	if n := p.MemoryAggregationIntervalCount; n != nil {
		rules.Count = *n
	}
	return rules
}
