// Package explanation holds the JSON API by which the programs explain recommendations and pods on their
// metrics ports, and the plugin reads them.
//
// Explain evaluates a recipe for one container and keeps each step. Handler serves explanations of single objects.
package explanation

import (
	"math"
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

// Paths of the API.
const (
	VPAPath   = "/explain/vpa"   // of the recommender
	PodPath   = "/explain/pod"   // of the updater
	SkipsPath = "/explain/skips" // of the updater
)

// VPA explains the recommendation of a VPA.
type VPA struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Recipe     Recipe      `json:"recipe"`
	Held       string      `json:"held,omitempty"` // why targets are not lowered
	Containers []Container `json:"containers"`     // sorted by name
}

// Recipe is the recipe of a VPA and its origin.
type Recipe struct {
	Name    string        `json:"name"`
	Source  recipe.Source `json:"source"`
	Text    string        `json:"text,omitempty"` // of the annotation or the policy, if it is valid
	Problem string        `json:"problem,omitempty"`
}

// RecipeOf describes a choice.
func RecipeOf(c *recipe.Choice) Recipe {
	r := Recipe{Name: c.Name, Source: c.Source, Problem: c.Problem}
	if r.Problem == "" { // an invalid text has no maximum length
		r.Text = c.Text
	}
	return r
}

// Container explains the recommendation of a container.
type Container struct {
	Name       string    `json:"name"`
	LastSample time.Time `json:"lastSample,omitzero"`
	CPU        Resource  `json:"cpu"`
	Memory     Resource  `json:"memory"`
	// Incomplete: the recipe needs data that is not known besides the histograms.
	Incomplete   bool   `json:"incomplete,omitempty"`
	MemoryGrowth string `json:"memoryGrowth,omitempty"`
	// MinimumCPU is the least usage in millicores that counts under a CPU limit, because the limit was too low for
	// bursts.
	MinimumCPU float64 `json:"minimumCPU,omitempty"`
	// MemoryLimitRatio is the declared memory limit divided by the declared request, 0 if there is none. It is set if
	// limits do not follow requests: then the upper bound of memory is what a limit protects.
	MemoryLimitRatio *float64                             `json:"memoryLimitRatio,omitempty"`
	Published        *vpav1.RecommendedContainerResources `json:"published,omitempty"`
}

// Resource explains the bounds of CPU, in millicores, or of memory, in bytes.
type Resource struct {
	Target     []Step  `json:"target"`
	LowerBound []Step  `json:"lowerBound"`
	UpperBound []Step  `json:"upperBound"`
	Points     *Points `json:"points,omitempty"` // of recipes that need a number of them
}

// Points are numbers of points of five minutes: those that exist, and those that a recommendation needs.
type Points struct {
	Have int `json:"have"`
	Want int `json:"want"`
}

// Step is the amount after a step of a recipe.
type Step struct {
	Step   string  `json:"step"`
	Amount float64 `json:"amount"`
}

// Resource returns the part for a kind.
func (c *Container) Resource(k resources.Kind) *Resource {
	if k == resources.CPU {
		return &c.CPU
	}
	return &c.Memory
}

// Explain explains the recommendation that a recipe makes from an input. It also returns the recommendation.
func Explain(name string, r *recipe.Recipe, in recipe.Input) (Container, recipe.Result) {
	c, result, steps := Container{Name: name}, r.Recommend(in), r.Explain(in)
	if in.Profile != nil {
		c.LastSample = in.Profile.Last()
	}
	for k := range resources.Kind(resources.Kinds) {
		*c.Resource(k) = Resource{Target: stepsOf(steps.Target[k]), LowerBound: stepsOf(steps.Lower[k]), UpperBound: stepsOf(steps.Upper[k])}
		if p := result.Points[k]; p.Want > 0 {
			c.Resource(k).Points = &Points{p.Have, p.Want}
		}
	}
	if !r.Needs.Any() {
		return c, result
	}
	ratio := 0.0
	if s := in.Sketch; s == nil {
		c.Incomplete = true
	} else {
		_, cpu := s.Covers(resources.CPU)
		_, memory := s.Covers(resources.Memory)
		c.Incomplete, c.MinimumCPU = !cpu && !memory, s.HeldBack()
		if s.Peaks != nil {
			if g := s.Peaks.Growth(); g.Days > 0 {
				c.MemoryGrowth = g.String()
			}
		}
		ratio, _ = s.LimitRatio.Ratio()
	}
	if r.SeparateMemoryLimit {
		c.MemoryLimitRatio = &ratio
	}
	return c, result
}

// Published returns the published recommendation for a container of a VPA, or nil.
func Published(v *vpav1.VerticalPodAutoscaler, container string) *vpav1.RecommendedContainerResources {
	if v.Status.Recommendation == nil {
		return nil
	}
	list := v.Status.Recommendation.ContainerRecommendations
	if i := slices.IndexFunc(list, func(c vpav1.RecommendedContainerResources) bool { return c.ContainerName == container }); i >= 0 {
		return &list[i]
	}
	return nil
}

// stepsOf returns steps with amounts that JSON can represent.
func stepsOf(values []recipe.Value) []Step {
	steps := make([]Step, len(values))
	for i, v := range values {
		if steps[i] = Step(v); math.IsNaN(v.Amount) || math.IsInf(v.Amount, 0) {
			steps[i].Amount = float64(resources.FromFloat(v.Amount))
		}
	}
	return steps
}

// Skips holds the UIDs of skipped pods by reason.
type Skips struct {
	Reasons map[reason.Reason][]string `json:"reasons"`
}
