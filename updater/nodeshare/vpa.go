package nodeshare

import (
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// VPA is what a VPA whose policy wants its pods to share says about how they do.
type VPA struct {
	Decision fleet.Decision // with a policy
	Mode     fleet.SharingMode
	Why      reason.Reason // why that is less than the policy says; empty: it is not
	Settings fleet.Sharing
	Rule     sharing.Rule
	Kind     string    // of the workload
	Created  time.Time // so was the workload

	Short bool // the policy requires more usage behind the recommendation
	Stays bool // it never evicts, whatever its policy says

	// What VPAOf leaves to the caller.
	Looked   sizing.LookedAt // at resources of the pods, by HorizontalPodAutoscalers
	MinAge   time.Duration   // that the workload must have to share; 0: sharing.MinAge
	Outdated bool            // what is recommended may be for another target, or cannot be read
	Sizing   Sizing

	KeepsCPULimit bool // a ResourceQuota counts CPU limits, so running pods keep them as new pods do

	status *vpav1.RecommendedPodResources
	// raisedRecipe is the recipe of the annotation, if its floors for a pod are above those of the
	// policy.
	raisedRecipe *recipe.Recipe
}

// Sizing is what a VPA recommends, and what that is bounded by.
type Sizing struct {
	Recommendation map[string]resources.Bounds
	Floors         map[string]resources.List // by container, below which nothing is lowered; they count in the recommendation
	Rules          policy.Rules
	Ranges         *policy.Ranges // of the namespace; it is large, and one for all VPAs there
}

// VPAOf returns what a VPA says for whose workload a policy is responsible that wants sharing. The
// state is what is remembered of a rollout in mode Canary; the book knows the recipes.
func VPAOf(vpa *vpav1.VerticalPodAutoscaler, d *fleet.Decision, w *target.Workload, state *rollout.State, book *recipe.Book) VPA {
	v := VPA{status: vpa.Status.Recommendation, Decision: *d, Settings: d.Policy.Sharing, Kind: w.Key.Kind, Created: w.Created}
	if v.Created.IsZero() { // it is not known when the workload was
		v.Created = vpa.CreationTimestamp.Time
	}
	v.Short = convert.AnyHasShortHistory(vpa, d.Policy.MinHistory)
	v.Stays = convert.Mode(vpa) == vpav1.UpdateModeInPlace && !convert.MadeForPolicy(vpa)
	v.Mode, v.Why = d.Shares(d.Mode == fleet.Canary && state.Phase == rollout.PhaseFullRollout && state.Hash == d.Policy.RolloutHash)
	chosen := book.Choose(d.RecipeText(vpa.Annotations[recipe.Annotation]), d.Policy.Recipe)
	if chosen.Source == recipe.Asked && hasHigherFloor(chosen.Recipe, book.Choose("", d.Policy.Recipe).Recipe) {
		v.raisedRecipe = chosen.Recipe
	}
	if r := chosen.Sharing; r != nil {
		v.Rule = *r
	} else if v.Mode != fleet.SharingOff {
		v.Mode, v.Why = fleet.SharingOff, reason.RecipeDoesNotShare
	}
	return v
}

// hasHigherFloor reports whether recipe a has a floor above that of b.
func hasHigherFloor(a, b *recipe.Recipe) bool {
	floors, others := a.Minimum(1), b.Minimum(1)
	return floors.Value(resources.CPU) > others.Value(resources.CPU) || floors.Value(resources.Memory) > others.Value(resources.Memory)
}

// recipeFloors returns the floors that the annotation sets for each of the recommended containers.
// Recommendations that are hardly above them are floors, too: the recommender rounds up.
func (v *VPA) recipeFloors() (floors resources.List) {
	if v.raisedRecipe == nil {
		return floors
	}
	floors = v.raisedRecipe.Minimum(len(v.Sizing.Recommendation))
	for k := range resources.Kind(resources.Kinds) {
		floors = floors.With(k, floors.Value(k)+floors.Value(k)/floorMargin)
	}
	return floors
}

// floorMargin is the part of a floor by which a recommendation at the floor may exceed it.
const floorMargin = 20

// Rank returns in which order the pods of the workload leave, given how many there are; those that
// must not be evicted never do.
func (v *VPA) Rank(replicas int) sharing.Rank {
	if !v.Settings.Evict || v.Stays {
		return sharing.Never
	}
	return v.Decision.Rank(v.Kind, replicas)
}

// recommendBase adds a recommendation of the base: what is never lowered below, as after a revert, is
// part of that.
func (v *VPA) recommendBase(to map[string]resources.Bounds) {
	for name, b := range v.Sizing.Recommendation {
		floors := v.Sizing.Floors[name]
		for k := range resources.Kind(resources.Kinds) {
			if target, recommended := b.Target.Get(k); recommended {
				b.Target = b.Target.With(k, min(max(b.Lower.Value(k), floors.Value(k)), target))
			}
		}
		to[name] = b
	}
}

// own are base and peak of a container before minAllowed, or a floor of the recipe that the VPA
// names, raises them, as far as that is known. Otherwise a VPA author could reserve room that the
// pod never uses.
type own struct{ base, peak resources.List }

// owns returns what own is of each container.
func (v *VPA) owns() func(container string) own {
	rule, uncapped, lowest := v.Sizing.Rules.Lookup(), v.uncapped(), v.recipeFloors()
	return func(container string) (o own) {
		b, recommended := v.Sizing.Recommendation[container]
		if !recommended {
			return o
		}
		least, floors := rule(container).Min, v.Sizing.Floors[container]
		for k := range resources.Kind(resources.Kinds) {
			base, peak := b.Lower.Value(k), b.Target.Value(k)
			if raised := least.Value(k); raised > 0 {
				if base == raised { // it may have been anything less
					base = 0
				}
				if most, known := uncapped(container).Get(k); known {
					peak = min(peak, most)
				} else if peak == raised {
					peak = 0
				}
				base = min(base, peak)
			}
			if floor := lowest.Value(k); floor > 0 { // so may these
				if base <= floor {
					base = 0
				}
				if peak <= floor {
					peak = 0
				}
			}
			o.base, o.peak = o.base.With(k, max(base, floors.Value(k))), o.peak.With(k, max(peak, floors.Value(k)))
		}
		return o
	}
}

// policyMax returns the maxAllowed of the policy for each container, if it holds for user VPAs.
func (v *VPA) policyMax() func(container string) resources.List {
	if v.Settings.Max == nil {
		return func(string) resources.List { return resources.List{} }
	}
	rule := v.Settings.Max.Lookup()
	return func(container string) resources.List { return rule(container).Max }
}

// fewContainers is how many are searched faster one by one.
const fewContainers = 8

// uncapped returns what the target of each container is before any limit of the VPA.
func (v *VPA) uncapped() func(container string) resources.List {
	var all []vpav1.RecommendedContainerResources
	if v.status != nil {
		all = v.status.ContainerRecommendations
	}
	if len(all) > fewContainers {
		named := make(map[string]resources.List, len(all))
		for i := range slices.Backward(all) { // the first of a name counts
			named[all[i].ContainerName] = convert.Resources(all[i].UncappedTarget)
		}
		return func(container string) resources.List { return named[container] }
	}
	return func(container string) resources.List {
		for i := range all {
			if all[i].ContainerName == container {
				return convert.Resources(all[i].UncappedTarget)
			}
		}
		return resources.List{}
	}
}
