// Package explain shows the state of VPAs and pods: status, explain and history.
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
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/printable"
)

// explainConfig are the flags of explain.
type explainConfig struct {
	cluster       cli.ClusterFlags
	output        *cli.OutputFlag
	programs      string // namespace of the programs
	estimate      inventory.EstimateFlags
	policies      flags.Policies
	sharingMinAge time.Duration
}

const explainHelp = `Shows how the recommendation for each container of a VPA comes about, from what
the recommender saved last, or from the history in Prometheus (--prometheus-address), as
for a recommender with --storage=prometheus. Flags that the recommender has must be the
same here.

Of a pod it shows what is recommended, why it is changed or left alone, as the updater
says or as far as that can be seen from outside, and what the pods of its node share.`

// explainCommand shows each step of a recommendation, and the rollout. It runs the recommender's recipe
// on the checkpoints, so it shows the recommendation at the time of the last checkpoint.
func explainCommand() *cobra.Command {
	c := explainConfig{}
	cmd := &cobra.Command{
		Use: "explain [flags] VPA|pod/NAME", Long: explainHelp,
		Short: "show each step of a recommendation; what becomes of a pod, and what its node's pods share",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.cluster, c.output = cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	fs := cmd.Flags()
	cli.AddProgramsFlag(cmd, &c.programs)
	c.estimate.AddFlags(fs)
	fs.Lookup("recipe").Usage = "That of the recommender, which serves VPAs that ask for none."
	fs.Lookup("prometheus-address").Usage = "Prometheus that the recommender reads with --storage=prometheus. Unset: the checkpoints that the recommender writes without that."
	c.policies.AddFlags(fs)
	fs.DurationVar(&c.sharingMinAge, "sharing-min-age", 0, "That of the updater: how long a workload must have existed before its pods share what their nodes have left. Unset: the default of the updater is taken, and the output says so.")
	return cmd
}

func (c *explainConfig) run(ctx context.Context, args []string, out, errOut io.Writer) error {
	parsed, problem := c.estimate.Parse()
	if c.sharingMinAge < 0 {
		problem = errors.Join(problem, flags.Problem("sharing-min-age", c.sharingMinAge, "must not be below 0"))
	}
	if len(args) != 1 {
		problem = errors.Join(problem, errors.New("want the name of one VPA, or pod/NAME"))
	}
	kind, object := "VPA", strings.Join(args, "")
	if pod, found := strings.CutPrefix(object, "pod/"); found {
		kind, object = "pod", pod
		problem = errors.Join(problem, flags.Check(c.output.Format == cli.Formats[0], "output", c.output.Format, "must be table for a pod: status pod/"+pod+" has all forms"))
	}
	if err := cli.Invalid(problem, c.output.Validate()); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, *c.cluster.Namespace, object, err)
	}
	q := inventory.Request{Namespace: cluster.Namespace, Name: object, Book: parsed.Book, Now: time.Now(), Policies: fleet.Options{Foreign: c.policies.Foreign}, Kube: cluster.Kube, SharingMinAge: c.sharingMinAge}
	if kind == "pod" {
		err = printPod(ctx, cluster.VPA, q, c.programs, out)
	} else {
		err = printVPA(ctx, cluster.VPA, q, c.history(cluster, parsed, q), c.output, out, errOut)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, q.Namespace, object, err)
	}
	return nil
}

// history returns a loader of the usage history of a VPA, from checkpoints or Prometheus.
func (c *explainConfig) history(cluster *cli.Cluster, parsed inventory.ParsedEstimate, q inventory.Request) historyLoader {
	return func(ctx context.Context, a *vpaReport) (map[string]checkpoint.Past, error) {
		if c.estimate.Address == "" {
			return historyFromCheckpoints(ctx, cluster.VPA, q, a)
		}
		e, err := c.estimate.NewEstimator(ctx, parsed, cluster.Config, q)
		if err != nil {
			return nil, err
		}
		return historyFromUsage(ctx, cluster.VPA, q, a, e)
	}
}

// printVPA prints the report about a VPA.
func printVPA(ctx context.Context, own versioned.Interface, q inventory.Request, load historyLoader, form *cli.OutputFlag, out, errOut io.Writer) error {
	a, err := explainFrom(ctx, own, q, load)
	if err != nil {
		return err
	}
	if form.Format != "table" && form.Format != "wide" { // only these print sentences
		return form.Print(out, errOut, a.steps())
	}
	a.Room = evictionRoom(ctx, q.Kube, q.Now)
	return a.Print(out)
}

// printPod prints the report about a pod.
func printPod(ctx context.Context, own versioned.Interface, q inventory.Request, programs string, out io.Writer) error {
	a, err := explainPod(ctx, own, q, programs)
	if err != nil {
		return err
	}
	return a.Print(out)
}

// targetHeld is the condition of a published target that differs from the last step.
const targetHeld = "TargetHeld"

// Print writes the report as a table.
func (a *vpaReport) Print(out io.Writer) error {
	printable.Fprintf(out, "VPA %s/%s, recipe %s", a.VPA.Namespace, a.VPA.Name, a.Choice.Name)
	switch {
	case a.Choice.Source == recipe.FromPolicy:
		printable.Fprintf(out, " (of the policy: %s)", a.Choice.Text)
	case a.Choice.Text != "" && a.Choice.Problem == "":
		printable.Fprintf(out, " (annotation %s: %s)", recipe.Annotation, a.Choice.Text)
	}
	printable.Fprintln(out)
	if err := (rolloutReport{&a.Rollout}).print(out); err != nil {
		return err
	}
	for _, c := range a.VPA.Status.Conditions {
		if c.Type == targetHeld && c.Status == corev1.ConditionTrue {
			printable.Fprintf(out, "! %s: %s\n", c.Type, c.Message)
		}
	}
	if problem := convert.Unsupported(a.VPA); problem != "" {
		printable.Fprintf(out, "! ConfigUnsupported: %s\n", problem)
	}
	if problem := convert.Unreadable(a.VPA); problem != "" {
		printable.Fprintf(out, "! no pod is changed, because the VPA cannot be read: %s\n", problem)
	} else if convert.Outdated(a.VPA, a.VPA.Generation) {
		printable.Fprintf(out, "! what is published is for generation %d of the VPA, and this is %d: if spec.targetRef changed since, no pod gets it before the recommender has seen that\n",
			convert.ObservedGeneration(a.VPA), a.VPA.Generation)
	}
	if a.Room != "" {
		printable.Fprintf(out, "updater with --eviction-room=auto: %s\n", a.Room)
	}
	if a.Choice.UsesCurrent {
		printable.Fprintln(out, "! the recipe starts from the requests of the running pods, which are not read here: the published target stands in for them")
	}
	for _, problem := range append([]string{a.Choice.Problem}, a.Problems...) {
		if problem != "" {
			printable.Fprintln(out, "!", problem)
		}
	}
	for _, e := range a.Containers {
		printable.Fprintf(out, "\ncontainer %s, as saved with samples up to %s\n", e.Container, e.Saved.UTC().Format(time.RFC3339))
		if !e.Sketch {
			printable.Fprintln(out, "! the checkpoint has nothing of what the recipe needs besides the histograms: until it is there, what is published stays")
		}
		if len(e.Lacks) > 0 {
			printable.Fprintf(out, "! there are %s of five minutes: until there are enough nothing is recommended, and what is published stays\n", strings.Join(e.Lacks, " and "))
		}
		if e.Grown != "" {
			printable.Fprintln(out, "!", e.Grown)
		}
		if e.HeldBack > 0 {
			printable.Fprintf(out, "! its CPU limit was too low for its bursts: under a limit, use counts as %.0fm at least, of which half is forgotten in a week\n", e.HeldBack)
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for k := range resources.Kind(resources.Kinds) {
			e.print(w, k)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// upper returns the title of the upper bound of a kind.
func (e *containerReport) upper(k resources.Kind) string {
	if k == resources.Memory && e.LimitRatio != nil {
		return "limit protects"
	}
	return "upper bound"
}

func (e *containerReport) print(w io.Writer, k resources.Kind) {
	separate := k == resources.Memory && e.LimitRatio != nil
	for _, bound := range []struct {
		name  string
		steps []recipe.Value
	}{{"target", e.Steps.Target[k]}, {"lower bound", e.Steps.Lower[k]}, {e.upper(k), e.Steps.Upper[k]}} {
		for i, step := range bound.steps {
			head := ""
			if i == 0 {
				head = k.String() + " " + bound.name
			}
			printable.Fprintf(w, "  %s\t%s\t%s\n", head, step.Step, cli.FormatAmount(k, step.Amount))
		}
	}
	if separate {
		e.printLimit(w)
	}
	if p := e.Published; p != nil && separate {
		printable.Fprintf(w, "  memory published\tafter policy and rounding\trequest %s, lower bound %s; limit protects %s\n",
			cli.FormatQuantity(p.Target, k), cli.FormatQuantity(p.LowerBound, k), cli.FormatQuantity(p.UpperBound, k))
	} else if p != nil {
		printable.Fprintf(w, "  %s published\tafter policy and rounding\t%s, bounds %s to %s\n", k, cli.FormatQuantity(p.Target, k), cli.FormatQuantity(p.LowerBound, k), cli.FormatQuantity(p.UpperBound, k))
	}
}

// printLimit prints the memory limit that protects the upper bound, before policy, rounding and
// LimitRanges. Pods with the smallest ratio decide.
func (e *containerReport) printLimit(w io.Writer) {
	steps := e.Steps.Upper[resources.Memory]
	ratio, some := e.LimitRatio.Ratio()
	if !some || len(steps) == 0 {
		return
	}
	printable.Fprintf(w, "  memory limit\t%g x that, as declared\t%s\n", ratio, cli.FormatAmount(resources.Memory, ratio*steps[len(steps)-1].Amount))
}

// Commands returns status, explain and history.
func Commands() []*cobra.Command {
	return []*cobra.Command{explainCommand(), historyCommand(), statusCommand()}
}
