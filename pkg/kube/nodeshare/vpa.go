package nodeshare

import (
	"maps"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// VPA is what a VPA whose policy wants its pods to share says about how they do. It must not be
// copied once a pod was read with it.
type VPA struct {
	Decision fleet.Decision // with a policy
	Mode     fleet.SharingMode
	Why      fleet.Reason // why that is less than the policy says; empty: it is not
	Settings fleet.Sharing
	Rule     sharing.Rule
	Kind     string    // of the workload
	Created  time.Time // so was the workload

	// What VPAOf leaves to the caller.
	Looked   sizing.LookedAt // at resources of the pods, by HorizontalPodAutoscalers
	MinAge   time.Duration   // that the workload must have to share; 0: sharing.MinAge
	Outdated bool            // what is recommended may be for another target, or cannot be read
	Sizing   Sizing

	bases map[string]resources.Bounds // see recommendsBase
}

// Sizing is what a VPA recommends, and what that is bounded by.
type Sizing struct {
	Recommendation map[string]resources.Bounds
	Floors         map[string]resources.List // by container, below which nothing is lowered; they count in the recommendation
	Rules          policy.Rules
	Ranges         policy.Ranges // of the namespace
}

// RecipeDoesNotShare is why pods of a VPA do not share, beside the reasons of package fleet.
const RecipeDoesNotShare fleet.Reason = "RecipeDoesNotShare"

// VPAOf returns what a VPA says for whose workload a policy is responsible that wants sharing. The
// state is what is remembered of a rollout in mode Canary; the book knows the recipes.
func VPAOf(vpa *vpav1.VerticalPodAutoscaler, d *fleet.Decision, w *target.Workload, state *rollout.State, book *recipe.Book) VPA {
	v := VPA{Decision: *d, Settings: d.Policy.Sharing, Kind: w.Key.Kind, Created: w.Created}
	if v.Created.IsZero() { // it is not known when the workload was
		v.Created = vpa.CreationTimestamp.Time
	}
	v.Mode, v.Why = d.Shares(d.Mode == fleet.Canary && state.Phase == rollout.PhaseFullRollout && state.Hash == d.Policy.RolloutHash)
	if r := book.Choose(vpa.Annotations[recipe.Annotation], d.Policy.Recipe).Sharing; r != nil {
		v.Rule = *r
	} else if v.Mode != fleet.SharingOff {
		v.Mode, v.Why = fleet.SharingOff, RecipeDoesNotShare
	}
	return v
}

// Rank returns in which order the pods of the workload leave, given how many there are; those that
// must not be evicted never do.
func (v *VPA) Rank(replicas int) sharing.Rank {
	if !v.Settings.Evict {
		return sharing.Never
	}
	return v.Decision.Rank(v.Kind, replicas)
}

// recommendsBase returns a recommendation of the base: what is never lowered below, as after a
// revert, is part of that.
func (v *VPA) recommendsBase() map[string]resources.Bounds {
	if v.bases != nil {
		return v.bases
	}
	v.bases = maps.Clone(v.Sizing.Recommendation)
	for name, b := range v.bases {
		floors := v.Sizing.Floors[name]
		for k := range resources.Kind(resources.Kinds) {
			if target, recommended := b.Target.Get(k); recommended {
				b.Target = b.Target.With(k, min(max(b.Lower.Value(k), floors.Value(k)), target))
			}
		}
		v.bases[name] = b
	}
	return v.bases
}
