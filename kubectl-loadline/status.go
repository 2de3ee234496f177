package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/target"
)

// statusConfig are the flags of the command.
type statusConfig struct {
	cluster  clusterFlags
	output   *outputFlag
	scope    scopeFlags
	updater  string
	policies flags.Policies
}

const statusHelp = `Shows which workloads are managed, in which mode, how far the rollout of each is,
and why pods are left alone. Of a pod it shows the reason, what that means, and
what to do.

The reason is that of the updater, which is asked for it; where it cannot be
asked, or says nothing of a pod, it is what can be seen from outside.`

func statusCommand() *cobra.Command {
	c := &statusConfig{}
	cmd := &cobra.Command{
		Use: "status [flags] [pod/NAME]", Long: statusHelp,
		Short: "show what is managed, how far it is, and what is not done and why",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args)
		},
	}
	c.cluster, c.output = addClusterFlags(cmd), addOutputFlag(cmd)
	c.scope.add(cmd, "VPAs")
	addProgramsFlag(cmd, &c.updater)
	c.policies.AddFlags(cmd.Flags())
	return cmd
}

// addProgramsFlag binds the namespace of the programs.
func addProgramsFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "programs-namespace", metav1.NamespaceSystem, "Namespace in which recommender, updater and admission controller run.")
}

// scopeFlags say which objects a command is about.
type scopeFlags struct {
	All      bool
	Selector string
}

// add binds them to a command.
func (s *scopeFlags) add(cmd *cobra.Command, objects string) {
	cmd.Flags().BoolVarP(&s.All, "all-namespaces", "A", false, "Those of all namespaces.")
	cmd.Flags().StringVarP(&s.Selector, "selector", "l", "", "Only "+objects+" with labels that this selects.")
}

func (s *scopeFlags) validate() error {
	if _, err := labels.Parse(s.Selector); err != nil {
		return flags.Problem("selector", s.Selector, err.Error())
	}
	return nil
}

// namespace returns that to look at; empty: all.
func (s *scopeFlags) namespace(of string) string {
	if s.All {
		return metav1.NamespaceAll
	}
	return of
}

func (c *statusConfig) run(cmd *cobra.Command, args []string) error {
	pod, wrongArg := "", error(nil)
	if len(args) > 0 {
		var found bool
		if pod, found = strings.CutPrefix(args[0], "pod/"); !found || len(args) > 1 {
			wrongArg = errors.New("want pod/NAME, or nothing")
		} else if c.scope.All || c.scope.Selector != "" {
			wrongArg = errors.New("--all-namespaces and --selector are for VPAs, not for pod/NAME: give the namespace of the pod with -n")
		}
	}
	if err := wrong(c.output.validate(), c.scope.validate(), wrongArg); err != nil {
		return err
	}
	cluster, err := c.cluster.Connect()
	if err != nil {
		return err
	}
	book, err := recipe.NewBook("", recipe.DefaultConfig())
	if err != nil {
		return err
	}
	q := question{cluster.Namespace, pod, book, time.Now(), fleet.Options{Foreign: c.policies.Foreign}, cluster.Kube, 0}
	var a report
	if pod != "" {
		a, err = statusOfPod(cmd.Context(), cluster.VPA, q, c.updater)
	} else {
		q.Namespace = c.scope.namespace(cluster.Namespace)
		a, err = statusOf(cmd.Context(), cluster.VPA, q, statusScope{c.scope.Selector, c.updater})
	}
	if err != nil {
		return err
	}
	return c.output.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a)
}

// statusScope is what a status is about, besides its question.
type statusScope struct {
	Selector string // of VPAs
	Updater  string // namespace of that
}

// podsLeft are pods that are left alone for one reason.
type podsLeft struct {
	Reason reason.Reason `json:"reason"`
	Pods   int           `json:"pods"`
	Means  string        `json:"means,omitempty"`
	Advice string        `json:"advice,omitempty"`
}

// workloadStatus is the state of what a VPA controls.
type workloadStatus struct {
	Namespace     string     `json:"namespace"`
	VPA           string     `json:"vpa"`
	Target        string     `json:"target"`
	Mode          string     `json:"mode"` // of the VPA
	Policy        string     `json:"policy,omitempty"`
	PolicyMode    string     `json:"policyMode,omitempty"`
	Phase         string     `json:"phase,omitempty"`
	CooldownUntil time.Time  `json:"cooldownUntil,omitzero"`
	Conditions    []string   `json:"conditions,omitempty"`
	Pods          int        `json:"pods"`
	Due           int        `json:"due"` // nothing that can be seen is in the way of changing them
	Left          []podsLeft `json:"leftAlone,omitempty"`
}

// statusAnswer is the state of many workloads.
type statusAnswer struct {
	Workloads  []workloadStatus `json:"workloads"`
	Reasons    []podsLeft       `json:"reasons,omitempty"` // of all pods
	Unmanaged  int              `json:"unmanagedPods"`     // that no VPA controls
	Problems   []string         `json:"problems,omitempty"`
	namespaced bool
	left       map[reason.Explanation]int // pods that are left alone
}

// statusOf reads all VPAs of a namespace, or of all, and their pods.
func statusOf(ctx context.Context, own versioned.Interface, q question, scope statusScope) (*statusAnswer, error) {
	vpas, err := own.AutoscalingV1().VerticalPodAutoscalers(q.Namespace).List(ctx, metav1.ListOptions{LabelSelector: scope.Selector})
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	pods, err := livePods(ctx, q)
	if err != nil {
		return nil, err
	}
	s, err := newSurroundings(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := &statusAnswer{Workloads: []workloadStatus{}, namespaced: q.Namespace != "", Problems: s.problems}
	a.left = map[reason.Explanation]int{}
	if len(vpas.Items) == 0 {
		text := "no VPA was found " + q.where(nil)
		if scope.Selector != "" {
			text += " with labels " + scope.Selector
		}
		a.Problems = append(a.Problems, text)
	}
	said, err := askUpdater(ctx, q.Kube, scope.Updater, "", q.Now)
	if err != nil {
		a.Problems = append(a.Problems, fmt.Sprintf("the reasons are those that can be seen from outside: %v", err))
	}
	rows := map[cache.ObjectName]*workloadStatus{}
	for i := range vpas.Items {
		v := &vpas.Items[i]
		of, err := s.known(ctx, v)
		if err != nil {
			a.Problems = append(a.Problems, err.Error())
			continue
		}
		rows[cache.MetaObjectToName(v)] = rowOf(v, &of.rollout)
		if of.problem != "" {
			a.Problems = append(a.Problems, of.problem)
		}
	}
	for i := range pods {
		a.count(s.answer(ctx, &pods[i]), said, rows)
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

// livePods returns the pods of the namespace of a question that are there to be changed.
func livePods(ctx context.Context, q question) ([]corev1.Pod, error) {
	var all []corev1.Pod
	for options := (metav1.ListOptions{Limit: podsPerPage}); ; {
		list, err := q.Kube.CoreV1().Pods(q.Namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				all = append(all, *p)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// rowOf returns the state of a VPA without its pods.
func rowOf(v *vpav1.VerticalPodAutoscaler, r *rolloutStanding) *workloadStatus {
	w := &workloadStatus{Namespace: v.Namespace, VPA: v.Name, Mode: string(convert.Mode(v))}
	if ref := v.Spec.TargetRef; ref != nil {
		w.Target = target.RefKey(v.Namespace, ref).String()
	}
	if r.Policy != nil {
		w.Policy, w.PolicyMode = r.Policy.Name, r.Mode.String()
		w.Phase = string(r.Held.State.Phase)
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

// count adds a pod to the row of its VPA.
func (a *statusAnswer) count(p *podAnswer, said map[types.UID]reason.Reason, rows map[cache.ObjectName]*workloadStatus) {
	a.Problems = append(a.Problems, p.Problems...)
	if p.VPA == nil {
		if p.Left == reason.NoVPA {
			a.Unmanaged++
		}
		return
	}
	row := rows[cache.MetaObjectToName(p.VPA)]
	if row == nil { // not selected
		return
	}
	p.take(said)
	row.Pods++
	if p.Left == "" {
		row.Due++
		return
	}
	at := slices.IndexFunc(row.Left, func(l podsLeft) bool { return l.Reason == p.Left })
	if at < 0 {
		at = len(row.Left)
		row.Left = append(row.Left, podsLeft{Reason: p.Left})
	}
	row.Left[at].Pods++
	a.left[p.reason()]++
}

// take puts what the updater said of a pod in the place of what can be seen from outside.
func (a *podAnswer) take(said map[types.UID]reason.Reason) {
	if why, known := said[a.Pod.UID]; known {
		a.Left, a.Said = why, true
	}
}

// explain adds what the reasons mean, and removes problems that are said twice.
func (a *statusAnswer) explain() {
	for i := range a.Workloads {
		slices.SortFunc(a.Workloads[i].Left, func(a, b podsLeft) int { return cmp.Compare(a.Reason, b.Reason) })
	}
	for e, pods := range a.left {
		a.Reasons = append(a.Reasons, podsLeft{e.Reason, pods, e.Means, e.Advice})
	}
	slices.SortFunc(a.Reasons, func(a, b podsLeft) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Means, b.Means))
	})
	slices.Sort(a.Problems)
	a.Problems = slices.Compact(a.Problems)
}

func (a *statusAnswer) tables() []table {
	t := table{Columns: []string{"NAMESPACE", "VPA", "MODE", "POLICY", "PHASE", "COOLDOWN UNTIL", "PODS", "DUE", "LEFT ALONE", "TARGET", "CONDITIONS"}, Wide: 2}
	for i := range a.Workloads {
		w := &a.Workloads[i]
		policy, cooldown := w.Policy, ""
		if policy != "" {
			policy += " (" + w.PolicyMode + ")"
		}
		if !w.CooldownUntil.IsZero() {
			cooldown = at(w.CooldownUntil)
		}
		var left []string
		for _, l := range w.Left {
			left = append(left, fmt.Sprintf("%s %d", l.Reason, l.Pods))
		}
		t.Rows = append(t.Rows, []string{w.Namespace, w.VPA, w.Mode, dash(policy), dash(w.Phase), dash(cooldown), fmt.Sprint(w.Pods), fmt.Sprint(w.Due),
			dash(strings.Join(left, ", ")), dash(w.Target), dash(strings.Join(w.Conditions, ", "))})
	}
	if a.namespaced {
		t = t.without(0)
	}
	all := []table{t}
	if len(a.Reasons) > 0 {
		why := table{Columns: []string{"REASON", "PODS", "WHAT IT MEANS", "WHAT TO DO"}, Wide: 1}
		for _, r := range a.Reasons {
			why.Rows = append(why.Rows, []string{string(r.Reason), fmt.Sprint(r.Pods), r.Means, r.Advice})
		}
		all = append(all, why)
	}
	return all
}

// without returns the table without a column.
func (t table) without(column int) table {
	t.Columns = slices.Delete(slices.Clone(t.Columns), column, column+1)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Delete(slices.Clone(row), column, column+1)
	}
	return t
}

func (a *statusAnswer) notes() (notes []string) {
	if a.Unmanaged > 0 {
		notes = append(notes, fmt.Sprintf("Pods that no VPA controls: %d", a.Unmanaged))
	}
	for _, problem := range a.Problems {
		notes = append(notes, "! "+problem)
	}
	return notes
}
