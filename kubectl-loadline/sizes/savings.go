package sizes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/target"
)

type savingsConfig struct {
	cluster   cli.ClusterFlags
	output    *cli.OutputFlag
	scope     cli.ScopeFlags
	policies  flags.Policies
	prices    rollout.Prices
	workloads bool
}

func (c *savingsConfig) validate() error {
	price := func(flag string, value float64) error {
		return flags.Check(value >= 0 && !math.IsInf(value, 0), flag, value, "must be a number that is not negative")
	}
	return cli.Invalid(c.output.Validate(), c.scope.Validate(), price("core-price", c.prices.Core), price("gib-price", c.prices.GiB))
}

const savingsHelp = `Shows how much less, and more, the running pods of workloads with a VPA would request
with the recommended resources, and the price of that in a month: of each SizingPolicy,
and of each workload without one. Arguments are names of SizingPolicies. Without -n all
namespaces are read.`

func savingsCommand() *cobra.Command {
	c := &savingsConfig{}
	cmd := &cobra.Command{
		Use: "savings [flags] [POLICY...]", Short: "show savings and costs of recommendations", Long: savingsHelp,
		RunE: c.run,
	}
	c.cluster, c.output = cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	c.scope.AddFlags(cmd, "pods")
	c.policies.AddFlags(cmd.Flags())
	fs := cmd.Flags()
	fs.Float64Var(&c.prices.Core, "core-price", rollout.DefaultPrices.Core, "What a core costs in an hour, in any currency.")
	fs.Float64Var(&c.prices.GiB, "gib-price", rollout.DefaultPrices.GiB, "What a GiB of memory costs in an hour.")
	fs.BoolVar(&c.workloads, "workloads", false, "Also list the workloads of each SizingPolicy.")
	return cmd
}

func (c *savingsConfig) run(cmd *cobra.Command, names []string) error {
	if err := c.validate(); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return err
	}
	// Without a flag, all namespaces are read, not the namespace of the context.
	q := inventory.Request{Namespace: c.scope.Namespace(*c.cluster.Namespace), Now: time.Now(), Kube: cluster.Kube}
	q.Policies.Foreign = c.policies.ForeignAnnotations
	a, err := c.answer(cmd.Context(), cluster.VPA, q, savingsScope{c.scope.Labels, names})
	if err != nil {
		return err
	}
	return c.output.Print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a)
}

type savingsScope struct {
	Selector labels.Selector // selects pods
	Policies []string        // Empty: all workloads, with or without a policy
}

// policyNames returns the sorted names of the SizingPolicies in the scope. Named policies must exist.
func (s *savingsScope) policyNames(ctx context.Context, own versioned.Interface) ([]string, error) {
	list, err := own.LoadlineV1alpha1().SizingPolicies().List(ctx, metav1.ListOptions{})
	switch {
	case len(s.Policies) == 0 && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("list SizingPolicies: the cluster does not know them, install their definition: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list SizingPolicies: %w", err)
	}
	all := map[string]bool{}
	for i := range list.Items {
		all[list.Items[i].Name] = true
	}
	for _, name := range s.Policies {
		if !all[name] {
			return nil, fmt.Errorf("SizingPolicy %s does not exist", name)
		}
	}
	if len(s.Policies) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(s.Policies))), nil
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// savingsRow holds the monthly savings and costs of a policy or a workload.
type savingsRow struct {
	Name      string  `json:"name"`
	Workloads int     `json:"workloads,omitempty"` // of a policy
	CoresLess float64 `json:"coresLess"`
	CoresMore float64 `json:"coresMore"`
	GiBLess   float64 `json:"gibLess"`
	GiBMore   float64 `json:"gibMore"`
	Saves     float64 `json:"saves"`
	Costs     float64 `json:"costs"`

	listed []savingsRow // workloads below the row
}

// withoutPolicy is the name of the row of workloads without a policy.
const withoutPolicy = "-"

type savingsReport struct {
	Policies  []savingsRow            `json:"policies"`            // the last may be withoutPolicy
	Workloads map[string][]savingsRow `json:"workloads,omitempty"` // by policy
	All       savingsRow              `json:"all"`
	Problems  []string                `json:"problems,omitempty"`
	CorePrice float64                 `json:"corePrice"` // per hour
	GiBPrice  float64                 `json:"gibPrice"`
}

// sizedVPA is a VPA with the difference between the requests of its pods and its recommendation.
type sizedVPA struct {
	object  *vpav1.VerticalPodAutoscaler
	policy  string
	pods    int
	savings rollout.Savings
}

func (c *savingsConfig) answer(ctx context.Context, own versioned.Interface, q inventory.Request, scope savingsScope) (*savingsReport, error) {
	names, err := scope.policyNames(ctx, own)
	if err != nil {
		return nil, err
	}
	s, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := &savingsReport{Policies: []savingsRow{}, Workloads: map[string][]savingsRow{}, Problems: s.Problems}
	a.CorePrice, a.GiBPrice = c.prices.Core, c.prices.GiB
	vpas, err := a.read(ctx, own, s, q, scope)
	if err != nil {
		return nil, err
	}
	if len(scope.Policies) == 0 {
		names = append(names, withoutPolicy)
	}
	var all rollout.Savings
	for _, name := range names {
		row, total := c.policyRow(name, vpas)
		switch {
		case row.Workloads == 0 && name == withoutPolicy:
			continue
		case row.Workloads == 0:
			text := "SizingPolicy %s: no workload with a recommendation and running pods was found %s"
			a.Problems = append(a.Problems, fmt.Sprintf(text, name, q.DescribeScope(scope.Selector)))
		}
		if c.workloads || name == withoutPolicy {
			a.Workloads[name] = row.listed
		} else {
			row.listed = nil
		}
		a.Policies = append(a.Policies, row)
		all.Less, all.More, a.All.Workloads = sum(all.Less, total.Less), sum(all.More, total.More), a.All.Workloads+row.Workloads
	}
	workloads := a.All.Workloads
	a.All = c.row("all", all)
	a.All.Workloads = workloads
	return a, nil
}

// read returns the VPAs of the scope with a recommendation and running pods, and reports the others.
func (a *savingsReport) read(ctx context.Context, own versioned.Interface, s *inventory.Reader, q inventory.Request, scope savingsScope) ([]*sizedVPA, error) {
	list, err := own.AutoscalingV1().VerticalPodAutoscalers(q.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	found := map[cache.ObjectName]*sizedVPA{}
	for i := range list.Items {
		v := &sizedVPA{object: &list.Items[i], policy: withoutPolicy}
		known, err := s.Resolve(ctx, v.object)
		if err != nil {
			a.Problems = append(a.Problems, err.Error())
			continue
		}
		if p := known.Rollout.Object; p != nil {
			v.policy = p.Name
		}
		if len(scope.Policies) == 0 || slices.Contains(scope.Policies, v.policy) {
			found[cache.MetaObjectToName(v.object)] = v
		}
	}
	pods, err := inventory.LivePods(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pod := &pods[i]; pod.Status.Phase == corev1.PodRunning && scope.Selector.Matches(labels.Set(pod.Labels)) {
			by, err := s.Controlling(ctx, pod)
			if err != nil {
				a.Problems = append(a.Problems, fmt.Sprintf("pod %s: %v", cli.PodName(pod), err))
			} else if by != nil {
				found[cache.MetaObjectToName(by.Object)].add(pod)
			}
		}
	}
	vpas := slices.SortedFunc(maps.Values(found), func(a, b *sizedVPA) int {
		return cmp.Or(cmp.Compare(a.object.Namespace, b.object.Namespace), cmp.Compare(a.object.Name, b.object.Name))
	})
	if len(vpas) == 0 {
		text := "no VPA was found %s, so nothing is recommended: the command recommend shows estimates, and create writes VPAs"
		a.Problems = append(a.Problems, fmt.Sprintf(text, q.DescribeScope(nil)))
	}
	return a.complete(vpas, scope), nil
}

func (a *savingsReport) complete(vpas []*sizedVPA, scope savingsScope) (complete []*sizedVPA) {
	var waiting, idle []string
	for _, v := range vpas {
		switch name := cache.MetaObjectToName(v.object).String(); {
		case len(convert.Recommendation(v.object.Status.Recommendation)) == 0:
			waiting = append(waiting, name)
		case v.pods == 0:
			idle = append(idle, name)
		default:
			complete = append(complete, v)
		}
	}
	if len(waiting) > 0 {
		a.Problems = append(a.Problems, "VPAs without a recommendation: "+strings.Join(waiting, ", "))
	}
	if len(idle) > 0 {
		text := "VPAs that control no running pod"
		if !scope.Selector.Empty() {
			text += fmt.Sprintf(" with labels %s", scope.Selector)
		}
		a.Problems = append(a.Problems, text+": "+strings.Join(idle, ", "))
	}
	slices.Sort(a.Problems)
	a.Problems = slices.Compact(a.Problems)
	return complete
}

// add counts a running pod. It ignores pods of other scopes, where v is nil.
func (v *sizedVPA) add(pod *corev1.Pod) {
	if v == nil {
		return
	}
	v.pods++
	recommendation := convert.Recommendation(v.object.Status.Recommendation)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		v.savings = v.savings.Add(convert.UnboostedRequests(pod, c, v.object), recommendation[c.Name].Target, 1)
	}
}

func (c *savingsConfig) policyRow(name string, vpas []*sizedVPA) (row savingsRow, total rollout.Savings) {
	var listed []savingsRow
	for _, v := range vpas {
		if v.policy != name {
			continue
		}
		key := target.RefKey(v.object.Namespace, v.object.Spec.TargetRef)
		listed = append(listed, c.row(fmt.Sprintf("%s %s/%s", key.Kind, key.Namespace, key.Name), v.savings))
		total.Less, total.More = sum(total.Less, v.savings.Less), sum(total.More, v.savings.More)
	}
	row = c.row(name, total)
	row.Workloads, row.listed = len(listed), listed
	return row, total
}

func (c *savingsConfig) row(name string, s rollout.Savings) savingsRow {
	return savingsRow{
		Name: name, CoresLess: cores(s.Less), CoresMore: cores(s.More), GiBLess: gib(s.Less), GiBMore: gib(s.More),
		Saves: c.prices.Monthly(s.Less), Costs: c.prices.Monthly(s.More),
	}
}

func (r *savingsRow) cells(name, workloads string) []string {
	cells := []string{name, workloads}
	for _, v := range []float64{r.CoresLess, r.CoresMore, r.GiBLess, r.GiBMore, r.Saves, r.Costs} {
		cells = append(cells, fmt.Sprintf("%.2f", v))
	}
	return cells
}

func (a *savingsReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"POLICY", "WORKLOADS", "CORES LESS", "CORES MORE", "GIB LESS", "GIB MORE", "SAVES", "COSTS"}}
	add := func(r *savingsRow) { t.Rows = append(t.Rows, r.cells(r.Name, fmt.Sprint(r.Workloads))) }
	for i := range a.Policies {
		p := &a.Policies[i]
		add(p)
		for j := range p.listed {
			t.Rows = append(t.Rows, p.listed[j].cells("  "+p.listed[j].Name, ""))
		}
	}
	if len(a.Policies) > 1 {
		add(&a.All)
	}
	return []cli.Table{t}
}

func (a *savingsReport) Notes() []string {
	notes := cli.Warnings(a.Problems)
	if a.All.Workloads == 0 {
		return notes
	}
	return append(notes, "", "Decrease and increase of the requests of running pods with the recommendations, and their value",
		fmt.Sprintf("in a month of 730 hours, at %g a core-hour and %g a GiB-hour.", a.CorePrice, a.GiBPrice))
}

func sum(a, b resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a = a.With(k, a.Value(k).Add(b.Value(k)))
	}
	return a
}

func cores(l resources.List) float64 { return float64(l.Value(resources.CPU)) / 1000 }

func gib(l resources.List) float64 { return float64(l.Value(resources.Memory)) / (1 << 30) }
