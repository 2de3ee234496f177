package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of events.
const (
	EventEvicted      = "EvictedByVPA"         // on the pod
	EventEvictedPod   = "EvictedPod"           // on the VPA; on the SizingPolicy with counts
	EventResized      = "InPlaceResizedByVPA"  // on the pod
	EventNotResizable = "InPlaceResizeSkipped" // on the pod
	EventResizedPods  = "Resized"              // on the VPA and on the SizingPolicy, with counts

	// Of rollouts under a SizingPolicy; the first three on pod and VPA, the others on the VPA.
	EventReverted        = "Reverted" // on the SizingPolicy, too, with counts
	EventRevertDeferred  = "RevertDeferred"
	EventResizeFailed    = "ResizeFailed"
	EventResizeWithdrawn = "ResizeWithdrawn"
	EventCanaryPromoted  = "CanaryPromoted"
	EventCanaryHeld      = "CanaryHeld"
	EventCooldownActive  = "CooldownActive"
	EventScheduleSkipped = "ScheduleSkipped"
	EventHPAConflict     = "HPAConflict"
	EventPolicyConflict  = "PolicyConflict"
	EventResizeSkipped   = "ResizeSkipped"
	EventWorkloadOptOut  = "WorkloadOptOut"

	EventFuseTripped = "FuseTripped" // on the SizingPolicy
)

// Object is a pod, VPA or SizingPolicy.
type Object interface {
	runtime.Object
	metav1.Object
}

// Details are annotations of an event. They hold what differs between pods, so that the events of a workload have the
// same text: the event client counts equal events and drops others.
type Details map[string]string

// Recorder writes events. A dry run prints those about rollouts.
type Recorder interface {
	Event(about Object, reason, message string, details Details)
}
