package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/rollout"
)

// AcknowledgeAnnotation of a SizingPolicy holds the time (RFC 3339) up to which a user acknowledges
// its pod changes. Their reverts no longer trip its fuse.
const AcknowledgeAnnotation = "loadline.dev/acknowledge"

// ConditionFuseTripped of a SizingPolicy is added by the updater when its fuse first trips.
const ConditionFuseTripped = "FuseTripped"

const (
	fuseTooManyReverts = "TooManyReverts"
	fuseNamespacesHeld = "TooManyRevertsInNamespaces"
	fuseAcknowledged   = "Acknowledged"
)

// FuseTrip returns when and why the fuse of a policy tripped. It merges the trip in the condition,
// unless acknowledged, with the trip computed from rounds. The condition outlives deleted records,
// and the records outlive a deleted policy.
func FuseTrip(p *loadlinev1alpha1.SizingPolicy, rounds *rollout.PolicyRounds, now time.Time) rollout.Trip {
	written, _ := time.Parse(time.RFC3339, p.Annotations[AcknowledgeAnnotation]) // any other text acknowledges nothing
	trip := rounds.Trip(written, now)
	c := meta.FindStatusCondition(p.Status.Conditions, ConditionFuseTripped)
	if c == nil || c.Status != metav1.ConditionTrue {
		return trip
	}
	since := c.LastTransitionTime.UTC()
	switch held := heldNamespaces(c); {
	case acknowledgeFailure(written, since, now) == "":
	case len(held) == 0:
		trip.At, trip.Namespaces = since, nil
	case !trip.HoldsPolicy():
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(held, trip.Namespaces))))
		if len(all) == len(held) || trip.At.Before(since) {
			trip.At = since
		}
		trip.Namespaces = all
	}
	return trip
}

// FuseCondition returns condition FuseTripped of a policy with a tripped or acknowledged fuse. The
// message of a trip does not change later, except that it also reports an invalid acknowledgement.
func FuseCondition(p *loadlinev1alpha1.SizingPolicy, trip rollout.Trip, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: ConditionFuseTripped, ObservedGeneration: p.Generation}
	if trip.At.IsZero() {
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionFalse, fuseAcknowledged, metav1.NewTime(now)
		c.Message = "a user has acknowledged the reverts"
		return c
	}
	c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionTrue, fuseTooManyReverts, metav1.NewTime(trip.At)
	pods := "no further pod is changed"
	if len(trip.Namespaces) > 0 {
		c.Reason, c.Message = fuseNamespacesHeld, heldPrefix+strings.Join(trip.Namespaces, ", ")+heldSuffix
		pods = "no further pod of these is changed"
	}
	c.Message += fmt.Sprintf("%d of %d judged rounds within one hour were reverted", trip.Reverted, trip.Judged)
	if trip.Record != "" {
		c.Message += ", the last one of SizingRecord " + trip.Record
	}
	c.Message += ", so " + pods + " until you acknowledge this: " + Acknowledge(p.Name, trip.At)
	before := meta.FindStatusCondition(p.Status.Conditions, ConditionFuseTripped)
	if before != nil && before.Status == c.Status && before.LastTransitionTime.Equal(&c.LastTransitionTime) &&
		slices.Equal(heldNamespaces(before), trip.Namespaces) {
		c.Message, _, _ = strings.Cut(before.Message, "; "+acknowledgePath.String())
	}
	if problem := acknowledgeProblem(p, trip.At, now); problem != nil {
		c.Message += "; " + problem.Error()
	}
	return c
}

// The message of a fuse that holds namespaces begins with their names.
const (
	heldPrefix = "namespaces "
	heldSuffix = ": "
)

// heldNamespaces parses the namespaces in a condition. Nil means that the whole policy is held.
func heldNamespaces(c *metav1.Condition) []string {
	names, held := strings.CutPrefix(c.Message, heldPrefix)
	if !held || c.Reason != fuseNamespacesHeld {
		return nil
	}
	names, _, _ = strings.Cut(names, heldSuffix)
	return strings.Split(names, ", ")
}

var acknowledgePath = field.NewPath("metadata", "annotations").Key(AcknowledgeAnnotation)

// acknowledgeProblem returns nil if the acknowledgement is valid or absent. A zero trip is unknown.
func acknowledgeProblem(p *loadlinev1alpha1.SizingPolicy, tripped, now time.Time) *field.Error {
	text, is := p.Annotations[AcknowledgeAnnotation]
	if !is || text == "" && !tripped.IsZero() {
		return nil
	}
	must := "the time in condition " + ConditionFuseTripped + ", such as 2026-01-02T15:04:05Z"
	if !tripped.IsZero() {
		must = tripped.UTC().Format(time.RFC3339)
	}
	why := "is not a time (RFC 3339)"
	if written, err := time.Parse(time.RFC3339, text); err == nil {
		why = acknowledgeFailure(written, tripped, now)
	}
	if why == "" {
		return nil
	}
	return field.Invalid(acknowledgePath, truncate(text), why+", must be "+must)
}

func acknowledgeFailure(written, tripped, now time.Time) string {
	switch {
	case written.Before(tripped):
		return "is before the trip"
	case written.After(now) && written.After(tripped) && !tripped.IsZero():
		return "is in the future"
	}
	return ""
}

// Acknowledge returns the command that acknowledges a tripped fuse.
func Acknowledge(policy string, tripped time.Time) string {
	return fmt.Sprintf("kubectl annotate --overwrite sizingpolicy %s %s=%s",
		policy, AcknowledgeAnnotation, tripped.UTC().Format(time.RFC3339))
}
