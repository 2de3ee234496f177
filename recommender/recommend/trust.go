package recommend

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// NoteUntrusted records which histories of a new VPA may be incomplete, because more must have been
// behind its published recommendation. past is the loaded history by container. Untrusted are
//
//   - containers without loaded history,
//   - the memory of containers without saved windows,
//   - containers whose histograms have later samples than their sketch, because another
//     recommender continued the histograms alone,
//   - all containers if the status has held or unsaved targets.
//
// It also records how long each container was observed while its targets were held. Otherwise
// frequent restarts would never release them.
func NoteUntrusted(v *model.VPA, past map[string]checkpoint.ContainerHistory) {
	v.Trust.Untrusted, v.Trust.ObservedWhileHeld = nil, nil
	if v.StatusOfOther() || !status.Provided(v.Object) {
		return
	}
	unsaved, since := status.Holds(v.Object, status.TargetUnsaved), heldSince(v)
	uncertain := unsaved || status.Holds(v.Object, status.TargetHeld)
	v.Trust.Untrusted, v.Trust.ObservedWhileHeld = map[string][resources.Kinds]bool{}, map[string]time.Duration{}
	for _, c := range v.Object.Status.Recommendation.ContainerRecommendations {
		loaded, found := past[c.ContainerName]
		gap := found && sketchLags(v.Sketches[c.ContainerName], loaded.Profile)
		v.Trust.Untrusted[c.ContainerName] = [resources.Kinds]bool{
			resources.CPU:    uncertain || !found || gap,
			resources.Memory: uncertain || !found || gap || loaded.Windows == nil,
		}
		if intact := !unsaved && loaded.Windows != nil; intact && !since.IsZero() {
			v.Trust.ObservedWhileHeld[c.ContainerName] = max(0, loaded.Profile.Last().Sub(since))
		}
	}
}

func sketchLags(t *sketch.Sketch, p *usage.Profile) bool {
	return t != nil && p.Last().Sub(time.Unix(0, t.Now)) > sketchLag
}

func heldSince(v *model.VPA) time.Time {
	for _, c := range v.Object.Status.Conditions {
		if c.Type == status.TargetHeld && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// untrusted returns the kinds with possibly incomplete history. One memory interval of samples is
// sufficient for trust, including samples from before the start while targets were held. Memory
// uses the interval of the VPA, CPU the flag.
func (a *Advisor) untrusted(v *model.VPA, container string, live time.Duration) [resources.Kinds]bool {
	doubted := v.Trust.Untrusted[container]
	if _, pending := v.Backfill.PendingFor(container); pending || a.incomplete() {
		doubted = [resources.Kinds]bool{true, true}
	} else {
		live += v.Trust.ObservedWhileHeld[container]
	}
	doubted[resources.CPU] = doubted[resources.CPU] && live < a.Store.Rules().Interval
	doubted[resources.Memory] = doubted[resources.Memory] && live < v.RulesOf(container).Interval
	return doubted
}

// trustedSince returns the time of the first sample that counts as evidence. While history is being
// loaded it is not before the creation of the oldest series, because one loaded part proves nothing
// about the others.
func (a *Advisor) trustedSince(first time.Time, series []usage.Series) time.Time {
	if !a.incomplete() {
		return first
	}
	oldest := a.Store.CreatedAt(series[0])
	for _, s := range series[1:] {
		if created := a.Store.CreatedAt(s); created.Before(oldest) {
			oldest = created
		}
	}
	if oldest.After(first) {
		return oldest
	}
	return first
}

func (a *Advisor) incomplete() bool { return a.History != nil && !a.History.Complete() }

// heldMessage is constant while the held targets are.
func heldMessage(held []string) string {
	if len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("not lowered, because earlier usage is unknown: %s; until it is loaded, or enough new usage is observed", strings.Join(held, ", "))
}

func insufficientPoints(e model.Estimate, controlled [resources.Kinds]bool) []string {
	var list []string
	for k, p := range e.Points {
		if controlled[k] && p.Have < p.Want {
			list = append(list, fmt.Sprintf("%s of container %s: %d of %d", resources.Kind(k), e.Container, p.Have, p.Want))
		}
	}
	return list
}

// insufficientMessage changes at most every half hour.
func insufficientMessage(lacking []string) string {
	if len(lacking) == 0 {
		return ""
	}
	return fmt.Sprintf("the recipe needs more points of five minutes of usage: %s at least", strings.Join(lacking, ", "))
}
