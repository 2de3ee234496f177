package main

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

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/printable"
)

// explainConfig are the flags of the command.
type explainConfig struct {
	cluster       clusterFlags
	output        *outputFlag
	programs      string // their namespace
	estimate      estimateFlags
	policies      flags.Policies
	sharingMinAge time.Duration
}

const explainHelp = `Shows how the recommendation for each container of a VPA comes about, from what
the recommender saved last, or from the history in Prometheus (--prometheus-address), as
for a recommender with --storage=prometheus. Flags that the recommender has must be the
same here.

Of a pod it shows what is recommended, why it is changed or left alone, as the updater
says or as far as that can be seen from outside, and what the pods of its node share.`

// explainCommand shows, step by step, how the recommendation for a VPA comes about, and how far its
// rollout is. It reads the VPA and its checkpoints and runs the same chains over them as the
// recommender, so that what it shows is what that computed when it last saved.
func explainCommand() *cobra.Command {
	c := explainConfig{}
	cmd := &cobra.Command{
		Use: "explain [flags] VPA|pod/NAME", Long: explainHelp,
		Short: "show each step of a recommendation; what becomes of a pod, and what its node's pods share",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.cluster, c.output = addClusterFlags(cmd), addOutputFlag(cmd)
	fs := cmd.Flags()
	addProgramsFlag(cmd, &c.programs)
	c.estimate.addFlags(fs)
	fs.Lookup("recipe").Usage = "That of the recommender, which serves VPAs that ask for none."
	fs.Lookup("prometheus-address").Usage = "Prometheus that the recommender reads with --storage=prometheus. Unset: the checkpoints that the recommender writes without that."
	c.policies.AddFlags(fs)
	fs.DurationVar(&c.sharingMinAge, "sharing-min-age", 0, "That of the updater: how long a workload must have existed before its pods share what their nodes have left. Unset: the default of the updater is taken, and the output says so.")
	return cmd
}

func (c *explainConfig) run(ctx context.Context, args []string, out, errOut io.Writer) error {
	parsed, problem := c.estimate.parse()
	if c.sharingMinAge < 0 {
		problem = errors.Join(problem, flags.Problem("sharing-min-age", c.sharingMinAge, "must not be below 0"))
	}
	if len(args) != 1 {
		problem = errors.Join(problem, errors.New("want the name of one VPA, or pod/NAME"))
	}
	kind, object := "VPA", strings.Join(args, "")
	if pod, found := strings.CutPrefix(object, "pod/"); found {
		kind, object = "pod", pod
		problem = errors.Join(problem, flags.Check(c.output.Format == formats[0], "output", c.output.Format, "must be table for a pod: status pod/"+pod+" has all forms"))
	}
	if err := wrong(problem, c.output.validate()); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, *c.cluster.Namespace, object, err)
	}
	q := question{cluster.Namespace, object, parsed.book, time.Now(), fleet.Options{Foreign: c.policies.Foreign}, cluster.Kube, c.sharingMinAge}
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

// history returns what reads the history of a VPA: checkpoints, or Prometheus if its address is set.
func (c *explainConfig) history(cluster *cluster, parsed parsedEstimate, q question) historyLoader {
	return func(ctx context.Context, a *answer) (map[string]checkpoint.Past, error) {
		if c.estimate.Address == "" {
			return checkpointsOf(ctx, cluster.VPA, q, a)
		}
		e, err := c.estimate.newEstimator(ctx, parsed, cluster.Config, q)
		if err != nil {
			return nil, err
		}
		return fromUsage(ctx, cluster.VPA, q, a, e)
	}
}

// printVPA answers a question about a VPA.
func printVPA(ctx context.Context, own versioned.Interface, q question, load historyLoader, form *outputFlag, out, errOut io.Writer) error {
	a, err := explainFrom(ctx, own, q, load)
	if err != nil {
		return err
	}
	if form.Format != "table" && form.Format != "wide" { // these have room for sentences
		return form.print(out, errOut, a.steps())
	}
	a.Room = room(ctx, q.Kube, q.Now)
	return a.Print(out)
}

// printPod answers a question about a pod.
func printPod(ctx context.Context, own versioned.Interface, q question, programs string, out io.Writer) error {
	a, err := explainPod(ctx, own, q, programs)
	if err != nil {
		return err
	}
	return a.Print(out)
}

// held is the condition by which the recommender says that it publishes something
// else than the steps lead to.
const held = "TargetHeld"

// Print writes the answer as a table.
func (a *answer) Print(out io.Writer) error {
	printable.Fprintf(out, "VPA %s/%s, recipe %s", a.VPA.Namespace, a.VPA.Name, a.Choice.Name)
	switch {
	case a.Choice.Source == recipe.FromPolicy:
		printable.Fprintf(out, " (of the policy: %s)", a.Choice.Text)
	case a.Choice.Text != "" && a.Choice.Problem == "":
		printable.Fprintf(out, " (annotation %s: %s)", recipe.Annotation, a.Choice.Text)
	}
	printable.Fprintln(out)
	if err := a.Rollout.print(out); err != nil {
		return err
	}
	for _, c := range a.VPA.Status.Conditions {
		if c.Type == held && c.Status == corev1.ConditionTrue {
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

// upper says what the upper bound of a kind is.
func (e *explained) upper(k resources.Kind) string {
	if k == resources.Memory && e.LimitRatio != nil {
		return "limit protects"
	}
	return "upper bound"
}

func (e *explained) print(w io.Writer, k resources.Kind) {
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
			printable.Fprintf(w, "  %s\t%s\t%s\n", head, step.Step, human(k, step.Amount))
		}
	}
	if separate {
		e.printLimit(w)
	}
	if p := e.Published; p != nil && separate {
		printable.Fprintf(w, "  memory published\tafter policy and rounding\trequest %s, lower bound %s; limit protects %s\n",
			quantity(p.Target, k), quantity(p.LowerBound, k), quantity(p.UpperBound, k))
	} else if p != nil {
		printable.Fprintf(w, "  %s published\tafter policy and rounding\t%s, bounds %s to %s\n", k, quantity(p.Target, k), quantity(p.LowerBound, k), quantity(p.UpperBound, k))
	}
}

// printLimit says what limit follows from what it protects: that of the pods with the least
// room for it, before policy, rounding and LimitRanges.
func (e *explained) printLimit(w io.Writer) {
	steps := e.Steps.Upper[resources.Memory]
	ratio, some := e.LimitRatio.Ratio()
	if !some || len(steps) == 0 {
		return
	}
	printable.Fprintf(w, "  memory limit\t%g x that, as declared\t%s\n", ratio, human(resources.Memory, ratio*steps[len(steps)-1].Amount))
}
