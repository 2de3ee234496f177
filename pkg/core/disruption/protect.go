package disruption

// A pod can be protected from evictions by its owner, by the cluster, or by the requirements of its
// VPA. Resizes in place that restart nothing go on: in mode InPlaceOrRecreate such a pod is treated as
// in mode InPlace.

// protects returns why a pod must not be evicted, or, with evicts false, why no container of it must be
// restarted by a resize. Empty: nothing protects it.
func (v *VPA) protects(p *Pod, evicts bool) Reason {
	switch {
	case p.Protected != "" && (evicts || p.Protected.forbidsRestart()):
		return p.Protected
	case !v.Admits(p):
		return RequirementsNotMet
	}
	return ""
}

// forbidsRestart reports whether what protects a pod from evictions protects it from restarts, too. A
// container that restarts keeps the revision of its pod.
func (r Reason) forbidsRestart() bool { return r != OlderRevision }

// of returns the situation of one pod: of a protected one the mode allows no eviction.
func (s Situation) of(v *VPA, p *Pod) Situation {
	if s.Mode == InPlaceOrRecreate {
		if s.protected = v.protects(p, true); s.protected != "" {
			s.Mode, s.Ungated = InPlace, true
		}
	}
	return s
}

// instead returns the reason to report for a pod that is not resized: what protects it, where only an
// eviction would help.
func (s Situation) instead(reason Reason) Reason {
	switch reason {
	case Infeasible, ClassWouldChange, StaticCPU, TooLargeForNode:
		if s.protected != "" {
			return s.protected
		}
	}
	return reason
}
