// Package sizes implements the commands about recommended resources: recommend, diff, savings,
// export and create.
package sizes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

type containerSize struct {
	Namespace string              `json:"namespace"`
	Workload  string              `json:"workload"`
	VPA       string              `json:"vpa,omitempty"`
	Container string              `json:"container"`
	Pods      int                 `json:"pods"`
	Requests  corev1.ResourceList `json:"requests,omitempty"` // highest of any pod
	Limits    corev1.ResourceList `json:"limits,omitempty"`
	Target    corev1.ResourceList `json:"target,omitempty"`
	Lower     corev1.ResourceList `json:"lowerBound,omitempty"`
	Upper     corev1.ResourceList `json:"upperBound,omitempty"`
	NewLimits corev1.ResourceList `json:"targetLimits,omitempty"` // limits at the target
	From      string              `json:"from,omitempty"`         // source of the target, if any

	workload *inventory.Workload
}

type sizeList []containerSize

// sizesOf returns the recommendations for workloads, from their VPA or an estimate.
func sizesOf(all []*inventory.Workload, e *inventory.Estimator) (list sizeList) {
	for _, w := range all {
		recommendation, rules, from := map[string]resources.Bounds{}, policy.Rules{}, ""
		if w.VPA != nil {
			recommendation, rules = w.VPA.Recommendation, w.VPA.Rules
			from = "VPA " + w.VPA.Object.Name
		}
		if w.VPA == nil && e != nil {
			recommendation, from = e.Recommend(w), e.Name
		}
		slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		rows := map[string]*containerSize{}
		for _, pod := range w.Pods {
			running := convert.RunningPod(pod, recommendation, rules, w.Ranges)
			for i := range running.Containers {
				addSize(rows, w, pod, &running.Containers[i], requestsOf(w, pod, &pod.Spec.Containers[i]), from)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			list = append(list, *rows[name])
		}
	}
	return list
}

// requestsOf returns the requests of a container without a startup boost.
func requestsOf(w *inventory.Workload, pod *corev1.Pod, c *corev1.Container) resources.List {
	if !convert.IsBoosted(pod) {
		return convert.Resources(c.Resources.Requests)
	}
	var vpa *vpav1.VerticalPodAutoscaler
	if w.VPA != nil {
		vpa = w.VPA.Object
	}
	return convert.UnboostedRequests(pod, c, vpa)
}

func addSize(rows map[string]*containerSize, w *inventory.Workload, pod *corev1.Pod, c *disruption.Container, requests resources.List, from string) {
	name := c.Spec.Name
	row := rows[name]
	if row == nil {
		row = &containerSize{Namespace: pod.Namespace, Workload: w.Key.String(), Container: name, workload: w}
		if w.VPA != nil {
			row.VPA = w.VPA.Object.Name
		}
		if b := &c.Target.Bounds; !b.Target.Empty() {
			plain := convert.Format{}
			row.From, row.Target, row.Lower, row.Upper = from, plain.List(b.Target), plain.List(b.Lower), plain.List(b.Upper)
			row.NewLimits = plain.List(c.Target.Limits)
		}
		rows[name] = row
	}
	row.Pods++
	row.Requests, row.Limits = highest(row.Requests, requests), highest(row.Limits, c.Spec.Limits)
}

func highest(current corev1.ResourceList, other resources.List) corev1.ResourceList {
	result := convert.Resources(current)
	for k := range resources.Kind(resources.Kinds) {
		if a, found := other.Get(k); found && (a > result.Value(k) || !result.Has(k)) {
			result = result.With(k, a)
		}
	}
	return convert.Format{}.List(result)
}

func (c *containerSize) change(k resources.Kind) (request, target resources.Amount, changes bool) {
	target, hasTarget := convert.Resources(c.Target).Get(k)
	request, hasRequest := convert.Resources(c.Requests).Get(k)
	return request, target, hasTarget && (!hasRequest || request != target)
}

type sizesFlags struct {
	cluster  cli.ClusterFlags
	scope    cli.ScopeFlags
	estimate inventory.EstimateFlags
	policies flags.Policies
}

func (c *sizesFlags) addFlags(cmd *cobra.Command) {
	c.cluster = cli.AddClusterFlags(cmd)
	c.scope.AddFlags(cmd, "pods")
	c.estimate.AddFlags(cmd.Flags())
	c.policies.AddFlags(cmd.Flags())
}

type workloadSizes struct {
	workloads []*inventory.Workload
	sizes     sizeList
	problems  []string
	missing   error // names without a workload, or nil
}

func (c *sizesFlags) read(ctx context.Context, scope inventory.Selection) (*workloadSizes, error) {
	parsed, problem := c.estimate.Parse()
	if err := cli.Invalid(problem, c.scope.Validate()); err != nil {
		return nil, err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return nil, err
	}
	scope.Selector = c.scope.Labels
	q := inventory.Request{Namespace: c.scope.Namespace(cluster.Namespace), Now: time.Now(), Policies: fleet.Options{Foreign: c.policies.ForeignAnnotations}, Kube: cluster.Kube}
	s, err := readWorkloads(ctx, cluster.VPA, q, scope)
	if err != nil {
		return nil, err
	}
	var e *inventory.Estimator
	if slices.ContainsFunc(s.workloads, func(w *inventory.Workload) bool { return w.VPA == nil }) {
		if e, err = c.estimate.NewEstimator(ctx, parsed, cluster.Config, q); err != nil {
			s.problems = append(s.problems, fmt.Sprintf("not all usage could be read, so estimates of workloads without a VPA are missing or poor: %v", err))
		}
	}
	s.sizes = sizesOf(s.workloads, e)
	return s, nil
}

// readWorkloads reads workloads without their sizes.
func readWorkloads(ctx context.Context, own versioned.Interface, q inventory.Request, scope inventory.Selection) (*workloadSizes, error) {
	s, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	all, named, problems, err := s.Workloads(ctx, q, scope)
	if err != nil {
		return nil, err
	}
	found := &workloadSizes{workloads: all, problems: append(s.Problems, problems...)}
	var missing []error
	for _, name := range scope.Names {
		if !named[name] {
			missing = append(missing, fmt.Errorf("%s: no workload of this name has running pods %s", name, q.DescribeScope(scope.Selector)))
		}
	}
	found.missing = errors.Join(missing...)
	if len(all)+len(problems) == 0 && found.missing == nil && !scope.Unsized {
		found.problems = append(found.problems, "no workload with running pods was found "+q.DescribeScope(scope.Selector))
	}
	return found, nil
}

const recommendHelp = `Shows what the pods of workloads request, and what is recommended: what their VPA
says, or for workloads without one an estimate by the same recipe, from the
history in Prometheus (--prometheus-address), or from what the metrics API says
at this moment, which is little. Arguments are KIND/NAME or NAME; without any: of
all workloads of the namespace that have pods.`

func recommendCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "recommend [flags] [[KIND/]NAME...]", Short: "show recommendations, also for workloads without a VPA", Long: recommendHelp}
	return reportCommand(cmd, func(sizes sizeList, problems []string) cli.Report {
		return &recommendReport{append(sizeList{}, sizes...), problems}
	})
}

// reportCommand completes a command that prints a report about sizes of the workloads in its arguments.
func reportCommand(cmd *cobra.Command, answer func(sizes sizeList, problems []string) cli.Report) *cobra.Command {
	c := &sizesFlags{}
	c.addFlags(cmd)
	output := cli.AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.Invalid(output.Validate()); err != nil {
			return err
		}
		s, err := c.read(cmd.Context(), inventory.Selection{Names: args})
		if err != nil {
			return err
		}
		return errors.Join(output.Print(cmd.OutOrStdout(), cmd.ErrOrStderr(), answer(s.sizes, s.problems)), s.missing)
	}
	return cmd
}

type recommendReport struct {
	Containers sizeList `json:"containers"`
	Problems   []string `json:"problems,omitempty"`
}

func (a *recommendReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"NAMESPACE", "WORKLOAD", "CONTAINER", "PODS", "CPU REQUEST", "CPU TARGET", "MEMORY REQUEST", "MEMORY TARGET", "FROM", "CPU BOUNDS", "MEMORY BOUNDS"}, Wide: 2}
	for i := range a.Containers {
		c := &a.Containers[i]
		t.Rows = append(t.Rows, []string{c.Namespace, c.Workload, c.Container, fmt.Sprint(c.Pods),
			cli.FormatQuantity(c.Requests, resources.CPU), cli.FormatQuantity(c.Target, resources.CPU), cli.FormatQuantity(c.Requests, resources.Memory), cli.FormatQuantity(c.Target, resources.Memory),
			cmp.Or(c.From, "-"), boundsText(c, resources.CPU), boundsText(c, resources.Memory)})
	}
	return []cli.Table{t}
}

func boundsText(c *containerSize, k resources.Kind) string {
	return cli.FormatQuantity(c.Lower, k) + " to " + cli.FormatQuantity(c.Upper, k)
}

func (a *recommendReport) Notes() (notes []string) {
	for i := range a.Containers {
		if a.Containers[i].From == inventory.FromMetricsAPI {
			notes = append(notes, "! "+inventory.FromMetricsAPI+" only has current usage: estimates from --prometheus-address use its history")
			break
		}
	}
	return append(notes, cli.Warnings(a.Problems)...)
}

func diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [flags] [[KIND/]NAME...]", Short: "compare requests with recommendations",
		Long: "Shows what would change of each container if its pods requested what is recommended,\nas recommend shows that. The severity is high from 500m or 500 MiB on, medium from 250,\nlow from 100.",
	}
	return reportCommand(cmd, func(sizes sizeList, problems []string) cli.Report { return diffOf(sizes, problems) })
}

type sizeChange struct {
	Namespace string              `json:"namespace"`
	Workload  string              `json:"workload"`
	Container string              `json:"container"`
	Resource  corev1.ResourceName `json:"resource"`
	Pods      int                 `json:"pods"`
	Now       string              `json:"now,omitempty"`
	Target    string              `json:"target"`
	Percent   float64             `json:"percent,omitempty"` // of the current request
	Severity  string              `json:"severity"`
	From      string              `json:"from"`
}

type diffReport struct {
	Changes  []sizeChange `json:"changes"`
	Problems []string     `json:"problems,omitempty"`
}

func diffOf(all sizeList, problems []string) *diffReport {
	a := &diffReport{Changes: []sizeChange{}, Problems: problems}
	unknown := 0
	for i := range all {
		c := &all[i]
		if len(c.Target) == 0 {
			unknown++
		}
		for k := range resources.Kind(resources.Kinds) {
			now, then, changes := c.change(k)
			if !changes {
				continue
			}
			change := sizeChange{Namespace: c.Namespace, Workload: c.Workload, Container: c.Container, Resource: convert.ResourceName(k), Pods: c.Pods,
				Now: cli.FormatQuantity(c.Requests, k), Target: cli.FormatQuantity(c.Target, k), Severity: severityOf(k, now, then), From: c.From}
			if now > 0 {
				change.Percent = float64(then-now) / float64(now) * 100
			}
			a.Changes = append(a.Changes, change)
		}
	}
	if unknown > 0 {
		text := fmt.Sprintf("%d of %d containers have no recommendation, the command recommend lists them", unknown, len(all))
		a.Problems = append(a.Problems, text)
	}
	return a
}

func (a *diffReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"NAMESPACE", "WORKLOAD", "CONTAINER", "RESOURCE", "PODS", "NOW", "TARGET", "CHANGE", "SEVERITY", "FROM"}}
	for i := range a.Changes {
		c := &a.Changes[i]
		percent := "new"
		if c.Now != "-" {
			percent = fmt.Sprintf("%+.0f%%", c.Percent)
		}
		t.Rows = append(t.Rows, []string{c.Namespace, c.Workload, c.Container, string(c.Resource), fmt.Sprint(c.Pods), c.Now, c.Target, percent, c.Severity, c.From})
	}
	return []cli.Table{t}
}

func (a *diffReport) Notes() []string {
	notes := cli.Warnings(a.Problems)
	if len(a.Changes)+len(notes) == 0 {
		notes = []string{"All containers request their recommended resources."}
	}
	return notes
}

// severityLimits are the differences from which a severity applies, in millicores and bytes.
var severityLimits = [resources.Kinds][3]struct {
	name string
	from resources.Amount
}{
	resources.CPU:    {{"high", 500}, {"medium", 250}, {"low", 100}},
	resources.Memory: {{"high", 500 << 20}, {"medium", 250 << 20}, {"low", 100 << 20}},
}

func severityOf(k resources.Kind, now, then resources.Amount) string {
	for _, s := range severityLimits[k] {
		if max(now-then, then-now) >= s.from {
			return s.name
		}
	}
	return "none"
}

// Commands returns create, diff, export, recommend and savings.
func Commands() []*cobra.Command {
	return []*cobra.Command{createCommand(), diffCommand(), exportCommand(), recommendCommand(), savingsCommand()}
}
