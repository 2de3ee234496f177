package fleet

import (
	"fmt"
	"slices"
	"strings"

	corepolicy "loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Mode is how far a policy goes.
type Mode uint8

// The modes. From Observe on each gives more than the one before. Inherit gives what the
// VPA of a workload says: all of it if a person wrote that, nothing if it was made.
const (
	Inherit Mode = iota
	Observe
	Recommend
	OneShot
	Canary
	Auto
)

var modeNames = [...]string{"Inherit", "Observe", "Recommend", "OneShot", "Canary", "Auto"}

// String returns the mode as the API spells it.
func (m Mode) String() string { return modeNames[m] }

// ParseMode returns the mode that the API spells like text. It is false for any other text, the empty one, too.
func ParseMode(text string) (Mode, bool) {
	at := slices.Index(modeNames[:], text)
	return Mode(max(at, int(Inherit))), at >= 0
}

// reduced returns m, or the mode that is asked for in its place if that gives less.
func (m Mode) reduced(asked Mode, author Author) Mode {
	if asked == Inherit {
		return m
	}
	if m != Inherit {
		return min(m, asked)
	}
	if asked <= Recommend || author == Person && asked < Auto {
		return asked
	}
	return m
}

// stopped returns m, or Recommend if m could change a pod.
func (m Mode) stopped() Mode {
	if m == Observe {
		return m
	}
	return Recommend
}

// InitialSizing is what a policy says about new pods.
type InitialSizing uint8

// What it says. Those of a VPA that a person wrote get what that says, unless they are to stay AsWritten.
const (
	ByMode    InitialSizing = iota // of a made VPA: sized once all running pods may be changed
	AsWritten                      // not sized
	ToTarget                       // of a made VPA: sized in each mode in which running pods are changed
)

// NewPods says why new pods of a workload stay as they are written; empty: they do not, as far as the mode of a
// person's VPA goes. With everywhere a rollout in mode Canary has come to all running pods.
func (d Decision) NewPods(by Author, everywhere bool) reason.Reason {
	switch d.Reason {
	case reason.OptedOut, reason.PolicyUnknown, reason.PolicyPaused:
		return d.Reason
	}
	made := by == Loadline
	switch {
	case made && d.Reason != "":
		return d.Reason
	case d.Policy == nil:
		return ""
	case d.Policy.Initial == AsWritten:
		return reason.InitialSizingOff
	case !made, d.Policy.Initial == ToTarget, d.Mode == Auto, d.Mode == Canary && everywhere:
		return ""
	}
	return reason.InitialSizingOff
}

// place is where people annotate.
type place struct {
	name        string
	annotations map[string]string
}

func (w *Workload) places() [3]place {
	return [...]place{{"workload", w.Annotations}, {"pod template", w.TemplateAnnotations}, {"VPA", w.VPA.Annotations}}
}

// optedOut reports whether somebody took the workload out. A value that cannot be read
// counts as if: who wrote it did not want to be changed.
func (w *Workload) optedOut(foreign bool, problem *string) (out bool) {
	for _, p := range w.places() {
		if value, there := p.annotations[SkipAnnotation]; there && value != "false" {
			out = true
			if value != "true" {
				p.complain(problem, SkipAnnotation, value, `"true" or "false"`, "true")
			}
		}
		if foreign && (p.annotations[attuneSkip] == "true" || p.annotations[cruiseKubeExcluded] == "true") {
			out = true
		}
	}
	return out
}

// reduced returns m as the annotations reduce it: to the most cautious mode that one of them asks for.
func (w *Workload) reduced(m Mode, problem *string) Mode {
	for _, p := range w.places() {
		value, there := p.annotations[ModeAnnotation]
		if !there {
			continue
		}
		asked, known := ParseMode(value)
		if !known {
			asked = Observe
			p.complain(problem, ModeAnnotation, value, "one of "+strings.Join(modeNames[:], ", "), asked.String())
		}
		m = m.reduced(asked, w.VPA.Author)
	}
	return m
}

// longestValue is how many characters of a wrong value are shown, of the 256 KiB that an annotation may have.
const longestValue = 40

// complain adds to problem what is wrong with an annotation.
func (p place) complain(problem *string, key, value, right, taken string) {
	add(problem, fmt.Sprintf("annotation %s of the %s is %.*q: must be %s; it counts as %s", key, p.name, longestValue, value, right, taken))
}

// add adds another problem.
func add(problem *string, another string) {
	if *problem != "" && another != "" {
		*problem += "; "
	}
	*problem += another
}

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

// Shares says how far the pods of a workload share, and why that is less than the policy says; empty: it is not. With
// everywhere a rollout in mode Canary has come to all running pods.
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

// RestrictsUserVPAs reports whether the recipe and maxAllowed of the policy hold for VPAs that users created, too.
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
