package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// VerticalPodAutoscalerCheckpoint keeps what the recommender has learned about
// one container. This version is no longer served; use autoscaling.k8s.io/v1,
// which has the same shape.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:resource:shortName=vpacheckpoint;checkpoint;checkpoints
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
// +kubebuilder:object:root=true
type VerticalPodAutoscalerCheckpointList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []VerticalPodAutoscalerCheckpoint `json:"items"`
}
