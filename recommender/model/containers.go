package model

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

const (
	// MaxContainers is the maximum number of recommended and saved containers of a VPA. The pods of
	// one target can have any number of container names.
	MaxContainers = 300
	// MaxVPAs limits the VPAs that get the usage of a pod. Each adds histories and checkpoints.
	MaxVPAs = 10
)

type containerChoice struct {
	recommended map[string]bool      // nil: all with history
	kept        map[string]bool      // saved in checkpoints, nil: all with history
	omitted     []string             // containers above MaxContainers, sorted
	goneSince   map[string]time.Time // recommended, but in no running pod
}

// ChooseContainers selects the containers that get a recommendation: running containers, and for
// Grace earlier ones, because a replacement may be pending. While no pod runs, for example after
// scaling to zero, containers keep their recommendation. Above MaxContainers, running containers
// come first by name, then the most recently used.
func (v *VPA) ChooseContainers(now time.Time) { v.Change(func() { v.chooseContainers(now) }) }

func (v *VPA) chooseContainers(now time.Time) {
	v.updateExpectation(now)
	running, finished := v.podContainers()
	all := v.histories()
	before := v.choice
	v.choice = containerChoice{}
	if len(all) > MaxContainers || slices.ContainsFunc(all, func(h history) bool { return !running[h.container] }) {
		v.choose(all, running, finished, before.goneSince, now)
	}
	if !maps.Equal(before.recommended, v.choice.recommended) || !maps.Equal(before.kept, v.choice.kept) {
		v.Invalidate()
	}
}

func (v *VPA) choose(all []history, running, finished map[string]bool, goneSince map[string]time.Time, now time.Time) {
	c := &v.choice
	c.recommended, c.goneSince = make(map[string]bool, len(all)), map[string]time.Time{}
	for _, h := range all {
		switch name := h.container; {
		case running[name], len(running) == 0 && (finished[name] || v.isRecommended(name)):
			c.recommended[name] = true
		case len(running) > 0 && v.isRecommended(name):
			since, known := goneSince[name]
			if !known {
				since = now
			}
			c.goneSince[name] = since
			if now.Sub(since) < Grace {
				c.recommended[name] = true
			}
		}
	}
	if len(running) == 0 && len(c.recommended) == 0 { // no criterion applies
		for _, h := range all {
			c.recommended[h.container] = true
		}
	}
	if len(all) > MaxContainers {
		v.limit(all, running)
	}
}

func (v *VPA) limit(all []history, running map[string]bool) {
	type candidate struct {
		name string
		rank int
		used int64
	}
	c := &v.choice
	list := make([]candidate, 0, len(all))
	for _, h := range all {
		x := candidate{name: h.container, rank: 2, used: v.lastUsed(h)}
		switch {
		case running[h.container]:
			x.rank, x.used = 0, 0
		case c.recommended[h.container]:
			x.rank = 1
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.used, a.used), cmp.Compare(a.name, b.name))
	})
	c.kept = make(map[string]bool, MaxContainers)
	for i, x := range list {
		switch {
		case i < MaxContainers:
			c.kept[x.name] = true
		case c.recommended[x.name]:
			delete(c.recommended, x.name)
			c.omitted = append(c.omitted, x.name)
		}
	}
	slices.Sort(c.omitted)
}

func (v *VPA) lastUsed(h history) int64 {
	used := int64(0)
	for _, series := range h.series {
		used = max(used, v.model.lastUsed(namedSeries{series: series}))
	}
	if restored := v.Restored[h.container]; restored != nil && !restored.Last().IsZero() {
		used = max(used, restored.Last().UnixNano())
	}
	return used
}

// isRecommended uses the last recommendation or, after a restart, the status.
func (v *VPA) isRecommended(container string) bool {
	if v.Published.Uncapped != nil {
		_, found := v.Published.Uncapped[container]
		return found
	}
	r := v.Object.Status.Recommendation
	if r == nil || v.StatusOfOther() {
		return false
	}
	return slices.ContainsFunc(r.ContainerRecommendations, func(c vpav1.RecommendedContainerResources) bool {
		return c.ContainerName == container
	})
}

func (v *VPA) podContainers() (running, finished map[string]bool) {
	running = map[string]bool{}
	var lastRunning, lastFinished *podTemplate // usually all pods share one
	for set := range v.sets {
		for _, p := range set.pods {
			names, last := &running, &lastRunning
			if p.finished {
				names, last = &finished, &lastFinished
			}
			if p.podTemplate == *last {
				continue
			}
			if *last = p.podTemplate; *names == nil {
				*names = map[string]bool{}
			}
			for _, name := range p.containers {
				(*names)[name] = true
			}
		}
	}
	return running, finished
}

// Recommended yields the containers that get a recommendation, like Histories.
func (v *VPA) Recommended() iter.Seq2[string, []usage.Series] {
	return chosen(v.histories(), v.choice.recommended)
}

// ReadRecommended is Recommended for use inside Model.Read. It changes nothing.
func (v *VPA) ReadRecommended() iter.Seq2[string, []usage.Series] {
	return chosen(v.buildHistories(), v.choice.recommended)
}

// Kept yields the containers that get a checkpoint, like Histories.
func (v *VPA) Kept() iter.Seq2[string, []usage.Series] { return chosen(v.histories(), v.choice.kept) }

func chosen(histories []history, names map[string]bool) iter.Seq2[string, []usage.Series] {
	return func(yield func(string, []usage.Series) bool) {
		for _, h := range histories {
			if (names == nil || names[h.container]) && !yield(h.container, h.series) {
				return
			}
		}
	}
}

// Keeps reports whether a container gets a checkpoint.
func (v *VPA) Keeps(container string) bool { return v.choice.kept == nil || v.choice.kept[container] }

const maxNamedOmissions = 10

// OmittedMessage lists the containers above MaxContainers, or is empty.
func (v *VPA) OmittedMessage() string {
	omitted := v.choice.omitted
	if len(omitted) == 0 {
		return ""
	}
	names := strings.Join(omitted[:min(len(omitted), maxNamedOmissions)], ", ")
	if more := len(omitted) - maxNamedOmissions; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("a VPA gets recommendations for at most %d containers, %d have none: %s", MaxContainers, len(omitted), names)
}

func (set *labelSet) serves(v *VPA) bool { return slices.Contains(set.served(), v) }

// served returns the VPAs that get the usage of a label set, the controlling one first.
func (set *labelSet) served() []*VPA { return set.vpas[:min(len(set.vpas), MaxVPAs)] }

// invalidateLast invalidates the VPAs around position MaxVPAs, which may gain or lose usage, after
// one VPA was added or removed.
func (set *labelSet) invalidateLast() {
	for _, v := range set.vpas[min(len(set.vpas), MaxVPAs-1):min(len(set.vpas), MaxVPAs+1)] {
		v.Invalidate()
	}
}

// Outranked reports whether v gets no usage, because MaxVPAs other VPAs precede it for each pod.
func (v *VPA) Outranked() bool {
	for set := range v.sets {
		if set.serves(v) {
			return false
		}
	}
	return len(v.sets) > 0
}

// Trust describes how far the history of a VPA can be trusted, by container.
type Trust struct {
	// Untrusted are the kinds with possibly incomplete history.
	Untrusted map[string][resources.Kinds]bool
	// ObservedWhileHeld is trusted observation time before the start, while the target was held.
	ObservedWhileHeld map[string]time.Duration
	// HeldKinds repeated their published value in the last recommendation.
	HeldKinds map[string][resources.Kinds]bool
}

// Estimate is the result of a history before formatting. With the VPA object and the settings,
// equal estimates give equal recommendations.
type Estimate struct {
	Container string
	Bounds    resources.Bounds               // of both kinds
	Known     [resources.Kinds]bool          // the kind has history
	Untrusted [resources.Kinds]bool          // the history may be incomplete
	Rounded   bool                           // formatting may amplify a small change
	History   time.Duration                  // min time covered by samples, a step of the status
	Points    [resources.Kinds]recipe.Points // zero: enough
	Rising    string                         // daily memory growth, empty: none or not tracked
}

// Inputs are all inputs of a VPA status except settings.
type Inputs struct {
	Revision     uint64
	Object       *vpav1.VerticalPodAutoscaler
	Pods         int
	TargetError  string
	TargetUnread bool // the target has not been read yet
	Grace        bool // the target is usable or was within Grace
	Conflict     string
	Outranked    bool   // MaxVPAs other VPAs get the usage
	Omitted      string // containers above MaxContainers, empty: none
	Unsaved      bool
	Ambiguous    string
	Observing    string // SizingPolicy in mode Observe, empty: none
	// RecipePolicy is the SizingPolicy whose recipe overrides the annotation, or empty.
	RecipePolicy string
	Recipe       *recipe.Choice // problem and bounds meaning are in the status
}

// Inputs returns the current inputs of the VPA status.
func (v *VPA) Inputs(now time.Time) Inputs {
	i := Inputs{
		Revision: v.Revision(), Object: v.Object, Pods: v.Pods(), Grace: v.InGrace(now), Conflict: v.conflict(), Outranked: v.Outranked(),
		Omitted: v.OmittedMessage(), Unsaved: v.Saved.Unsaved, Ambiguous: v.Ambiguous, Recipe: v.Recipe,
	}
	if v.Sizing.Observe {
		i.Observing = v.Sizing.Policy
	}
	if v.Sizing.OverridesAnnotation {
		i.RecipePolicy = v.Sizing.Policy
	}
	if v.TargetError != nil {
		i.TargetError, i.TargetUnread = v.TargetError.Error(), !v.Unsupported()
	}
	return i
}

// Unsupported reports whether the target was read and cannot be used.
func (v *VPA) Unsupported() bool {
	return v.TargetError != nil && !errors.Is(v.TargetError, target.ErrNotRead)
}

// Published is the publishing state of a VPA status.
type Published struct {
	Recommended     bool                        // the last attempt had a recommendation
	Uncapped        map[string]resources.List   // last targets before capping, by container
	Protected       map[string]resources.Amount // memory to protect by limits, nil: limits follow requests
	MissingLoggedAt time.Time                   // when a missing recommendation was last logged
	Rising          bool                        // memory of a container grows daily
	TooLarge        bool                        // the status exceeds status.MaxBytes
	WriteLimited    bool                        // the last write waits for the namespace write limit
	HistoryStep     int                         // bucket of the history length from 1, 0: unknown

	Inputs          Inputs    // of the last attempt
	Succeeded       bool      // the last attempt succeeded
	Deferred        bool      // small changes of bounds are not published yet
	BoundsTimeUp    bool      // the time for bounds was up
	LastTried       time.Time // last attempt, zero: none
	LastWriteOrSeen time.Time // of this process, even if failed, or first sight

	// Estimates are the basis of the published or deferred status. They are not updated in each
	// iteration, because many small changes add up. Empty: unknown.
	Estimates []Estimate
}

// Saved is the state of the checkpoints of a VPA.
type Saved struct {
	// Unsaved reports that a crash would lower the last target, because its history is not saved.
	Unsaved bool

	ID           int                       // unique number from 1, 0: not seen
	InFirstSave  bool                      // in the first save, with restored history
	Revision     uint64                    // saved revision
	Targets      map[string]resources.List // uncapped targets of the saved history, by container
	HistorySince time.Time                 // begin of its history, zero: before the start
	LastTried    time.Time                 // last attempt, or first sight
	Written      bool                      // this process saved it
	Failed       bool                      // the last save failed
	Urgent       bool                      // urgent in the current save
	Partial      *SavedPart                // of an interrupted save, else nil
}

// SavedPart describes the checkpoints that an interrupted save has written.
type SavedPart struct {
	Next     string // container for the next save
	Failed   bool   // a checkpoint could not be written
	Revision uint64
	Targets  map[string]resources.List
}

// SlotPassed reports whether the slot of the VPA, which spreads writes, lies between two times.
func (v *VPA) SlotPassed(interval time.Duration, since, now time.Time) bool {
	offset := v.Offset(interval)
	slot := func(at time.Time) int64 { return at.Add(-offset).UnixNano() / int64(interval) }
	return slot(now) != slot(since)
}

// Offset returns the offset of the slot in an interval. It must not run concurrently for a VPA.
func (v *VPA) Offset(interval time.Duration) time.Duration {
	if v.nameHash == 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(v.Object.Namespace + "/" + v.Object.Name)) // never fails
		v.nameHash = h.Sum64()
	}
	return time.Duration(v.nameHash % uint64(interval))
}
