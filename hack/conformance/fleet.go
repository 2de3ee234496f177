package main

import (
	"loadline.dev/loadline/pkg/core/fleet"
)

type conflictInput struct {
	Self        string
	SelfWeight  int
	Other       string
	OtherWeight int
}

type conflictOutput struct {
	SelfYields bool `json:"selfYields"`
}

// policyConflict resolves the responsible policy of a workload that two policies select. A weight
// is a priority.
func policyConflict(in conflictInput) (out conflictOutput, err error) {
	selects := func(name string, priority int) fleet.Policy {
		return fleet.Policy{Name: name, Priority: priority, Namespaces: fleet.Namespaces{Names: []string{"*"}},
			Workloads: []fleet.Match{{Group: "apps", Kind: "Deployment"}}}
	}
	set := fleet.NewSet([]fleet.Policy{selects(in.Self, in.SelfWeight), selects(in.Other, in.OtherWeight)}, fleet.Options{})
	d := set.Decide(fleet.Workload{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"})
	return conflictOutput{SelfYields: d.Policy.Name != in.Self}, nil
}
