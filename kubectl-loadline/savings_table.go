package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// readPolicies returns the policies of some names, all without any, sorted by name.
func readPolicies(ctx context.Context, own versioned.Interface, names []string) ([]loadlinev1alpha1.SizingPolicy, error) {
	list, err := own.LoadlineV1alpha1().SizingPolicies().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("list SizingPolicies: the cluster does not know them, install their definition: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list SizingPolicies: %w", err)
	}
	policies := list.Items
	slices.SortFunc(policies, func(a, b loadlinev1alpha1.SizingPolicy) int { return strings.Compare(a.Name, b.Name) })
	if len(names) == 0 {
		return policies, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(policies, func(p loadlinev1alpha1.SizingPolicy) bool { return p.Name == name }) {
			return nil, fmt.Errorf("SizingPolicy %s does not exist", name)
		}
	}
	return slices.DeleteFunc(policies, func(p loadlinev1alpha1.SizingPolicy) bool { return !slices.Contains(names, p.Name) }), nil
}

// savingsRow is what a policy or a workload would request less and more, and what that is in a month.
type savingsRow struct {
	Name      string  `json:"name"`
	Workloads int     `json:"workloads,omitempty"` // of a policy
	CoresLess float64 `json:"coresLess"`
	CoresMore float64 `json:"coresMore"`
	GiBLess   float64 `json:"gibLess"`
	GiBMore   float64 `json:"gibMore"`
	Saves     float64 `json:"saves"`
	Costs     float64 `json:"costs"`

	of     []savingsRow // workloads of the policy that are listed
	others int          // that are not
}

// savingsAnswer is what all policies would save, and cost.
type savingsAnswer struct {
	Policies  []savingsRow            `json:"policies"`
	Workloads map[string][]savingsRow `json:"workloads,omitempty"` // by policy
	All       savingsRow              `json:"all"`
	Silent    []string                `json:"withoutStatus,omitempty"`
	CorePrice float64                 `json:"corePrice"` // of an hour
	GiBPrice  float64                 `json:"gibPrice"`
}

// answer puts prices on policies, and on their workloads if these are wanted.
func (c *savingsConfig) answer(policies []loadlinev1alpha1.SizingPolicy) *savingsAnswer {
	a := &savingsAnswer{CorePrice: c.prices.Core, GiBPrice: c.prices.GiB, Workloads: map[string][]savingsRow{}}
	var less, more resources.List
	selected := 0
	for i := range policies {
		s := &policies[i].Status
		if s.Counts == nil {
			a.Silent = append(a.Silent, policies[i].Name)
			continue
		}
		saves, costs := amounts(s.Savings), amounts(s.Increases)
		row := c.row(policies[i].Name, saves, costs)
		row.Workloads = int(s.Counts.Selected)
		if c.workloads {
			for j := range s.Workloads {
				w := &s.Workloads[j]
				row.of = append(row.of, c.row(fmt.Sprintf("%s %s/%s", w.Ref.Kind, w.Ref.Namespace, w.Ref.Name), amounts(w.Savings), amounts(w.Increases)))
			}
			row.others = row.Workloads - len(row.of)
			a.Workloads[row.Name] = row.of
		}
		a.Policies = append(a.Policies, row)
		less, more, selected = sum(less, saves), sum(more, costs), selected+row.Workloads
	}
	a.All = c.row("all", less, more)
	a.All.Workloads = selected
	return a
}

func (c *savingsConfig) row(name string, less, more resources.List) savingsRow {
	return savingsRow{Name: name, CoresLess: cores(less), CoresMore: cores(more), GiBLess: gib(less), GiBMore: gib(more), Saves: c.prices.Monthly(less), Costs: c.prices.Monthly(more)}
}

func (r *savingsRow) cells(name, workloads string) []string {
	cells := []string{name, workloads}
	for _, v := range []float64{r.CoresLess, r.CoresMore, r.GiBLess, r.GiBMore, r.Saves, r.Costs} {
		cells = append(cells, fmt.Sprintf("%.2f", v))
	}
	return cells
}

func (a *savingsAnswer) tables() []table {
	t := table{Columns: []string{"POLICY", "WORKLOADS", "CORES LESS", "CORES MORE", "GIB LESS", "GIB MORE", "SAVES", "COSTS"}}
	add := func(r *savingsRow) { t.Rows = append(t.Rows, r.cells(r.Name, fmt.Sprint(r.Workloads))) }
	for i := range a.Policies {
		p := &a.Policies[i]
		add(p)
		for j := range p.of {
			t.Rows = append(t.Rows, p.of[j].cells("  "+p.of[j].Name, ""))
		}
		if p.others > 0 {
			t.Rows = append(t.Rows, slices.Concat([]string{fmt.Sprintf("  and %d others", p.others)}, make([]string, len(t.Columns)-1)))
		}
	}
	if len(a.Policies)+len(a.Silent) > 1 {
		add(&a.All)
	}
	return []table{t}
}

func (a *savingsAnswer) notes() (notes []string) {
	for _, name := range a.Silent {
		notes = append(notes, fmt.Sprintf("! SizingPolicy %s has no status: its recommender does not run, or did not see it yet", name))
	}
	return append(notes, "", "What the running pods would request less and more than now with what is recommended, and what that is",
		fmt.Sprintf("in a month of 730 hours, at %g a core-hour and %g a GiB-hour.", a.CorePrice, a.GiBPrice))
}

func amounts(s loadlinev1alpha1.Sizes) resources.List {
	return convert.Resources(corev1.ResourceList(s))
}

func sum(a, b resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a = a.With(k, a.Value(k).Add(b.Value(k)))
	}
	return a
}

func cores(l resources.List) float64 { return float64(l.Value(resources.CPU)) / 1000 }

func gib(l resources.List) float64 { return float64(l.Value(resources.Memory)) / (1 << 30) }
