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
func short(recipe string) string {
	return strings.TrimRight(strings.TrimSuffix(recipe, floors), ",:")
}

var (
	standard = withFloors("vpa") // the reference with default settings
	ours     = withFloors("loadline")
	tracking = withFloors("loadline:cpu=tracking")
	safe     = withFloors("loadline:memory=safe")
)

// resourceSet is the set of resources for which a preset differs from others.
type kinds [resources.Kinds]bool

var (
	forCPU    = kinds{resources.CPU: true}
	forMemory = kinds{resources.Memory: true}
	forBoth   = kinds{resources.CPU: true, resources.Memory: true}
)

type preset struct {
	recipe string
	of     kinds
}

// presets are the compared and gated recipes, in the order of tables.
var presets = []preset{
	{recipe: "vpa", of: forBoth},
	{recipe: "loadline", of: forBoth},
	{recipe: "loadline:cpu=calm-lean", of: forCPU},
	{recipe: "loadline:cpu=calm-safe", of: forCPU},
	{recipe: "loadline:cpu=tracking", of: forCPU},
	{recipe: "loadline:cpu=tracking-lean", of: forCPU},
	{recipe: "loadline:cpu=tracking-safe", of: forCPU},
	{recipe: "loadline:cpu=mixed", of: forCPU},
	{recipe: "loadline:sustained-minutes=0", of: forCPU}, // a single burst counts
	{recipe: "loadline:memory=lean", of: forMemory},
	{recipe: "loadline:memory=equal", of: forMemory},
	{recipe: "loadline:memory=safe", of: forMemory},
	{recipe: "loadline:memory=following", of: forMemory},
	{recipe: "loadline:margin=0.1", of: forMemory}, // for every limit
	{recipe: "autopilot", of: forBoth},
	{recipe: "autopilot:models=ensemble", of: forBoth},
	{recipe: "attune", of: forBoth},
	{recipe: "attune-published", of: forBoth},
	{recipe: "crane", of: forBoth},
	{recipe: "cruisekube", of: forBoth},
}

// presetRecipes returns the presets of a resource with floors, in the order of tables.
func compared(k resources.Kind) (names []string) {
	for _, p := range presets {
		if p.of[k] {
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
func sweep(k resources.Kind) (all []string) {
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
var ourCurves = [resources.Kinds][]string{
	resources.CPU: {withFloors("loadline:share=0.5,fast-share=0.35"), withFloors("loadline:cpu=calm-lean"), ours,
		withFloors("loadline:cpu=calm-safe"), withFloors("loadline:share=0.93,fast-share=0.8")},
	resources.Memory: {withFloors("loadline:memory=lean,margin=-0.2"), withFloors("loadline:memory=lean,margin=-0.1"), withFloors("loadline:memory=lean"),
		withFloors("loadline:memory=equal"), ours, safe},
}

func studied(k resources.Kind) []string {
	all := slices.Concat(compared(k), sweep(k))
	for _, name := range ourCurves[k] {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
