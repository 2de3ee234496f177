package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/printable"
)

type rolloutReport struct {
	inventory.Rollout

	updater *explanation.Rollout // computed by the updater, nil: only stored state
}

// maxQueries is the maximum number of pods of a workload that the updater explains for its rollout.
const maxQueries = 3

func (r *rolloutReport) query(ctx context.Context, q inventory.Request) error {
	if r.Policy == nil || r.Mode <= fleet.Recommend {
		return nil
	}
	queries := 0
	for i := range r.Pods {
		p := &r.Pods[i]
		if queries == maxQueries || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || len(p.OwnerReferences) == 0 {
			continue
		}
		queries++
		answer, err := programs.ExplainPod(ctx, q.Kube, q.Programs, p.Namespace, p.Name, q.Now)
		if err != nil {
			return err
		}
		if answer.VPA == q.Name && answer.Rollout != nil && answer.Rollout.Policy == r.Policy.Name {
			r.updater = answer.Rollout
			return nil
		}
	}
	return nil
}

func (r *rolloutReport) current() explanation.Rollout {
	if r.updater != nil {
		return *r.updater
	}
	return explanation.Rollout{Phase: r.State.Phase}
}

func (r *rolloutReport) print(out io.Writer) error {
	if r.Policy == nil && r.Reason == "" {
		return nil
	}
	name := "none is responsible for this VPA, which was generated for one"
	if r.Policy != nil {
		name = r.Policy.Name + ", mode " + r.Mode.String()
	}
	printable.Fprintf(out, "SizingPolicy: %s", name)
	if r.Reason != "" {
		printable.Fprintf(out, "; running pods are skipped: %s", r.Reason)
	}
	printable.Fprintln(out)
	if r.Problem != "" {
		printable.Fprintln(out, "!", r.Problem)
	}
	if r.StateErr != nil {
		printable.Fprintf(out, "! the rollout state is unknown, so no running pod is changed: %v\n", r.StateErr)
	}
	if r.Object == nil || !r.HasRecord && r.Mode <= fleet.Recommend {
		return nil
	}
	return printRows(out, r.phase(), r.lastRound(), r.limits(), r.next(), r.conditions(), r.floors(), r.newPods(), r.observed())
}

type row struct{ name, text string }

func printRows(out io.Writer, parts ...[]row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, l := range slices.Concat(parts...) {
		printable.Fprintf(w, "  %s\t%s\n", l.name, l.text)
	}
	return w.Flush()
}

func (r *rolloutReport) phase() (rows []row) {
	if r.StateErr != nil {
		return nil
	}
	if r.State.Phase != "" && r.State.Hash != r.Settings.Hash {
		rows = append(rows, row{"policy", "changed since the last change of a pod: the rollout begins anew"})
	}
	current := r.current()
	phase := string(current.Phase)
	if phase == "" {
		return rows
	}
	switch current.Phase {
	case rollout.PhaseCanary:
		phase += r.members()
	case rollout.PhaseHalted:
		phase += ", until the recommendation or the policy changes: changes were reverted repeatedly"
	}
	rows = append(rows, row{"phase", phase})
	obstacle := current.Canary
	if obstacle != "" && r.State.ResizeBlocked.Reason != "" {
		obstacle = rollout.MembersBlocked
	}
	switch text, known := obstacles[obstacle]; {
	case !known:
	case obstacle == rollout.PeriodNotOver:
		rows = append(rows, row{"not promoted", fmt.Sprintf("%s: %s %s", obstacle, text, cli.Timestamp(r.State.CanarySince.Add(r.Settings.CanaryPeriod)))})
	default:
		rows = append(rows, row{"not promoted", fmt.Sprintf("%s: %s", obstacle, text)})
	}
	return rows
}

var obstacles = map[rollout.Obstacle]string{
	rollout.RoundOpen:           "its members are still changed or observed",
	rollout.NotObserved:         "no change of a member ended in Success yet",
	rollout.MemberNotSuccessful: "a change of a member ended otherwise, or is still to come",
	rollout.PeriodNotOver:       "it is observed until",
	rollout.MembersBlocked:      "the nodes of its members do not grant the change",
	rollout.AutoPromoteOff:      "manual promotion is required: spec.rollout.canary.autoPromote is not true",
}

func (r *rolloutReport) members() string {
	s, well, other := &r.State, 0, 0
	if len(s.Members) == 0 || s.Phase != rollout.PhaseCanary || s.Hash != r.Settings.Hash {
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
		text += ", since " + cli.Timestamp(s.CanarySince)
	}
	return text
}

func (r *rolloutReport) lastRound() []row {
	if r.StateErr != nil {
		return nil
	}
	if len(r.State.Rounds) == 0 {
		return []row{{"last round", "none: no pod was changed yet"}}
	}
	last := r.State.Rounds[0]
	outcome := cmp.Or(string(last.Outcome), "in progress")
	if last.Reason != "" {
		outcome += ": " + string(last.Reason)
	}
	if last.Outcome == rollout.RevertDeferred {
		outcome += "; " + deferredRevert
	}
	rows := []row{{"last round", fmt.Sprintf("%s, pods changed: %d, %s", cli.Timestamp(last.Time), last.Pods, outcome)}}
	for _, to := range last.To {
		var from policy.Container
		if i := slices.IndexFunc(last.From, func(c policy.Container) bool { return c.Name == to.Name }); i >= 0 {
			from = last.From[i]
		}
		for k := range resources.Kind(resources.Kinds) {
			if a, written := to.Requests.Get(k); written {
				rows = append(rows, row{"", fmt.Sprintf("container %s: %s %s to %s", to.Name, k, cli.FormatResource(from.Requests, k), cli.FormatAmount(k, float64(a)))})
			}
		}
	}
	return rows
}

func (r *rolloutReport) limits() (rows []row) {
	if r.StateErr != nil || r.Reason != "" {
		return nil
	}
	if trip := convert.FuseTrip(r.Object, &rollout.PolicyRounds{}, r.Now); trip.Holds(r.Workload.Key.Namespace) {
		rows = append(rows, row{"fuse", fmt.Sprintf("tripped at %s, because too many rounds of the policy were reverted: no pod is changed until you acknowledge it: %s (%s)",
			cli.Timestamp(trip.At), convert.Acknowledge(r.Object.Name, trip.At), reason.FuseTripped)})
	}
	if rate := r.Settings.StartRate; rate > 0 && r.State.Started.IsZero() {
		rows = append(rows, row{"start rate", fmt.Sprintf("the policy starts at most %d workloads in the first hour, and doubles their number each hour: spec.rollout.startRate (%s)", rate, reason.StartRate)})
	}
	return rows
}

func (r *rolloutReport) next() (rows []row) {
	if r.StateErr != nil || r.Reason != "" {
		return nil
	}
	if until := r.State.CooldownUntil; until.After(r.Now) {
		text := "until " + cli.Timestamp(until)
		if n := r.State.Reverts(); n > 0 {
			text += fmt.Sprintf(", extended after consecutive reverted rounds: %d", n)
		}
		rows = append(rows, row{"cooldown", text})
	}
	if next := r.current().Next; !next.IsZero() {
		rows = append(rows, row{"next change", "not before " + cli.Timestamp(next)})
	}
	return rows
}

func (r *rolloutReport) conditions() (rows []row) {
	for _, c := range convert.RecordStatus(r.State).Conditions {
		rows = append(rows, row{c.Type, fmt.Sprintf("since %s, %s: %s", cli.Timestamp(c.LastTransitionTime.Time), c.Reason, c.Message)})
	}
	return rows
}

func (r *rolloutReport) floors() (rows []row) {
	for _, c := range r.Target {
		floor := r.State.Floor(c.Name, c.Requests, r.Settings.Hash, r.Now)
		for k := range resources.Kind(resources.Kinds) {
			if minimum, ok := floor.Get(k); ok {
				rows = append(rows, row{"kept", fmt.Sprintf("container %s: %s %s, although %s is recommended, because less did harm", c.Name, k, cli.FormatAmount(k, float64(minimum)), cli.FormatResource(c.Requests, k))})
			}
		}
	}
	return rows
}

func (r *rolloutReport) newPods() []row {
	why := sizing.NewPodSkipReason(r.Decision, r.Author, r.State)
	switch {
	case why != "":
		return []row{{"new pods", "as they are written: " + string(why)}}
	case r.ShortHistory:
		return []row{{"new pods", fmt.Sprintf("as they are written for containers with less than %s of usage: %s", r.Policy.MinHistory, reason.ShortHistory)}}
	case r.Author == fleet.UserVPA:
		return []row{{"new pods", "as the VPA says"}}
	case r.StateErr != nil:
		return []row{{"new pods", "as they are written"}}
	}
	return []row{{"new pods", "get what is recommended"}}
}

func (r *rolloutReport) observed() (rows []row) {
	for i := range r.Pods {
		p := &r.Pods[i]
		if !convert.HasNotedChange(p) {
			continue
		}
		var text string
		switch change, err := convert.ParseChange(p); {
		case err != nil:
			text = fmt.Sprintf("under observation, but it cannot be judged: %v", err)
		case change.Pending:
			text = fmt.Sprintf("changed at %s, and its node has not begun: the observation begins then", cli.Timestamp(change.At))
		default:
			text = fmt.Sprintf("under observation since %s, until %s", cli.Timestamp(change.At), cli.Timestamp(change.At.Add(r.Safety.Period)))
		}
		rows = append(rows, row{"pod " + p.Name, text})
	}
	return rows
}
