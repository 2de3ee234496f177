package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// PodUpdatePolicy says when and how a recommendation reaches pods. The
// admission controller acts on it for new pods, the updater for running ones.
type PodUpdatePolicy struct {
	// updateMode is how boldly pods are changed. Default: Recreate.
	//
	// "Off": never; only status shows the recommendation.
	// "Initial": at creation only; running pods are left alone.
	// "Recreate": at creation, and running pods that are far off are evicted so
	// that their controller creates them anew.
	// "InPlaceOrRecreate": at creation, and running pods are resized without a
	// restart where the node can do it; where it cannot, they are evicted. Needs
	// Kubernetes 1.33 or newer. A good choice for most workloads.
	// "InPlace": like InPlaceOrRecreate but never evicts: a pod that cannot be
	// resized stays as it is. Needs the feature gate InPlace in the admission
	// controller and the updater.
	// "Auto": deprecated, the same as Recreate.
	// +optional
	UpdateMode *UpdateMode `json:"updateMode,omitempty"`

	// minReplicas is how many pods of the workload must be alive before the
	// updater disrupts any of them; with fewer it waits. It protects workloads
	// that cannot spare a pod. Must be positive. Default: the updater's flag
	// --min-replicas (2). Set 1 to let a single pod be evicted.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// evictionRequirements are conditions that a change must meet before the
	// updater evicts a pod for it. All entries must hold. They do not restrict
	// what new pods get. When empty, there is no condition. Example, evict only
	// to give more memory:
	// [{resources: [memory], changeRequirement: TargetHigherThanRequests}].
	// +optional
	EvictionRequirements []*EvictionRequirement `json:"evictionRequirements,omitempty"`

	// evictAfterOOMSeconds is how soon after its start, in seconds, a container
	// must run out of memory for the updater to evict its pod at once, without
	// waiting for the pod to be old enough. At least 1. Default: the updater's
	// flag --evict-after-oom-threshold (10 minutes). Needs the feature gate
	// PerVPAConfig. Example: 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	EvictAfterOOMSeconds *int32 `json:"evictAfterOOMSeconds,omitempty"`
}

// UpdateMode is how boldly pods are changed.
// +kubebuilder:validation:Enum=Off;Initial;Recreate;InPlaceOrRecreate;InPlace;Auto
type UpdateMode string

const (
	// UpdateModeOff changes no pod; the recommendation is only shown.
	UpdateModeOff UpdateMode = "Off"
	// UpdateModeInitial sizes pods when they are created and never later.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeRecreate sizes new pods and evicts running ones that are far
	// off. It is the default.
	UpdateModeRecreate UpdateMode = "Recreate"
	// UpdateModeAuto is a deprecated name for UpdateModeRecreate.
	UpdateModeAuto UpdateMode = "Auto"
	// UpdateModeInPlaceOrRecreate sizes new pods, resizes running ones without
	// a restart, and evicts where that is not possible.
	UpdateModeInPlaceOrRecreate UpdateMode = "InPlaceOrRecreate"
	// UpdateModeInPlace sizes new pods, resizes running ones without a restart,
	// and never evicts.
	UpdateModeInPlace UpdateMode = "InPlace"
)

// EvictionRequirement is one condition that a change must meet before a pod is
// evicted for it.
type EvictionRequirement struct {
	// resources are the resources compared. The requirement holds when any one
	// of them changes in the required direction. Required. Example: [cpu,
	// memory].
	Resources []corev1.ResourceName `json:"resources"`

	// changeRequirement is the required direction: "TargetHigherThanRequests"
	// (the recommended target is above the pod's request) or
	// "TargetLowerThanRequests" (it is below). Required.
	ChangeRequirement EvictionChangeRequirement `json:"changeRequirement"`
}

// EvictionChangeRequirement is the direction in which a request must change.
// +kubebuilder:validation:Enum=TargetHigherThanRequests;TargetLowerThanRequests
type EvictionChangeRequirement string

const (
	// TargetHigherThanRequests requires that the pod would get more.
	TargetHigherThanRequests EvictionChangeRequirement = "TargetHigherThanRequests"
	// TargetLowerThanRequests requires that the pod would get less.
	TargetLowerThanRequests EvictionChangeRequirement = "TargetLowerThanRequests"
)
