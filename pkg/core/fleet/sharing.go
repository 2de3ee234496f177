package fleet

import (
	corepolicy "loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// SharingMode is how far the pods of a workload share what their nodes have left. Each mode
// gives more than the one before.
type SharingMode uint8

// The modes.
const (
	SharingOff    SharingMode = iota
	SharingDryRun             // it is only shown what sharing would do
	SharingOn
)

// Sharing is what a policy says about sharing. The zero value says that nothing is shared.
type Sharing struct {
	Mode  SharingMode
	Kinds [resources.Kinds]bool // that are shared
	// Evict says that pods may be evicted where those of a node need more than it has.
	Evict bool
	// CPULimit is what becomes of the CPU limits of pods that share.
	CPULimit sharing.CPULimit
	// BesideNodeAutoscaler says that SharingOn holds also where nodes are added and removed.
	BesideNodeAutoscaler bool
	// MaxRank is the highest rank that annotations can give a workload; nil: any.
	MaxRank *sharing.Rank
	// RestrictsUserVPAs makes the recipe of the policy hold for VPAs that users created, too.
	RestrictsUserVPAs bool
	// Max are the rules of the policy whose maxAllowed bounds user VPAs; nil: nothing does.
	Max *corepolicy.Rules
}

// Shares says how far the pods of a workload share, and why that is less than the policy
// says; empty: it is not. With everywhere a rollout in mode Canary has come to all running
// pods.
func (d *Decision) Shares(everywhere bool) (SharingMode, reason.Reason) {
	if d.Policy == nil || d.Policy.Sharing.Mode == SharingOff {
		return SharingOff, ""
	}
	switch d.Reason {
	case reason.OptedOut, reason.PolicyUnknown, reason.PolicyPaused:
		return SharingOff, d.Reason
	}
	acts := d.Reason == "" && (d.Mode == Auto || d.Mode == Canary && everywhere)
	switch {
	case d.OutOfSharing:
		return SharingOff, reason.SharingOptedOut
	case d.Policy.Sharing.Mode == SharingOn && !acts:
		return SharingDryRun, reason.ModeTooCautious
	}
	return d.Policy.Sharing.Mode, ""
}

// Rank returns in which order the pods of the workload leave a node that has too little for
// all, given how many there are.
func (d *Decision) Rank(kind string, replicas int) sharing.Rank {
	rank, _ := sharing.RankOf(kind, replicas, d.annotations[:]...)
	if d.Policy != nil && d.Policy.Sharing.MaxRank != nil {
		rank = min(rank, *d.Policy.Sharing.MaxRank)
	}
	return rank
}

// RecipeText returns the text of the recipe annotation of a VPA as far as it counts: a policy that
// shares may require its own recipe.
func (d *Decision) RecipeText(annotation string) string {
	if d.RestrictsUserVPAs() {
		return ""
	}
	return annotation
}

// UserMax returns the rules of the policy whose maxAllowed bounds what a VPA that a user created
// gives to new and running pods; nil: none.
func (d *Decision) UserMax() *corepolicy.Rules {
	if d.RestrictsUserVPAs() {
		return d.Policy.Sharing.Max
	}
	return nil
}

// RestrictsUserVPAs reports whether the recipe and maxAllowed of the policy hold for VPAs that
// users created, too.
func (d *Decision) RestrictsUserVPAs() bool {
	return d.Policy != nil && d.Policy.Sharing.RestrictsUserVPAs && d.Policy.Sharing.Mode == SharingOn && !d.OutOfSharing
}

// sharing reads what annotations say about sharing.
func (w *Workload) sharing(d *Decision) {
	for i, p := range w.places() {
		d.annotations[i] = p.annotations
		out, problem := sharing.OptedOut(p.annotations)
		d.OutOfSharing = d.OutOfSharing || out
		add(&d.Problem, problem)
		_, problem = sharing.RankOf(w.Kind, 0, p.annotations)
		add(&d.Problem, problem)
	}
}
