package main

import (
	"fmt"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/resources"
)

// floors are low because higher ones hide the differences between recipes on small containers.
const floors = "pod-min-cpu=10,pod-min-memory=8"

func withFloors(name string) string {
	if strings.Contains(name, ":") {
		return name + "," + floors
	}
	return name + ":" + floors
}

// shortName returns a recipe without the common floors.
func shortName(recipe string) string {
	return strings.TrimRight(strings.TrimSuffix(recipe, floors), ",:")
}

var (
	upstreamDefault = withFloors("vpa") // the reference with default settings
	loadlineDefault = withFloors("loadline")
	tracking        = withFloors("loadline:cpu=tracking")
	safe            = withFloors("loadline:memory=safe")
)

// resourceSet is the set of resources for which a preset differs from others.
type resourceSet [resources.Kinds]bool

var (
	forCPU    = resourceSet{resources.CPU: true}
	forMemory = resourceSet{resources.Memory: true}
	forBoth   = resourceSet{resources.CPU: true, resources.Memory: true}
)

type preset struct {
	recipe string
	kinds  resourceSet
}

// presets are the compared and gated recipes, in the order of tables.
var presets = []preset{
	{recipe: "vpa", kinds: forBoth},
	{recipe: "loadline", kinds: forBoth},
	{recipe: "loadline:cpu=calm-lean", kinds: forCPU},
	{recipe: "loadline:cpu=calm-safe", kinds: forCPU},
	{recipe: "loadline:cpu=tracking", kinds: forCPU},
	{recipe: "loadline:cpu=tracking-lean", kinds: forCPU},
	{recipe: "loadline:cpu=tracking-safe", kinds: forCPU},
	{recipe: "loadline:cpu=mixed", kinds: forCPU},
	{recipe: "loadline:sustained-minutes=0", kinds: forCPU}, // a single burst counts
	{recipe: "loadline:memory=lean", kinds: forMemory},
	{recipe: "loadline:memory=equal", kinds: forMemory},
	{recipe: "loadline:memory=safe", kinds: forMemory},
	{recipe: "loadline:memory=following", kinds: forMemory},
	{recipe: "loadline:margin=0.1", kinds: forMemory}, // for every limit
	{recipe: "autopilot", kinds: forBoth},
	{recipe: "autopilot:models=ensemble", kinds: forBoth},
	{recipe: "attune", kinds: forBoth},
	{recipe: "attune-published", kinds: forBoth},
	{recipe: "crane", kinds: forBoth},
	{recipe: "cruisekube", kinds: forBoth},
}

// presetRecipes returns the presets of a resource with floors, in the order of tables.
func presetRecipes(k resources.Kind) (names []string) {
	for _, p := range presets {
		if p.kinds[k] {
			names = append(names, withFloors(p.recipe))
		}
	}
	return names
}

// The settings of upstreamSweep. The best of them is chosen with hindsight, which is better than
// any choice of flags in advance.
var (
	cpuShares     = []float64{0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1}
	cpuMargins    = []float64{0, 0.15, 0.30}
	memoryShares  = []float64{0.8, 0.9, 0.95, 1}
	memoryMargins = []float64{0, 0.05, 0.10, 0.15, 0.20, 0.30, 0.50, 0.75, 1, 2}
)

// upstreamSweep returns the reference recipe with all compared settings.
func upstreamSweep(k resources.Kind) (all []string) {
	shares, margins := cpuShares, cpuMargins
	if k == resources.Memory {
		shares, margins = memoryShares, memoryMargins
	}
	for _, share := range shares {
		for _, margin := range margins {
			all = append(all, withFloors(fmt.Sprintf("vpa:target-%s=%g,margin=%g", k, share, margin)))
		}
	}
	return all
}

// loadlineCurves are the presets of our recipe by increasing risk. The settings at both ends are
// not presets: they give the reference's default neighbours in every draw of containers.
var loadlineCurves = [resources.Kinds][]string{
	resources.CPU: {withFloors("loadline:share=0.5,fast-share=0.35"), withFloors("loadline:cpu=calm-lean"), loadlineDefault,
		withFloors("loadline:cpu=calm-safe"), withFloors("loadline:share=0.93,fast-share=0.8")},
	resources.Memory: {withFloors("loadline:memory=lean,margin=-0.2"), withFloors("loadline:memory=lean,margin=-0.1"), withFloors("loadline:memory=lean"),
		withFloors("loadline:memory=equal"), loadlineDefault, safe},
}

func pageRecipes(k resources.Kind) []string {
	all := slices.Concat(presetRecipes(k), upstreamSweep(k))
	for _, name := range loadlineCurves[k] {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
