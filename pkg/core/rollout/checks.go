package rollout

import (
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// RollingOut reports whether a workload is being rolled out: fewer of its pods than wanted
// have the newest template, or are available.
func RollingOut(wanted, updated, available int) bool { return updated < wanted || available < wanted }

// Node is what the node of a pod says of itself. The zero value is one that cannot be read.
type Node struct {
	Known             bool
	Size              resources.List // what pods may have in all; a kind that is absent is not looked at
	MemoryPressure    bool
	DiskOrPIDPressure bool
}

// holds says why the node lets a pod not grow; empty: it does, or nothing grows.
func (n Node) holds(grows [resources.Kinds]bool) reason.Reason {
	switch {
	case !grows[resources.CPU] && !grows[resources.Memory]:
		return ""
	case !n.Known:
		return reason.NodeUnknown
	case n.DiskOrPIDPressure, n.MemoryPressure && grows[resources.Memory]:
		return reason.NodePressure
	}
	return ""
}

// holdsMemory reports whether the node lets memory not grow.
func (n Node) holdsMemory() bool { return n.holds([resources.Kinds]bool{resources.Memory: true}) != "" }

// MemoryMargin is how much of the memory that a container uses its limit must be above
// that, in percent, when it is lowered.
const MemoryMargin = 10

// LiftMemory returns what a container gets whose memory limit is to fall: a limit not below
// what it uses and a margin in percent of that, at least a byte, and not above what it has.
// A request that equals its limit goes on doing so.
func LiftMemory(has policy.Container, gets policy.ContainerTarget, used resources.Amount, margin int) policy.ContainerTarget {
	before := has.Limits.Value(resources.Memory)
	limit, ok := gets.Limits.Get(resources.Memory)
	if !ok || before <= 0 || limit >= before {
		return gets
	}
	least, _ := used.ProportionUp(resources.Amount(100+margin), 100)
	least = min(max(least, used.Add(1)), before)
	if limit >= least {
		return gets
	}
	gets.Limits = gets.Limits.With(resources.Memory, least)
	if request, ok := has.Requests.Get(resources.Memory); ok && request == before && gets.Requests.Has(resources.Memory) {
		gets.Requests = gets.Requests.With(resources.Memory, least)
	}
	return gets
}
