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

// Observed is a listed VPA with the selector of its target, or the error of the lookup.
type Observed struct {
	Object   *vpav1.VerticalPodAutoscaler
	Selector labels.Selector
	Err      error
}

// recentlyDeleted is found by name, not by UID, so that a recreated VPA keeps its history.
type recentlyDeleted struct {
	vpa   *VPA
	since time.Time
}

const maxRecentlyDeleted = 20000

// SyncVPAs replaces the VPAs of the model. It returns the VPAs that are new or have another target,
// so that the caller can restore their history. A VPA that returns within Grace, even recreated,
// keeps its state and is not new.
func (m *Model) SyncVPAs(list []Observed, now time.Time) (fresh []*VPA) {
	m.syncCount++
	m.resolveOwners(now)
	maps.DeleteFunc(m.recentlyDeleted, func(_ cache.ObjectName, d recentlyDeleted) bool { return now.Sub(d.since) >= Grace })
	relinked := map[*namespaceState][]*VPA{} // VPAs with changed selectors
	for _, o := range list {
		v, isNew := m.putVPA(o, now)
		if isNew {
			fresh = append(fresh, v)
		}
		if m.updateSelector(v, o, now) {
			s := m.namespaces[v.Object.Namespace]
			relinked[s] = append(relinked[s], v)
		}
	}
	for _, v := range m.VPAs() {
		if v.syncCount != m.syncCount {
			m.noteDeleted(v, now)
		}
	}
	for s, vpas := range relinked {
		m.relink(s, vpas, now)
	}
	return fresh
}

func (m *Model) putVPA(o Observed, now time.Time) (v *VPA, fresh bool) {
	s := m.namespaceState(o.Object.Namespace)
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
	v.syncCount = m.syncCount
	if v.Object != o.Object {
		v.Object = o.Object
		if convert.UnreadableReason(v.Object) == "" { // else the previous rules stay
			v.Rules = convert.Rules(v.Object)
		}
		m.reorder(v)
	}
	return v, fresh
}

func (m *Model) addVPA(object *vpav1.VerticalPodAutoscaler, key target.Key, now time.Time) (v *VPA, fresh bool) {
	v = &VPA{added: now}
	former, remembered := m.recentlyDeleted[cache.MetaObjectToName(object)]
	back := remembered && former.vpa.target == key
	v.Retargeted = remembered && !back
	if back {
		v = former.vpa
		delete(m.recentlyDeleted, cache.MetaObjectToName(object))
		if v.Object.UID != object.UID { // its status is a new one
			v.added = now
			v.Trust, v.Published, v.Saved = Trust{}, Published{MissingLoggedAt: now}, Saved{}
		}
		// Another recommender may have written since.
		v.Published = Published{Recommended: v.Published.Recommended, Uncapped: v.Published.Uncapped, Protected: v.Published.Protected, MissingLoggedAt: v.Published.MissingLoggedAt}
		v.Saved = Saved{Unsaved: v.Saved.Unsaved}
	}
	v.Object, v.Rules = object, convert.Rules(object)
	v.model, v.target, v.sets = m, key, map[*labelSet]struct{}{}
	v.TargetError, v.selector, v.TargetSince = nil, nil, object.Generation
	m.namespaceState(object.Namespace).vpas[object.Name] = v
	m.vpas = nil
	v.Invalidate()
	return v, !back
}

func (m *Model) noteDeleted(v *VPA, now time.Time) {
	m.removeVPA(v)
	if len(m.recentlyDeleted) < maxRecentlyDeleted {
		m.recentlyDeleted[cache.MetaObjectToName(v.Object)] = recentlyDeleted{v, now}
	}
}

// DeletedSince returns when a VPA was deleted, if it is remembered in case it returns.
func (m *Model) DeletedSince(namespace, name string) (since time.Time, remembered bool) {
	d, remembered := m.recentlyDeleted[cache.NewObjectName(namespace, name)]
	return d.since, remembered
}

func (m *Model) removeVPA(v *VPA) {
	s := m.namespaces[v.Object.Namespace]
	s.selectors.remove(v)
	for set := range v.sets {
		m.unlink(v, set)
	}
	delete(s.vpas, v.Object.Name)
	m.vpas = nil
	m.dropEmptyNamespace(s)
}

// updateSelector reports whether v must be relinked. A target error counts only after Grace.
func (m *Model) updateSelector(v *VPA, o Observed, now time.Time) bool {
	selector := o.Selector
	switch {
	case o.Err == nil:
		v.TargetError = nil
	case v.TargetError == nil || errors.Is(v.TargetError, target.ErrNotRead):
		v.TargetError, v.TargetErrorSince = o.Err, now // ErrNotRead is no property of the target
	default:
		v.TargetError = o.Err
	}
	if v.TargetError != nil {
		if v.InGrace(now) {
			return false
		}
		selector = nil
	}
	if equalSelectors(selector, v.selector) {
		return false
	}
	s := m.namespaces[v.Object.Namespace]
	s.selectors.remove(v)
	v.selector = selector
	s.selectors.add(v)
	return true
}

// equalSelectors does not compare texts, which would be too expensive in each iteration.
func equalSelectors(a, b labels.Selector) bool {
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

// InGrace reports whether the target is readable, or was within Grace.
func (v *VPA) InGrace(now time.Time) bool {
	return v.TargetError == nil || now.Sub(v.TargetErrorSince) < Grace
}

// relink links VPAs with changed selectors in one scan of the label sets. New series start at now.
func (m *Model) relink(s *namespaceState, vpas []*VPA, now time.Time) {
	unselected := map[*VPA][]*labelSet{}
	matches := s.selectors.cachedMatches()
	for _, v := range vpas {
		v.relinking = true
		stillSelected := false
		for set := range v.sets {
			switch {
			case v.selector == nil:
				m.unlink(v, set)
				set.lastVPA = v.Object.Name
			case set.former:
			case !s.owns(v, set):
				m.unlink(v, set)
			case matches(v, set):
				stillSelected = true
			default:
				m.unlink(v, set)
				unselected[v] = append(unselected[v], set)
			}
		}
		if stillSelected { // narrowed: sets without a known owner may belong to another workload
			unselected[v] = slices.DeleteFunc(unselected[v], func(set *labelSet) bool { return set.owner != v.target })
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
		m.moveToFormer(s, v, unselected[v])
	}
}

func (m *Model) link(v *VPA, set *labelSet) {
	v.sets[set] = struct{}{}
	v.Invalidate()
	at, _ := slices.BinarySearchFunc(set.vpas, v, stronger)
	set.vpas = slices.Insert(set.vpas, at, v)
	set.invalidateLast()
	m.applyRules(set)
}

func (m *Model) unlink(v *VPA, set *labelSet) {
	delete(v.sets, set)
	v.Invalidate()
	set.vpas = slices.DeleteFunc(set.vpas, func(other *VPA) bool { return other == v })
	set.invalidateLast()
	m.applyRules(set)
}

func (m *Model) reorder(v *VPA) {
	v.Invalidate()
	for set := range v.sets {
		slices.SortFunc(set.vpas, stronger)
		set.invalidateLast()
		if convert.UnreadableReason(v.Object) == "" { // else the previous rules stay
			m.applyRules(set)
		}
	}
}
