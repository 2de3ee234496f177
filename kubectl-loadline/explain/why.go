package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

type whyConfig struct {
	cluster  cli.ClusterFlags
	output   *cli.OutputFlag
	programs string // namespace
	policies flags.Policies
}

const whyHelp = `Shows why a pod is not changed, what that means, and what to do.

The reason is that of the updater. Without its answer it is what you can read.`

func whyCommand() *cobra.Command {
	c := &whyConfig{}
	cmd := &cobra.Command{
		Use: "why [flags] pod/NAME", Long: whyHelp,
		Short: "show why a pod is skipped, and suggest a fix", RunE: c.run,
	}
	c.cluster, c.output = cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	cli.AddProgramsFlag(cmd, &c.programs)
	c.policies.AddFlags(cmd.Flags())
	return cmd
}

func (c *whyConfig) run(cmd *cobra.Command, args []string) error {
	pod, found := strings.CutPrefix(strings.Join(args, " "), "pod/")
	var wrong error
	if len(args) != 1 || !found || pod == "" {
		wrong = errors.New("must have one pod as argument, such as pod/web-1")
	}
	if err := cli.Invalid(c.output.Validate(), wrong); err != nil {
		return err
	}
	cluster, q, err := newRequest(&c.cluster, c.programs, c.policies)
	if err != nil {
		return err
	}
	q.Name = pod
	a, err := whyPod(cmd.Context(), cluster.VPA, q)
	if err != nil {
		return err
	}
	return c.output.Print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a)
}

func newRequest(clusterFlags *cli.ClusterFlags, programs string, policies flags.Policies) (*cli.Cluster, inventory.Request, error) {
	cluster, err := clusterFlags.Connect()
	if err != nil {
		return nil, inventory.Request{}, err
	}
	book, err := recipe.NewCache("", recipe.DefaultConfig())
	return cluster, inventory.Request{
		Namespace: cluster.Namespace, Book: book, Now: time.Now(), Policies: fleet.Options{Foreign: policies.ForeignAnnotations}, Kube: cluster.Kube, Programs: programs,
	}, err
}

type podEvent struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

type whyReport struct {
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Node      string          `json:"node,omitempty"`
	Workload  *workloadStatus `json:"workload,omitempty"` // of its VPA, if any
	Reason    reason.Reason   `json:"reason,omitempty"`   // why it is skipped, absent: no visible obstacle
	Means     string          `json:"means,omitempty"`
	Advice    string          `json:"advice,omitempty"`
	By        string          `json:"by"` // source of the reason
	Events    []podEvent      `json:"events,omitempty"`
	Problems  []string        `json:"problems,omitempty"`
}

const (
	fromUpdater = "the last iteration of the updater"
	fromStatus  = "the objects visible to you"
)

func whyPod(ctx context.Context, own versioned.Interface, q inventory.Request) (*whyReport, error) {
	a, err := explainPod(ctx, own, q)
	if err != nil {
		return nil, err
	}
	s := &whyReport{Namespace: a.Pod.Namespace, Pod: a.Pod.Name, Node: a.Pod.Spec.NodeName, By: fromUpdater, Problems: a.Problems}
	if skip := a.skip(); skip != nil {
		s.Reason, s.Means, s.Advice = skip.Reason, skip.Means, skip.Advice
	}
	if a.Unanswered != "" {
		s.By, s.Problems = fromStatus, append(s.Problems, a.Unanswered)
	}
	if a.VPA != nil {
		s.Workload = rowOf(a.VPA, &a.Rollout)
	}
	for i := range a.Events {
		e := &a.Events[i]
		s.Events = append(s.Events, podEvent{e.LastTimestamp.Time, e.Reason, eventText(e)})
	}
	return s, nil
}

func (s *whyReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"POD", s.Namespace + "/" + s.Pod}}
	row := func(name, text string) {
		if text != "" {
			t.Rows = append(t.Rows, []string{name, text})
		}
	}
	row("NODE", s.Node)
	if w := s.Workload; w != nil {
		row("VPA", fmt.Sprintf("%s, mode %s", w.VPA, w.Mode))
		row("TARGET", w.Target)
		if w.Policy != "" {
			row("POLICY", w.Policy+", mode "+w.PolicyMode)
		}
		row("PHASE", w.Phase)
		if !w.CooldownUntil.IsZero() {
			row("COOLDOWN UNTIL", cli.Timestamp(w.CooldownUntil))
		}
	}
	if s.Reason == "" {
		row("SKIPPED", "no: nothing that can be seen is in the way of a change")
	} else {
		row("SKIPPED", string(s.Reason))
		row("WHAT IT MEANS", s.Means)
		row("WHAT TO DO", s.Advice)
	}
	row("SOURCE", s.By)
	for _, e := range s.Events {
		row("EVENT", fmt.Sprintf("%s %s: %s", cli.Timestamp(e.Time), e.Reason, e.Message))
	}
	return []cli.Table{t}
}

func (s *whyReport) Notes() []string { return cli.Warnings(s.Problems) }
