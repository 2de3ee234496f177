package model

import (
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// Guard stops panics of one step of a pass, so that a defect in the work on one VPA does
// not stop the others. The zero Guard stops none.
type Guard struct {
	step   string
	panics prometheus.Counter
}

// NewGuard returns a guard that counts by step.
func NewGuard(step string, panics *prometheus.CounterVec) Guard {
	return Guard{step, panics.WithLabelValues(step)} // to be seen also while it is 0
}

// Recover is deferred around the work on one VPA, or on a whole step, where v is nil. It
// logs a panic and counts it.
func (g Guard) Recover(v *VPA) {
	if g.panics == nil {
		return
	}
	defect := recover()
	if defect == nil {
		return
	}
	g.panics.Inc()
	vpa := "none"
	if v != nil && v.Object != nil {
		vpa = klog.KObj(v.Object).String()
	}
	klog.Background().Error(fmt.Errorf("%v", defect), "A defect of the recommender: please report it. Going on with the rest", "step", g.step, "vpa", vpa, "stack", string(debug.Stack()))
}
