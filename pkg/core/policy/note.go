package policy

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Reason is why an amount differs from the recommendation, or why a limit was not written.
type Reason uint8

// Reasons. The first block is written to the annotation vpaUpdates, as in the reference VPA.
const (
	RaisedToMin Reason = iota + 1
	CutToMax
	CutToLimit
	CutToRange
	RaisedToRange
	NoOriginalLimit
	NoRequest
	LimitOverflow

	MovedToPodRange
	MovedWithOthers // without a recommendation, to get the pod admitted
	OutsideRange
	OutsidePodRange
	HeldByRange // moved only as far as the LimitRanges admit
	LimitStays  // the limit of a pod that shares its node could not change
)

// Note is the reason for a change of one kind.
type Note struct {
	Kind   resources.Kind
	Reason Reason
}

// AboutLimit reports whether the note concerns a limit instead of a request.
func (n Note) AboutLimit() bool {
	return n.Reason == NoOriginalLimit || n.Reason == NoRequest || n.Reason == LimitOverflow
}

// Refused reports whether the API server rejects a pod with this result.
func (n Note) Refused() bool { return n.Reason == OutsideRange || n.Reason == OutsidePodRange }

// Cut reports whether the amount was reduced, or may have been: MovedToPodRange can also raise it.
func (n Note) Cut() bool {
	return n.Reason == CutToMax || n.Reason == CutToLimit || n.Reason == CutToRange || n.Reason == MovedToPodRange
}

// Annotated reports whether the reference VPA has this note, so that vpaUpdates includes it.
func (n Note) Annotated() bool { return n.Reason < MovedToPodRange }

// String returns the text of the note. Annotated notes have the exact wording of the reference VPA.
func (n Note) String() string {
	kind := n.Kind.String()
	switch n.Reason {
	case RaisedToMin:
		return kind + " capped to minAllowed"
	case CutToMax:
		return kind + " capped to maxAllowed"
	case CutToLimit:
		return kind + " capped to container limit"
	case CutToRange:
		return kind + " capped to fit Max in container LimitRange"
	case RaisedToRange:
		return kind + " capped to fit Min in container LimitRange"
	case NoOriginalLimit:
		return kind + ": limit NOT set since originalLimit is nil or 0"
	case NoRequest:
		return kind + ": limit NOT set since recommendedRequest is nil or 0"
	case LimitOverflow:
		return kind + ": failed to keep limit to request ratio; capping limit to int64"
	case MovedToPodRange:
		return kind + " scaled to fit the pod LimitRange"
	case MovedWithOthers:
		return kind + " scaled without a recommendation to fit the pod LimitRange"
	case OutsideRange:
		return kind + " does not fit the container LimitRange"
	case OutsidePodRange:
		return kind + " does not fit the pod LimitRange"
	case HeldByRange:
		return kind + " held at the value that the LimitRanges admit"
	case LimitStays:
		return kind + ": limit NOT changed although the pod shares its node"
	}
	return kind
}
