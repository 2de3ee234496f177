package fleet

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/reason"
)

// defaultPriority is that of a policy that has none.
const defaultPriority = 100

// Set is all policies, in the order of their strength. It does not change once made, so
// that many may ask it. A nil Set has no policies.
type Set struct {
	entries []entry
	options Options
	others  map[other]bool // that are named by a policy
}

// other is a workload of a kind that is not listed, in any namespace.
type other struct{ group, kind, name string }

// Options are what a Set knows of the program.
type Options struct {
	OwnNamespace string // of the program, selected only by its name; empty: not known
	Foreign      bool   // annotations of other projects that take a workload out count
}

// entry is a policy with an index of its namespaces.
type entry struct {
	Policy
	named map[string]bool // true: selected by its name, false: excluded
	all   bool            // the others that are not of the system
}

// NewSet returns the set of policies, which it copies; their names must differ.
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

// Names reports whether a policy names a workload of a kind that is not listed, whatever the namespace.
func (s *Set) Names(group, kind, name string) bool {
	return s != nil && s.others[otherOf(group, kind, name)]
}

// otherOf returns a workload; groups that are the same are equal.
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

// Named yields the policies with each match of theirs that names a workload of a kind that is
// not listed, the strongest first. They are not to be changed.
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

// Policy returns the policy of a name; nil: there is none. It is not to be changed.
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

// Acts reports whether a policy may let made VPAs change pods of a namespace; labels that are nil are not known.
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

// For decides about a workload. It allocates only for a Problem.
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

// beside takes the mode of the VPA into account, and says why running pods are left
// alone if they are. A made VPA is Off: without a mode of the policy nothing happens.
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

// Selecting yields all policies that select a workload, the strongest first. That one is
// responsible, the others yield to it. They are not to be changed.
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

// Rival returns the name of another policy of the same priority that selects a workload, too, the first
// one; empty: there is none, as far as is known. Which of the two is responsible their names alone decide.
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

// responsible returns the strongest policy that selects a workload, or nil.
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

// guesses reports whether it is not known if a policy selects a workload: that depends on labels of
// the workload or of its namespace, which are not known.
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

// looksInto reports whether a policy is for the namespace of a workload.
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

// sameGroup reports whether two groups are one, for the same kind. References to kinds
// of Kubernetes itself are often written with an old group or with none.
func sameGroup(a, b string) bool { return a == b || BuiltIn(a) && BuiltIn(b) }

// BuiltIn reports whether a group comes with Kubernetes. That of a custom resource must contain a dot.
func BuiltIn(group string) bool { return !strings.Contains(group, ".") }
