package fleet

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/reason"
)

const defaultPriority = 100

// Set holds the policies by precedence. It is immutable and safe for concurrent use; nil: none.
type Set struct {
	entries []entry
	options Options
	named   map[namedWorkload]bool // workloads that policies select by name
}

// namedWorkload is a workload of an unlisted kind, in any namespace.
type namedWorkload struct{ group, kind, name string }

// Options configure a Set.
type Options struct {
	OwnNamespace string // namespace of the program, selected only by name, empty if unknown
	Foreign      bool   // annotations of other projects exclude workloads
}

type entry struct {
	Policy
	byName        map[string]bool // true is selected by name, false is excluded
	allNamespaces bool            // all other namespaces except system namespaces
}

// NewSet returns a set with copies of the policies. Their names must be unique.
func NewSet(policies []Policy, o Options) *Set {
	s := &Set{options: o, entries: make([]entry, 0, len(policies))}
	for _, p := range policies {
		p.Priority = cmp.Or(p.Priority, defaultPriority)
		e := entry{Policy: p, byName: map[string]bool{}}
		for _, name := range p.Namespaces.Names {
			e.byName[name] = true
		}
		e.allNamespaces = e.byName[AllNamespaces]
		for _, name := range p.Namespaces.Exclude {
			e.byName[name] = false
		}
		s.entries = append(s.entries, e)
	}
	slices.SortFunc(s.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	s.named = map[namedWorkload]bool{}
	for _, m := range s.NamedMatches() {
		s.named[newNamedWorkload(m.Group, m.Kind, m.Name)] = true
	}
	return s
}

// NamesWorkload reports whether a policy selects an unlisted kind by name, in any namespace.
func (s *Set) NamesWorkload(group, kind, name string) bool {
	return s != nil && s.named[newNamedWorkload(group, kind, name)]
}

// newNamedWorkload normalizes the group, so that equal workloads compare equal.
func newNamedWorkload(group, kind, name string) namedWorkload {
	if BuiltIn(group) {
		group = ""
	}
	return namedWorkload{group, kind, name}
}

// Len returns the number of policies.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.entries)
}

// NamedMatches yields the policies with each match that selects a workload of an unlisted kind by
// name, in order of precedence. They must not be modified.
func (s *Set) NamedMatches() iter.Seq2[*Policy, *Match] {
	return func(yield func(*Policy, *Match) bool) {
		if s == nil {
			return
		}
		for i := range s.entries {
			e := &s.entries[i]
			for j := range e.Workloads {
				if m := &e.Workloads[j]; !Listed(m.Group, m.Kind) && m.Name != "" && !yield(&e.Policy, m) {
					return
				}
			}
		}
	}
}

// Policy returns the policy with a name, or nil. It must not be modified.
func (s *Set) Policy(name string) *Policy {
	if s == nil {
		return nil
	}
	for i := range s.entries {
		if s.entries[i].Name == name {
			return &s.entries[i].Policy
		}
	}
	return nil
}

// MayChangePods reports whether policies may let generated VPAs change pods; nil labels: unknown.
func (s *Set) MayChangePods(namespace string, labels map[string]string) bool {
	if s == nil {
		return false
	}
	w := Workload{Namespace: namespace, NamespaceLabels: labels}
	for i := range s.entries {
		if e := &s.entries[i]; e.Mode > Recommend && !e.Paused && e.Unusable == "" && s.coversNamespace(e, &w) {
			return true
		}
	}
	return false
}

// Decide returns the decision for a workload. It allocates only for a Problem.
func (s *Set) Decide(w Workload) Decision {
	p := s.responsiblePolicy(&w)
	if p == nil {
		if w.VPA.Origin == GeneratedVPA {
			return Decision{Mode: Recommend, Reason: reason.PolicyUnknown}
		}
		return Decision{}
	}
	d := Decision{Policy: p, KeepVPA: w.VPA.Origin != UserVPA}
	out := w.optedOut(s.options.Foreign, &d.Problem)
	d.Mode = w.applyModeAnnotations(p.Mode, &d.Problem)
	w.readSharing(&d)
	switch {
	case out:
		d.Reason = reason.OptedOut
	case p.Unusable != "" || isUncertain(p, &w):
		d.Reason = reason.PolicyUnknown
	case p.Paused:
		d.Reason = reason.PolicyPaused
	default:
		d.GenerateVPA = p.GenerateVPAs && w.VPA.Origin == NoVPA
		d.applyVPAMode(w.VPA)
		return d
	}
	d.Mode = d.Mode.withoutChanges()
	return d
}

// applyVPAMode restricts the decision to the mode of the VPA, and sets why running pods do not
// change. A generated VPA has mode Off, so only the policy mode enables changes.
func (d *Decision) applyVPAMode(v VPA) {
	passive := v.Origin == UserVPA && v.Passive
	if passive && d.Mode != Inherit {
		d.Mode = d.Mode.withoutChanges()
	}
	switch {
	case passive, d.Mode == Inherit && v.Origin != UserVPA:
		d.Reason = reason.ModeOff
	case d.Mode == Observe:
		d.Reason = reason.Observing
	case d.Mode == Recommend:
		d.Reason = reason.RecommendOnly
	}
}

// Selecting yields all policies that select a workload, in order of precedence. The first one
// applies. They must not be modified.
func (s *Set) Selecting(w Workload) iter.Seq[*Policy] {
	return func(yield func(*Policy) bool) {
		if s == nil {
			return
		}
		for i := range s.entries {
			if s.selects(&s.entries[i], &w) && !yield(&s.entries[i].Policy) {
				return
			}
		}
	}
}

// ConflictingPolicy returns the name of the first other policy that has the same priority and
// selects the workload, or "". The policy name decides between the two.
func (s *Set) ConflictingPolicy(responsible *Policy, w Workload) string {
	for p := range s.Selecting(w) {
		if p.Priority != responsible.Priority {
			return ""
		}
		if p.Name != responsible.Name && !isUncertain(p, &w) {
			return p.Name
		}
	}
	return ""
}

func (s *Set) responsiblePolicy(w *Workload) *Policy {
	if s == nil {
		return nil
	}
	for i := range s.entries {
		if s.selects(&s.entries[i], w) {
			return &s.entries[i].Policy
		}
	}
	return nil
}

// isUncertain reports whether unknown labels decide if a policy selects a workload.
func isUncertain(p *Policy, w *Workload) bool {
	if w.NamespaceLabels == nil && p.Namespaces.Selector != nil && !slices.Contains(p.Namespaces.Names, w.Namespace) && !slices.Contains(p.Namespaces.Names, AllNamespaces) {
		return true
	}
	return w.LabelsUnknown && !slices.ContainsFunc(p.Workloads, func(m Match) bool { return m.Selector == nil && m.matches(w) })
}

func (s *Set) selects(e *entry, w *Workload) bool {
	if !s.coversNamespace(e, w) {
		return false
	}
	for i := range e.Workloads {
		if e.Workloads[i].matches(w) {
			return true
		}
	}
	return false
}

func (s *Set) coversNamespace(e *entry, w *Workload) bool {
	if selected, named := e.byName[w.Namespace]; named {
		return selected
	}
	switch w.Namespace {
	case "kube-system", "kube-public", "kube-node-lease", s.options.OwnNamespace:
		return false
	}
	selector := e.Namespaces.Selector
	return e.allNamespaces || selector != nil && (w.NamespaceLabels == nil || selector.Matches(w.NamespaceLabels))
}

func (m *Match) matches(w *Workload) bool {
	return m.Kind == w.Kind && sameGroup(m.Group, w.Group) && (m.Name == "" || m.Name == w.Name) &&
		(m.Selector == nil || w.LabelsUnknown || m.Selector.Matches(w.Labels))
}

// sameGroup equates built-in groups, because references often have an old or no group.
func sameGroup(a, b string) bool { return a == b || BuiltIn(a) && BuiltIn(b) }

// BuiltIn reports whether a group is part of Kubernetes. Custom groups must contain a dot.
func BuiltIn(group string) bool { return !strings.Contains(group, ".") }
