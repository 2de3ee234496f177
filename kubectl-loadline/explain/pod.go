package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/printable"
)

// podReport explains a pod: by the updater or, without its answer, by the objects that the user can read.
type podReport struct {
	Now        time.Time
	Pod        *corev1.Pod
	VPA        *vpav1.VerticalPodAutoscaler // nil: none or unknown
	Rollout    inventory.Rollout
	Explained  explanation.Pod
	Unanswered string         // why the updater did not explain the pod
	Events     []corev1.Event // of the updater, newest first
	Problems   []string
	unknownVPA string // why the VPA cannot be read, empty: readable
}

func explainPod(ctx context.Context, own versioned.Interface, q inventory.Request) (*podReport, error) {
	pod, err := q.Kube.CoreV1().Pods(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	reader, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := readPod(ctx, reader, pod)
	a.Problems = append(a.Problems, reader.Problems...)
	a.query(ctx, q)
	if a.unknownVPA != "" && (a.Unanswered != "" || a.Explained.VPA == "") {
		a.problem("%s", a.unknownVPA)
	}
	if a.Events, err = updaterEvents(ctx, q.Kube, pod); err != nil {
		a.problem("list events of the pod: %v", err)
	}
	return a, nil
}

func (a *podReport) query(ctx context.Context, q inventory.Request) {
	if a.Pod.Spec.NodeName == "" {
		a.Unanswered = "the pod is on no node yet, so the updater does not change it"
		return
	}
	answer, err := programs.ExplainPod(ctx, q.Kube, q.Programs, a.Pod.Namespace, a.Pod.Name, q.Now)
	switch {
	case err != nil:
		a.Unanswered = err.Error()
		return
	case answer.UID != string(a.Pod.UID):
		a.Unanswered = "the updater does not know this pod yet"
		return
	}
	if r := answer.Rollout; r != nil && r.Phase == "" && a.Rollout.Policy != nil && r.Policy == a.Rollout.Policy.Name {
		r.Phase = a.Rollout.State.Phase // as stored
	}
	a.Explained = *answer
	if answer.Problem != "" {
		a.problem("%s", answer.Problem)
	}
	if answer.Waiting != "" {
		a.problem("nothing is changed since %s: %s", cli.Timestamp(answer.AsOf), answer.Waiting)
	}
}

func readPod(ctx context.Context, s *inventory.Reader, pod *corev1.Pod) *podReport {
	a := &podReport{Now: s.Now, Pod: pod, Explained: explanation.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}}
	vpa, err := s.Controlling(ctx, pod)
	if unselectable := client.TooLargeReason(pod); unselectable != "" {
		vpa, err = nil, nil
		a.problem("no VPA selects the pod: %s", unselectable)
	}
	running, why := convert.RunningPod(pod, nil, policy.Rules{}, policy.Ranges{}), reason.NoVPA
	switch {
	case err != nil:
		a.unknownVPA = fmt.Sprintf("it is not known which VPA controls the pod: %v", err)
		why = reason.OwnerUnreadable
	case vpa != nil:
		a.VPA, a.Rollout = vpa.Object, vpa.Rollout
		if vpa.Problem != "" {
			a.problem("%s", vpa.Problem)
		}
		if problem := convert.UnsupportedReason(a.VPA); problem != "" {
			a.problem("VPA %s: %s", a.VPA.Name, problem)
		}
		running = convert.RunningPod(pod, vpa.Recommendation, vpa.Rules, *vpa.Ranges)
		why = a.assess(&running)
		a.Explained.VPA, a.Explained.Mode = a.VPA.Name, string(convert.Mode(a.VPA))
		if p := a.Rollout.Policy; p != nil {
			a.Explained.Rollout = &explanation.Rollout{Policy: p.Name, Mode: a.Rollout.Mode.String(), Phase: a.Rollout.State.Phase}
		}
	}
	a.Explained.Containers, a.Explained.Skip = explanation.Containers(&running), explanation.NewSkip(why)
	return a
}

func (a *podReport) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

// assess returns why an updater without flags would skip the pod, as far as visible, or "".
func (a *podReport) assess(running *disruption.Pod) reason.Reason {
	passive := false
	switch mode := convert.Mode(a.VPA); {
	case convert.UnreadableReason(a.VPA) != "", convert.UnsupportedReason(a.VPA) == client.NamespaceFull:
		return reason.VPAUnreadable
	case mode == vpav1.UpdateModeOff || mode == vpav1.UpdateModeInitial:
		passive = true
	}
	made := convert.IsGenerated(a.VPA)
	switch r := &a.Rollout; {
	case r.Reason != "" && (!passive || made):
		return r.Reason
	case passive && (r.Policy == nil || !made):
		return reason.ModeOff
	case r.StateErr != nil:
		return reason.NoRecord
	}
	v := disruption.VPA{Requirements: convert.Requirements(a.VPA)}
	if why := disruption.Assess(&v, running, disruption.DefaultConfig(), a.Now).Reason; why != "" {
		return why
	}
	if running.Pending {
		return reason.NotRunning
	}
	switch running.Resize {
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

// skip returns why the pod is skipped, or nil. Users can change the policy of a generated VPA.
func (a *podReport) skip() *explanation.Skip {
	s := a.Explained.Skip
	if s == nil || s.Reason != reason.ModeOff || a.VPA == nil || !convert.IsGenerated(a.VPA) || a.Rollout.Policy == nil || a.Rollout.Mode != fleet.Inherit {
		return s
	}
	return &explanation.Skip{
		Reason: s.Reason, Means: "its VPA was generated for a SizingPolicy without `spec.rollout.mode`, which changes no running pods",
		Advice: "nothing, or set `spec.rollout.mode` of the SizingPolicy; the recommender reverts edits of the VPA",
	}
}

const maxEvents = 5

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

func (a *podReport) Print(out io.Writer) error {
	if a.Unanswered != "" {
		printable.Fprintf(out, "! %s: limited to objects that you can read\n", a.Unanswered)
	}
	printable.Fprintf(out, "pod %s/%s", a.Pod.Namespace, a.Pod.Name)
	if a.Pod.Spec.NodeName != "" {
		printable.Fprintf(out, ", node %s", a.Pod.Spec.NodeName)
	}
	printable.Fprintln(out)
	if a.Explained.VPA == "" {
		printable.Fprintln(out, "VPA: none controls it")
	} else {
		printable.Fprintf(out, "VPA %s/%s, mode %s\n", a.Pod.Namespace, a.Explained.VPA, a.Explained.Mode)
	}
	if r := a.Explained.Rollout; r != nil {
		printable.Fprintf(out, "SizingPolicy: %s, mode %s\n", r.Policy, r.Mode)
	}
	for _, problem := range a.Problems {
		printable.Fprintln(out, "!", problem)
	}
	return printRows(out, a.sizes(), a.rollout(), a.resize(), a.reasons(), a.share())
}

func (a *podReport) sizes() (rows []row) {
	for i := range a.Explained.Containers {
		c := &a.Explained.Containers[i]
		for k := range resources.Kind(resources.Kinds) {
			text := fmt.Sprintf("requests %s, limit %s", cli.FormatResource(convert.Resources(c.Spec.Requests), k), cli.FormatResource(convert.Resources(c.Spec.Limits), k)) + recommended(c, k)
			rows = append(rows, row{fmt.Sprintf("container %s %s", c.Name, k), text})
		}
		if len(c.Notes) > 0 {
			rows = append(rows, row{"", strings.Join(c.Notes, ", ")})
		}
	}
	return rows
}

// recommended describes the recommendation for a container, within the limits of VPA, policy and namespace.
func recommended(c *explanation.PodContainer, k resources.Kind) string {
	name, r := convert.ResourceName(k), c.Recommended
	if r == nil || !convert.Resources(r.Target).Has(k) {
		return "; nothing is recommended"
	}
	text := fmt.Sprintf("; recommended %s, bounds %s to %s", cli.FormatQuantity(r.Target, k), cli.FormatQuantity(r.LowerBound, k), cli.FormatQuantity(r.UpperBound, k))
	if actual := c.Actual.Requests[name]; !actual.Equal(c.Spec.Requests[name]) {
		text += fmt.Sprintf("; runs with %s", cli.FormatQuantity(c.Actual.Requests, k))
	}
	return text
}

func (a *podReport) rollout() (rows []row) {
	r := a.Explained.Rollout
	if r == nil {
		return nil
	}
	if r.Phase != "" {
		rows = append(rows, row{"phase", string(r.Phase)})
	}
	if !r.Next.IsZero() {
		rows = append(rows, row{"next change", "not before " + cli.Timestamp(r.Next)})
	}
	return rows
}

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
	for _, o := range (&rolloutReport{Rollout: a.Rollout}).observed() {
		if o.name == "pod "+a.Pod.Name {
			rows = append(rows, row{"changed", o.text})
		}
	}
	if convert.IsBoosted(a.Pod) {
		rows = append(rows, row{"boosted", "it has a startup CPU boost, which is reverted"})
	}
	return rows
}

func (a *podReport) reasons() (rows []row) {
	for i := range a.Events {
		e := &a.Events[i]
		rows = append(rows, row{"event", fmt.Sprintf("%s %s: %s", cli.Timestamp(e.LastTimestamp.Time), e.Reason, eventText(e))})
	}
	switch s := a.skip(); {
	case s != nil && s.Reason == reason.NoVPA:
	case s != nil:
		rows = append(rows, row{"skipped", fmt.Sprintf("%s: %s", s.Reason, s.Means)})
		if s.Advice != "" {
			rows = append(rows, row{"what to do", s.Advice})
		}
	case a.Explained.VPA == "":
	case a.Unanswered != "":
		rows = append(rows, row{"skipped", "unknown: you can read no reason, but the updater may have one"})
	case a.Explained.DryRun:
		rows = append(rows, row{"skipped", "no: it would be changed, but the updater runs with --dry-run"})
	default:
		rows = append(rows, row{"skipped", "no: changed in the last iteration, or due in the next"})
	}
	return rows
}

func (a *podReport) share() (rows []row) {
	if mark, marked := convert.ParseShared(a.Pod); marked {
		rows = append(rows, row{"has a share", describeMark(mark)})
	}
	s := a.Explained.Share
	if s == nil {
		return rows
	}
	text := "in a dry run of SizingPolicy " + s.Policy
	if s.Active {
		text = "by SizingPolicy " + s.Policy
	}
	switch {
	case s.Excluded != nil:
		text += fmt.Sprintf(": none, %s: %s", s.Excluded.Reason, s.Excluded.Means)
	case s.Leaves:
		text += fmt.Sprintf(": the pod leaves node %s", s.Node)
	default:
		text += fmt.Sprintf(" among %d pods of node %s", s.Pods, s.Node)
	}
	rows = append(rows, row{"share", text})
	for k := range resources.Kind(resources.Kinds) {
		if amounts := s.Amounts(k); amounts != nil {
			rows = append(rows, shareRows(amounts, k)...)
		}
	}
	if s.DryRun != nil && s.Excluded == nil {
		rows = append(rows, row{"", fmt.Sprintf("%s: %s", s.DryRun.Reason, s.DryRun.Means)})
	}
	if p := a.Rollout.Object; p != nil && !s.Active {
		if c := meta.FindStatusCondition(p.Status.Conditions, sizing.ConditionSharing); c != nil {
			rows = append(rows, row{"", fmt.Sprintf("condition Sharing %s, %s: %s", c.Status, c.Reason, c.Message)})
		}
	}
	if s.Problem != "" {
		rows = append(rows, row{"", fmt.Sprintf("%s: %s", s.Problem, s.Problem.Explain().Meaning)})
	}
	if s.Cordoned {
		rows = append(rows, row{"", "the node takes no new pods, so its savings are of no use"})
	}
	return rows
}

func shareRows(s *explanation.ShareAmounts, k resources.Kind) []row {
	amount := func(a float64) string { return cli.FormatAmount(k, a) }
	node := fmt.Sprintf("allocatable %s, available to the pods that share %s, bases %s, headroom %s", amount(s.Allocatable), amount(s.Available), amount(s.Bases), amount(s.Headroom))
	if s.Overcommitted {
		node += "; the bases alone exceed the available amount"
	}
	return []row{
		{"share of " + k.String(), fmt.Sprintf("%s, base %s, peak %s", amount(s.Share), amount(s.Base), amount(s.Peak))},
		{"node " + k.String(), node},
	}
}

func describeMark(m sharing.Mark) string {
	var kinds []string
	for k := range resources.Kind(resources.Kinds) {
		if m.Kinds[k] {
			kinds = append(kinds, k.String())
		}
	}
	text := strings.Join(kinds, ", ")
	switch {
	case m.At.IsZero():
		return text + ", never made smaller"
	case m.Reverted:
		return text + ", reverted after harm at " + cli.Timestamp(m.At)
	}
	return text + ", made smaller at " + cli.Timestamp(m.At)
}
