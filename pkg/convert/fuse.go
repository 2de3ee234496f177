package convert

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/rollout"
)

// AcknowledgeAnnotation of a SizingPolicy is the time (RFC 3339) up to which a user has seen its
// reverts. They no longer trip its fuse.
const AcknowledgeAnnotation = "loadline.dev/acknowledge"

// ConditionFuseTripped of a SizingPolicy reports whether its fuse has tripped. The updater writes it
// when that happens first.
const ConditionFuseTripped = "FuseTripped"

// The reasons of condition FuseTripped.
const (
	fuseTooManyReverts = "TooManyReverts"
	fuseAcknowledged   = "Acknowledged"
)

// Fuse returns when and why the fuse of a policy tripped: as its condition reports, where that is not
// acknowledged, or else as its workloads show. The condition lasts when workloads and their records are
// deleted, the records last when the policy is created again.
func Fuse(p *loadlinev1alpha1.SizingPolicy, f *rollout.Fleet, now time.Time) rollout.Trip {
	written, _ := time.Parse(time.RFC3339, p.Annotations[AcknowledgeAnnotation]) // of another text: nothing is acknowledged
	trip := f.Trip(written, now)
	c := meta.FindStatusCondition(p.Status.Conditions, ConditionFuseTripped)
	if c == nil || c.Status != metav1.ConditionTrue {
		return trip
	}
	since := c.LastTransitionTime.UTC()
	if !since.After(written) && !written.After(later(now, since)) {
		return trip
	}
	trip.At = since
	return trip
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// FuseCondition returns condition FuseTripped of a policy whose fuse has tripped, or was acknowledged. The
// message of a trip stays as it was reported first, but for an annotation that does not acknowledge it.
func FuseCondition(p *loadlinev1alpha1.SizingPolicy, trip rollout.Trip, now time.Time) metav1.Condition {
	if trip.At.IsZero() {
		return metav1.Condition{
			Type: ConditionFuseTripped, Status: metav1.ConditionFalse, Reason: fuseAcknowledged,
			LastTransitionTime: metav1.NewTime(now), ObservedGeneration: p.Generation,
			Message: "a user has acknowledged the reverts",
		}
	}
	c := metav1.Condition{
		Type: ConditionFuseTripped, Status: metav1.ConditionTrue, Reason: fuseTooManyReverts,
		LastTransitionTime: metav1.NewTime(trip.At), ObservedGeneration: p.Generation,
		Message: fmt.Sprintf("%d of %d judged rounds within one hour were reverted, so no further pod is changed until you acknowledge this: %s",
			trip.Reverted, trip.Judged, Acknowledge(p.Name, trip.At)),
	}
	before := meta.FindStatusCondition(p.Status.Conditions, ConditionFuseTripped)
	if before != nil && before.Status == c.Status && before.LastTransitionTime.Equal(&c.LastTransitionTime) {
		c.Message, _, _ = strings.Cut(before.Message, "; "+acknowledgePath.String())
	}
	if problem := acknowledgeProblem(p, trip.At, now); problem != "" {
		c.Message += "; " + problem
	}
	return c
}

var acknowledgePath = field.NewPath("metadata", "annotations").Key(AcknowledgeAnnotation)

// acknowledgeProblem returns why the annotation of a policy does not acknowledge a trip of its fuse; empty:
// there is none.
func acknowledgeProblem(p *loadlinev1alpha1.SizingPolicy, tripped, now time.Time) string {
	text := p.Annotations[AcknowledgeAnnotation]
	var why string
	switch written, err := time.Parse(time.RFC3339, text); {
	case text == "":
		return ""
	case err != nil:
		why = "is not a time (RFC 3339)"
	case written.Before(tripped):
		why = "is before the trip"
	case written.After(later(now, tripped)):
		why = "is in the future"
	default:
		return ""
	}
	return field.Invalid(acknowledgePath, short(text), fmt.Sprintf("%s, must be %s", why, tripped.UTC().Format(time.RFC3339))).Error()
}

// Acknowledge returns the command that acknowledges a fuse that tripped.
func Acknowledge(policy string, tripped time.Time) string {
	return fmt.Sprintf("kubectl annotate --overwrite sizingpolicy %s %s=%s", policy, AcknowledgeAnnotation, tripped.UTC().Format(time.RFC3339))
}
