package model

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// VPA is a VerticalPodAutoscaler in the model, with the state of all who work on it.
// Each part is written by one owner only; others may read it between two calls of Model.
type VPA struct {
	Object           *vpav1.VerticalPodAutoscaler // from the informer cache, not to be changed
	Rules            policy.Rules                 // of Object
	TargetError      error                        // why the target cannot be used; nil if it can
	TargetErrorSince time.Time

	// Restored holds the history from before the start, by container. The caller fills it and calls Invalidate then; it
	// is kept while the VPA has the same target.
	Restored map[string]*usage.Profile
	// Retargeted tells that the VPA, or one of its name that was deleted a short while ago, pointed to another target
	// before: what its status and checkpoints held then is not about the containers of this one. The caller sets it
	// where that was before the start.
	Retargeted bool
	// Since is the generation of Object from which on the VPA is known to have had its target; see StatusOfOther.
	Since int64
	// Recipe is what serves the VPA, and Sketches hold, by container, what it wants to know of the past besides
	// histories. They are kept while the VPA has the same target. SavedSketches are images that no recipe could read,
	// because the one that was asked for is misspelled. SketchesNeeded is when a recipe last needed any. Only
	// recommend.SketchKeeper writes these four; Advisor notes in a sketch what was recommended.
	Recipe         *recipe.Choice
	Sketches       map[string]*sketch.Sketch
	SavedSketches  map[string][]byte
	SketchesNeeded time.Time

	// Sizing is what the SizingPolicy says that is responsible for the target. Written by package policies only.
	Sizing Sizing

	// Ambiguous is why usage of a container is left out; empty: none is. Written by MarkAmbiguous.
	Ambiguous string

	Trust     Trust     // written by package recommend only
	Backfill  Backfill  // written by package backfill, recipe changes by recommend.SketchKeeper
	Published Published // written by recommend.Publisher only
	Saved     Saved     // written by checkpoints.Saver only

	model     *Model
	target    target.Key
	selector  labels.Selector // nil selects nothing
	matcher   *matcher        // of the index; nil: it is not in the index
	sets      map[*labelSet]struct{}
	pass      uint64 // last SyncVPAs that saw it
	relinking bool
	nameHash  uint64   // of Offset; 0: not computed yet
	known     []string // containers at the last call of NewContainers, sorted
	listed    uint64   // structure at the last call of NewContainers
	choice    containerChoice

	added    time.Time // to the model, with the present UID
	awaiting bool      // published containers whose pods have not appeared may have history

	built      bool      // containers is up to date
	containers []history // sorted by name; without series: only restored or awaited
	structure  uint64    // grows with each change but those of series
}

// Sizing is what a SizingPolicy says about the recommendation of a VPA. The zero value says nothing.
type Sizing struct {
	Policy string // its name; empty: none is responsible
	Recipe string // for VPAs without the annotation; empty: that of the flag
	// OnlyRecipe makes the annotation count for nothing.
	OnlyRecipe bool
	// Observe demands that usage is collected and nothing is recommended.
	Observe bool
}

type history struct {
	container string
	series    []usage.Series
}

// StatusOfOther reports whether what is in the status of the VPA may be about another target than it has now.
func (v *VPA) StatusOfOther() bool {
	if v.Retargeted {
		return convert.ObservedGeneration(v.Object) < max(v.Since, 1)
	}
	return convert.Outdated(v.Object, v.Since)
}

// Revision returns a number that changes whenever anything changes that the recommendation or the checkpoints of a VPA
// are made of: which series it has, what is in them, and what was restored.
func (v *VPA) Revision() uint64 {
	const versionBits = 40 // the sum of versions only grows while the structure stays
	var versions uint64
	for _, h := range v.histories() {
		for _, series := range h.series {
			versions += v.model.config.Store.Version(series)
		}
	}
	return v.structure<<versionBits + versions
}

// Invalidate makes the revision another one. Whoever changes Restored calls it; it is not safe for concurrent use.
func (v *VPA) Invalidate() {
	v.built = false
	if v.model == nil { // not made by one
		v.structure++
		return
	}
	v.model.changes++
	v.structure = v.model.changes
}

// Target returns what the VPA points to, the zero key if that is nothing.
func (v *VPA) Target() target.Key { return v.target }

// SameTarget reports whether two VPAs, perhaps of different models, point to the same target.
func (v *VPA) SameTarget(o *VPA) bool { return v.target == o.target }

// Pods returns how many pods the VPA selects, finished ones included.
func (v *VPA) Pods() int {
	n := 0
	for set := range v.sets {
		n += len(set.pods)
	}
	return n
}

// Containers returns the names of all containers with series, sorted.
func (v *VPA) Containers() []string {
	names := make([]string, 0, len(v.histories()))
	for name, series := range v.Histories() {
		if len(series) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// Histories yields the containers with history, sorted by name, each with what
// Series returns for it. It allocates nothing.
func (v *VPA) Histories() iter.Seq2[string, []usage.Series] { return chosen(v.histories(), nil) }

// Series returns the live histories of a container, in an order that depends on
// the labels of the pods only. The caller must not change the list.
func (v *VPA) Series(container string) []usage.Series {
	histories := v.histories()
	at, found := slices.BinarySearchFunc(histories, container, byContainer)
	if !found {
		return nil
	}
	return histories[at].series
}

func byContainer(h history, container string) int { return cmp.Compare(h.container, container) }

// Controller returns the VPA that controls pods which v selects too, and nil where v itself controls all its pods.
func (v *VPA) Controller() *VPA {
	var other *VPA
	for set := range v.sets {
		if first := set.vpas[0]; len(set.pods) > 0 && first != v && (other == nil || stronger(first, other) < 0) {
			other = first
		}
	}
	return other
}

// conflict says which other VPA controls pods of v, and why; it is empty if none does.
func (v *VPA) conflict() string {
	other := v.Controller()
	if other == nil {
		return ""
	}
	why := "it is older"
	switch {
	case !v.Acts() && other.Acts():
		why = "this one is switched off"
	case other.Object.CreationTimestamp.Equal(&v.Object.CreationTimestamp):
		why = "both are equally old and its name comes first"
	}
	limit := ""
	if v.Outranked() {
		limit = fmt.Sprintf(", and only the first %d VPAs of a pod get a recommendation", MaxVPAs)
	}
	return fmt.Sprintf("VPA %s selects the same pods and controls them because %s%s: delete one of the two, or give them different targets",
		other.Object.Name, why, limit)
}

func (v *VPA) histories() []history {
	if !v.built {
		v.built, v.containers = true, v.buildHistories()
	}
	return v.containers
}

// buildHistories returns histories without the cache. It changes nothing.
func (v *VPA) buildHistories() (containers []history) {
	if v.Outranked() {
		return nil
	}
	type entry struct {
		container string
		set       *labelSet // nil: restored
		series    usage.Series
	}
	var entries []entry
	for set := range v.sets {
		if !set.serves(v) {
			continue
		}
		for _, n := range set.series {
			entries = append(entries, entry{n.container, set, n.series})
		}
	}
	for container := range v.Restored {
		entries = append(entries, entry{container: container})
	}
	for _, container := range v.awaited() {
		entries = append(entries, entry{container: container.ContainerName})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if c := cmp.Compare(a.container, b.container); c != 0 || a.set == nil || b.set == nil {
			return c
		}
		return cmp.Compare(a.set.text, b.set.text)
	})
	for _, e := range entries {
		if last := len(containers) - 1; last < 0 || containers[last].container != e.container {
			containers = append(containers, history{container: e.container})
		}
		if h := &containers[len(containers)-1]; e.set != nil {
			h.series = append(h.series, e.series)
		}
	}
	return containers
}

// Change is Model.Change for a VPA that may have no model.
func (v *VPA) Change(do func()) {
	if v.model == nil {
		do()
		return
	}
	v.model.Change(do)
}

// Acts reports whether the updater or the webhook does something for a VPA.
func (v *VPA) Acts() bool { return !target.ClaimOf(v.Object).Idle }

// stronger orders VPAs as updater and admission controller choose between them.
func stronger(a, b *VPA) int {
	return target.CompareClaims(target.ClaimOf(a.Object), target.ClaimOf(b.Object))
}

// Selector returns the text of the label selector of v; empty if it selects nothing.
func (v *VPA) Selector() string {
	if v.selector == nil {
		return ""
	}
	return v.selector.String()
}

// Observed returns the VPA with the selector that its target had when it was last read.
func (v *VPA) Observed() Observed { return Observed{Object: v.Object, Selector: v.selector} }

// PodNames returns the names of the pods that v selects, sorted, finished ones included.
func (v *VPA) PodNames() []string {
	var names []string
	for set := range v.sets {
		for _, p := range set.pods {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return names
}

// LimitRatio returns how large the memory limit of a container of v is for its request: the tightest among the pods
// that v selects, finished ones left out. Where v leaves limits alone, none follows the request.
func (v *VPA) LimitRatio(container string) sketch.LimitRatio {
	if v.Rules.For(container).RequestsOnly {
		return sketch.Free
	}
	var tightest sketch.LimitRatio
	var last *form // nearly always, all pods have the same
	for set := range v.sets {
		for _, p := range set.pods {
			if p.finished || p.form == last {
				continue
			}
			last = p.form
			if at := slices.Index(p.containers, container); at >= 0 {
				tightest = tightest.Tighter(p.limitRatio[at])
			}
		}
	}
	return tightest
}
