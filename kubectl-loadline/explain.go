package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// explainConfig are the flags of the command.
type explainConfig struct {
	cluster           clusterFlags
	namespace, recipe string
	estimate          flags.Estimate
	policies          flags.Policies
	sharingMinAge     time.Duration
}

func (c *explainConfig) addFlags(fs *pflag.FlagSet) {
	c.cluster.AddFlags(fs)
	fs.StringVarP(&c.namespace, "namespace", "n", "", "Namespace of the VPA or the pod. Unset: that of the context.")
	fs.StringVar(&c.recipe, "recipe", "vpa", "That of the recommender, which serves VPAs that ask for none.")
	c.estimate.AddFlags(fs)
	c.policies.AddFlags(fs)
	fs.DurationVar(&c.sharingMinAge, "sharing-min-age", 0, "That of the updater: how long a workload must have existed before its pods share what their nodes have left. Unset: the default of the updater is taken, and the output says so.")
}

const explainHelp = `Usage: %s [flags] VPA|pod/NAME

Shows how the recommendation for each container of a VPA comes about, from what
the recommender saved last. Flags that the recommender has must be the same here.

Of a pod it shows what is recommended, why it is changed or left alone as far as
that can be seen from outside, and what the pods of its node share.

%s`

// runExplain shows, step by step, how the recommendation for a VPA comes about, and how far its
// rollout is. It reads the VPA and its checkpoints and runs the same chains over them as the
// recommender, so that what it shows is what that computed when it last saved. It returns the
// exit code.
func runExplain(ctx context.Context, args []string, out, errOut io.Writer) int {
	const name = "kubectl loadline explain"
	c, fs := explainConfig{estimate: flags.DefaultEstimate()}, flags.New(name)
	c.addFlags(fs)
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(out, explainHelp, name, flags.Describe(fs))
		return flags.OK
	} else if err != nil {
		fmt.Fprintf(errOut, "%s: %v (see %s --help)\n", name, err, name)
		return flags.Usage
	}
	problem := c.estimate.Validate()
	var book *recipe.Book
	if problem == nil {
		if book, problem = recipe.NewBook(c.recipe, c.estimate.Config); problem != nil {
			problem = flags.Problem("recipe", c.recipe, problem.Error())
		}
	}
	if c.sharingMinAge < 0 {
		problem = errors.Join(problem, flags.Problem("sharing-min-age", c.sharingMinAge, "must not be below 0"))
	}
	if fs.NArg() != 1 {
		problem = errors.Join(problem, errors.New("want the name of one VPA, or pod/NAME"))
	}
	if problem != nil {
		fmt.Fprintf(errOut, "%s: %s\n", name, strings.ReplaceAll(problem.Error(), "\n", "; "))
		return flags.Usage
	}
	clients, namespace, err := c.cluster.Connect(c.namespace)
	kind, object := "VPA", fs.Arg(0)
	if pod, found := strings.CutPrefix(object, "pod/"); found {
		kind, object = "pod", pod
	}
	if err == nil {
		q := question{namespace, object, book, time.Now(), fleet.Options{Foreign: c.policies.Foreign}, clients.Kube, c.sharingMinAge}
		if kind == "pod" {
			err = printPod(ctx, clients.VPA, q, out)
		} else {
			err = printVPA(ctx, clients.VPA, q, out)
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %s %s/%s: %v\n", name, kind, namespace, object, err)
		return flags.Failed
	}
	return flags.OK
}

// printVPA answers a question about a VPA.
func printVPA(ctx context.Context, own versioned.Interface, q question, out io.Writer) error {
	a, err := explain(ctx, own, q)
	if err != nil {
		return err
	}
	a.Room = room(ctx, q.Kube, q.Now)
	return a.Print(out)
}

// printPod answers a question about a pod.
func printPod(ctx context.Context, own versioned.Interface, q question, out io.Writer) error {
	a, err := explainPod(ctx, own, q)
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
	fmt.Fprintf(out, "VPA %s/%s, recipe %s", a.VPA.Namespace, a.VPA.Name, a.Choice.Name)
	switch {
	case a.Choice.Source == recipe.FromPolicy:
		fmt.Fprintf(out, " (of the policy: %s)", a.Choice.Text)
	case a.Choice.Text != "" && a.Choice.Problem == "":
		fmt.Fprintf(out, " (annotation %s: %s)", recipe.Annotation, a.Choice.Text)
	}
	fmt.Fprintln(out)
	if err := a.Rollout.print(out); err != nil {
		return err
	}
	for _, c := range a.VPA.Status.Conditions {
		if c.Type == held && c.Status == corev1.ConditionTrue {
			fmt.Fprintf(out, "! %s: %s\n", c.Type, c.Message)
		}
	}
	if problem := convert.Unreadable(a.VPA); problem != "" {
		fmt.Fprintf(out, "! no pod is changed, because the VPA cannot be read: %s\n", problem)
	} else if convert.Outdated(a.VPA, a.VPA.Generation) {
		fmt.Fprintf(out, "! what is published is for generation %d of the VPA, and this is %d: if spec.targetRef changed since, no pod gets it before the recommender has seen that\n",
			convert.ObservedGeneration(a.VPA), a.VPA.Generation)
	}
	if a.Room != "" {
		fmt.Fprintf(out, "updater with --eviction-room=auto: %s\n", a.Room)
	}
	if a.Choice.UsesCurrent {
		fmt.Fprintln(out, "! the recipe starts from the requests of the running pods, which are not read here: the published target stands in for them")
	}
	for _, problem := range append([]string{a.Choice.Problem}, a.Problems...) {
		if problem != "" {
			fmt.Fprintln(out, "!", problem)
		}
	}
	for _, e := range a.Containers {
		fmt.Fprintf(out, "\ncontainer %s, as saved with samples up to %s\n", e.Container, e.Saved.UTC().Format(time.RFC3339))
		if !e.Sketch {
			fmt.Fprintln(out, "! the checkpoint has nothing of what the recipe needs besides the histograms: until it is there, what is published stays")
		}
		if len(e.Lacks) > 0 {
			fmt.Fprintf(out, "! there are %s of five minutes: until there are enough nothing is recommended, and what is published stays\n", strings.Join(e.Lacks, " and "))
		}
		if e.Grown != "" {
			fmt.Fprintln(out, "!", e.Grown)
		}
		if e.HeldBack > 0 {
			fmt.Fprintf(out, "! its CPU limit was too low for its bursts: under a limit, use counts as %.0fm at least, of which half is forgotten in a week\n", e.HeldBack)
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

func (e *explained) print(w io.Writer, k resources.Kind) {
	upper, separate := "upper bound", k == resources.Memory && e.LimitRatio != nil
	if separate {
		upper = "limit protects"
	}
	for _, bound := range []struct {
		name  string
		steps []recipe.Value
	}{{"target", e.Steps.Target[k]}, {"lower bound", e.Steps.Lower[k]}, {upper, e.Steps.Upper[k]}} {
		for i, step := range bound.steps {
			head := ""
			if i == 0 {
				head = k.String() + " " + bound.name
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", head, step.Step, human(k, step.Amount))
		}
	}
	if separate {
		e.printLimit(w)
	}
	if p := e.Published; p != nil && separate {
		fmt.Fprintf(w, "  memory published\tafter policy and rounding\trequest %s, lower bound %s; limit protects %s\n",
			quantity(p.Target, k), quantity(p.LowerBound, k), quantity(p.UpperBound, k))
	} else if p != nil {
		fmt.Fprintf(w, "  %s published\tafter policy and rounding\t%s, bounds %s to %s\n", k, quantity(p.Target, k), quantity(p.LowerBound, k), quantity(p.UpperBound, k))
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
	fmt.Fprintf(w, "  memory limit\t%g x that, as declared\t%s\n", ratio, human(resources.Memory, ratio*steps[len(steps)-1].Amount))
}
