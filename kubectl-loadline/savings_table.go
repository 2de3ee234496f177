package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
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

// savingsTable is what is printed.
type savingsTable struct {
	*tabwriter.Writer

	prices rollout.Prices
}

// show prints policies, and their workloads if these are wanted.
func (c *savingsConfig) show(out io.Writer, policies []loadlinev1alpha1.SizingPolicy) error {
	t := savingsTable{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), c.prices}
	fmt.Fprintln(t, "POLICY\tWORKLOADS\tCORES LESS\tCORES MORE\tGIB LESS\tGIB MORE\tSAVES\tCOSTS")
	var less, more resources.List
	selected := 0
	var silent []string
	for i := range policies {
		s := &policies[i].Status
		if s.Counts == nil {
			silent = append(silent, policies[i].Name)
			continue
		}
		saves, costs := amounts(s.Savings), amounts(s.Increases)
		t.row(policies[i].Name, fmt.Sprint(s.Counts.Selected), saves, costs)
		if c.workloads {
			t.workloads(s)
		}
		less, more, selected = sum(less, saves), sum(more, costs), selected+int(s.Counts.Selected)
	}
	if len(policies) > 1 {
		t.row("all", fmt.Sprint(selected), less, more)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, name := range silent {
		fmt.Fprintf(out, "! SizingPolicy %s has no status: its recommender does not run, or did not see it yet\n", name)
	}
	_, err := fmt.Fprintf(out, "\nWhat the running pods would request less and more than now with what is recommended, and what that is\n"+
		"in a month of 730 hours, at %g a core-hour and %g a GiB-hour.\n", c.prices.Core, c.prices.GiB)
	return err
}

func (t *savingsTable) row(name, workloads string, less, more resources.List) {
	fmt.Fprintf(t, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", name, workloads,
		cores(less), cores(more), gib(less), gib(more), t.prices.Monthly(less), t.prices.Monthly(more))
}

// workloads prints those that a status names.
func (t *savingsTable) workloads(s *loadlinev1alpha1.SizingPolicyStatus) {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		t.row(fmt.Sprintf("  %s %s/%s", w.Ref.Kind, w.Ref.Namespace, w.Ref.Name), "", amounts(w.Savings), amounts(w.Increases))
	}
	if others := int(s.Counts.Selected) - len(s.Workloads); others > 0 {
		fmt.Fprintf(t, "  and %d others\n", others)
	}
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
