package model

import (
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/target"
)

// Observed is a VPA as it was just seen, with what its target resolved to: a selector, or the error that says why not.
type Observed struct {
	Object   *vpav1.VerticalPodAutoscaler
	Selector labels.Selector
	Err      error
}

// recentlyDeleted is a VPA that is not in the model any more. It is remembered by name, not by UID: one that is deleted
// and created again has the history of its containers still.
type recentlyDeleted struct {
	vpa   *VPA
	since time.Time
}

// mostRecentlyDeleted bounds how many are remembered.
const mostRecentlyDeleted = 20000

// SyncVPAs makes the VPAs of the model those of the list. It returns those that are new, or point to another target
// than before, so that the caller can restore their history. One that comes back within Grace, or is created again, is
// not new: it has what it had, unless it points to another target.
func (m *Model) SyncVPAs(list []Observed, now time.Time) (fresh []*VPA) {
	m.pass++
	m.settle(now)
	maps.DeleteFunc(m.recentlyDeleted, func(_ cache.ObjectName, d recentlyDeleted) bool { return now.Sub(d.since) >= Grace })
	selecting := map[*space][]*VPA{} // whose selectors changed
	for _, o := range list {
		v, isNew := m.putVPA(o, now)
		if isNew {
			fresh = append(fresh, v)
		}
		if m.selects(v, o, now) {
			s := m.spaces[v.Object.Namespace]
			selecting[s] = append(selecting[s], v)
		}
	}
	for _, v := range m.VPAs() {
		if v.pass != m.pass {
			m.noteDeleted(v, now)
		}
	}
	for s, vpas := range selecting {
		m.relink(s, vpas, now)
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
	replaced := v != nil && v.Object.UID != o.Object.UID
	retargeted := v != nil && !replaced && v.target != key
	switch {
	case replaced:
		m.noteDeleted(v, now)
	case retargeted:
		m.removeVPA(v)
	}
	if v == nil || replaced || retargeted {
		v, fresh = m.addVPA(o.Object, key, now)
		v.Retargeted = v.Retargeted || retargeted
	}
	v.pass = m.pass
	if v.Object != o.Object {
		v.Object = o.Object
		if convert.Unreadable(v.Object) == "" { // else those of before hold
			v.Rules = convert.Rules(v.Object)
		}
		m.reorder(v)
	}
	return v, fresh
}

// addVPA adds a VPA without links, and reports whether it is a new one.
func (m *Model) addVPA(object *vpav1.VerticalPodAutoscaler, key target.Key, now time.Time) (v *VPA, fresh bool) {
	v = &VPA{added: now}
	former, remembered := m.recentlyDeleted[cache.MetaObjectToName(object)]
	back := remembered && former.vpa.target == key
	v.Retargeted = remembered && !back
	if back {
		v = former.vpa
		delete(m.recentlyDeleted, cache.MetaObjectToName(object))
		if v.Object.UID != object.UID { // its status is another
			v.added = now
			v.Trust, v.Published, v.Saved = Trust{}, Published{MissingLoggedAt: now}, Saved{}
		}
		// Others may have written meanwhile: only what it was like counts still.
		v.Published = Published{Recommended: v.Published.Recommended, Uncapped: v.Published.Uncapped, Protected: v.Published.Protected, MissingLoggedAt: v.Published.MissingLoggedAt}
		v.Saved = Saved{Unsaved: v.Saved.Unsaved}
	}
	v.Object, v.Rules = object, convert.Rules(object)
	v.model, v.target, v.sets = m, key, map[*labelSet]struct{}{}
	v.TargetError, v.selector, v.Since = nil, nil, object.Generation
	m.space(object.Namespace).vpas[object.Name] = v
	m.vpas = nil
	v.Invalidate()
	return v, !back
}

func (m *Model) noteDeleted(v *VPA, now time.Time) {
	m.removeVPA(v)
	if len(m.recentlyDeleted) < mostRecentlyDeleted {
		m.recentlyDeleted[cache.MetaObjectToName(v.Object)] = recentlyDeleted{v, now}
	}
}

// DeletedSince says since when a VPA has been gone, and whether it is remembered: it has its history if it comes back.
func (m *Model) DeletedSince(namespace, name string) (since time.Time, remembered bool) {
	d, remembered := m.recentlyDeleted[cache.NewObjectName(namespace, name)]
	return d.since, remembered
}

func (m *Model) removeVPA(v *VPA) {
	s := m.spaces[v.Object.Namespace]
	s.selectors.remove(v)
	for set := range v.sets {
		m.unlink(v, set)
	}
	delete(s.vpas, v.Object.Name)
	m.vpas = nil
	m.tidy(s)
}

// selects gives v the selector that was seen, if that differs from the last one, and reports whether its links must be
// made again. An error changes the selector only when it lasts.
func (m *Model) selects(v *VPA, o Observed, now time.Time) bool {
	selector := o.Selector
	switch {
	case o.Err == nil:
		v.TargetError = nil
	case v.TargetError == nil || errors.Is(v.TargetError, target.ErrNotRead):
		v.TargetError, v.TargetErrorSince = o.Err, now // that nobody has read it is no news of the target
	default:
		v.TargetError = o.Err
	}
	if v.TargetError != nil {
		if v.InGrace(now) {
			return false
		}
		selector = nil
	}
	if alike(selector, v.selector) {
		return false
	}
	s := m.spaces[v.Object.Namespace]
	s.selectors.remove(v)
	v.selector = selector
	s.selectors.add(v)
	return true
}

// alike reports whether two selectors, nil or not, make the same demands. Their text
// would tell it too, at a price that each VPA had to pay in each pass.
func alike(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	these, selectable := a.Requirements()
	those, other := b.Requirements()
	if len(these) > 0 && len(these) == len(those) && &these[0] == &those[0] {
		return true
	}
	return selectable == other && slices.EqualFunc(these, those, labels.Requirement.Equal)
}

// InGrace reports whether the target could be read a short time ago, or can be now.
func (v *VPA) InGrace(now time.Time) bool {
	return v.TargetError == nil || now.Sub(v.TargetErrorSince) < Grace
}

// relink links VPAs of a namespace, whose selectors changed, with the label sets that they match now. It goes over the
// label sets once, however many VPAs there are. The time is that of series that begin with it.
func (m *Model) relink(s *space, vpas []*VPA, now time.Time) {
	left := map[*VPA][]*labelSet{}
	matches := s.selectors.memo()
	for _, v := range vpas {
		v.relinking = true
		stays := false
		for set := range v.sets {
			switch {
			case v.selector == nil:
				m.unlink(v, set)
				set.claimant = v.Object.Name
			case set.former:
			case !s.owns(v, set):
				m.unlink(v, set)
			case matches(v, set):
				stays = true
			default:
				m.unlink(v, set)
				left[v] = append(left[v], set)
			}
		}
		if stays { // narrowed: sets without a known owner may belong to another workload
			left[v] = slices.DeleteFunc(left[v], func(set *labelSet) bool { return set.owner != v.target })
		}
		m.linkFormer(s, v)
	}
	for _, set := range s.sets {
		if set.former {
			continue
		}
		before := len(set.vpas)
		s.selectors.matching(set.labels, func(v *VPA) {
			if _, linked := v.sets[set]; v.relinking && !linked && s.owns(v, set) {
				m.link(v, set)
			}
		})
		if before == 0 && len(set.vpas) > 0 && m.config.MemorySaver {
			for _, p := range set.pods {
				m.track(p, now)
			}
		}
	}
	for _, v := range vpas {
		v.relinking = false
		m.keepFormer(s, v, left[v])
	}
}

func (m *Model) link(v *VPA, set *labelSet) {
	v.sets[set] = struct{}{}
	v.Invalidate()
	at, _ := slices.BinarySearchFunc(set.vpas, v, stronger)
	set.vpas = slices.Insert(set.vpas, at, v)
	set.invalidateLast()
	m.push(set)
}

func (m *Model) unlink(v *VPA, set *labelSet) {
	delete(v.sets, set)
	v.Invalidate()
	set.vpas = slices.DeleteFunc(set.vpas, func(other *VPA) bool { return other == v })
	set.invalidateLast()
	m.push(set)
}

// reorder puts the VPAs of v's label sets in order again and applies the policy of v, which has changed.
func (m *Model) reorder(v *VPA) {
	v.Invalidate()
	for set := range v.sets {
		slices.SortFunc(set.vpas, stronger)
		set.invalidateLast()
		if convert.Unreadable(v.Object) == "" { // else the settings of before hold
			m.push(set)
		}
	}
}
