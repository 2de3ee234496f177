package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodeshare"
	"loadline.dev/loadline/pkg/printable"
)

// podReport describes a pod, its recommendation and why it is skipped.
type podReport struct {
	Now         time.Time
	Pod         *corev1.Pod
	VPA         *vpav1.VerticalPodAutoscaler // nil: none, or unknown
	Recipe      string                       // of the VPA
	Rollout     inventory.Rollout
	Running     disruption.Pod // with the target
	SkipReason  reason.Reason
	FromUpdater bool           // the reason is the updater's
	Events      []corev1.Event // of the updater, newest first
	Node        *nodeReport    // nil: none, or unknown
	Problems    []string
}

// explainPod reads a pod, its recommendation and all pods of its node. It queries the updater in the
// namespace of the programs.
func explainPod(ctx context.Context, own versioned.Interface, q inventory.Request, programsNamespace string) (*podReport, error) {
	pod, err := q.Kube.CoreV1().Pods(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	reader, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := podReportOf(ctx, reader, pod)
	a.Problems = append(a.Problems, reader.Problems...)
	if skips, err := programs.SkipReasons(ctx, q.Kube, programsNamespace, pod.UID, q.Now); err == nil { // otherwise the reason is assessed here
		a.useUpdater(skips)
	}
	if a.VPA != nil {
		a.Recipe = q.Book.Choose(a.Rollout.RecipeText(a.VPA.Annotations[recipe.Annotation]), policyRecipe(a.Rollout.Policy)).Name
	}
	if a.Events, err = updaterEvents(ctx, q.Kube, pod); err != nil {
		a.problem("it is not known what the updater said of the pod: %v", err)
	}
	if pod.Spec.NodeName != "" {
		if a.Node, err = readNode(ctx, reader, pod.Spec.NodeName); err != nil {
			a.problem("it is not known what the pods of node %s share: %v", pod.Spec.NodeName, err)
		}
	}
	return a, nil
}

// podReportOf finds the VPA of a pod, and assesses why the pod is skipped.
func podReportOf(ctx context.Context, s *inventory.Reader, pod *corev1.Pod) *podReport {
	a := &podReport{Now: s.Now, Pod: pod}
	vpa, err := s.Controlling(ctx, pod)
	if unselectable := client.Unselectable(pod); unselectable != "" {
		vpa, err = nil, nil
		a.problem("no VPA selects the pod: %s", unselectable)
	}
	switch {
	case err != nil:
		a.problem("it is not known which VPA controls the pod: %v", err)
		a.SkipReason = reason.OwnerUnreadable
	case vpa == nil:
		a.SkipReason = reason.NoVPA
	default:
		a.VPA, a.Rollout = vpa.Object, vpa.Rollout
		if vpa.Problem != "" {
			a.problem("%s", vpa.Problem)
		}
		if problem := convert.Unsupported(a.VPA); problem != "" {
			a.problem("VPA %s: %s", a.VPA.Name, problem)
		}
		a.Running = convert.RunningPod(pod, vpa.Sizing.Recommendation, vpa.Sizing.Rules, *vpa.Sizing.Ranges)
		a.SkipReason = a.assess()
	}
	return a
}

func (a *podReport) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

// policyRecipe returns the recipe of a policy, or "".
func policyRecipe(p *fleet.Policy) string {
	if p == nil {
		return ""
	}
	return p.Recipe
}

// assess returns the reason for which an updater without flags would skip the pod, as far as it is
// visible to the user, or "".
func (a *podReport) assess() reason.Reason {
	passive := false
	switch mode := convert.Mode(a.VPA); {
	case convert.Unreadable(a.VPA) != "", convert.Unsupported(a.VPA) == client.NamespaceFull:
		return reason.VPAUnreadable
	case mode == vpav1.UpdateModeOff || mode == vpav1.UpdateModeInitial:
		passive = true
	}
	made := convert.MadeForPolicy(a.VPA)
	switch r := &a.Rollout; {
	case r.Reason != "" && (!passive || made):
		return r.Reason
	case passive && (r.Policy == nil || !made):
		return reason.ModeOff
	case r.Unread != nil:
		return reason.NoRecord
	}
	v := disruption.VPA{Requirements: convert.Requirements(a.VPA)}
	if why := disruption.Assess(&v, &a.Running, disruption.DefaultConfig(), a.Now).Reason; why != "" {
		return why
	}
	if why := a.heldBy(); why != "" {
		return why
	}
	if a.Running.Pending {
		return reason.NotRunning
	}
	switch a.Running.Resize {
	case disruption.ResizeDeferred:
		return reason.Deferred
	case disruption.ResizeInfeasible:
		return reason.Infeasible
	case disruption.ResizeError:
		return reason.ResizeFailed
	case disruption.ResizeInProgress, disruption.ResizeUnclear:
		return reason.WaitingForNode
	case disruption.NotResizing:
	}
	return ""
}

// explanation explains why the pod is skipped. Users can change the policy of a generated VPA.
func (a *podReport) explanation() reason.Explanation {
	e := a.SkipReason.Explain()
	if e.Reason = a.SkipReason; a.SkipReason == reason.ModeOff && a.VPA != nil && convert.MadeForPolicy(a.VPA) && a.Rollout.Policy != nil && a.Rollout.Mode == fleet.Inherit {
		e.Means = "its VPA was generated for a SizingPolicy without `spec.rollout.mode`, which changes no running pods"
		e.Advice = "nothing, or set `spec.rollout.mode` of the SizingPolicy; the recommender reverts edits of the VPA"
	}
	return e
}

// heldBy returns the reason for which the rollout would hold a change of the pod.
func (a *podReport) heldBy() reason.Reason {
	r := &a.Rollout
	if r.Object == nil || r.Mode == fleet.Inherit {
		return ""
	}
	w := r.HoldInput()
	i := slices.IndexFunc(w.Pods, func(p rollout.Pod) bool { return p.UID == string(a.Pod.UID) })
	if i < 0 {
		return ""
	}
	w.Pods[i].Due = true
	w.Pods[i].Running, w.Pods[i].Ready = !a.Running.Pending, a.Running.Ready
	return rollout.Hold(r.State, w, r.Settings, a.Now).Pods[i].Reason
}

// maxEvents is the number of events of a pod in a report.
const maxEvents = 5

// updaterEvents returns the updater's events about an object, newest first.
func updaterEvents(ctx context.Context, kube kubernetes.Interface, object metav1.Object) ([]corev1.Event, error) {
	list, err := kube.CoreV1().Events(object.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(object.GetUID())).String()})
	if err != nil {
		return nil, err
	}
	events := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.UID != object.GetUID() || e.Source.Component != programs.UpdaterComponent
	})
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	return events[:min(len(events), maxEvents)], nil
}

// Print writes the report as tables.
func (a *podReport) Print(out io.Writer) error {
	printable.Fprintf(out, "pod %s/%s", a.Pod.Namespace, a.Pod.Name)
	if a.Pod.Spec.NodeName != "" {
		printable.Fprintf(out, ", node %s", a.Pod.Spec.NodeName)
	}
	printable.Fprintln(out)
	if a.VPA == nil {
		printable.Fprintln(out, "VPA: none controls it")
	} else {
		printable.Fprintf(out, "VPA %s/%s, mode %s, recipe %s\n", a.VPA.Namespace, a.VPA.Name, convert.Mode(a.VPA), a.Recipe)
		if p := a.Rollout.Policy; p != nil {
			printable.Fprintf(out, "SizingPolicy: %s, mode %s\n", p.Name, a.Rollout.Mode)
		}
	}
	for _, problem := range a.Problems {
		printable.Fprintln(out, "!", problem)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, l := range slices.Concat(a.sizes(), a.resize(), a.reasons()) {
		printable.Fprintf(w, "  %s\t%s\n", l.name, l.text)
	}
	if err := w.Flush(); err != nil || a.Node == nil {
		return err
	}
	return a.Node.print(out, a.Pod)
}

// sizes describes resources and recommendation of each container.
func (a *podReport) sizes() (rows []row) {
	containers := convert.NewPod(a.Pod).Containers
	for i := range containers {
		for k := range resources.Kind(resources.Kinds) {
			text := fmt.Sprintf("requests %s, limit %s", cli.FormatResource(containers[i].Requests, k), cli.FormatResource(containers[i].Limits, k))
			if i < len(a.Running.Containers) {
				text += a.recommended(&a.Running.Containers[i], k)
			}
			rows = append(rows, row{fmt.Sprintf("container %s %s", containers[i].Name, k), text})
		}
	}
	return rows
}

// recommended describes the recommendation for a container, within the limits of VPA and namespace.
func (a *podReport) recommended(c *disruption.Container, k resources.Kind) string {
	b := &c.Target.Bounds
	if !b.Target.Has(k) {
		return "; nothing is recommended"
	}
	text := fmt.Sprintf("; recommended %s, bounds %s to %s", cli.FormatResource(b.Target, k), cli.FormatResource(b.Lower, k), cli.FormatResource(b.Upper, k))
	if runs := c.Actual.Requests; runs != c.Spec.Requests && runs.Value(k) != c.Spec.Requests.Value(k) {
		text += fmt.Sprintf("; runs with %s", cli.FormatResource(runs, k))
	}
	return text
}

// resize describes the resize status, and the changes that the updater noted.
func (a *podReport) resize() (rows []row) {
	for _, c := range a.Pod.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) {
			text := strings.TrimSpace("since " + cli.Timestamp(c.LastTransitionTime.Time) + " " + c.Reason)
			if c.Message != "" {
				text += ": " + c.Message
			}
			rows = append(rows, row{string(c.Type), text})
		}
	}
	for _, o := range (rolloutReport{&a.Rollout}).observed() {
		if o.name == "pod "+a.Pod.Name {
			rows = append(rows, row{"changed", o.text})
		}
	}
	if convert.HasBoosted(a.Pod) {
		rows = append(rows, row{"boosted", "it has extra CPU while it starts, which is taken back"})
	}
	return rows
}

// reasons describes events, and why the pod is skipped.
func (a *podReport) reasons() (rows []row) {
	for i := range a.Events {
		e := &a.Events[i]
		rows = append(rows, row{"event", fmt.Sprintf("%s %s: %s", cli.Timestamp(e.LastTimestamp.Time), e.Reason, eventText(e))})
	}
	switch {
	case a.VPA == nil && !a.FromUpdater:
	case a.SkipReason != "":
		rows = append(rows, row{"left alone", fmt.Sprintf("%s: %s", a.SkipReason, a.explanation().Means)})
	default:
		rows = append(rows, row{"to be changed", "nothing that can be seen from here is in the way: owner, budgets, room and pace are known to the updater, whose log says at level 4 why it waits"})
	}
	return rows
}

// exclusion returns why a pod has no share. The reason of its workload is more specific.
func exclusion(p *nodeshare.Pod) string {
	why := string(p.Why())
	if p.Of.Why != "" && string(p.Of.Why) != why {
		why += ", " + string(p.Of.Why)
	}
	return why
}
