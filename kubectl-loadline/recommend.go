package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// sizesConfig are the flags of the commands about sizes.
type sizesConfig struct {
	cluster  clusterFlags
	scope    scopeFlags
	estimate estimateFlags
	policies flags.Policies
}

func (c *sizesConfig) addFlags(cmd *cobra.Command) {
	c.cluster = addClusterFlags(cmd)
	c.scope.add(cmd, "pods")
	c.estimate.addFlags(cmd.Flags())
	c.policies.AddFlags(cmd.Flags())
}

// sized is what is known of the workloads that a command is about.
type sized struct {
	workloads []*managed
	sizes     sizeList
	problems  []string
	missing   error // names that fit no workload; nil: all do
}

// read connects and reads the sizes of workloads, those that scope says.
func (c *sizesConfig) read(ctx context.Context, scope sizesScope) (*sized, error) {
	parsed, problem := c.estimate.parse()
	if err := wrong(problem, c.scope.validate()); err != nil {
		return nil, err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return nil, err
	}
	if scope.Selector, err = labels.Parse(c.scope.Selector); err != nil {
		return nil, err
	}
	q := question{Namespace: c.scope.namespace(cluster.Namespace), Book: parsed.book, Now: time.Now(), Policies: fleet.Options{Foreign: c.policies.Foreign}, Kube: cluster.Kube}
	s, err := readWorkloads(ctx, cluster.VPA, q, scope)
	if err != nil {
		return nil, err
	}
	var e *estimator
	if slices.ContainsFunc(s.workloads, func(w *managed) bool { return w.vpa == nil }) {
		if e, err = c.estimate.newEstimator(ctx, parsed, cluster.Config, q); err != nil {
			s.problems = append(s.problems, fmt.Sprintf("not all usage could be read, so estimates of workloads without a VPA are missing or poor: %v", err))
		}
	}
	s.sizes = sizesOf(s.workloads, e)
	return s, nil
}

// readWorkloads reads workloads without their sizes.
func readWorkloads(ctx context.Context, own versioned.Interface, q question, scope sizesScope) (*sized, error) {
	s, err := newSurroundings(ctx, own, q)
	if err != nil {
		return nil, err
	}
	all, named, problems, err := s.workloads(ctx, q, scope)
	if err != nil {
		return nil, err
	}
	found := &sized{workloads: all, problems: append(s.problems, problems...)}
	var missing []error
	for _, name := range scope.Names {
		if !named[name] {
			missing = append(missing, fmt.Errorf("%s: no workload of this name has running pods %s", name, q.where(scope.Selector)))
		}
	}
	found.missing = errors.Join(missing...)
	if len(all)+len(problems) == 0 && found.missing == nil && !scope.Unsized {
		found.problems = append(found.problems, "no workload with running pods was found "+q.where(scope.Selector))
	}
	return found, nil
}

// where describes the objects that a command reads.
func (q *question) where(selector labels.Selector) string {
	text := "in any namespace"
	if q.Namespace != "" {
		text = "in namespace " + q.Namespace
	}
	if selector != nil && !selector.Empty() {
		text += fmt.Sprintf(" with labels %s", selector)
	}
	return text
}

const recommendHelp = `Shows what the pods of workloads request, and what is recommended: what their VPA
says, or for workloads without one an estimate by the same recipe, from the
history in Prometheus (--prometheus-address), or from what the metrics API says
at this moment, which is little. Arguments are KIND/NAME or NAME; without any: of
all workloads of the namespace that have pods.`

func recommendCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "recommend [flags] [[KIND/]NAME...]", Short: "show what is recommended, also for workloads without a VPA", Long: recommendHelp}
	return printing(cmd, func(sizes sizeList, problems []string) report {
		return &recommendAnswer{append(sizeList{}, sizes...), problems}
	})
}

// printing gives a command the flags of sizes and formats, and lets it print what follows from
// the sizes of the workloads that its arguments name.
func printing(cmd *cobra.Command, answer func(sizes sizeList, problems []string) report) *cobra.Command {
	c := &sizesConfig{}
	c.addFlags(cmd)
	output := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := wrong(output.validate()); err != nil {
			return err
		}
		s, err := c.read(cmd.Context(), sizesScope{Names: args})
		if err != nil {
			return err
		}
		return errors.Join(output.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), answer(s.sizes, s.problems)), s.missing)
	}
	return cmd
}

// recommendAnswer is what is recommended for workloads.
type recommendAnswer struct {
	Containers sizeList `json:"containers"`
	Problems   []string `json:"problems,omitempty"`
}

func (a *recommendAnswer) tables() []table {
	t := table{Columns: []string{"NAMESPACE", "WORKLOAD", "CONTAINER", "PODS", "CPU REQUEST", "CPU TARGET", "MEMORY REQUEST", "MEMORY TARGET", "FROM", "CPU BOUNDS", "MEMORY BOUNDS"}, Wide: 2}
	for i := range a.Containers {
		c := &a.Containers[i]
		t.Rows = append(t.Rows, []string{c.Namespace, c.Workload, c.Container, fmt.Sprint(c.Pods),
			quantity(c.Requests, resources.CPU), quantity(c.Target, resources.CPU), quantity(c.Requests, resources.Memory), quantity(c.Target, resources.Memory),
			dash(c.From), boundsText(c, resources.CPU), boundsText(c, resources.Memory)})
	}
	return []table{t}
}

func boundsText(c *containerSize, k resources.Kind) string {
	return quantity(c.Lower, k) + " to " + quantity(c.Upper, k)
}

func (a *recommendAnswer) notes() (notes []string) {
	for i := range a.Containers {
		if a.Containers[i].From == fromMetrics {
			notes = append(notes, "! "+fromMetrics+" knows the use of this moment only: with --prometheus-address an estimate is as good as the history there")
			break
		}
	}
	for _, problem := range a.Problems {
		notes = append(notes, "! "+problem)
	}
	return notes
}

func diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [flags] [[KIND/]NAME...]", Short: "show how far requests are from what is recommended",
		Long: "Shows what would change of each container if its pods requested what is recommended,\nas recommend shows that. The severity is high from 500m or 500 MiB on, medium from 250,\nlow from 100.",
	}
	return printing(cmd, func(sizes sizeList, problems []string) report { return diffOf(sizes, problems) })
}

// sizeChange is what would change of a container.
type sizeChange struct {
	Namespace string              `json:"namespace"`
	Workload  string              `json:"workload"`
	Container string              `json:"container"`
	Resource  corev1.ResourceName `json:"resource"`
	Pods      int                 `json:"pods"`
	Now       string              `json:"now,omitempty"`
	Target    string              `json:"target"`
	Percent   float64             `json:"percent,omitempty"` // of now
	Severity  string              `json:"severity"`
	From      string              `json:"from"`
}

// diffAnswer is what would change.
type diffAnswer struct {
	Changes  []sizeChange `json:"changes"`
	Problems []string     `json:"problems,omitempty"`
}

func diffOf(all sizeList, problems []string) *diffAnswer {
	a := &diffAnswer{Changes: []sizeChange{}, Problems: problems}
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
			one := sizeChange{Namespace: c.Namespace, Workload: c.Workload, Container: c.Container, Resource: convert.ResourceName(k), Pods: c.Pods,
				Now: quantity(c.Requests, k), Target: quantity(c.Target, k), Severity: severityOf(k, now, then), From: c.From}
			if now > 0 {
				one.Percent = float64(then-now) / float64(now) * 100
			}
			a.Changes = append(a.Changes, one)
		}
	}
	if unknown > 0 {
		text := fmt.Sprintf("%d of %d containers have no recommendation, the command recommend lists them", unknown, len(all))
		a.Problems = append(a.Problems, text)
	}
	return a
}

func (a *diffAnswer) tables() []table {
	t := table{Columns: []string{"NAMESPACE", "WORKLOAD", "CONTAINER", "RESOURCE", "PODS", "NOW", "TARGET", "CHANGE", "SEVERITY", "FROM"}}
	for i := range a.Changes {
		c := &a.Changes[i]
		percent := "new"
		if c.Now != "-" {
			percent = fmt.Sprintf("%+.0f%%", c.Percent)
		}
		t.Rows = append(t.Rows, []string{c.Namespace, c.Workload, c.Container, string(c.Resource), fmt.Sprint(c.Pods), c.Now, c.Target, percent, c.Severity, c.From})
	}
	return []table{t}
}

func (a *diffAnswer) notes() []string {
	notes := (&recommendAnswer{Problems: a.Problems}).notes()
	if len(a.Changes)+len(notes) == 0 {
		notes = []string{"All containers request what is recommended."}
	}
	return notes
}

// How far requests are from the target from each severity on, in millicores and bytes.
var severities = [resources.Kinds][3]struct {
	name string
	from resources.Amount
}{
	resources.CPU:    {{"high", 500}, {"medium", 250}, {"low", 100}},
	resources.Memory: {{"high", 500 << 20}, {"medium", 250 << 20}, {"low", 100 << 20}},
}

func severityOf(k resources.Kind, now, then resources.Amount) string {
	for _, s := range severities[k] {
		if max(now-then, then-now) >= s.from {
			return s.name
		}
	}
	return "none"
}

// rangesOf returns the LimitRanges of a namespace; none where they cannot be read.
func (s *surroundings) rangesOf(ctx context.Context, name string) policy.Ranges {
	if known, read := s.ranges[name]; read {
		return known
	}
	ranges, err := s.readRanges(ctx, name)
	if err != nil {
		ranges = policy.Ranges{}
	}
	s.ranges[name] = ranges
	return ranges
}
