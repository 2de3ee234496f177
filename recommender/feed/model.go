package feed

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// Grace is how long the pods of a target that cannot be read any more still
// count: an API server in trouble, or a target that is replaced, must not empty
// a recommendation.
const Grace = 30 * time.Minute

// Config says how a Model works.
type Config struct {
	Store       *usage.Store
	MemorySaver bool // track only containers of pods that a VPA selects
	PerVPA      bool // settings of a VPA override those of the store
}

// Model links pods, label sets and VPAs with the series of a store.
//
//	namespace ── VPA ──┐ selects
//	          └─ label set ── series, one for each container name
//	                   └ pod ── tracked containers, which feed the series
type Model struct {
	config Config
	spaces map[string]*space
	vpas   []*VPA   // sorted by namespace and name; nil: must be built again
	places []*place // by series handle; nil: no such series
}

// space is what a namespace holds.
type space struct {
	vpas map[string]*VPA
	sets map[string]*labelSet
	pods map[string]*pod
}

// labelSet stands for all pods of a namespace with the same labels.
type labelSet struct {
	namespace string
	text      string // sorted k=v list
	labels    labels.Set
	pods      map[string]*pod
	series    map[string]usage.Series // by container
	vpas      []*VPA                  // that select it, the controlling one first
}

type pod struct {
	object  *corev1.Pod
	set     *labelSet
	tracked []string // containers
}

// place tells where a series belongs.
type place struct {
	set       *labelSet
	container string
}

// NewModel returns an empty model.
func NewModel(c Config) *Model { return &Model{config: c, spaces: map[string]*space{}} }

func (m *Model) space(namespace string) *space {
	s := m.spaces[namespace]
	if s == nil {
		s = &space{vpas: map[string]*VPA{}, sets: map[string]*labelSet{}, pods: map[string]*pod{}}
		m.spaces[namespace] = s
	}
	return s
}

// VPAs returns all VPAs, sorted by namespace and name. The caller must not change
// the list.
func (m *Model) VPAs() []*VPA {
	if m.vpas != nil {
		return m.vpas
	}
	m.vpas = []*VPA{}
	for _, s := range m.spaces {
		for _, v := range s.vpas {
			m.vpas = append(m.vpas, v)
		}
	}
	slices.SortFunc(m.vpas, func(a, b *VPA) int {
		if c := strings.Compare(a.Object.Namespace, b.Object.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Object.Name, b.Object.Name)
	})
	return m.vpas
}

// Controlling returns the VPA that controls the pod of a container, and nil if
// none does.
func (m *Model) Controlling(c usage.ContainerKey) *VPA {
	s := m.spaces[c.Namespace]
	if s == nil {
		return nil
	}
	p := s.pods[c.Pod]
	if p == nil || len(p.set.vpas) == 0 {
		return nil
	}
	return p.set.vpas[0]
}

// Find returns the VPA with a name, and nil if there is none.
func (m *Model) Find(namespace, name string) *VPA {
	if s := m.spaces[namespace]; s != nil {
		return s.vpas[name]
	}
	return nil
}

// Observed is a VPA as it was just seen, with what its target resolved to: a
// selector, or the error that says why not.
type Observed struct {
	Object   *vpav1.VerticalPodAutoscaler
	Selector labels.Selector
	Err      error
}

// SyncVPAs makes the VPAs of the model those of the list. It returns those that
// are new, or point to another target than before, so that the caller can
// restore their history.
func (m *Model) SyncVPAs(list []Observed, now time.Time) (fresh []*VPA) {
	seen := make(map[*VPA]struct{}, len(list))
	for _, o := range list {
		v, isNew := m.putVPA(o, now)
		seen[v] = struct{}{}
		if isNew {
			fresh = append(fresh, v)
		}
	}
	for _, v := range m.VPAs() {
		if _, stays := seen[v]; !stays {
			m.removeVPA(v)
		}
	}
	return fresh
}

func (m *Model) putVPA(o Observed, now time.Time) (v *VPA, fresh bool) {
	s := m.space(o.Object.Namespace)
	v = s.vpas[o.Object.Name]
	var key target.Key
	if o.Object.Spec.TargetRef != nil {
		key = target.RefKey(o.Object.Namespace, o.Object.Spec.TargetRef)
	}
	if v != nil && v.target != key {
		m.removeVPA(v)
		s, v = m.space(o.Object.Namespace), nil
	}
	if v == nil {
		v, fresh = &VPA{target: key, sets: map[*labelSet]struct{}{}}, true
		s.vpas[o.Object.Name] = v
		m.vpas = nil
	}
	changed := v.Object != o.Object
	if changed {
		v.Object, v.Rules = o.Object, convert.Rules(o.Object)
	}
	if o.Err == nil {
		v.Trouble = nil
		m.selects(v, o.Selector, now)
	} else {
		if v.Trouble == nil {
			v.TroubleSince = now
		}
		v.Trouble = o.Err
		if !v.InGrace(now) {
			m.selects(v, nil, now)
		}
	}
	if changed {
		m.reorder(v)
	}
	return v, fresh
}

// InGrace tells whether the target has been in trouble for a short time only, or
// is in none.
func (v *VPA) InGrace(now time.Time) bool {
	return v.Trouble == nil || now.Sub(v.TroubleSince) < Grace
}

func (m *Model) removeVPA(v *VPA) {
	m.selects(v, nil, time.Time{})
	s := m.spaces[v.Object.Namespace]
	delete(s.vpas, v.Object.Name)
	m.vpas = nil
	m.tidy(v.Object.Namespace)
}

// selects links v with the label sets that a selector matches; nil matches none.
// Only a selector that differs from the last one costs anything. The time is
// that of series that begin with it.
func (m *Model) selects(v *VPA, selector labels.Selector, now time.Time) {
	if selector == nil && v.selector == nil {
		return
	}
	if selector != nil && v.selector != nil && selector.String() == v.selector.String() {
		return
	}
	v.selector, v.series = selector, nil
	for _, set := range m.spaces[v.Object.Namespace].sets {
		_, linked := v.sets[set]
		matches := selector != nil && selector.Matches(set.labels)
		switch {
		case matches && !linked:
			m.link(v, set)
			for _, p := range set.pods {
				m.track(p, now)
			}
		case !matches && linked:
			delete(v.sets, set)
			set.vpas = slices.DeleteFunc(set.vpas, func(other *VPA) bool { return other == v })
			m.push(set)
		}
	}
}

func (m *Model) link(v *VPA, set *labelSet) {
	v.sets[set], v.series = struct{}{}, nil
	at, _ := slices.BinarySearchFunc(set.vpas, v, stronger)
	set.vpas = slices.Insert(set.vpas, at, v)
	m.push(set)
}

// reorder puts the VPAs of v's label sets in order again and applies the policy
// of v, which has changed.
func (m *Model) reorder(v *VPA) {
	for set := range v.sets {
		slices.SortFunc(set.vpas, stronger)
		m.push(set)
	}
}
