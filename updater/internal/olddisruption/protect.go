package olddisruption

import "loadline.dev/loadline/pkg/core/reason"

// A pod can be protected from evictions by its owner, by an annotation, or by the eviction requirements of
// its VPA. Resizes that restart no container are still allowed: in mode InPlaceOrRecreate a protected pod is
// handled as in mode InPlace.

// protection returns the reason why a pod must not be evicted or, with evict false, why a resize must not
// restart its containers. Empty: the pod is not protected.
func (v *VPA) protection(p *Pod, evict bool) reason.Reason {
	switch {
	case p.Protected != "" && (evict || forbidsRestart(p.Protected)):
		return p.Protected
	case !v.Admits(p):
		return reason.RequirementsNotMet
	}
	return ""
}

// forbidsRestart reports whether a protection from evictions also covers restarts of containers. A restart
// keeps the revision of the pod, so OlderRevision does not forbid it.
func forbidsRestart(protection reason.Reason) bool { return protection != reason.OlderRevision }

// forPod returns the situation of one pod, whose mode is InPlace if the pod is protected.
func (s Situation) forPod(v *VPA, p *Pod) Situation {
	if s.Mode == InPlaceOrRecreate {
		if s.protected = v.protection(p, true); s.protected != "" {
			s.Mode, s.Ungated = InPlace, true
		}
	}
	return s
}

// skipReason returns the reason to report for a pod that is not resized. Where only an eviction would help,
// that is the protection from evictions.
func (s Situation) skipReason(why reason.Reason) reason.Reason {
	switch why {
	case reason.Infeasible, reason.ClassWouldChange, reason.StaticCPU, reason.TooLargeForNode:
		if s.protected != "" {
			return s.protected
		}
	}
	return why
}
