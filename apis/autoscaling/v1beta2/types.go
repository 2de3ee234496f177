package v1beta2

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// VerticalPodAutoscaler keeps the CPU and memory requests of the pods of one
// workload right. This version is no longer served; use autoscaling.k8s.io/v1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:deprecatedversion:warning="autoscaling.k8s.io/v1beta2 API is deprecated"
// +kubebuilder:resource:shortName=vpa
// +kubebuilder:subresource:status
type VerticalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want: whose pods, within which limits, and how boldly
	// running pods may be changed. Required.
	Spec VerticalPodAutoscalerSpec `json:"spec"`

	// status is what the recommender found out.
	// +optional
	Status VerticalPodAutoscalerStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerList is a list of VerticalPodAutoscaler objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VerticalPodAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []VerticalPodAutoscaler `json:"items"`
}

// VerticalPodAutoscalerSpec says whose pods to size, within which limits, and
// how boldly running pods may be changed.
type VerticalPodAutoscalerSpec struct {
	// targetRef names the workload whose pods are sized, in the namespace of
	// this object. Required. Example: {apiVersion: apps/v1, kind: Deployment,
	// name: web}.
	TargetRef *autoscalingv1.CrossVersionObjectReference `json:"targetRef"`

	// updatePolicy says when and how the recommendation reaches pods. When
	// absent, the mode is "Recreate".
	// +optional
	UpdatePolicy *PodUpdatePolicy `json:"updatePolicy,omitempty"`

	// resourcePolicy limits the recommendation, container by container. When
	// absent, CPU and memory of every container are sized without such limits.
	// +optional
	ResourcePolicy *PodResourcePolicy `json:"resourcePolicy,omitempty"`
}

// PodUpdatePolicy says when and how a recommendation reaches pods.
type PodUpdatePolicy struct {
	// updateMode is how boldly pods are changed: "Off" (never), "Initial" (at
	// creation only), "Recreate" (at creation, and running pods that are far off
	// are evicted) or "Auto" (the same as Recreate). Default: Recreate.
	// +optional
	UpdateMode *UpdateMode `json:"updateMode,omitempty"`
}

// UpdateMode is how boldly pods are changed.
// +kubebuilder:validation:Enum=Off;Initial;Recreate;Auto
type UpdateMode string

const (
	// UpdateModeOff changes no pod; the recommendation is only shown.
	UpdateModeOff UpdateMode = "Off"
	// UpdateModeInitial sizes pods when they are created and never later.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeRecreate sizes new pods and evicts running ones that are far
	// off.
	UpdateModeRecreate UpdateMode = "Recreate"
	// UpdateModeAuto is the same as UpdateModeRecreate.
	UpdateModeAuto UpdateMode = "Auto"
)

// PodResourcePolicy limits the recommendation, container by container.
type PodResourcePolicy struct {
	// containerPolicies has at most one entry for each container, and
	// optionally one named "*" for all containers without an entry.
	// +optional
	// +patchMergeKey=containerName
	// +patchStrategy=merge
	ContainerPolicies []ContainerResourcePolicy `json:"containerPolicies,omitempty" patchStrategy:"merge" patchMergeKey:"containerName"`
}

// ContainerResourcePolicy says how one container is sized.
type ContainerResourcePolicy struct {
	// containerName is the name of the container, or "*" for all containers
	// that have no entry of their own. Example: app.
	ContainerName string `json:"containerName,omitempty"`

	// mode switches the sizing of this container: "Auto" sizes it, "Off" leaves
	// it alone. Default: Auto.
	// +optional
	Mode *v1.ContainerScalingMode `json:"mode,omitempty"`

	// minAllowed is the least that will be recommended: CPU in cores, memory in
	// bytes. Default: none. Example: {cpu: 100m, memory: 128Mi}.
	// +optional
	MinAllowed corev1.ResourceList `json:"minAllowed,omitempty"`

	// maxAllowed is the most that will be recommended: CPU in cores, memory in
	// bytes. Default: none. Example: {cpu: "4", memory: 8Gi}.
	// +optional
	MaxAllowed corev1.ResourceList `json:"maxAllowed,omitempty"`
}

// VerticalPodAutoscalerStatus is what the recommender found out.
type VerticalPodAutoscalerStatus struct {
	// recommendation is the latest recommendation, one entry for each container
	// that is sized.
	// +optional
	Recommendation *v1.RecommendedPodResources `json:"recommendation,omitempty"`

	// conditions say how this object is doing, sorted by type.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Conditions []VerticalPodAutoscalerCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// VerticalPodAutoscalerCondition is one statement about the state of the object.
type VerticalPodAutoscalerCondition struct {
	// type is what the condition is about. Example: RecommendationProvided.
	Type v1.VerticalPodAutoscalerConditionType `json:"type"`

	// status is "True", "False" or "Unknown".
	Status corev1.ConditionStatus `json:"status"`

	// lastTransitionTime is when status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// reason is the cause of the last change in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is the cause of the last change in a sentence, for people.
	// +optional
	Message string `json:"message,omitempty"`
}
