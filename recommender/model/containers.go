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
	// MaxContainers is the maximum number of containers that get a recommendation and a checkpoint
	// from a VPA. Pods of one target can run any number of container names.
	MaxContainers = 300
	// MaxVPAs is the maximum number of VPAs that get the usage of a pod. Every namespace can have any number of VPAs
	// over the same pods, and each multiplies histories, statuses and checkpoints.
	MaxVPAs = 10
)

// containerChoice is which containers of a VPA are recommended and kept.
type containerChoice struct {
	recommended map[string]bool      // nil: all with history
	kept        map[string]bool      // in checkpoints; nil: all with history
	omitted     []string             // exceed MaxContainers, sorted
	goneSince   map[string]time.Time // recommended containers that no pod runs, while pods run
}

// ChooseContainers decides which containers get a recommendation: running containers, and for Grace those that ran
// before, because a replacement may be pending. While no pod runs, as after scaling to zero, containers keep the
// recommendations that they have. At most MaxContainers get one. Running containers come first, then by name.
func (v *VPA) ChooseContainers(now time.Time) { v.Change(func() { v.chooseContainers(now) }) }

func (v *VPA) chooseContainers(now time.Time) {
	v.await(now)
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
	if len(running) == 0 && len(c.recommended) == 0 { // nothing distinguishes them
		for _, h := range all {
			c.recommended[h.container] = true
		}
	}
	if len(all) > MaxContainers {
		v.limit(all, running)
	}
}

// limit drops the containers that exceed MaxContainers. Among containers that no pod runs, the most
// recently used are kept.
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
		used = max(used, v.model.used(namedSeries{series: series}))
	}
	if restored := v.Restored[h.container]; restored != nil && !restored.Last().IsZero() {
		used = max(used, restored.Last().UnixNano())
	}
	return used
}

// isRecommended reports whether the last recommendation of the VPA has a container. After a start
// the status of the VPA has it.
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

// podContainers returns the container names of the pods that run, and of those that finished.
func (v *VPA) podContainers() (running, finished map[string]bool) {
	running = map[string]bool{}
	var lastRunning, lastFinished *form // nearly always, all pods have the same
	for set := range v.sets {
		for _, p := range set.pods {
			names, last := &running, &lastRunning
			if p.finished {
				names, last = &finished, &lastFinished
			}
			if p.form == *last {
				continue
			}
			if *last = p.form; *names == nil {
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

// ReadRecommended is Recommended for Model.Read: it changes nothing.
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

// Keeps reports whether a container with history gets a checkpoint.
func (v *VPA) Keeps(container string) bool { return v.choice.kept == nil || v.choice.kept[container] }

// namedOmissions is how many of the containers without recommendation are named.
const namedOmissions = 10

// OmittedMessage names the containers that exceed MaxContainers; empty: none does.
func (v *VPA) OmittedMessage() string {
	omitted := v.choice.omitted
	if len(omitted) == 0 {
		return ""
	}
	names := strings.Join(omitted[:min(len(omitted), namedOmissions)], ", ")
	if more := len(omitted) - namedOmissions; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("a VPA gets recommendations for at most %d containers, %d are left out: %s", MaxContainers, len(omitted), names)
}

// serves reports whether a VPA of a label set is one of the first MaxVPAs, which get its usage.
func (set *labelSet) serves(v *VPA) bool { return slices.Contains(set.served(), v) }

// served returns the VPAs that get the usage of a label set, the controlling one first.
func (set *labelSet) served() []*VPA { return set.vpas[:min(len(set.vpas), MaxVPAs)] }

// invalidateLast invalidates the VPAs that may have become one of the first MaxVPAs, or none of
// them, after the list of a label set changed by one VPA.
func (set *labelSet) invalidateLast() {
	for _, v := range set.vpas[min(len(set.vpas), MaxVPAs-1):min(len(set.vpas), MaxVPAs+1)] {
		v.Invalidate()
	}
}

// Outranked reports whether MaxVPAs other VPAs get the usage of all pods that v selects.
func (v *VPA) Outranked() bool {
	for set := range v.sets {
		if set.serves(v) {
			return false
		}
	}
	return len(v.sets) > 0
}

// Trust says how far the history of a VPA that is known can be trusted, by container.
type Trust struct {
	// Untrusted are the kinds of which less history may be known than there was.
	Untrusted map[string][resources.Kinds]bool
	// ObservedWhileHeld is for how long before the start a container was observed while
	// targets were held: that much less is needed now.
	ObservedWhileHeld map[string]time.Duration
	// HeldKinds are the kinds that the last recommendation took over from what was
	// published before: their targets do not rest on the history that is known.
	HeldKinds map[string][resources.Kinds]bool
}

// Estimate is what the history of a container comes to, before any quantity is printed: all that its recommendation is
// made of, apart from the object of the VPA and the settings. Two that are equal lead to the same recommendation.
type Estimate struct {
	Container string
	Bounds    resources.Bounds               // of both kinds
	Known     [resources.Kinds]bool          // there is history of the kind
	Untrusted [resources.Kinds]bool          // there may have been more than is known
	Rounded   bool                           // bounds are rounded when they are printed: a small difference may become a large one
	History   time.Duration                  // that the samples cover at least, one of the steps of the status
	Points    [resources.Kinds]recipe.Points // zero if there are enough
	Rising    string                         // how memory grows from day to day, for people, where the recipe keeps daily peaks; empty: it does not
}

// Inputs is all that the status of a VPA is made of, apart from settings.
type Inputs struct {
	Revision    uint64
	Object      *vpav1.VerticalPodAutoscaler
	Pods        int
	TargetError string
	NotRead     bool // nobody has read the target yet, so nothing can be said about it
	Grace       bool // the target can be read, or could a short time ago: else nothing is recommended
	Conflict    string
	Outranked   bool   // enough other VPAs get the usage of the pods
	Omitted     string // the containers without recommendation because they are too many; empty: none
	Unsaved     bool
	Ambiguous   string
	Observing   string // the SizingPolicy in whose mode Observe nothing is recommended; empty: none
	// RecipePolicy is the SizingPolicy whose recipe replaces that of the annotation; empty: none.
	RecipePolicy string
	Recipe       *recipe.Choice // also its problem and the meaning of its bounds are in the status
}

// Inputs returns what the status of the VPA is made of now.
func (v *VPA) Inputs(now time.Time) Inputs {
	i := Inputs{
		Revision: v.Revision(), Object: v.Object, Pods: v.Pods(), Grace: v.InGrace(now), Conflict: v.conflict(), Outranked: v.Outranked(),
		Omitted: v.OmittedMessage(), Unsaved: v.Saved.Unsaved, Ambiguous: v.Ambiguous, Recipe: v.Recipe,
	}
	if v.Sizing.Observe {
		i.Observing = v.Sizing.Policy
	}
	if v.Sizing.OnlyRecipe {
		i.RecipePolicy = v.Sizing.Policy
	}
	if v.TargetError != nil {
		i.TargetError, i.NotRead = v.TargetError.Error(), !v.Unsupported()
	}
	return i
}

// Unsupported reports whether the target of the VPA was read and cannot be used.
func (v *VPA) Unsupported() bool {
	return v.TargetError != nil && !errors.Is(v.TargetError, target.ErrNotRead)
}

// Published is what was done about the status of a VPA.
type Published struct {
	Recommended     bool                        // a recommendation was seen
	Uncapped        map[string]resources.List   // last recommended target by container, before capping
	Protected       map[string]resources.Amount // memory that limits protect, in bytes by container; nil: limits follow the requests
	MissingLoggedAt time.Time                   // when a missing recommendation was last logged
	Rising          bool                        // memory of a container grows from day to day
	TooLarge        bool                        // the status exceeds status.MaxBytes and is not written
	WriteLimited    bool                        // the last write waits for the write limit of the namespace
	HistoryStep     int                         // of the history behind the recommendation, from 1; 0: none is known

	Inputs          Inputs    // of the last time
	Done            bool      // the last time succeeded
	PutOff          bool      // the published status is not quite what it would be
	Rushed          bool      // bounds had used up their part of the pass
	Tried           time.Time // when its turn came; zero: it never did
	LastWriteOrSeen time.Time // last write of this process, also one that failed; at first, when it saw the VPA

	// Estimates are those that the published status was made of, or would be. Not those of
	// the last time: many small changes add up. None = not known.
	Estimates []Estimate
}

// Saved is what was done about the checkpoints of a VPA.
type Saved struct {
	// Unsaved: the last recommended target would fall in a crash, because its history could not be saved.
	Unsaved bool

	ID           int                       // of all VPAs that were ever saved, from 1; 0: it was not seen yet
	First        bool                      // the VPA was there in the first save, and got what was restored
	Revision     uint64                    // that was saved
	Targets      map[string]resources.List // uncapped, by container, that what was saved gives
	HistorySince time.Time                 // since when it has history; zero = since before the start
	LastTried    time.Time                 // when it last was tried, or was first seen
	Saved        bool                      // by this process
	Failed       bool                      // the last time
	Urgent       bool                      // in this save
	Part         *SavedPart                // of a save that was interrupted; else nil
}

// SavedPart describes the checkpoints of a VPA that an interrupted save has written.
type SavedPart struct {
	Next     string // container at which the next save continues
	Failed   bool   // a checkpoint could not be written
	Revision uint64
	Targets  map[string]resources.List
}

// TurnCame reports whether the moment that is this VPA's within each interval lies between
// two times. Each has one of its own, from its name, so that not all write at once.
func (v *VPA) TurnCame(interval time.Duration, since, now time.Time) bool {
	offset := v.Offset(interval)
	slot := func(at time.Time) int64 { return at.Add(-offset).UnixNano() / int64(interval) }
	return slot(now) != slot(since)
}

// Offset returns how long after the begin of an interval the moment of this VPA comes. It is asked for each container
// in each pass, so the hash is kept; of one VPA by one goroutine at a time.
func (v *VPA) Offset(interval time.Duration) time.Duration {
	if v.nameHash == 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(v.Object.Namespace + "/" + v.Object.Name)) // a hash never fails
		v.nameHash = h.Sum64()
	}
	return time.Duration(v.nameHash % uint64(interval))
}
