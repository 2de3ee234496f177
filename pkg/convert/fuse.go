package convert

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	return rollout.Trip{At: since, Reverted: trip.Reverted, Ended: trip.Ended}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// FuseCondition returns the condition of a policy whose fuse has tripped, or was acknowledged.
func FuseCondition(policy string, trip rollout.Trip) metav1.Condition {
	if trip.At.IsZero() {
		return metav1.Condition{Type: ConditionFuseTripped, Status: metav1.ConditionFalse, Reason: fuseAcknowledged, Message: "a user has acknowledged the reverts"}
	}
	return metav1.Condition{
		Type: ConditionFuseTripped, Status: metav1.ConditionTrue, Reason: fuseTooManyReverts, LastTransitionTime: metav1.NewTime(trip.At),
		Message: fmt.Sprintf("%d of %d rounds within one hour were reverted, so no further pod is changed until you acknowledge this: %s", trip.Reverted, trip.Ended, Acknowledge(policy, trip.At)),
	}
}

// Acknowledge returns the command that acknowledges a fuse that tripped.
func Acknowledge(policy string, tripped time.Time) string {
	return fmt.Sprintf("kubectl annotate --overwrite sizingpolicy %s %s=%s", policy, AcknowledgeAnnotation, tripped.UTC().Format(time.RFC3339))
}
