// Package explain shows the state of VPAs and pods in the commands status, explain, history and
// why.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/printable"
)

type explainConfig struct {
	cluster    cli.ClusterFlags
	output     *cli.OutputFlag
	programs   string // namespace of the programs
	checkpoint bool   // compute from checkpoints
	estimate   inventory.EstimateFlags
	ignored    []string // flags of the estimate that are set although the programs explain the object
	policies   flags.Policies
}

const explainHelp = `Shows how the recommender computes the recommendation for each container of a VPA,
step by step. It reads the explanation from the metrics port of the recommender through
the API server, which needs the permission to get pods/proxy in the namespace of the
programs. Without an answer it shows what you can read.

With --from-checkpoint or --prometheus-address it computes the steps itself: from the
checkpoints that the recommender saved last, or from the history in Prometheus. Then set
the recipe and the estimate flags of the recommender.

For a pod it shows how the updater treats it: the recommendation, the rollout, why it is
skipped, and its share of the headroom of its node.`

func explainCommand() *cobra.Command {
	c, estimate := explainConfig{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd := &cobra.Command{
		Use: "explain [flags] VPA|pod/NAME", Long: explainHelp,
		Short: "show each step of a recommendation, or how the updater treats a pod",
		RunE: func(cmd *cobra.Command, args []string) error {
			estimate.VisitAll(func(f *pflag.Flag) {
				if f.Changed {
					c.ignored = append(c.ignored, "--"+f.Name)
				}
			})
			return c.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.cluster, c.output = cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	fs := cmd.Flags()
	cli.AddProgramsFlag(cmd, &c.programs)
	c.estimate.AddFlags(estimate)
	fs.AddFlagSet(estimate)
	fs.BoolVar(&c.checkpoint, "from-checkpoint", false, "Compute the recommendation of a VPA from its checkpoints.")
	fs.Lookup("recipe").Usage = "With --from-checkpoint or --prometheus-address: the recipe of the recommender, for VPAs that select none."
	fs.Lookup("prometheus-address").Usage = "Compute the recommendation of a VPA from the history in this Prometheus, as a recommender with --storage=prometheus."
	c.policies.AddFlags(fs)
	return cmd
}

func (c *explainConfig) run(ctx context.Context, args []string, out, errOut io.Writer) error {
	parsed, problem := c.estimate.Parse()
	if c.checkpoint && c.estimate.Address != "" {
		problem = errors.Join(problem, flags.Problem("from-checkpoint", c.checkpoint, "excludes --prometheus-address"))
	}
	if len(args) != 1 {
		problem = errors.Join(problem, errors.New("must have the name of one VPA or pod/NAME as argument"))
	}
	kind, object := "VPA", strings.Join(args, "")
	if pod, found := strings.CutPrefix(object, "pod/"); found {
		kind, object = "pod", pod
		if len(c.ignored) > 0 {
			problem = errors.Join(problem, fmt.Errorf("%s: for a VPA, not for a pod", strings.Join(c.ignored, " ")))
		}
		problem = errors.Join(problem, flags.Check(c.output.Format == cli.Formats[0], "output", c.output.Format, "must be table for a pod: why pod/"+pod+" has all forms"))
	}
	if err := cli.Invalid(problem, c.output.Validate()); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, *c.cluster.Namespace, object, err)
	}
	q := inventory.Request{Namespace: cluster.Namespace, Name: object, Book: parsed.Book, Now: time.Now(), Policies: fleet.Options{Foreign: c.policies.ForeignAnnotations}, Kube: cluster.Kube, Programs: c.programs}
	if kind == "pod" {
		err = printPod(ctx, cluster.VPA, q, out)
	} else {
		err = c.printVPA(ctx, cluster, parsed, q, out, errOut)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, q.Namespace, object, err)
	}
	return nil
}

func (c *explainConfig) explainVPA(ctx context.Context, cluster *cli.Cluster, parsed inventory.ParsedEstimate, q inventory.Request) (*vpaReport, error) {
	switch {
	case c.estimate.Address != "":
		e, err := c.estimate.NewEstimator(ctx, parsed, cluster.Config, q)
		if err != nil {
			return nil, err
		}
		return explainFrom(ctx, cluster.VPA, q, func(ctx context.Context, a *vpaReport) (map[string]checkpoint.ContainerHistory, error) {
			return historyFromUsage(ctx, cluster.VPA, q, a, e)
		})
	case c.checkpoint:
		return explainFrom(ctx, cluster.VPA, q, func(ctx context.Context, a *vpaReport) (map[string]checkpoint.ContainerHistory, error) {
			return historyFromCheckpoints(ctx, cluster.VPA, q, a)
		})
	}
	return explainServed(ctx, cluster.VPA, q)
}

func (c *explainConfig) printVPA(ctx context.Context, cluster *cli.Cluster, parsed inventory.ParsedEstimate, q inventory.Request, out, errOut io.Writer) error {
	a, err := c.explainVPA(ctx, cluster, parsed, q)
	if err != nil {
		return err
	}
	if a.Computed == nil && len(c.ignored) > 0 {
		a.Problems = append(a.Problems, strings.Join(c.ignored, " ")+": ignored without --from-checkpoint or --prometheus-address, which compute the steps with them")
	}
	if c.output.Format != "table" && c.output.Format != "wide" { // only these print sentences
		return c.output.Print(out, errOut, a.steps())
	}
	a.Room = evictionRoom(ctx, q.Kube, q.Now)
	return a.Print(out)
}

func printPod(ctx context.Context, own versioned.Interface, q inventory.Request, out io.Writer) error {
	a, err := explainPod(ctx, own, q)
	if err != nil {
		return err
	}
	return a.Print(out)
}

// targetHeld is the condition of a published target that differs from the last step.
const targetHeld = "TargetHeld"

func (a *vpaReport) unanswered() string {
	if a.Unanswered == "" {
		return ""
	}
	return a.Unanswered + ": without the steps of the recommendation; --from-checkpoint computes them"
}

// recipe returns the recipe of the VPA, or "" if only the recommender knows its default.
func (a *vpaReport) recipe() string {
	if r := &a.Explained.Recipe; a.Unanswered == "" || r.Source == recipe.FromAnnotation || r.Source == recipe.FromPolicy {
		return r.Name
	}
	return ""
}

func (a *vpaReport) Print(out io.Writer) error {
	if text := a.unanswered(); text != "" {
		printable.Fprintln(out, "!", text)
	}
	printable.Fprintf(out, "VPA %s/%s", a.VPA.Namespace, a.VPA.Name)
	if name := a.recipe(); name != "" {
		printable.Fprintf(out, ", recipe %s", name)
	}
	switch r := &a.Explained.Recipe; {
	case r.Text == "":
	case r.Source == recipe.FromPolicy:
		printable.Fprintf(out, " (of the policy: %s)", r.Text)
	default:
		printable.Fprintf(out, " (annotation %s: %s)", recipe.Annotation, r.Text)
	}
	printable.Fprintln(out)
	if err := a.Rollout.print(out); err != nil {
		return err
	}
	a.printState(out)
	for i := range a.Explained.Containers {
		if err := a.printContainer(out, &a.Explained.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *vpaReport) printState(out io.Writer) {
	for _, c := range a.VPA.Status.Conditions {
		switch {
		case a.Unanswered != "":
			printable.Fprintf(out, "condition %s: %s since %s", c.Type, c.Status, cli.Timestamp(c.LastTransitionTime.Time))
			if c.Message != "" {
				printable.Fprintf(out, ": %s", c.Message)
			}
			printable.Fprintln(out)
		case c.Type == targetHeld && c.Status == corev1.ConditionTrue && a.Explained.Held == "":
			printable.Fprintf(out, "! %s: %s\n", c.Type, c.Message)
		}
	}
	if a.Explained.Held != "" {
		printable.Fprintf(out, "! %s: %s\n", targetHeld, a.Explained.Held)
	}
	for i := range a.Events {
		e := &a.Events[i]
		printable.Fprintf(out, "event %s %s: %s\n", cli.Timestamp(e.LastTimestamp.Time), e.Reason, eventText(e))
	}
	if problem := convert.UnsupportedReason(a.VPA); problem != "" {
		printable.Fprintf(out, "! ConfigUnsupported: %s\n", problem)
	}
	if problem := convert.UnreadableReason(a.VPA); problem != "" {
		printable.Fprintf(out, "! no pod is changed, because the VPA cannot be read: %s\n", problem)
	} else if convert.IsOutdated(a.VPA, a.VPA.Generation) {
		printable.Fprintf(out, "! the published recommendation is for generation %d of the VPA, and the current generation is %d: if spec.targetRef has changed, no pod gets it until the recommender has processed the change\n",
			convert.ObservedGeneration(a.VPA), a.VPA.Generation)
	}
	if a.Room != "" {
		printable.Fprintf(out, "updater with --eviction-room=auto: %s\n", a.Room)
	}
	if a.Computed != nil && a.Computed.UsesCurrent {
		printable.Fprintln(out, "! the recipe starts from the requests of the running pods, which are not read here: the published target stands in for them")
	}
	for _, problem := range append([]string{a.Explained.Recipe.Problem}, a.Problems...) {
		if problem != "" {
			printable.Fprintln(out, "!", problem)
		}
	}
}

func (a *vpaReport) printContainer(out io.Writer, c *explanation.Container) error {
	printable.Fprintf(out, "\ncontainer %s", c.Name)
	switch {
	case a.Computed != nil:
		printable.Fprintf(out, ", as saved with samples up to %s", cli.Timestamp(c.LastSample))
	case !c.LastSample.IsZero():
		printable.Fprintf(out, ", with samples up to %s", cli.Timestamp(c.LastSample))
	}
	printable.Fprintln(out)
	if c.Incomplete {
		printable.Fprintln(out, "! the recipe needs data besides the histograms that is not known yet: until then the published recommendation stays")
	}
	var lacks []string
	for k := range resources.Kind(resources.Kinds) {
		if p := c.Resource(k).Points; p != nil && p.Have < p.Want {
			lacks = append(lacks, fmt.Sprintf("%d of %d points of %s", p.Have, p.Want, k))
		}
	}
	if len(lacks) > 0 {
		printable.Fprintf(out, "! there are %s of five minutes: until there are enough, no new recommendation is computed, and the published one stays\n", strings.Join(lacks, " and "))
	}
	if c.MemoryGrowth != "" {
		printable.Fprintf(out, "! %s: if it is a leak, no recommendation will be enough, and maxAllowed bounds its memory\n", c.MemoryGrowth)
	}
	if c.MinimumCPU > 0 {
		printable.Fprintf(out, "! its CPU limit was too low for its bursts: under a limit, usage counts as at least %.0fm, with a half-life of a week\n", c.MinimumCPU)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for k := range resources.Kind(resources.Kinds) {
		printResource(w, c, k)
	}
	return w.Flush()
}

type bound struct {
	name  string
	steps []explanation.Step
}

func bounds(c *explanation.Container, k resources.Kind) []bound {
	upper, r := "upper bound", c.Resource(k)
	if separateLimit(c, k) {
		upper = "limit protects"
	}
	return []bound{{"target", r.Target}, {"lower bound", r.LowerBound}, {upper, r.UpperBound}}
}

// separateLimit reports whether the memory limit is derived from the upper bound.
func separateLimit(c *explanation.Container, k resources.Kind) bool {
	return k == resources.Memory && c.MemoryLimitRatio != nil
}

func printResource(w io.Writer, c *explanation.Container, k resources.Kind) {
	for _, bound := range bounds(c, k) {
		for i, step := range bound.steps {
			head := ""
			if i == 0 {
				head = k.String() + " " + bound.name
			}
			printable.Fprintf(w, "  %s\t%s\t%s\n", head, step.Step, cli.FormatAmount(k, step.Amount))
		}
	}
	separate := separateLimit(c, k)
	if separate {
		printLimit(w, c)
	}
	if p := c.Published; p != nil && separate {
		printable.Fprintf(w, "  memory published\tafter policy and rounding\trequest %s, lower bound %s; limit protects %s\n",
			cli.FormatQuantity(p.Target, k), cli.FormatQuantity(p.LowerBound, k), cli.FormatQuantity(p.UpperBound, k))
	} else if p != nil {
		printable.Fprintf(w, "  %s published\tafter policy and rounding\t%s, bounds %s to %s\n", k, cli.FormatQuantity(p.Target, k), cli.FormatQuantity(p.LowerBound, k), cli.FormatQuantity(p.UpperBound, k))
	}
}

// printLimit prints the limit before policy, rounding and LimitRanges. The smallest ratio decides.
func printLimit(w io.Writer, c *explanation.Container) {
	steps, ratio := c.Memory.UpperBound, *c.MemoryLimitRatio
	if ratio == 0 || len(steps) == 0 {
		return
	}
	printable.Fprintf(w, "  memory limit\t%g x that, as declared\t%s\n", ratio, cli.FormatAmount(resources.Memory, ratio*steps[len(steps)-1].Amount))
}

// Commands returns status, explain, history and why.
func Commands() []*cobra.Command {
	return []*cobra.Command{explainCommand(), historyCommand(), statusCommand(), whyCommand()}
}
