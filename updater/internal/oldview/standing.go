package oldview

import (
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
	nodeshare "loadline.dev/loadline/updater/internal/oldnodeshare"
)

// Standing is what becomes of pods whose policy wants them to share, or did.
type Standing uint8

// The standings.
const (
	Waits Standing = iota // it is not known whether they may share: they keep what they have
	Ends                  // they do not share: those that did get their peak
	Acts                  // they get their shares
)

// Standings are those of policies in mode On. Which one holds for a policy depends on whether it
// accepts a node autoscaler. The zero value is that nothing is known.
type Standings struct{ Usual, BesideNodeAutoscaler Standing }

// standingOf returns the standing of a VPA whose policy wants sharing.
func standingOf(v *nodeshare.VPA, may Standings) Standing {
	switch {
	case v.Mode == fleet.SharingOn && v.Settings.BesideNodeAutoscaler:
		return may.BesideNodeAutoscaler
	case v.Mode == fleet.SharingOn:
		return may.Usual
	case v.Why == reason.PolicyPaused, v.Why == reason.PolicyUnknown, v.Why == reason.ModeTooCautious && v.Decision.Mode == fleet.Canary:
		return Waits // a canary comes to all pods in a while
	}
	return Ends
}

// standing returns that of a pod, as of the last round and as far as its policy has not changed
// since.
func (r *Reader) standing(p *sharedPod, vpa *knownVPA) Standing {
	switch {
	case r.Nodes == nil || !r.NodesSynced(): // nobody knows what fits
		return Waits
	case !r.memo.shares:
		return Ends
	case r.memo.sharing == nil || p == nil: // the last round failed, or did not see it
		return Waits
	case p.by == nil && vpa.shares, p.by != nil && !r.stillWanted(&p.by.VPA, vpa):
		return Waits // the next round knows
	case p.by == nil:
		return Ends
	case p.by.standing != Acts:
		return p.by.standing
	case sharing.Lasts(p.Apart):
		return Ends
	case p.Why() != "" || !p.node.acts(p) || p.shares == nil && !p.leaves:
		return Waits
	}
	return Acts
}

// stillWanted reports whether the policy of a VPA says what it said in the last round.
func (r *Reader) stillWanted(v *nodeshare.VPA, vpa *knownVPA) bool {
	if !vpa.shares {
		return false
	}
	ruled := r.memo.ruled[vpa.reading.Object]
	if ruled == nil || ruled.answer.Policy == nil {
		return false
	}
	d := &ruled.answer.Decision
	return d.Policy.Name == v.Decision.Policy.Name && d.Policy.Sharing == v.Settings && d.Mode == v.Decision.Mode && d.OutOfSharing == v.Decision.OutOfSharing && d.Reason == v.Decision.Reason
}
