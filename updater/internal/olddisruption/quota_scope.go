package olddisruption

import "slices"

// ScopeName is a scope, as the Kubernetes API names it.
type ScopeName string

// The scopes that concern pods.
const (
	ScopeTerminating               ScopeName = "Terminating"    // pods with a deadline
	ScopeNotTerminating            ScopeName = "NotTerminating" // pods without
	ScopeBestEffort                ScopeName = "BestEffort"     // pods without requests and limits
	ScopeNotBestEffort             ScopeName = "NotBestEffort"
	ScopePriorityClass             ScopeName = "PriorityClass"
	ScopeCrossNamespacePodAffinity ScopeName = "CrossNamespacePodAffinity" // pods whose affinity looks into other namespaces
)

// ScopeOperator says how a ScopeRule compares the class of a pod with its values.
type ScopeOperator string

// The operators. Only PriorityClass has others than Exists.
const (
	ScopeIn           ScopeOperator = "In"
	ScopeNotIn        ScopeOperator = "NotIn"
	ScopeExists       ScopeOperator = "Exists"
	ScopeDoesNotExist ScopeOperator = "DoesNotExist"
)

// ScopeRule is one scope of a quota.
type ScopeRule struct {
	Scope    ScopeName
	Operator ScopeOperator
	Values   []string // names of priority classes
}

// PodTraits are the properties of a pod that scopes depend on.
type PodTraits struct {
	BestEffort     bool   // has neither requests nor limits
	Terminating    bool   // has a deadline
	CrossNamespace bool   // its affinity looks into other namespaces
	Class          string // its priority class; empty: none
}

// ScopesCover reports whether a quota counts a pod, which it does if all of its scopes cover
// the pod. A scope that is not known here covers none: a quota that is overlooked may
// refuse a change, which is tried again, but one that is believed to count a pod that it does
// not count would keep the pod from its size for ever.
func ScopesCover(rules []ScopeRule, t PodTraits) bool {
	return !slices.ContainsFunc(rules, func(r ScopeRule) bool { return !r.covers(t) })
}

func (r ScopeRule) covers(t PodTraits) bool {
	switch r.Scope {
	case ScopeTerminating:
		return t.Terminating
	case ScopeNotTerminating:
		return !t.Terminating
	case ScopeBestEffort:
		return t.BestEffort
	case ScopeNotBestEffort:
		return !t.BestEffort
	case ScopePriorityClass:
		return r.names(t.Class)
	case ScopeCrossNamespacePodAffinity:
		return t.CrossNamespace
	}
	return false // an unknown scope
}

// names reports whether the rule holds for a priority class; a pod without class is in no
// list of values.
func (r ScopeRule) names(class string) bool {
	listed := class != "" && slices.Contains(r.Values, class)
	switch r.Operator {
	case ScopeIn:
		return listed
	case ScopeNotIn:
		return !listed
	case ScopeExists:
		return class != ""
	case ScopeDoesNotExist:
		return class == ""
	}
	return false
}
