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

// NoteUntrusted notes which histories of a VPA that was just added may be less than there was: something is published
// that must have come from more. past is what was loaded, by container. Not trusted are
//
//   - all of a container of which nothing was loaded,
//   - the memory of one whose open windows were not saved,
//   - all of one whose histograms have later samples than its sketch, because another
//     recommender went on with the histograms alone,
//   - everything where the status says that targets are held or unsaved.
//
// It also notes for how long each container was observed while its targets were held: a
// program that starts often would never let them go otherwise.
func NoteUntrusted(v *model.VPA, past map[string]checkpoint.Past) {
	v.Trust.Untrusted, v.Trust.ObservedWhileHeld = nil, nil
	if v.StatusOfOther() || !status.Provided(v.Object) {
		return
	}
	unsaved, since := status.Holds(v.Object, status.TargetUnsaved), heldSince(v)
	uncertain := unsaved || status.Holds(v.Object, status.TargetHeld)
	v.Trust.Untrusted, v.Trust.ObservedWhileHeld = map[string][resources.Kinds]bool{}, map[string]time.Duration{}
	for _, c := range v.Object.Status.Recommendation.ContainerRecommendations {
		loaded, found := past[c.ContainerName]
		gap := found && behind(v.Sketches[c.ContainerName], loaded.Profile)
		v.Trust.Untrusted[c.ContainerName] = [resources.Kinds]bool{
			resources.CPU:    uncertain || !found || gap,
			resources.Memory: uncertain || !found || gap || loaded.Windows == nil,
		}
		if intact := !unsaved && loaded.Windows != nil; intact && !since.IsZero() {
			v.Trust.ObservedWhileHeld[c.ContainerName] = max(0, loaded.Profile.Last().Sub(since))
		}
	}
}

// behind reports whether the last samples of a history are not in the sketch beside it.
func behind(t *sketch.Sketch, p *usage.Profile) bool {
	return t != nil && p.Last().Sub(time.Unix(0, t.Now)) > sketchLag
}

// heldSince returns since when the status of a VPA says that targets are held, the zero time if it does not.
func heldSince(v *model.VPA) time.Time {
	for _, c := range v.Object.Status.Conditions {
		if c.Type == status.TargetHeld && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// untrusted returns the kinds of which a container may have had more history than is known. Samples over one memory
// interval are enough for trust, counting those that were observed while targets were held before the start. The
// interval is that of the VPA for memory and that of the flags for CPU.
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

// proofFrom returns from when on samples prove something, of series the first of whose is given: while history is
// loaded apart, samples of one part of it say nothing of the others, and only those count that came since the start.
func (a *Advisor) proofFrom(first time.Time, series []usage.Series) time.Time {
	if !a.incomplete() {
		return first
	}
	oldest := a.Store.Created(series[0])
	for _, s := range series[1:] {
		if created := a.Store.Created(s); created.Before(oldest) {
			oldest = created
		}
	}
	if oldest.After(first) {
		return oldest
	}
	return first
}

func (a *Advisor) incomplete() bool { return a.History != nil && !a.History.Complete() }

// heldMessage names what is held. It does not change while that does not.
func heldMessage(held []string) string {
	if len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("not lowered, because the usage of earlier days is not known: %s; until it is loaded, or enough new usage was seen", strings.Join(held, ", "))
}

// lacks names the kinds of a container, of those that its VPA controls, of which there
// are too few points to recommend anything.
func lacks(e model.Estimate, controlled [resources.Kinds]bool) []string {
	var list []string
	for k, p := range e.Points {
		if controlled[k] && p.Have < p.Want {
			list = append(list, fmt.Sprintf("%s of container %s: %d of %d", resources.Kind(k), e.Container, p.Have, p.Want))
		}
	}
	return list
}

// lacksMessage says what is lacking. It changes once in half an hour.
func lacksMessage(lacking []string) string {
	if len(lacking) == 0 {
		return ""
	}
	return fmt.Sprintf("the recipe needs more points of five minutes of usage: %s at least", strings.Join(lacking, ", "))
}
