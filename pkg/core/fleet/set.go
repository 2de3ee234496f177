package fleet

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/reason"
)

const defaultPriority = 100

// Set contains all policies in order of precedence. It is immutable and safe for concurrent use. A
// nil Set has no policies.
type Set struct {
	entries []entry
	options Options
	others  map[other]bool // workloads that policies select by name
}

// namedWorkload is a workload of an unlisted kind, in any namespace.
type other struct{ group, kind, name string }

// Options configure a Set.
type Options struct {
	OwnNamespace string // namespace of the program, selected only by name, empty if unknown
	Foreign      bool   // annotations of other projects exclude workloads
}

type entry struct {
	Policy
	named map[string]bool // true is selected by name, false is excluded
	all   bool            // all other namespaces except system namespaces
}

// NewSet returns a set with copies of the policies. Their names must be unique.
func NewSet(policies []Policy, o Options) *Set {
	s := &Set{options: o, entries: make([]entry, 0, len(policies))}
	for _, p := range policies {
		p.Priority = cmp.Or(p.Priority, defaultPriority)
		e := entry{Policy: p, named: map[string]bool{}}
		for _, name := range p.Namespaces.Names {
			e.named[name] = true
		}
		e.all = e.named[AllNamespaces]
		for _, name := range p.Namespaces.Exclude {
			e.named[name] = false
		}
		s.entries = append(s.entries, e)
	}
	slices.SortFunc(s.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	s.others = map[other]bool{}
	for _, m := range s.Named() {
		s.others[otherOf(m.Group, m.Kind, m.Name)] = true
	}
	return s
}

// NamesWorkload reports whether a policy selects a workload of an unlisted kind by name, in any
// namespace.
func (s *Set) Names(group, kind, name string) bool {
	return s != nil && s.others[otherOf(group, kind, name)]
}

// newNamedWorkload normalizes the group, so that equal workloads compare equal.
func otherOf(group, kind, name string) other {
	if BuiltIn(group) {
		group = ""
	}
	return other{group, kind, name}
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
func (s *Set) Named() iter.Seq2[*Policy, *Match] {
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

// MayChangePods reports whether a policy may let generated VPAs change pods of a namespace. Nil
// labels are unknown.
func (s *Set) Acts(namespace string, labels map[string]string) bool {
	if s == nil {
		return false
	}
	w := Workload{Namespace: namespace, NamespaceLabels: labels}
	for i := range s.entries {
		if e := &s.entries[i]; e.Mode > Recommend && !e.Paused && e.Unusable == "" && s.looksInto(e, &w) {
			return true
		}
	}
	return false
}

// Decide returns the decision for a workload. It allocates only for a Problem.
func (s *Set) For(w Workload) Decision {
	p := s.responsible(&w)
	if p == nil {
		if w.VPA.Author == Loadline {
			return Decision{Mode: Recommend, Reason: reason.PolicyUnknown}
		}
		return Decision{}
	}
	d := Decision{Policy: p, KeepVPA: w.VPA.Author != Person}
	out := w.optedOut(s.options.Foreign, &d.Problem)
	d.Mode = w.reduced(p.Mode, &d.Problem)
	w.sharing(&d)
	switch {
	case out:
		d.Reason = reason.OptedOut
	case p.Unusable != "" || guesses(p, &w):
		d.Reason = reason.PolicyUnknown
	case p.Paused:
		d.Reason = reason.PolicyPaused
	default:
		d.MakeVPA = p.MakeVPAs && w.VPA.Author == Nobody
		d.beside(w.VPA)
		return d
	}
	d.Mode = d.Mode.stopped()
	return d
}

// applyVPAMode restricts the decision to the mode of the VPA, and sets why running pods do not
// change. A generated VPA has mode Off, so only the policy mode enables changes.
func (d *Decision) beside(v VPA) {
	passive := v.Author == Person && v.Passive
	if passive && d.Mode != Inherit {
		d.Mode = d.Mode.stopped()
	}
	switch {
	case passive, d.Mode == Inherit && v.Author != Person:
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
func (s *Set) Rival(responsible *Policy, w Workload) string {
	for p := range s.Selecting(w) {
		if p.Priority != responsible.Priority {
			return ""
		}
		if p.Name != responsible.Name && !guesses(p, &w) {
			return p.Name
		}
	}
	return ""
}

func (s *Set) responsible(w *Workload) *Policy {
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
func guesses(p *Policy, w *Workload) bool {
	if w.NamespaceLabels == nil && p.Namespaces.Selector != nil && !slices.Contains(p.Namespaces.Names, w.Namespace) && !slices.Contains(p.Namespaces.Names, AllNamespaces) {
		return true
	}
	return w.LabelsUnknown && !slices.ContainsFunc(p.Workloads, func(m Match) bool { return m.Selector == nil && m.matches(w) })
}

func (s *Set) selects(e *entry, w *Workload) bool {
	if !s.looksInto(e, w) {
		return false
	}
	for i := range e.Workloads {
		if e.Workloads[i].matches(w) {
			return true
		}
	}
	return false
}

func (s *Set) looksInto(e *entry, w *Workload) bool {
	if selected, named := e.named[w.Namespace]; named {
		return selected
	}
	switch w.Namespace {
	case "kube-system", "kube-public", "kube-node-lease", s.options.OwnNamespace:
		return false
	}
	selector := e.Namespaces.Selector
	return e.all || selector != nil && (w.NamespaceLabels == nil || selector.Matches(w.NamespaceLabels))
}

func (m *Match) matches(w *Workload) bool {
	return m.Kind == w.Kind && sameGroup(m.Group, w.Group) && (m.Name == "" || m.Name == w.Name) &&
		(m.Selector == nil || w.LabelsUnknown || m.Selector.Matches(w.Labels))
}

// sameGroup reports whether two groups of the same kind are equal. References to built-in kinds
// often have an old or no group.
func sameGroup(a, b string) bool { return a == b || BuiltIn(a) && BuiltIn(b) }

// BuiltIn reports whether an API group is part of Kubernetes. The group of a custom resource must
// contain a dot.
func BuiltIn(group string) bool { return !strings.Contains(group, ".") }
