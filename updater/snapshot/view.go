package snapshot

import (
	"loadline.dev/loadline/pkg/core/disruption"
)

// View is the input of disruption.Plan: the VPAs whose pods may change. VPAs whose policy is gone are in it with the pods
// that have a share mark, and are held.
type View struct {
	disruption.View

	// By VPA of the view: its index among all VPAs, and the states of its pods in their order.
	Index  []int
	States [][]*State

	Skipped []disruption.Skip // pods outside of the view
}
