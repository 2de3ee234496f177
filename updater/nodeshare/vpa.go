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

// VPA is a VPA with a policy that enables sharing.
type VPA struct {
	Decision   fleet.Decision    // with a policy
	Mode       fleet.SharingMode // fleet.Decision.SharingMode, or off if the recipe does not share
	ModeReason reason.Reason     // why Mode is below the policy's mode; empty: equal
	Settings   fleet.Sharing
	Rule       sharing.Rule // of the recipe
	Kind       string       // of the workload
	Created    time.Time    // of the workload

	ShortHistory bool // the policy requires more usage history
	NeverEvicts  bool // it never evicts, even if its policy does

	// The caller of NewVPA sets these.
	ScaledByHPA sizing.HPAResources // resources that HorizontalPodAutoscalers scale on
	MinAge      time.Duration       // minimum age of the workload; 0: sharing.MinAge
	Outdated    bool                // the recommendation is unreadable or for another target
	Sizing      Sizing

	KeepsCPULimit bool // a ResourceQuota counts CPU limits, so pods keep them

	status *vpav1.RecommendedPodResources
	// raisedRecipe is the annotation's recipe if its floors for a pod exceed the policy's.
	raisedRecipe *recipe.Recipe
}

// Sizing is a recommendation and its limits.
type Sizing struct {
	Recommendation map[string]resources.Bounds
	Floors         map[string]resources.List // minimum by container, included in Recommendation
	Rules          policy.Rules
	Ranges         *policy.Ranges // of the namespace, shared by its VPAs
}

// NewVPA reads a VPA under a sharing policy. state is the stored rollout in mode Canary.
func NewVPA(vpa *vpav1.VerticalPodAutoscaler, d *fleet.Decision, w *target.Workload, state *rollout.State, book *recipe.Cache) VPA {
	v := VPA{status: vpa.Status.Recommendation, Decision: *d, Settings: d.Policy.Sharing, Kind: w.Key.Kind, Created: w.Created}
	if v.Created.IsZero() { // unknown
		v.Created = vpa.CreationTimestamp.Time
	}
	v.ShortHistory = convert.AnyHasShortHistory(vpa, d.Policy.MinHistory)
	v.NeverEvicts = convert.Mode(vpa) == vpav1.UpdateModeInPlace && !convert.IsGenerated(vpa)
	v.Mode, v.ModeReason = d.SharingMode(d.Mode == fleet.Canary && state.Phase == rollout.PhaseFullRollout && state.Hash == d.Policy.RolloutHash)
	chosen := book.Choose(d.RecipeText(vpa.Annotations[recipe.Annotation]), d.Policy.Recipe)
	if chosen.Source == recipe.FromAnnotation && hasHigherFloor(chosen.Recipe, book.Choose("", d.Policy.Recipe).Recipe) {
		v.raisedRecipe = chosen.Recipe
	}
	if r := chosen.Sharing; r != nil {
		v.Rule = *r
	} else if v.Mode != fleet.SharingOff {
		v.Mode, v.ModeReason = fleet.SharingOff, reason.RecipeDoesNotShare
	}
	return v
}

func hasHigherFloor(a, b *recipe.Recipe) bool {
	floors, others := a.Minimum(1), b.Minimum(1)
	return floors.Value(resources.CPU) > others.Value(resources.CPU) || floors.Value(resources.Memory) > others.Value(resources.Memory)
}

// recipeFloors returns the floors of the annotation for each recommended container. Recommendations
// slightly above a floor count as floors, because the recommender rounds up.
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

// floorMargin divides a floor to get its maximum excess by rounding.
const floorMargin = 20

// Rank returns the eviction rank of the pods given their number, or sharing.Never.
func (v *VPA) Rank(replicas int) sharing.Rank {
	if !v.Settings.Evict || v.NeverEvicts {
		return sharing.Never
	}
	return v.Decision.Rank(v.Kind, replicas)
}

// recommendBase adds recommendations with the base as target, at least the floors after reverts.
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

// unraised is the base and the peak of a container before minAllowed or a recipe floor of the VPA
// raises them, as far as they can be derived. Otherwise a VPA author could reserve resources that
// the pod never uses.
type unraised struct{ base, peak resources.List }

func (v *VPA) unraised() func(container string) unraised {
	rule, uncapped, recipeFloors := v.Sizing.Rules.Lookup(), v.uncapped(), v.recipeFloors()
	return func(container string) (o unraised) {
		b, recommended := v.Sizing.Recommendation[container]
		if !recommended {
			return o
		}
		minAllowed, floors := rule(container).Min, v.Sizing.Floors[container]
		for k := range resources.Kind(resources.Kinds) {
			base, peak := b.Lower.Value(k), b.Target.Value(k)
			if raised := minAllowed.Value(k); raised > 0 {
				if base == raised { // the value before minAllowed is unknown
					base = 0
				}
				if uncappedTarget, known := uncapped(container).Get(k); known {
					peak = min(peak, uncappedTarget)
				} else if peak == raised {
					peak = 0
				}
				base = min(base, peak)
			}
			if floor := recipeFloors.Value(k); floor > 0 { // the value before the floor is unknown
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

// policyMaxAllowed returns zero limits unless maxAllowed of the policy applies to user VPAs.
func (v *VPA) policyMaxAllowed() func(container string) resources.List {
	if v.Settings.Max == nil {
		return func(string) resources.List { return resources.List{} }
	}
	rule := v.Settings.Max.Lookup()
	return func(container string) resources.List { return rule(container).Max }
}

const maxLinearSearch = 8

// uncapped returns the target of each container before the limits of the VPA.
func (v *VPA) uncapped() func(container string) resources.List {
	var all []vpav1.RecommendedContainerResources
	if v.status != nil {
		all = v.status.ContainerRecommendations
	}
	if len(all) > maxLinearSearch {
		named := make(map[string]resources.List, len(all))
		for i := range slices.Backward(all) { // the first entry of a name counts
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
