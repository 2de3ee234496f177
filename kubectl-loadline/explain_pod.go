package main

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

// podAnswer is all that there is to say about a pod.
type podAnswer struct {
	Now      time.Time
	Pod      *corev1.Pod
	VPA      *vpav1.VerticalPodAutoscaler // nil: none controls it, or nobody knows
	Recipe   string                       // of that
	Rollout  rolloutStanding
	Running  disruption.Pod // with what it would get
	Left     reason.Reason
	Said     bool           // the updater itself gave that reason
	Events   []corev1.Event // of the updater about it, the newest first
	Node     *nodeAnswer    // nil: it runs on none, or nobody knows
	Problems []string
}

// explainPod reads a pod, what is recommended for it, and its node with all other pods there. The
// updater is asked in the namespace of the programs.
func explainPod(ctx context.Context, own versioned.Interface, q question, programs string) (*podAnswer, error) {
	pod, err := q.Kube.CoreV1().Pods(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	surroundings, err := newSurroundings(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := surroundings.answer(ctx, pod)
	a.Problems = append(a.Problems, surroundings.problems...)
	if said, err := askUpdater(ctx, q.Kube, programs, pod.UID, q.Now); err == nil { // else it is seen from outside
		a.take(said)
	}
	if a.VPA != nil {
		a.Recipe = q.Book.Choose(a.Rollout.RecipeText(a.VPA.Annotations[recipe.Annotation]), policyRecipe(a.Rollout.Policy)).Name
	}
	if a.Events, err = updaterEvents(ctx, q.Kube, pod); err != nil {
		a.problem("it is not known what the updater said of the pod: %v", err)
	}
	if pod.Spec.NodeName != "" {
		if a.Node, err = surroundings.node(ctx, pod.Spec.NodeName); err != nil {
			a.problem("it is not known what the pods of node %s share: %v", pod.Spec.NodeName, err)
		}
	}
	return a, nil
}

// answer says which VPA controls a pod, and why the pod is left alone.
func (s *surroundings) answer(ctx context.Context, pod *corev1.Pod) *podAnswer {
	a := &podAnswer{Now: s.now, Pod: pod}
	of, err := s.control(ctx, pod)
	if unselectable := client.Unselectable(pod); unselectable != "" {
		of, err = nil, nil
		a.problem("no VPA selects the pod: %s", unselectable)
	}
	switch {
	case err != nil:
		a.problem("it is not known which VPA controls the pod: %v", err)
		a.Left = reason.OwnerUnreadable
	case of == nil:
		a.Left = reason.NoVPA
	default:
		a.VPA, a.Rollout = of.object, of.rollout
		if of.problem != "" {
			a.problem("%s", of.problem)
		}
		if problem := convert.Unsupported(a.VPA); problem != "" {
			a.problem("VPA %s: %s", a.VPA.Name, problem)
		}
		a.Running = convert.RunningPod(pod, of.sizing.Recommendation, of.sizing.Rules, *of.sizing.Ranges)
		a.Left = a.left()
	}
	return a
}

func (a *podAnswer) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

// policyRecipe returns the recipe that a policy names; empty: none does.
func policyRecipe(p *fleet.Policy) string {
	if p == nil {
		return ""
	}
	return p.Recipe
}

// left returns why an updater without flags leaves the pod alone, as far as that can be seen
// from outside; empty: nothing is in the way that can be seen.
func (a *podAnswer) left() reason.Reason {
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
	if why := a.held(); why != "" {
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

// reason says what it means that the pod is left alone, and what to do. What makes a made VPA passive is its
// policy, which people can change.
func (a *podAnswer) reason() reason.Explanation {
	e := a.Left.Explain()
	if e.Reason = a.Left; a.Left == reason.ModeOff && a.VPA != nil && convert.MadeForPolicy(a.VPA) && a.Rollout.Policy != nil && a.Rollout.Mode == fleet.Inherit {
		e.Means = "its VPA was generated for a SizingPolicy without `spec.rollout.mode`, which changes no running pods"
		e.Advice = "nothing, or set `spec.rollout.mode` of the SizingPolicy; the recommender reverts edits of the VPA"
	}
	return e
}

// held returns why the rollout of its policy would hold the pod if it is to be changed.
func (a *podAnswer) held() reason.Reason {
	r := &a.Rollout
	if r.Object == nil || r.Mode == fleet.Inherit {
		return ""
	}
	w := r.workload()
	at := slices.IndexFunc(w.Pods, func(p rollout.Pod) bool { return p.UID == string(a.Pod.UID) })
	if at < 0 {
		return ""
	}
	w.Pods[at].Due = true
	w.Pods[at].Running, w.Pods[at].Ready = !a.Running.Pending, a.Running.Ready
	return rollout.Hold(r.State, w, r.Settings, a.Now).Pods[at].Reason
}

// mostEvents is how many events are shown of a pod.
const mostEvents = 5

// updaterEvents returns what the updater said of a pod, the newest first.
func updaterEvents(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) ([]corev1.Event, error) {
	list, err := kube.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()})
	if err != nil {
		return nil, err
	}
	events := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.UID != pod.UID || e.Source.Component != updaterComponent
	})
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	return events[:min(len(events), mostEvents)], nil
}

// Print writes the answer as tables.
func (a *podAnswer) Print(out io.Writer) error {
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
		printable.Fprintf(w, "  %s\t%s\n", l.what, l.text)
	}
	if err := w.Flush(); err != nil || a.Node == nil {
		return err
	}
	return a.Node.print(out, a.Pod)
}

// sizes says what each container has and what is recommended for it.
func (a *podAnswer) sizes() (lines []line) {
	asked := convert.NewPod(a.Pod).Containers
	for i := range asked {
		for k := range resources.Kind(resources.Kinds) {
			text := fmt.Sprintf("requests %s, limit %s", amount(asked[i].Requests, k), amount(asked[i].Limits, k))
			if i < len(a.Running.Containers) {
				text += a.recommended(&a.Running.Containers[i], k)
			}
			lines = append(lines, line{fmt.Sprintf("container %s %s", asked[i].Name, k), text})
		}
	}
	return lines
}

// recommended says what is recommended of a kind for a container, after limits of the VPA and of
// the namespace.
func (a *podAnswer) recommended(c *disruption.Container, k resources.Kind) string {
	b := &c.Fitted.Bounds
	if !b.Target.Has(k) {
		return "; nothing is recommended"
	}
	text := fmt.Sprintf("; recommended %s, bounds %s to %s", amount(b.Target, k), amount(b.Lower, k), amount(b.Upper, k))
	if runs := c.Current.Requests; runs != c.Asked.Requests && runs.Value(k) != c.Asked.Requests.Value(k) {
		text += fmt.Sprintf("; runs with %s", amount(runs, k))
	}
	return text
}

// resize says what the node makes of the last resize, and what the updater noted of it.
func (a *podAnswer) resize() (lines []line) {
	for _, c := range a.Pod.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) {
			text := strings.TrimSpace("since " + at(c.LastTransitionTime.Time) + " " + c.Reason)
			if c.Message != "" {
				text += ": " + c.Message
			}
			lines = append(lines, line{string(c.Type), text})
		}
	}
	for _, o := range a.Rollout.observed() {
		if o.what == "pod "+a.Pod.Name {
			lines = append(lines, line{"changed", o.text})
		}
	}
	if convert.HasBoosted(a.Pod) {
		lines = append(lines, line{"boosted", "it has extra CPU while it starts, which is taken back"})
	}
	return lines
}

// reasons says why the pod was resized, or is left alone.
func (a *podAnswer) reasons() (lines []line) {
	for i := range a.Events {
		e := &a.Events[i]
		lines = append(lines, line{"event", fmt.Sprintf("%s %s: %s", at(e.LastTimestamp.Time), e.Reason, eventText(e))})
	}
	switch {
	case a.VPA == nil && !a.Said:
	case a.Left != "":
		lines = append(lines, line{"left alone", fmt.Sprintf("%s: %s", a.Left, a.reason().Means)})
	default:
		lines = append(lines, line{"to be changed", "nothing that can be seen from here is in the way: owner, budgets, room and pace are known to the updater, whose log says at level 4 why it waits"})
	}
	return lines
}

// shares reports whether a policy wants the pods of a workload to share.
func shares(d *fleet.Decision) bool {
	return d.Policy != nil && d.Policy.Sharing.Mode != fleet.SharingOff
}

// whyApart says why a pod does not share; the reason of its workload says more than that it does not.
func whyApart(p *nodeshare.Pod) string {
	why := string(p.Why())
	if p.Of.Why != "" && string(p.Of.Why) != why {
		why += ", " + string(p.Of.Why)
	}
	return why
}
