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
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/printable"
)

// rolloutStanding is how far the rollout of a workload is under the SizingPolicy that is responsible for
// it, if one is.
type rolloutStanding struct {
	sizing.Standing

	Now      time.Time
	Settings rollout.Settings
	Safety   rollout.Safety
	Target   []policy.Container // what is recommended
	Pods     []corev1.Pod       // of the workload, sorted by name
	Held     rollout.Held       // what the updater would remember now
	// ShortHistory: the recommendation rests on less usage than the policy requires.
	ShortHistory bool
}

// complete adds to where the workload stands what the pods say, and what follows for the next
// change. It returns what cannot be known.
func (r *rolloutStanding) complete(ctx context.Context, kube kubernetes.Interface, vpa *vpav1.VerticalPodAutoscaler, now time.Time) (problem string) {
	if r.Object == nil {
		return ""
	}
	r.ShortHistory = r.Policy != nil && r.Mode > fleet.Recommend && convert.AnyHasShortHistory(vpa, r.Policy.MinHistory)
	r.Now, r.Settings, r.Safety = now, convert.Rollout(r.Object), convert.Safety(r.Object)
	recommended := convert.Recommendation(vpa.Status.Recommendation)
	for name, bounds := range recommended {
		r.Target = append(r.Target, policy.Container{Name: name, Requests: bounds.Target})
	}
	slices.SortFunc(r.Target, func(a, b policy.Container) int { return strings.Compare(a.Name, b.Name) })
	if r.Selector != nil {
		list, err := kube.CoreV1().Pods(vpa.Namespace).List(ctx, metav1.ListOptions{LabelSelector: r.Selector.String()})
		if err != nil {
			problem = fmt.Sprintf("it is not known which pods are under observation, and whether more is in the way of a canary: list pods: %v", err)
		} else {
			r.Pods = list.Items
		}
	}
	slices.SortFunc(r.Pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if r.Held = rollout.Hold(r.State, r.workload(), r.Settings, now); problem != "" {
		r.Held.Canary = ""
	}
	return problem
}

// workload is what the updater looks at, without what only it knows: which pods are to be
// changed. As long as a round goes on, all of them count as such.
func (r *rolloutStanding) workload() rollout.Workload {
	goesOn := len(r.State.Rounds) > 0 && r.State.Rounds[0].Outcome == ""
	w := rollout.Workload{Stopped: r.Reason, Mode: r.Mode, Target: r.Target, ShortHistory: r.ShortHistory}
	for i := range r.Pods {
		p := &r.Pods[i]
		one := rollout.Pod{UID: string(p.UID), Name: p.Name, Terminating: p.DeletionTimestamp != nil, Due: goesOn}
		if change, err := convert.NotedChange(p); err == nil {
			one.Observed = change.At
		}
		w.Pods = append(w.Pods, one)
	}
	return w
}

// print writes which policy is responsible, how far its rollout is, and what is in its way.
func (r *rolloutStanding) print(out io.Writer) error {
	if r.Policy == nil && r.Reason == "" {
		return nil
	}
	name := "none is responsible for this VPA, which was made for one"
	if r.Policy != nil {
		name = r.Policy.Name + ", mode " + r.Mode.String()
	}
	printable.Fprintf(out, "SizingPolicy: %s", name)
	if r.Reason != "" {
		printable.Fprintf(out, "; running pods are left alone: %s", r.Reason)
	}
	printable.Fprintln(out)
	if r.Problem != "" {
		printable.Fprintln(out, "!", r.Problem)
	}
	if r.Unread != nil {
		printable.Fprintf(out, "! nobody knows what was done before, so no running pod is changed: %v\n", r.Unread)
	}
	if r.Object == nil || !r.Recorded && r.Mode <= fleet.Recommend {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range slices.Concat(r.phase(), r.lastRound(), r.limits(), r.next(), r.conditions(), r.kept(), r.newPods(), r.observed()) {
		printable.Fprintf(w, "  %s\t%s\n", line.what, line.text)
	}
	return w.Flush()
}

// line is one of the lines about a rollout.
type line struct{ what, text string }

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// phase says how far a canary is, and why it is not promoted.
func (r *rolloutStanding) phase() (lines []line) {
	if r.Unread != nil {
		return nil
	}
	if r.State.Phase != "" && r.State.Hash != r.Settings.Hash {
		lines = append(lines, line{"policy", "changed since the last change of a pod: the rollout begins anew"})
	}
	phase := string(r.Held.State.Phase)
	if phase == "" {
		return lines
	}
	switch r.Held.State.Phase {
	case rollout.PhaseCanary:
		phase += r.members()
	case rollout.PhaseHalted:
		phase += ", until what is recommended or the policy changes: changes were taken back again and again"
	}
	lines = append(lines, line{"phase", phase})
	obstacle := r.Held.Canary
	if obstacle != "" && r.State.ResizeBlocked.Reason != "" {
		obstacle = rollout.MembersBlocked
	}
	switch text, known := obstacles[obstacle]; {
	case !known:
	case obstacle == rollout.PeriodNotOver:
		lines = append(lines, line{"not promoted", fmt.Sprintf("%s: %s %s", obstacle, text, at(r.Held.State.CanarySince.Add(r.Settings.CanaryPeriod)))})
	default:
		lines = append(lines, line{"not promoted", fmt.Sprintf("%s: %s", obstacle, text)})
	}
	return lines
}

// obstacles say to people what is in the way of a canary.
var obstacles = map[rollout.Obstacle]string{
	rollout.RoundOpen:           "its members are still changed or observed",
	rollout.NotObserved:         "no change of a member ended in Success yet",
	rollout.MemberNotSuccessful: "a change of a member ended otherwise, or is still to come",
	rollout.PeriodNotOver:       "it is observed until",
	rollout.MembersBlocked:      "the nodes of its members do not grant the change",
	rollout.AutoPromoteOff:      "a person decides: spec.rollout.canary.autoPromote is not true",
}

// members says what came of the members of a canary.
func (r *rolloutStanding) members() string {
	s, well, other := r.Held.State, 0, 0
	if len(s.Members) == 0 {
		return ", which has not begun"
	}
	for _, m := range s.Members {
		switch m.Outcome {
		case rollout.Success:
			well++
		case "":
		default:
			other++
		}
	}
	text := fmt.Sprintf(", %d of %d members did well", well, len(s.Members))
	if other > 0 {
		text += fmt.Sprintf(", %d did not", other)
	}
	if !s.CanarySince.IsZero() {
		text += ", since " + at(s.CanarySince)
	}
	return text
}

func (r *rolloutStanding) lastRound() []line {
	if r.Unread != nil {
		return nil
	}
	if len(r.State.Rounds) == 0 {
		return []line{{"last round", "none: no pod was changed yet"}}
	}
	last := r.State.Rounds[0]
	outcome := string(last.Outcome)
	if outcome == "" {
		outcome = "goes on"
	}
	if last.Reason != "" {
		outcome += ": " + string(last.Reason)
	}
	if last.Outcome == rollout.RevertDeferred {
		outcome += "; " + deferredRevert
	}
	lines := []line{{"last round", fmt.Sprintf("%s, pods changed: %d, %s", at(last.Time), last.Pods, outcome)}}
	for _, to := range last.To {
		i := slices.IndexFunc(last.From, func(c policy.Container) bool { return c.Name == to.Name })
		from := policy.Container{}
		if i >= 0 {
			from = last.From[i]
		}
		for k := range resources.Kind(resources.Kinds) {
			if a, written := to.Requests.Get(k); written {
				lines = append(lines, line{"", fmt.Sprintf("container %s: %s %s to %s", to.Name, k, amount(from.Requests, k), human(k, float64(a)))})
			}
		}
	}
	return lines
}

// amount is how an amount of a list reads; "none" if there is none.
func amount(list resources.List, k resources.Kind) string {
	a, there := list.Get(k)
	if !there {
		return "none"
	}
	return human(k, float64(a))
}

// limits returns what limits all workloads of the policy: its fuse, and its start rate.
func (r *rolloutStanding) limits() (lines []line) {
	if r.Unread != nil || r.Reason != "" {
		return nil
	}
	if trip := convert.FuseTrip(r.Object, &rollout.PolicyRounds{}, r.Now); trip.Holds(r.Workload.Key.Namespace) {
		lines = append(lines, line{"fuse", fmt.Sprintf("tripped at %s, because too many rounds of the policy were reverted: no pod is changed until you acknowledge it: %s (%s)",
			at(trip.At), convert.Acknowledge(r.Object.Name, trip.At), reason.FuseTripped)})
	}
	if rate := r.Settings.StartRate; rate > 0 && r.Held.State.Started.IsZero() {
		lines = append(lines, line{"start rate", fmt.Sprintf("the policy starts at most %d workloads in the first hour, and doubles their number each hour: spec.rollout.startRate (%s)", rate, reason.StartRate)})
	}
	return lines
}

// next says when running pods may be changed again, where that is known.
func (r *rolloutStanding) next() (lines []line) {
	if r.Unread != nil || r.Reason != "" {
		return nil
	}
	if until := r.State.CooldownUntil; until.After(r.Now) {
		text := "until " + at(until)
		if n := r.State.Reverts(); n > 0 {
			text += fmt.Sprintf(", longer because of rounds in a row that were taken back: %d", n)
		}
		lines = append(lines, line{"cooldown", text})
	}
	if !r.Held.Next.IsZero() {
		lines = append(lines, line{"next change", "not before " + at(r.Held.Next)})
	}
	return lines
}

func (r *rolloutStanding) conditions() (lines []line) {
	for _, c := range convert.RecordStatus(r.State).Conditions {
		lines = append(lines, line{c.Type, fmt.Sprintf("since %s, %s: %s", at(c.LastTransitionTime.Time), c.Reason, c.Message)})
	}
	return lines
}

// kept says what containers keep because less did harm.
func (r *rolloutStanding) kept() (lines []line) {
	for _, c := range r.Target {
		floor := r.State.Floor(c.Name, c.Requests, r.Settings.Hash, r.Now)
		for k := range resources.Kind(resources.Kinds) {
			if least, ok := floor.Get(k); ok {
				lines = append(lines, line{"kept", fmt.Sprintf("container %s: %s %s, although %s is recommended, because less did harm", c.Name, k, human(k, float64(least)), amount(c.Requests, k))})
			}
		}
	}
	return lines
}

// newPods says what new pods get.
func (r *rolloutStanding) newPods() []line {
	why := sizing.NewPods(r.Decision, r.Author, r.State)
	switch {
	case why != "":
		return []line{{"new pods", "as they are written: " + string(why)}}
	case r.ShortHistory:
		return []line{{"new pods", fmt.Sprintf("containers with less than %s of usage as they are written: %s", r.Policy.MinHistory, reason.ShortHistory)}}
	case r.Author == fleet.Person:
		return []line{{"new pods", "as the VPA says"}}
	case r.Unread != nil:
		return []line{{"new pods", "as they are written"}}
	}
	return []line{{"new pods", "get what is recommended"}}
}

// observed says which pods are under observation.
func (r *rolloutStanding) observed() (lines []line) {
	for i := range r.Pods {
		p := &r.Pods[i]
		if !convert.HasNotedChange(p) {
			continue
		}
		var text string
		switch change, err := convert.NotedChange(p); {
		case err != nil:
			text = fmt.Sprintf("under observation, but it cannot be judged: %v", err)
		case change.Pending:
			text = fmt.Sprintf("changed at %s, and its node has not begun: the observation begins then", at(change.At))
		default:
			text = fmt.Sprintf("under observation since %s, until %s", at(change.At), at(change.At.Add(r.Safety.Period)))
		}
		lines = append(lines, line{"pod " + p.Name, text})
	}
	return lines
}
