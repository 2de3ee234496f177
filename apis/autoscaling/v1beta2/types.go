package v1beta2

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// VerticalPodAutoscaler adjusts the CPU and memory requests of the pods of one workload to their
// usage. This version is no longer served. Use autoscaling.k8s.io/v1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:deprecatedversion:warning="autoscaling.k8s.io/v1beta2 API is deprecated"
// +kubebuilder:resource:shortName=vpa
// +kubebuilder:subresource:status
type VerticalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired behavior: which pods to size, within which limits, and how to update
	// running pods. Required.
	Spec VerticalPodAutoscalerSpec `json:"spec"`

	// status is the state reported by the recommender.
	// +optional
	Status VerticalPodAutoscalerStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerList is a list of VerticalPodAutoscaler objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VerticalPodAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of objects.
	Items []VerticalPodAutoscaler `json:"items"`
}

// VerticalPodAutoscalerSpec defines which pods to size, within which limits, and how to update
// running pods.
type VerticalPodAutoscalerSpec struct {
	// targetRef is the workload to size, in the namespace of this object. Required. Example:
	// {apiVersion: apps/v1, kind: Deployment, name: web}.
	TargetRef *autoscalingv1.CrossVersionObjectReference `json:"targetRef"`

	// updatePolicy defines when and how the recommendation is applied to pods. If absent, the mode
	// is "Recreate".
	// +optional
	UpdatePolicy *PodUpdatePolicy `json:"updatePolicy,omitempty"`

	// resourcePolicy limits the recommendation for each container. If absent, CPU and memory of all
	// containers are sized without such limits.
	// +optional
	ResourcePolicy *PodResourcePolicy `json:"resourcePolicy,omitempty"`
}

// PodUpdatePolicy defines when and how a recommendation is applied to pods.
type PodUpdatePolicy struct {
	// updateMode is the way pods are changed: "Off" (never), "Initial" (only at creation),
	// "Recreate" (at creation, and running pods that deviate far from the recommendation are
	// evicted) or "Auto" (the same as Recreate). Default: Recreate.
	// +optional
	UpdateMode *UpdateMode `json:"updateMode,omitempty"`
}

// UpdateMode is the way pods are changed.
// +kubebuilder:validation:Enum=Off;Initial;Recreate;Auto
type UpdateMode string

const (
	// UpdateModeOff changes no pod and only shows the recommendation.
	UpdateModeOff UpdateMode = "Off"
	// UpdateModeInitial sizes pods only at creation.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeRecreate sizes new pods and evicts running pods that deviate far from the
	// recommendation.
	UpdateModeRecreate UpdateMode = "Recreate"
	// UpdateModeAuto is the same as UpdateModeRecreate.
	UpdateModeAuto UpdateMode = "Auto"
)

// PodResourcePolicy limits the recommendation for each container.
type PodResourcePolicy struct {
	// containerPolicies has at most one entry for each container, and optionally one named "*" for
	// all containers without an entry.
	// +optional
	// +patchMergeKey=containerName
	// +patchStrategy=merge
	ContainerPolicies []ContainerResourcePolicy `json:"containerPolicies,omitempty" patchStrategy:"merge" patchMergeKey:"containerName"`
}

// ContainerResourcePolicy configures the sizing of one container.
type ContainerResourcePolicy struct {
	// containerName is the name of the container, or "*" for all containers without an entry of
	// their own. Example: app.
	ContainerName string `json:"containerName,omitempty"`

	// mode enables the sizing of this container: "Auto" sizes it, "Off" leaves it unchanged.
	// Default: Auto.
	// +optional
	Mode *v1.ContainerScalingMode `json:"mode,omitempty"`

	// minAllowed is the minimum recommendation, with CPU in cores and memory in bytes. Default:
	// none. Example: {cpu: 100m, memory: 128Mi}.
	// +optional
	MinAllowed corev1.ResourceList `json:"minAllowed,omitempty"`

	// maxAllowed is the maximum recommendation, with CPU in cores and memory in bytes. Default:
	// none. Example: {cpu: "4", memory: 8Gi}.
	// +optional
	MaxAllowed corev1.ResourceList `json:"maxAllowed,omitempty"`
}

// VerticalPodAutoscalerStatus is the state reported by the recommender.
type VerticalPodAutoscalerStatus struct {
	// recommendation is the latest recommendation, with one entry for each sized container.
	// +optional
	Recommendation *v1.RecommendedPodResources `json:"recommendation,omitempty"`

	// conditions describe the state of this object, sorted by type.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Conditions []VerticalPodAutoscalerCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// VerticalPodAutoscalerCondition describes one aspect of the state of the object.
type VerticalPodAutoscalerCondition struct {
	// type is the type of the condition. Example: RecommendationProvided.
	Type v1.VerticalPodAutoscalerConditionType `json:"type"`

	// status is "True", "False" or "Unknown".
	Status corev1.ConditionStatus `json:"status"`

	// lastTransitionTime is the time of the last change of status.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// reason is a machine-readable, one-word reason for the last change.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is a human-readable explanation of the last change.
	// +optional
	Message string `json:"message,omitempty"`
}
