package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// VerticalPodAutoscalerCheckpoint stores the usage history of one container. This version is no
// longer served. Use autoscaling.k8s.io/v1, which has the same fields.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:resource:shortName=vpacheckpoint;checkpoint;checkpoints
type VerticalPodAutoscalerCheckpoint struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec identifies the container.
	// +optional
	Spec v1.VerticalPodAutoscalerCheckpointSpec `json:"spec,omitempty"`

	// status is the usage history.
	// +optional
	Status v1.VerticalPodAutoscalerCheckpointStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerCheckpointList is a list of VerticalPodAutoscalerCheckpoint objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VerticalPodAutoscalerCheckpointList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of objects.
	Items []VerticalPodAutoscalerCheckpoint `json:"items"`
}
