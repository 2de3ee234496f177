package policies

import (
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/recommender/model"
)

// Follow gives the VPAs of a model what the policies say about their recommendations. As long
// as it is not known which policy is responsible, that stays as it was.
func Follow(policies *sizing.Policies, m *model.Model) {
	for _, v := range m.VPAs() {
		d := policies.For(v.Object)
		if d.Reason == reason.PolicyUnknown || d.Policy != nil && d.Policy.Unusable != "" {
			continue
		}
		var s model.Sizing
		if d.Policy != nil {
			s.Policy, s.Recipe = d.Policy.Name, d.Policy.Recipe
			s.OnlyRecipe = d.RestrictsUserVPAs() && v.Object.Annotations[recipe.Annotation] != ""
			// The recommendation of a VPA that a person wrote is never taken away.
			s.Observe = d.Mode == fleet.Observe && convert.MadeForPolicy(v.Object)
		}
		v.Sizing = s
	}
}
