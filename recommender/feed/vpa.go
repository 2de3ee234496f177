package feed

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// VPA is a VerticalPodAutoscaler in the model. Readers may use it between two
// calls of Model; only the exported fields marked so may be changed.
type VPA struct {
	Object       *vpav1.VerticalPodAutoscaler // from the informer cache, not to be changed
	Rules        policy.Rules                 // of Object
	Trouble      error                        // why the target cannot be used; nil if it can
	TroubleSince time.Time

	// Restored holds the history from before the start, by container. The
	// caller fills and prunes it; it is kept while the VPA has the same target.
	Restored map[string]*profile.Profile
	// Uncapped holds the last recommended target by container, before capping.
	// The caller keeps it, for the quality metrics.
	Uncapped map[string]amount.Resources
	// Complained is when a missing recommendation was last logged. The caller
	// keeps it.
	Complained time.Time
	// Recommended tells that a recommendation was seen. The caller keeps it.
	Recommended bool

	target   target.Key
	selector labels.Selector // nil selects nothing
	sets     map[*labelSet]struct{}
	series   map[string][]usage.Series // by container; nil: must be built again
}

// Pods returns how many pods the VPA selects, finished ones included.
func (v *VPA) Pods() int {
	n := 0
	for set := range v.sets {
		n += len(set.pods)
	}
	return n
}

// Containers returns the names of all containers with history, sorted.
func (v *VPA) Containers() []string {
	names := slices.Collect(maps.Keys(v.bySeries()))
	for name := range v.Restored {
		if _, live := v.series[name]; !live {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Series returns the live histories of a container, in an order that depends on
// the labels of the pods only.
func (v *VPA) Series(container string) []usage.Series { return v.bySeries()[container] }

// Controller returns the VPA that controls pods which v selects too, and nil
// where v itself controls all its pods.
func (v *VPA) Controller() *VPA {
	var other *VPA
	for set := range v.sets {
		if first := set.vpas[0]; len(set.pods) > 0 && first != v && (other == nil || stronger(first, other) < 0) {
			other = first
		}
	}
	return other
}

func (v *VPA) bySeries() map[string][]usage.Series {
	if v.series != nil {
		return v.series
	}
	v.series = map[string][]usage.Series{}
	sets := slices.SortedFunc(maps.Keys(v.sets), func(a, b *labelSet) int { return cmp.Compare(a.text, b.text) })
	for _, set := range sets {
		for container, series := range set.series {
			v.series[container] = append(v.series[container], series)
		}
	}
	return v.series
}

// Acts tells whether the updater or the webhook does something for a VPA.
func (v *VPA) Acts() bool {
	return convert.Mode(v.Object) != vpav1.UpdateModeOff || convert.HasBoost(v.Object)
}

// stronger orders VPAs as updater and admission controller choose between them:
// those that act before those that only watch, then the older, then the smaller
// name.
func stronger(a, b *VPA) int {
	if a.Acts() != b.Acts() {
		if a.Acts() {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time),
		cmp.Compare(a.Object.Name, b.Object.Name),
	)
}
