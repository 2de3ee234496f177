package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// PodUpdatePolicy defines when and how a recommendation is applied to pods. The admission
// controller applies it to new pods, the updater to running ones.
type PodUpdatePolicy struct {
	// updateMode is the way pods are changed. Default: Recreate.
	//
	// - "Off": never. Only status shows the recommendation.
	// - "Initial": at creation only. Running pods are unchanged.
	// - "Recreate": at creation. Running pods that deviate far from the recommendation are evicted,
	//   so that their controller creates them again.
	// - "InPlaceOrRecreate": at creation. Running pods are resized without a restart if the node
	//   can do it, otherwise they are evicted. Requires Kubernetes 1.33 or newer. A good choice for
	//   most workloads.
	// - "InPlace": like InPlaceOrRecreate, but without evictions. A pod that cannot be resized is
	//   unchanged. Requires the feature gate InPlace in the admission controller and the updater.
	// - "Auto": deprecated, the same as Recreate.
	// +optional
	UpdateMode *UpdateMode `json:"updateMode,omitempty"`

	// minReplicas is the minimum number of live pods of the workload for the updater to disrupt any
	// of them. It protects workloads that cannot spare a pod. Must be positive. Default: the
	// updater's flag --min-replicas (2). Set it to 1 to allow the eviction of a single pod.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// evictionRequirements are conditions that a change must meet before the updater evicts a pod
	// for it. All entries must be met. They do not affect new pods. If empty, there are no
	// conditions. Example for evictions only to increase memory: [{resources: [memory],
	// changeRequirement: TargetHigherThanRequests}].
	// +optional
	EvictionRequirements []*EvictionRequirement `json:"evictionRequirements,omitempty"`

	// evictAfterOOMSeconds is the time after a container start, in seconds. If the container runs
	// out of memory within it, the updater evicts the pod at once, regardless of the pod's age. At
	// least 1. Default: the updater's flag --evict-after-oom-threshold (10 minutes). Requires the
	// feature gate PerVPAConfig. Example: 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	EvictAfterOOMSeconds *int32 `json:"evictAfterOOMSeconds,omitempty"`
}

// UpdateMode is the way pods are changed.
// +kubebuilder:validation:Enum=Off;Initial;Recreate;InPlaceOrRecreate;InPlace;Auto
type UpdateMode string

const (
	// UpdateModeOff changes no pod and only shows the recommendation.
	UpdateModeOff UpdateMode = "Off"
	// UpdateModeInitial sizes pods only at creation.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeRecreate sizes new pods and evicts running pods that deviate far from the
	// recommendation. It is the default.
	UpdateModeRecreate UpdateMode = "Recreate"
	// UpdateModeAuto is a deprecated name for UpdateModeRecreate.
	UpdateModeAuto UpdateMode = "Auto"
	// UpdateModeInPlaceOrRecreate sizes new pods, resizes running pods without a restart, and
	// evicts pods that cannot be resized.
	UpdateModeInPlaceOrRecreate UpdateMode = "InPlaceOrRecreate"
	// UpdateModeInPlace sizes new pods, resizes running pods without a restart, and never evicts.
	UpdateModeInPlace UpdateMode = "InPlace"
)

// EvictionRequirement is one condition that a change must meet before a pod is evicted for it.
type EvictionRequirement struct {
	// resources are the resources to compare. The requirement is met if any of them changes in the
	// required direction. Required. Example: [cpu, memory].
	Resources []corev1.ResourceName `json:"resources"`

	// changeRequirement is the required direction. "TargetHigherThanRequests" means that the
	// recommended target is above the pod's request, "TargetLowerThanRequests" that it is below.
	// Required.
	ChangeRequirement EvictionChangeRequirement `json:"changeRequirement"`
}

// EvictionChangeRequirement is the direction in which a request must change.
// +kubebuilder:validation:Enum=TargetHigherThanRequests;TargetLowerThanRequests
type EvictionChangeRequirement string

const (
	// TargetHigherThanRequests requires an increase of the request.
	TargetHigherThanRequests EvictionChangeRequirement = "TargetHigherThanRequests"
	// TargetLowerThanRequests requires a decrease of the request.
	TargetLowerThanRequests EvictionChangeRequirement = "TargetLowerThanRequests"
)
