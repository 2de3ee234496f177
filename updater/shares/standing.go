package shares

import (
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/updater/nodeshare"
	"loadline.dev/loadline/updater/policies"
)

// Standing is the state of pods under a policy that enables sharing, or did.
type Standing uint8

// The standings.
const (
	Pending Standing = iota // sharing is undecided: they keep their requests
	Ending                  // they stop sharing: pods with a mark get their peak
	Active                  // they get their shares
)

// Standings are the standings of policies in mode On, by spec.sharing.nodeAutoscaler. The zero value is Pending.
type Standings struct{ Usual, BesideNodeAutoscaler Standing }

// standingOf returns the standing of a VPA whose policy enables sharing.
func standingOf(v *nodeshare.VPA, may Standings) Standing {
	switch {
	case v.Mode == fleet.SharingOn && v.Settings.BesideNodeAutoscaler:
		return may.BesideNodeAutoscaler
	case v.Mode == fleet.SharingOn:
		return may.Usual
	case v.Why == reason.PolicyPaused, v.Why == reason.PolicyUnknown, v.Why == reason.ModeTooCautious && v.Decision.Mode == fleet.Canary:
		return Pending // the canary will reach all pods
	}
	return Ending
}

// standing returns the standing of a pod as of the last round, unless its policy has changed since.
func (d *division) standing(p *member, e *policies.Effective) Standing {
	switch {
	case d.Nodes == nil || !d.NodeInformer.HasSynced(): // it is unknown which changes fit
		return Pending
	case !d.wanted:
		return Ending
	case d.last.Load() == nil || p == nil: // the last round failed, or did not see the pod
		return Pending
	case p.by == nil && e.Shares, p.by != nil && !stillWanted(&p.by.VPA, e):
		return Pending // until the next round
	case p.by == nil:
		return Ending
	case p.by.standing != Active:
		return p.by.standing
	case sharing.Lasts(p.Apart):
		return Ending
	case p.Why() != "" || !p.node.acts(p) || p.shares == nil && !p.leaves:
		return Pending
	}
	return Active
}

// stillWanted reports whether the policy of a VPA is as it was in the last round.
func stillWanted(v *nodeshare.VPA, e *policies.Effective) bool {
	d := &e.Decision
	return e.Shares && d.Policy.Name == v.Decision.Policy.Name && d.Policy.Sharing == v.Settings && d.Mode == v.Decision.Mode && d.OutOfSharing == v.Decision.OutOfSharing && d.Reason == v.Decision.Reason
}
