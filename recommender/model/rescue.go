package model

import (
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// Rescue returns what is deferred around the work on one VPA, or on a whole step,
// called with nil. It stops a panic, logs it and counts it by step.
func Rescue(step string, panics *prometheus.CounterVec) func(*VPA) {
	counter := panics.WithLabelValues(step) // to be seen also while it is 0
	return func(v *VPA) {
		defect := recover()
		if defect == nil {
			return
		}
		counter.Inc()
		vpa := "none"
		if v != nil {
			vpa = klog.KObj(v.Object).String()
		}
		klog.Background().Error(fmt.Errorf("%v", defect), "A defect of the recommender: please report it. Going on with the rest", "step", step, "vpa", vpa, "stack", string(debug.Stack()))
	}
}
