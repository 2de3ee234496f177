package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultContainerResourcePolicy is the container name of the policy for every
// container that has none of its own.
const DefaultContainerResourcePolicy = "*"

// PodResourcePolicy limits the recommendation, container by container.
type PodResourcePolicy struct {
	// containerPolicies has at most one entry for each container, and
	// optionally one named "*" for all containers without an entry. An entry
	// replaces the "*" entry as a whole; their fields are not merged. When
	// empty, every container is sized without limits of this kind.
	// +optional
	// +patchMergeKey=containerName
	// +patchStrategy=merge
	ContainerPolicies []ContainerResourcePolicy `json:"containerPolicies,omitempty" patchStrategy:"merge" patchMergeKey:"containerName"`
}

// ContainerResourcePolicy says how one container is sized. The recommender,
// the updater and the admission controller all act on it.
type ContainerResourcePolicy struct {
	// containerName is the name of the container, or "*" for all containers
	// that have no entry of their own. Must not be empty. Example: app.
	ContainerName string `json:"containerName,omitempty"`

	// mode switches the sizing of this container: "Auto" sizes it, "Off" leaves
	// it alone and drops it from the recommendation (useful for injected
	// sidecars). Default: Auto.
	// +optional
	Mode *ContainerScalingMode `json:"mode,omitempty"`

	// minAllowed is the least that will be recommended: lower recommendations
	// are raised to it. CPU in cores ("250m"; whole millicores), memory in bytes
	// ("64Mi"). A resource that is missing or zero has no least value. Default:
	// none. Example: {cpu: 100m, memory: 128Mi}.
	// +optional
	MinAllowed corev1.ResourceList `json:"minAllowed,omitempty"`

	// maxAllowed is the most that will be recommended: higher recommendations
	// are lowered to it. Same units as minAllowed, and not below it. A resource
	// that is missing or zero has no greatest value here, though the
	// recommender's flags may set one for all objects. Default: none. Example:
	// {cpu: "4", memory: 8Gi}.
	// +optional
	MaxAllowed corev1.ResourceList `json:"maxAllowed,omitempty"`

	// controlledResources are the resources that are sized; others keep the
	// value of the pod template. Only "cpu" and "memory" are accepted. When
	// absent, both. When present and empty, neither is. Example, CPU belongs to
	// a horizontal autoscaler: [memory].
	// +optional
	// +patchStrategy=merge
	ControlledResources *[]corev1.ResourceName `json:"controlledResources,omitempty" patchStrategy:"merge"`

	// controlledValues says whether limits follow: "RequestsAndLimits" scales a
	// limit by the same factor as its request, "RequestsOnly" leaves limits
	// alone (requests are then kept at or below them). Default:
	// RequestsAndLimits.
	// +optional
	ControlledValues *ContainerControlledValues `json:"controlledValues,omitempty"`

	// oomBumpUpRatio is the factor by which remembered memory is raised after
	// the container ran out of memory; oomMinBumpUp may raise it further. A
	// plain number, at least 1. Default: the recommender's flag
	// --oom-bump-up-ratio (1.2). Needs the feature gate PerVPAConfig. Example:
	// "1.5".
	// +optional
	OOMBumpUpRatio *resource.Quantity `json:"oomBumpUpRatio,omitempty"`

	// oomMinBumpUp is the least number of bytes by which remembered memory is
	// raised after the container ran out of memory. Not negative. Default: the
	// recommender's flag --oom-min-bump-up-bytes (100Mi). Needs the feature gate
	// PerVPAConfig. Example: 256Mi.
	// +optional
	OOMMinBumpUp *resource.Quantity `json:"oomMinBumpUp,omitempty"`

	// memoryAggregationIntervalSeconds is the length, in seconds, of one window
	// of memory history; of each window the recommender remembers the peak.
	// Shorter windows suit short-lived or daily changing workloads. At least 1.
	// Default: the recommender's flag --memory-aggregation-interval (24 hours).
	// Needs the feature gate PerVPAConfig. Example: 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MemoryAggregationIntervalSeconds *int32 `json:"memoryAggregationIntervalSeconds,omitempty"`

	// memoryAggregationIntervalCount is how many such windows the recommender
	// looks back. Count times seconds is the length of the memory history. At
	// least 1. Default: the recommender's flag
	// --memory-aggregation-interval-count (8). Needs the feature gate
	// PerVPAConfig. Example: 24.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MemoryAggregationIntervalCount *int64 `json:"memoryAggregationIntervalCount,omitempty"`

	// startupBoost gives this container more while it starts. It replaces
	// spec.startupBoost for this container. It needs the feature gate
	// CPUStartupBoost in the admission controller. When absent,
	// spec.startupBoost holds.
	// +optional
	StartupBoost *StartupBoost `json:"startupBoost,omitempty"`
}

// ContainerScalingMode switches the sizing of a container.
// +kubebuilder:validation:Enum=Auto;Off
type ContainerScalingMode string

const (
	// ContainerScalingModeAuto sizes the container. It is the default.
	ContainerScalingModeAuto ContainerScalingMode = "Auto"
	// ContainerScalingModeOff leaves the container alone.
	ContainerScalingModeOff ContainerScalingMode = "Off"
)

// ContainerControlledValues says whether limits follow requests.
// +kubebuilder:validation:Enum=RequestsAndLimits;RequestsOnly
type ContainerControlledValues string

const (
	// ContainerControlledValuesRequestsAndLimits scales limits by the same
	// factor as requests. It is the default.
	ContainerControlledValuesRequestsAndLimits ContainerControlledValues = "RequestsAndLimits"
	// ContainerControlledValuesRequestsOnly leaves limits alone.
	ContainerControlledValuesRequestsOnly ContainerControlledValues = "RequestsOnly"
)

// StartupBoost gives containers more while they start. The admission controller
// adds the boost to a new pod, the updater takes it back.
type StartupBoost struct {
	// cpu is the boost of the CPU request. When absent, CPU is not boosted.
	// +optional
	CPU *GenericStartupBoost `json:"cpu,omitempty"`
}

// GenericStartupBoost is a boost of one resource.
//
// +kubebuilder:validation:XValidation:rule="(self.type == 'Factor') == has(self.factor)",message="factor is required when type is Factor and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Quantity') == has(self.quantity)",message="quantity is required when type is Quantity and forbidden otherwise"
type GenericStartupBoost struct {
	// type chooses the arithmetic: "Factor" multiplies the request by factor,
	// "Quantity" adds quantity to it. Required.
	Type StartupBoostType `json:"type"`

	// factor multiplies the request. A whole number, at least 1. Required with
	// type "Factor", refused otherwise. Example: 3 starts a container that is to
	// run with 200m at 600m.
	// +optional
	Factor *int32 `json:"factor,omitempty"`

	// quantity is added to the request, in cores (whole millicores). Required
	// with type "Quantity", refused otherwise. Example: 500m.
	// +optional
	Quantity *resource.Quantity `json:"quantity,omitempty"`

	// durationSeconds is how long, in seconds, the boost stays after the pod
	// has become ready. Default: 0, until the pod is ready. Example: 30.
	// +optional
	DurationSeconds *int32 `json:"durationSeconds,omitempty"`
}

// StartupBoostType is the arithmetic of a boost.
// +kubebuilder:validation:Enum=Factor;Quantity
type StartupBoostType string

const (
	// StartupBoostTypeFactor multiplies the request.
	StartupBoostTypeFactor StartupBoostType = "Factor"
	// StartupBoostTypeQuantity adds to the request.
	StartupBoostTypeQuantity StartupBoostType = "Quantity"
)
