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

// Mode is the extent of changes that a policy allows.
type Mode uint8

// Modes of a policy. From Observe on, each allows more than the one before. Inherit applies the
// mode of a user VPA, and makes no changes for a generated VPA.
const (
	Inherit Mode = iota
	Observe
	Recommend
	OneShot
	Canary
	Auto
)

var modeNames = [...]string{"Inherit", "Observe", "Recommend", "OneShot", "Canary", "Auto"}

// String returns the mode as spelled in the API.
func (m Mode) String() string { return modeNames[m] }

// ParseMode returns the mode for its API spelling, or false for any other text, also empty.
func ParseMode(text string) (Mode, bool) {
	at := slices.Index(modeNames[:], text)
	return Mode(max(at, int(Inherit))), at >= 0
}

// restrictedTo returns m, or the requested mode if that is more cautious.
func (m Mode) restrictedTo(requested Mode, origin VPAOrigin) Mode {
	if requested == Inherit {
		return m
	}
	if m != Inherit {
		return min(m, requested)
	}
	if requested <= Recommend || origin == UserVPA && requested < Auto {
		return requested
	}
	return m
}

func (m Mode) withoutChanges() Mode {
	if m == Observe {
		return m
	}
	return Recommend
}

// InitialSizing controls the sizing of new pods.
type InitialSizing uint8

// Values of InitialSizing. Pods of a user VPA follow the mode of that VPA, except for AsWritten.
const (
	ByMode    InitialSizing = iota // generated VPA: after all running pods may change
	AsWritten                      // not sized
	ToTarget                       // generated VPA: in each mode that changes running pods
)

// NewPodSkipReason returns why new pods of a workload are not sized. Empty: they may be sized, and
// for a user VPA its mode decides. In mode Canary, fullRollout means that the rollout has reached
// all running pods.
func (d Decision) NewPodSkipReason(origin VPAOrigin, fullRollout bool) reason.Reason {
	switch d.Reason {
	case reason.OptedOut, reason.PolicyUnknown, reason.PolicyPaused:
		return d.Reason
	}
	generated := origin == GeneratedVPA
	switch {
	case generated && d.Reason != "":
		return d.Reason
	case d.Policy == nil:
		return ""
	case d.Policy.Initial == AsWritten:
		return reason.InitialSizingOff
	case !generated, d.Policy.Initial == ToTarget, d.Mode == Auto, d.Mode == Canary && fullRollout:
		return ""
	}
	return reason.InitialSizingOff
}

type annotationSource struct {
	name        string
	annotations map[string]string
}

func (w *Workload) annotationSources() [3]annotationSource {
	return [...]annotationSource{{"workload", w.Annotations}, {"pod template", w.TemplateAnnotations}, {"VPA", w.VPA.Annotations}}
}

// optedOut also counts an invalid value, because its author intended to prevent changes.
func (w *Workload) optedOut(foreign bool, problem *string) (out bool) {
	for _, p := range w.annotationSources() {
		if value, present := p.annotations[SkipAnnotation]; present && value != "false" {
			out = true
			if value != "true" {
				p.addProblem(problem, SkipAnnotation, value, `"true" or "false"`, "true")
			}
		}
		if foreign && (p.annotations[attuneSkip] == "true" || p.annotations[cruiseKubeExcluded] == "true") {
			out = true
		}
	}
	return out
}

func (w *Workload) applyModeAnnotations(m Mode, problem *string) Mode {
	for _, p := range w.annotationSources() {
		value, present := p.annotations[ModeAnnotation]
		if !present {
			continue
		}
		requested, known := ParseMode(value)
		if !known {
			requested = Observe
			p.addProblem(problem, ModeAnnotation, value, "one of "+strings.Join(modeNames[:], ", "), requested.String())
		}
		m = m.restrictedTo(requested, w.VPA.Origin)
	}
	return m
}

// maxValueLength is the number of displayed characters of a value, which may have 256 KiB.
const maxValueLength = 40

func (p annotationSource) addProblem(problem *string, key, value, valid, effective string) {
	appendProblem(problem, fmt.Sprintf("annotation %s of the %s is %.*q: must be %s; it counts as %s", key, p.name, maxValueLength, value, valid, effective))
}

func appendProblem(problem *string, another string) {
	if *problem != "" && another != "" {
		*problem += "; "
	}
	*problem += another
}

// SharingMode is the extent of headroom sharing. Each mode allows more than the one before.
type SharingMode uint8

// Modes of sharing.
const (
	SharingOff    SharingMode = iota
	SharingDryRun             // only reports the effect of sharing
	SharingOn
)

// Sharing is the sharing configuration of a policy. The zero value disables sharing.
type Sharing struct {
	Mode  SharingMode
	Kinds [resources.Kinds]bool // shared kinds
	// Evict allows evictions if the pods of a node need more than it has.
	Evict    bool
	CPULimit sharing.CPULimit
	// AcceptsNodeAutoscaler allows SharingOn in clusters with a node autoscaler.
	AcceptsNodeAutoscaler bool
	// MaxRank is the highest rank that annotations can set, or nil.
	MaxRank *sharing.Rank
	// RestrictsUserVPAs applies the recipe of the policy to user VPAs, too.
	RestrictsUserVPAs bool
	// Max are the rules of the policy with a maxAllowed that bounds user VPAs, or nil.
	Max *corepolicy.Rules
}

// SharingMode returns the sharing mode of the workload, and the reason if it is below the mode of
// the policy. With fullRollout, a rollout in mode Canary covers all running pods.
func (d *Decision) SharingMode(fullRollout bool) (SharingMode, reason.Reason) {
	if d.Policy == nil || d.Policy.Sharing.Mode == SharingOff {
		return SharingOff, ""
	}
	switch d.Reason {
	case reason.OptedOut, reason.PolicyUnknown, reason.PolicyPaused:
		return SharingOff, d.Reason
	}
	acts := d.Reason == "" && (d.Mode == Auto || d.Mode == Canary && fullRollout)
	switch {
	case d.SharingOptedOut:
		return SharingOff, reason.SharingOptedOut
	case d.Policy.Sharing.Mode == SharingOn && !acts:
		return SharingDryRun, reason.ModeTooConservative
	}
	return d.Policy.Sharing.Mode, ""
}

// Rank returns the eviction rank of the pods on a node that is too small for all.
func (d *Decision) Rank(kind string, replicas int) sharing.Rank {
	rank, _ := sharing.RankOf(kind, replicas, d.annotations[:]...)
	if d.Policy != nil && d.Policy.Sharing.MaxRank != nil {
		rank = min(rank, *d.Policy.Sharing.MaxRank)
	}
	return rank
}

// RecipeText returns the recipe annotation of a VPA, or empty if the policy's recipe applies.
func (d *Decision) RecipeText(annotation string) string {
	if d.RestrictsUserVPAs() {
		return ""
	}
	return annotation
}

// UserMax returns the rules of the policy with a maxAllowed that bounds user VPAs, or nil.
func (d *Decision) UserMax() *corepolicy.Rules {
	if d.RestrictsUserVPAs() {
		return d.Policy.Sharing.Max
	}
	return nil
}

// RestrictsUserVPAs reports whether recipe and maxAllowed of the policy also apply to user VPAs.
func (d *Decision) RestrictsUserVPAs() bool {
	return d.Policy != nil && d.Policy.Sharing.RestrictsUserVPAs && d.Policy.Sharing.Mode == SharingOn && !d.SharingOptedOut
}

func (w *Workload) readSharing(d *Decision) {
	for i, p := range w.annotationSources() {
		d.annotations[i] = p.annotations
		out, problem := sharing.OptedOut(p.annotations)
		d.SharingOptedOut = d.SharingOptedOut || out
		appendProblem(&d.Problem, problem)
		_, problem = sharing.RankOf(w.Kind, 0, p.annotations)
		appendProblem(&d.Problem, problem)
	}
}
