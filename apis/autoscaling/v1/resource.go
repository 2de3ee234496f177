package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultContainerResourcePolicy is the container name of the policy for all containers without a
// policy of their own.
const DefaultContainerResourcePolicy = "*"

// PodResourcePolicy limits the recommendation for each container.
type PodResourcePolicy struct {
	// containerPolicies has at most one entry for each container, and optionally one named "*" for
	// all containers without an entry. An entry replaces the "*" entry as a whole: their fields are
	// not merged. If empty, all containers are sized without such limits.
	// +optional
	// +patchMergeKey=containerName
	// +patchStrategy=merge
	ContainerPolicies []ContainerResourcePolicy `json:"containerPolicies,omitempty" patchStrategy:"merge" patchMergeKey:"containerName"`
}

// ContainerResourcePolicy configures the sizing of one container. The recommender, the updater and
// the admission controller apply it.
type ContainerResourcePolicy struct {
	// containerName is the name of the container, or "*" for all containers without an entry of
	// their own. Must not be empty. Example: app.
	ContainerName string `json:"containerName,omitempty"`

	// mode enables the sizing of this container: "Auto" sizes it, "Off" leaves it unchanged and
	// removes it from the recommendation, which is useful for injected sidecars. Default: Auto.
	// +optional
	Mode *ContainerScalingMode `json:"mode,omitempty"`

	// minAllowed is the minimum recommendation. Lower recommendations are raised to it. CPU in
	// cores ("250m", whole millicores), memory in bytes ("64Mi"). A resource that is missing or
	// zero has no minimum. Default: none. Example: {cpu: 100m, memory: 128Mi}.
	// +optional
	MinAllowed corev1.ResourceList `json:"minAllowed,omitempty"`

	// maxAllowed is the maximum recommendation. Higher recommendations are lowered to it. Same
	// units as minAllowed, and not below it. A resource that is missing or zero has no maximum
	// here, but the recommender's flags can set one for all objects. Default: none. Example: {cpu:
	// "4", memory: 8Gi}.
	// +optional
	MaxAllowed corev1.ResourceList `json:"maxAllowed,omitempty"`

	// controlledResources are the resources to size. Other resources keep the value of the pod
	// template. Only "cpu" and "memory" are accepted. If absent, both are sized. If present and
	// empty, none is sized. Example for a workload whose CPU is managed by a horizontal autoscaler:
	// [memory].
	// +optional
	// +patchStrategy=merge
	ControlledResources *[]corev1.ResourceName `json:"controlledResources,omitempty" patchStrategy:"merge"`

	// controlledValues determines whether limits are sized. "RequestsAndLimits" scales a limit by
	// the same factor as its request. "RequestsOnly" leaves limits unchanged and keeps requests at
	// or below them. Default: RequestsAndLimits.
	// +optional
	ControlledValues *ContainerControlledValues `json:"controlledValues,omitempty"`

	// oomBumpUpRatio is the factor by which recorded memory usage is raised after the container ran
	// out of memory. oomMinBumpUp may raise it further. A plain number, at least 1. Default: the
	// recommender's flag --oom-bump-up-ratio (1.2). Requires the feature gate PerVPAConfig.
	// Example: "1.5".
	// +optional
	OOMBumpUpRatio *resource.Quantity `json:"oomBumpUpRatio,omitempty"`

	// oomMinBumpUp is the minimum number of bytes by which recorded memory usage is raised after
	// the container ran out of memory. Not negative. Default: the recommender's flag
	// --oom-min-bump-up-bytes (100Mi). Requires the feature gate PerVPAConfig. Example: 256Mi.
	// +optional
	OOMMinBumpUp *resource.Quantity `json:"oomMinBumpUp,omitempty"`

	// memoryAggregationIntervalSeconds is the length of one window of memory history in seconds.
	// The recommender stores the peak of each window. Shorter windows suit workloads that are
	// short-lived or change daily. At least 1. Default: the recommender's flag
	// --memory-aggregation-interval (24 hours). Requires the feature gate PerVPAConfig. Example:
	// 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MemoryAggregationIntervalSeconds *int32 `json:"memoryAggregationIntervalSeconds,omitempty"`

	// memoryAggregationIntervalCount is the number of windows in the memory history. Count times
	// seconds is the length of the history. At least 1. Default: the recommender's flag
	// --memory-aggregation-interval-count (8). Requires the feature gate PerVPAConfig. Example: 24.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MemoryAggregationIntervalCount *int64 `json:"memoryAggregationIntervalCount,omitempty"`

	// startupBoost raises the resources of this container during startup. It replaces
	// spec.startupBoost for this container. If absent, spec.startupBoost applies. Requires the
	// feature gate CPUStartupBoost in the admission controller.
	// +optional
	StartupBoost *StartupBoost `json:"startupBoost,omitempty"`
}

// ContainerScalingMode enables or disables the sizing of a container.
// +kubebuilder:validation:Enum=Auto;Off
type ContainerScalingMode string

const (
	// ContainerScalingModeAuto sizes the container. It is the default.
	ContainerScalingModeAuto ContainerScalingMode = "Auto"
	// ContainerScalingModeOff leaves the container unchanged.
	ContainerScalingModeOff ContainerScalingMode = "Off"
)

// ContainerControlledValues determines whether limits are scaled with requests.
// +kubebuilder:validation:Enum=RequestsAndLimits;RequestsOnly
type ContainerControlledValues string

const (
	// ContainerControlledValuesRequestsAndLimits scales limits by the same
	// factor as requests. It is the default.
	ContainerControlledValuesRequestsAndLimits ContainerControlledValues = "RequestsAndLimits"
	// ContainerControlledValuesRequestsOnly leaves limits unchanged.
	ContainerControlledValuesRequestsOnly ContainerControlledValues = "RequestsOnly"
)

// StartupBoost raises the resources of containers during startup. The admission controller adds the
// boost to a new pod, and the updater removes it.
type StartupBoost struct {
	// cpu is the boost of the CPU request. If absent, CPU is not boosted.
	// +optional
	CPU *GenericStartupBoost `json:"cpu,omitempty"`
}

// GenericStartupBoost is a boost of one resource.
//
// +kubebuilder:validation:XValidation:rule="(self.type == 'Factor') == has(self.factor)",message="factor is required when type is Factor and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Quantity') == has(self.quantity)",message="quantity is required when type is Quantity and forbidden otherwise"
type GenericStartupBoost struct {
	// type is the calculation: "Factor" multiplies the request by factor, "Quantity" adds quantity
	// to it. Required.
	Type StartupBoostType `json:"type"`

	// factor multiplies the request. A whole number, at least 1. Required with type "Factor",
	// forbidden otherwise. Example: with 3, a container with a recommended request of 200m starts
	// with 600m.
	// +optional
	Factor *int32 `json:"factor,omitempty"`

	// quantity is added to the request, in cores (whole millicores). Required with type "Quantity",
	// forbidden otherwise. Example: 500m.
	// +optional
	Quantity *resource.Quantity `json:"quantity,omitempty"`

	// durationSeconds is the duration of the boost in seconds after the pod becomes ready. Default:
	// 0, the boost ends when the pod is ready. Example: 30.
	// +optional
	DurationSeconds *int32 `json:"durationSeconds,omitempty"`
}

// StartupBoostType is the calculation of a boost.
// +kubebuilder:validation:Enum=Factor;Quantity
type StartupBoostType string

const (
	// StartupBoostTypeFactor multiplies the request.
	StartupBoostTypeFactor StartupBoostType = "Factor"
	// StartupBoostTypeQuantity adds to the request.
	StartupBoostTypeQuantity StartupBoostType = "Quantity"
)
