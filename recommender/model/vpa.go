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

// VPA is a VerticalPodAutoscaler with the state of all components. Each part has a single writer.
// Others may read it between two calls of Model.
type VPA struct {
	Object           *vpav1.VerticalPodAutoscaler // from the informer cache, read-only
	Rules            policy.Rules                 // of Object
	TargetError      error                        // why the target is unusable, nil: usable
	TargetErrorSince time.Time

	// Restored is the history from before the start, by container. Its writer calls Invalidate. It
	// is kept while the target stays the same.
	Restored map[string]*usage.Profile
	// Retargeted reports that the VPA, or a deleted one of its name, had another target, so that
	// its status and checkpoints do not apply. The caller sets it for changes before the start.
	Retargeted bool
	// TargetSince is the first generation of Object known to have its target, see StatusOfOther.
	TargetSince int64
	// Recipe and Sketches, which hold its data by container, are kept while the target stays the
	// same. SavedSketches are images without a recipe to decode them, because its name is
	// misspelled. SketchesNeeded is when a recipe last needed sketches. Only recommend.SketchKeeper
	// writes these fields. Advisor records recommendations in sketches.
	Recipe         *recipe.Choice
	Sketches       map[string]*sketch.Sketch
	SavedSketches  map[string][]byte
	SketchesNeeded time.Time

	// Sizing is written by package policies only.
	Sizing Sizing

	// Ambiguous is why usage of a container is ignored, or empty. Written by MarkAmbiguous.
	Ambiguous string

	Trust     Trust     // written by package recommend only
	Backfill  Backfill  // by package backfill, recipe changes by SketchKeeper
	Published Published // written by recommend.Publisher only
	Saved     Saved     // written by checkpoints.Saver only

	model            *Model
	target           target.Key
	selector         labels.Selector // nil: selects nothing
	matcher          *matcher        // in the index, nil: not indexed
	sets             map[*labelSet]struct{}
	syncCount        uint64 // last SyncVPAs that listed it
	relinking        bool
	nameHash         uint64   // of Offset, 0: not computed
	listedContainers []string // containers at the last NewContainers, sorted
	listedStructure  uint64   // structure at the last NewContainers
	choice           containerChoice

	added          time.Time // when the current UID was added to the model
	expectsHistory bool      // published containers without pods may have history

	built      bool      // containers is up to date
	containers []history // sorted by name, without series: only restored or expected
	structure  uint64    // increases with each change except samples
}

// Sizing holds the settings of a SizingPolicy for a VPA. The zero value means no policy.
type Sizing struct {
	Policy string // policy name, empty: none
	Recipe string // for VPAs without the annotation, empty: recipe of the flag
	// OverridesAnnotation reports that Recipe overrides the annotation.
	OverridesAnnotation bool
	// Observe collects usage without recommendations.
	Observe bool
}

type history struct {
	container string
	series    []usage.Series
}

// StatusOfOther reports whether the status of the VPA may describe an earlier target.
func (v *VPA) StatusOfOther() bool {
	if v.Retargeted {
		return convert.ObservedGeneration(v.Object) < max(v.TargetSince, 1)
	}
	return convert.IsOutdated(v.Object, v.TargetSince)
}

// Revision changes with the inputs of recommendation and checkpoints: series and restored history.
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

// Invalidate changes the revision. It is not safe for concurrent use.
func (v *VPA) Invalidate() {
	v.built = false
	if v.model == nil { // outside of a model
		v.structure++
		return
	}
	v.model.changes++
	v.structure = v.model.changes
}

// Target returns the target of the VPA, or the zero key.
func (v *VPA) Target() target.Key { return v.target }

// SameTarget reports whether two VPAs, possibly of different models, have the same target.
func (v *VPA) SameTarget(o *VPA) bool { return v.target == o.target }

// Pods returns the number of selected pods, including finished ones.
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

// Histories yields the containers with history and their Series, by name and without allocation.
func (v *VPA) Histories() iter.Seq2[string, []usage.Series] { return chosen(v.histories(), nil) }

// Series returns the live histories of a container, ordered by pod labels. Do not modify the list.
func (v *VPA) Series(container string) []usage.Series {
	histories := v.histories()
	at, found := slices.BinarySearchFunc(histories, container, byContainer)
	if !found {
		return nil
	}
	return histories[at].series
}

func byContainer(h history, container string) int { return cmp.Compare(h.container, container) }

// Controller returns the VPA that controls pods selected by v, or nil if v controls all of them.
func (v *VPA) Controller() *VPA {
	var other *VPA
	for set := range v.sets {
		if first := set.vpas[0]; len(set.pods) > 0 && first != v && (other == nil || stronger(first, other) < 0) {
			other = first
		}
	}
	return other
}

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
		why = "both have the same age and its name sorts first"
	}
	limit := ""
	if v.Outranked() {
		limit = fmt.Sprintf(", and only the first %d VPAs of a pod get a recommendation", MaxVPAs)
	}
	return fmt.Sprintf("VPA %s selects the same pods and controls them because %s%s: delete one of the two VPAs, or change its target",
		other.Object.Name, why, limit)
}

func (v *VPA) histories() []history {
	if !v.built {
		v.built, v.containers = true, v.buildHistories()
	}
	return v.containers
}

// buildHistories bypasses the cache and changes nothing.
func (v *VPA) buildHistories() (containers []history) {
	if v.Outranked() {
		return nil
	}
	type entry struct {
		container string
		set       *labelSet // nil: restored or expected
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
	for _, container := range v.expectedContainers() {
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

// Change is Model.Change, also for a VPA without a model.
func (v *VPA) Change(do func()) {
	if v.model == nil {
		do()
		return
	}
	v.model.Change(do)
}

// Acts reports whether the updater or the webhook acts on the VPA.
func (v *VPA) Acts() bool { return !target.ClaimOf(v.Object).Idle }

// stronger compares VPAs by the rule of updater and admission controller.
func stronger(a, b *VPA) int {
	return target.CompareClaims(target.ClaimOf(a.Object), target.ClaimOf(b.Object))
}

// Selector returns the label selector of v as text, or an empty string.
func (v *VPA) Selector() string {
	if v.selector == nil {
		return ""
	}
	return v.selector.String()
}

// Observed returns the VPA with the last known selector of its target.
func (v *VPA) Observed() Observed { return Observed{Object: v.Object, Selector: v.selector} }

// PodNames returns the sorted names of the selected pods, including finished ones.
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

// LimitRatio returns the tightest ratio of memory limit to request of a container over unfinished
// pods. It is free if v controls requests only.
func (v *VPA) LimitRatio(container string) sketch.LimitRatio {
	if v.Rules.For(container).RequestsOnly {
		return sketch.NoLimitRatio
	}
	var tightest sketch.LimitRatio
	var last *podTemplate // usually all pods share one
	for set := range v.sets {
		for _, p := range set.pods {
			if p.finished || p.podTemplate == last {
				continue
			}
			last = p.podTemplate
			if at := slices.Index(p.containers, container); at >= 0 {
				tightest = tightest.Tighter(p.limitRatio[at])
			}
		}
	}
	return tightest
}
