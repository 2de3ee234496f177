package oldview

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/client"
)

// Limits of the work for the budgets of a namespace. Beyond maxBudgetRequirements or
// maxNamespaceRequirements, the pods of the namespace share one budget.
const (
	// maxBudgetRequirements bounds the requirements of the budgets with the same labelPair, and of those
	// without one, which every pod is matched against.
	maxBudgetRequirements = 2000
	// maxNamespaceRequirements allows budgets for 5,000 workloads with two labels each.
	maxNamespaceRequirements = 20000
	// maxPodBudgets is the maximum number of budgets of a pod, the first ones by name. The API server evicts
	// no pod with more than one.
	maxPodBudgets = 100
)

// labelPair is a label that a selector requires with one value.
type labelPair struct{ key, value string }

// budget is one PodDisruptionBudget.
type budget struct {
	name         string
	selector     labels.Selector
	pairs        []labelPair
	requirements int
	oversized    bool // the selector is not evaluated and counts as one that selects every pod
}

func parseBudget(o *policyv1.PodDisruptionBudget) budget {
	selector, err := client.Selector(o.Spec.Selector)
	if err != nil { // too large: the API server refuses all other errors
		selector = labels.Everything()
	}
	requirements, _ := selector.Requirements()
	b := budget{name: o.Name, selector: selector, requirements: 1 + len(requirements), oversized: errors.Is(err, client.ErrSelectorTooLarge)}
	for i := range requirements {
		switch r := &requirements[i]; r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				b.pairs = append(b.pairs, labelPair{r.Key(), values[0]})
			}
		}
	}
	return b
}

// namespaceBudgets are the budgets of a namespace, parsed once for each object. Each budget is in one
// group, so that a pod is only matched against the groups of its labels and the group of the zero pair.
type namespaceBudgets struct {
	objects []*policyv1.PodDisruptionBudget // sorted by name
	budgets []budget                        // of objects
	groups  map[labelPair]*budgetGroup
	tooMany bool // a limit of requirements is exceeded
	used    time.Time
}

// budgetGroup are budgets that require the same pair.
type budgetGroup struct {
	budgets      []int // positions in namespaceBudgets.budgets
	requirements int
}

// parseBudgets parses the budgets that have changed and groups all of them. before may be nil.
func parseBudgets(namespace string, objects []*policyv1.PodDisruptionBudget, before *namespaceBudgets) *namespaceBudgets {
	known := map[*policyv1.PodDisruptionBudget]budget{}
	if before != nil {
		for i, o := range before.objects {
			known[o] = before.budgets[i]
		}
	}
	parsed := &namespaceBudgets{objects: objects, budgets: make([]budget, len(objects)), groups: map[labelPair]*budgetGroup{}}
	total, users := 0, map[labelPair]int{}
	for i, o := range objects {
		b, unchanged := known[o]
		if !unchanged {
			b = parseBudget(o)
		}
		parsed.budgets[i] = b
		total += b.requirements
		for _, pair := range b.pairs {
			users[pair]++
		}
	}
	parsed.tooMany = total > maxNamespaceRequirements
	for i := range parsed.budgets {
		b, rarest := &parsed.budgets[i], labelPair{}
		for _, pair := range b.pairs {
			if rarest == (labelPair{}) || users[pair] < users[rarest] {
				rarest = pair
			}
		}
		g := parsed.groups[rarest]
		if g == nil {
			g = &budgetGroup{}
			parsed.groups[rarest] = g
		}
		g.budgets = append(g.budgets, i)
		g.requirements += b.requirements
		parsed.tooMany = parsed.tooMany || g.requirements > maxBudgetRequirements
	}
	if parsed.tooMany && (before == nil || !before.tooMany) {
		klog.Background().Info("Too many PodDisruptionBudgets, restarting the pods of the namespace one after the other",
			"namespace", namespace, "podDisruptionBudgets", len(objects))
	}
	return parsed
}

// selecting returns the names of the budgets that select a pod, in order. A pod with labels that the
// cache has dropped counts as selected by all of them.
func (n *namespaceBudgets) selecting(pod *corev1.Pod) (names []string) {
	if n == nil || n.tooMany {
		return []string{unknownBudgets}
	}
	if client.Dropped(pod.Labels) {
		for i := range n.budgets[:min(len(n.budgets), maxPodBudgets)] {
			names = append(names, n.budgets[i].name)
		}
		return names
	}
	var selecting []int
	match := func(pair labelPair) {
		if g := n.groups[pair]; g != nil {
			for _, i := range g.budgets {
				if n.budgets[i].selector.Matches(labels.Set(pod.Labels)) {
					selecting = append(selecting, i)
				}
			}
		}
	}
	match(labelPair{})
	for key, value := range pod.Labels {
		match(labelPair{key, value})
	}
	slices.Sort(selecting)
	for _, i := range selecting[:min(len(selecting), maxPodBudgets)] {
		names = append(names, n.budgets[i].name)
	}
	return names
}
