package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/target"
)

type statusConfig struct {
	cluster  cli.ClusterFlags
	output   *cli.OutputFlag
	scope    cli.ScopeFlags
	programs string // namespace
	policies flags.Policies
}

const statusHelp = `Shows which workloads are managed, in which mode, how far the rollout of each is,
and why pods are left alone. "why pod/NAME" shows one pod, with what to do.

The reasons are those of the updater. Without its answer they are what you can read.`

func statusCommand() *cobra.Command {
	c := &statusConfig{}
	cmd := &cobra.Command{
		Use: "status [flags]", Long: statusHelp, Args: statusArgs,
		Short: "show managed workloads, their rollouts, and skipped pods with reasons", RunE: c.run,
	}
	c.cluster, c.output = cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	c.scope.AddFlags(cmd, "VPAs")
	cli.AddProgramsFlag(cmd, &c.programs)
	c.policies.AddFlags(cmd.Flags())
	return cmd
}

func statusArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], "pod/") {
		return cli.Invalid(fmt.Errorf("unexpected argument %q: for a pod use: kubectl loadline why %s", args[0], args[0]))
	}
	if len(args) > 0 {
		return cli.Invalid(fmt.Errorf("unexpected argument %q: -l selects VPAs by their labels", args[0]))
	}
	return nil
}

func (c *statusConfig) run(cmd *cobra.Command, _ []string) error {
	if err := cli.Invalid(c.output.Validate(), c.scope.Validate()); err != nil {
		return err
	}
	cluster, q, err := newRequest(&c.cluster, c.programs, c.policies)
	if err != nil {
		return err
	}
	q.Namespace = c.scope.Namespace(cluster.Namespace)
	a, err := statusOf(cmd.Context(), cluster.VPA, q, c.scope.Selector)
	if err != nil {
		return err
	}
	return c.output.Print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a)
}

type skippedPods struct {
	Reason reason.Reason `json:"reason"`
	Pods   int           `json:"pods"`
	Means  string        `json:"means,omitempty"`
	Advice string        `json:"advice,omitempty"`
}

type workloadStatus struct {
	Namespace     string        `json:"namespace"`
	VPA           string        `json:"vpa"`
	Target        string        `json:"target"`
	Mode          string        `json:"mode"` // of the VPA
	Policy        string        `json:"policy,omitempty"`
	PolicyMode    string        `json:"policyMode,omitempty"`
	Phase         string        `json:"phase,omitempty"`
	CooldownUntil time.Time     `json:"cooldownUntil,omitzero"`
	Conditions    []string      `json:"conditions,omitempty"`
	Pods          int           `json:"pods"`
	Due           int           `json:"due"` // pods without a visible obstacle to a change
	Skipped       []skippedPods `json:"skipped,omitempty"`
}

type statusReport struct {
	Workloads  []workloadStatus `json:"workloads"`
	Reasons    []skippedPods    `json:"reasons,omitempty"` // of all pods
	Unmanaged  int              `json:"unmanagedPods"`     // pods without a VPA
	Problems   []string         `json:"problems,omitempty"`
	namespaced bool
	skips      map[explanation.Skip]int // skipped pods by explanation
}

func statusOf(ctx context.Context, own versioned.Interface, q inventory.Request, selector string) (*statusReport, error) {
	vpas, err := own.AutoscalingV1().VerticalPodAutoscalers(q.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	pods, err := inventory.LivePods(ctx, q)
	if err != nil {
		return nil, err
	}
	s, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := &statusReport{
		Workloads: []workloadStatus{}, namespaced: q.Namespace != "", Problems: s.Problems, skips: map[explanation.Skip]int{},
	}
	if len(vpas.Items) == 0 {
		text := "no VPA was found " + q.DescribeScope(nil)
		if selector != "" {
			text += " with labels " + selector
		}
		a.Problems = append(a.Problems, text)
	}
	skips, err := programs.SkipReasons(ctx, q.Kube, q.Programs, q.Now)
	if err != nil {
		a.Problems = append(a.Problems, fmt.Sprintf("reasons are limited to visible objects, because the updater is not available: %v", err))
	}
	rows := map[cache.ObjectName]*workloadStatus{}
	for i := range vpas.Items {
		v := &vpas.Items[i]
		resolved, err := s.Resolve(ctx, v)
		if err != nil {
			a.Problems = append(a.Problems, err.Error())
			continue
		}
		rows[cache.MetaObjectToName(v)] = rowOf(v, &resolved.Rollout)
		if resolved.Problem != "" {
			a.Problems = append(a.Problems, resolved.Problem)
		}
	}
	for i := range pods {
		a.count(readPod(ctx, s, &pods[i]), skips, rows)
	}
	for _, row := range rows {
		a.Workloads = append(a.Workloads, *row)
	}
	slices.SortFunc(a.Workloads, func(a, b workloadStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.VPA, b.VPA))
	})
	a.explain()
	return a, nil
}

func rowOf(v *vpav1.VerticalPodAutoscaler, r *inventory.Rollout) *workloadStatus {
	w := &workloadStatus{Namespace: v.Namespace, VPA: v.Name, Mode: string(convert.Mode(v))}
	if ref := v.Spec.TargetRef; ref != nil {
		w.Target = target.RefKey(v.Namespace, ref).String()
	}
	if r.Policy != nil {
		w.Policy, w.PolicyMode = r.Policy.Name, r.Mode.String()
		w.Phase = string(r.State.Phase)
		if until := r.State.CooldownUntil; until.After(r.Now) {
			w.CooldownUntil = until
		}
	}
	for _, c := range v.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Type != vpav1.RecommendationProvided {
			w.Conditions = append(w.Conditions, string(c.Type))
		}
	}
	return w
}

func (a *statusReport) count(p *podReport, skips map[types.UID]reason.Reason, rows map[cache.ObjectName]*workloadStatus) {
	a.Problems = append(a.Problems, p.Problems...)
	if p.unknownVPA != "" {
		a.Problems = append(a.Problems, p.unknownVPA)
	}
	if p.VPA == nil {
		if p.Explained.Skip.Reason == reason.NoVPA {
			a.Unmanaged++
		}
		return
	}
	row := rows[cache.MetaObjectToName(p.VPA)]
	if row == nil { // not selected
		return
	}
	if r, known := skips[p.Pod.UID]; known {
		p.Explained.Skip = explanation.NewSkip(r)
	}
	row.Pods++
	skip := p.skip()
	if skip == nil {
		row.Due++
		return
	}
	i := slices.IndexFunc(row.Skipped, func(l skippedPods) bool { return l.Reason == skip.Reason })
	if i < 0 {
		i = len(row.Skipped)
		row.Skipped = append(row.Skipped, skippedPods{Reason: skip.Reason})
	}
	row.Skipped[i].Pods++
	a.skips[*skip]++
}

func (a *statusReport) explain() {
	for i := range a.Workloads {
		slices.SortFunc(a.Workloads[i].Skipped, func(a, b skippedPods) int { return cmp.Compare(a.Reason, b.Reason) })
	}
	for e, pods := range a.skips {
		a.Reasons = append(a.Reasons, skippedPods{e.Reason, pods, e.Means, e.Advice})
	}
	slices.SortFunc(a.Reasons, func(a, b skippedPods) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Means, b.Means))
	})
	slices.Sort(a.Problems)
	a.Problems = slices.Compact(a.Problems)
}

func (a *statusReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"NAMESPACE", "VPA", "MODE", "POLICY", "PHASE", "COOLDOWN UNTIL", "PODS", "DUE", "SKIPPED", "TARGET", "CONDITIONS"}, Wide: 2}
	for i := range a.Workloads {
		w := &a.Workloads[i]
		policy, cooldown := w.Policy, ""
		if policy != "" {
			policy += " (" + w.PolicyMode + ")"
		}
		if !w.CooldownUntil.IsZero() {
			cooldown = cli.Timestamp(w.CooldownUntil)
		}
		var left []string
		for _, l := range w.Skipped {
			left = append(left, fmt.Sprintf("%s %d", l.Reason, l.Pods))
		}
		t.Rows = append(t.Rows, []string{w.Namespace, w.VPA, w.Mode, cmp.Or(policy, "-"), cmp.Or(w.Phase, "-"), cmp.Or(cooldown, "-"), fmt.Sprint(w.Pods), fmt.Sprint(w.Due),
			cmp.Or(strings.Join(left, ", "), "-"), cmp.Or(w.Target, "-"), cmp.Or(strings.Join(w.Conditions, ", "), "-")})
	}
	if a.namespaced {
		t = t.Without(0)
	}
	all := []cli.Table{t}
	if len(a.Reasons) > 0 {
		why := cli.Table{Columns: []string{"REASON", "PODS", "WHAT IT MEANS", "WHAT TO DO"}, Wide: 1}
		for _, r := range a.Reasons {
			why.Rows = append(why.Rows, []string{string(r.Reason), fmt.Sprint(r.Pods), r.Means, r.Advice})
		}
		all = append(all, why)
	}
	return all
}

func (a *statusReport) Notes() (notes []string) {
	if a.Unmanaged > 0 {
		notes = append(notes, fmt.Sprintf("Pods that no VPA controls: %d", a.Unmanaged))
	}
	return append(notes, cli.Warnings(a.Problems)...)
}
