package model

import (
	"errors"
	"hash/fnv"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/target"
)

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

// Estimate is what the history of a container comes to, before any quantity is
// printed: all that its recommendation is made of, apart from the object of the
// VPA and the settings. Two that are equal lead to the same recommendation.
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
	// Unsaved: the last recommended target would fall in a crash, because its history could
	// not be saved.
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

// Offset returns how long after the begin of an interval the moment of this VPA comes. It is
// asked for each container in each pass, so the hash is kept; of one VPA by one goroutine at
// a time.
func (v *VPA) Offset(interval time.Duration) time.Duration {
	if v.nameHash == 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(v.Object.Namespace + "/" + v.Object.Name)) // a hash never fails
		v.nameHash = h.Sum64()
	}
	return time.Duration(v.nameHash % uint64(interval))
}
