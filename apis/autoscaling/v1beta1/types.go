package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/apis/autoscaling/v1beta2"
)

// VerticalPodAutoscaler keeps the CPU and memory requests of a set of pods
// right. This version is history; use autoscaling.k8s.io/v1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type VerticalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want: whose pods, within which limits, and how boldly
	// running pods may be changed.
	Spec VerticalPodAutoscalerSpec `json:"spec"`

	// status is what the recommender found out.
	// +optional
	Status v1beta2.VerticalPodAutoscalerStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerList is a list of VerticalPodAutoscaler objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
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
	// selector chooses the pods, in the namespace of this object. Later
	// versions name the workload in targetRef instead. Example: {matchLabels:
	// {app: web}}.
	Selector *metav1.LabelSelector `json:"selector"`

	// updatePolicy says when and how the recommendation reaches pods. When
	// absent, the mode is "Recreate".
	// +optional
	UpdatePolicy *v1beta2.PodUpdatePolicy `json:"updatePolicy,omitempty"`

	// resourcePolicy limits the recommendation, container by container. When
	// absent, CPU and memory of every container are sized without such limits.
	// +optional
	ResourcePolicy *v1beta2.PodResourcePolicy `json:"resourcePolicy,omitempty"`
}

// VerticalPodAutoscalerCheckpoint keeps what the recommender has learned about
// one container. This version is history; use autoscaling.k8s.io/v1, which has
// the same shape.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type VerticalPodAutoscalerCheckpoint struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says whose history this is.
	// +optional
	Spec v1.VerticalPodAutoscalerCheckpointSpec `json:"spec,omitempty"`

	// status is the history.
	// +optional
	Status v1.VerticalPodAutoscalerCheckpointStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerCheckpointList is a list of
// VerticalPodAutoscalerCheckpoint objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type VerticalPodAutoscalerCheckpointList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []VerticalPodAutoscalerCheckpoint `json:"items"`
}
