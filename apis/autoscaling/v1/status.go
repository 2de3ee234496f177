package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerticalPodAutoscalerStatus is what the recommender found out.
type VerticalPodAutoscalerStatus struct {
	// recommendation is the latest recommendation, one entry for each container
	// that is sized. Written by the recommender on every pass; read by the
	// updater and the admission controller. Absent until there is usage to
	// learn from.
	// +optional
	Recommendation *RecommendedPodResources `json:"recommendation,omitempty"`

	// conditions say how this object is doing, sorted by type. Look here first
	// when no recommendation appears.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Conditions []VerticalPodAutoscalerCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// observedGeneration is the metadata.generation that the recommender last
	// worked with. While it is lower than metadata.generation, the rest of the
	// status belongs to an earlier spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// RecommendedPodResources is the recommendation for one pod.
type RecommendedPodResources struct {
	// containerRecommendations has one entry for each container that is sized.
	// Containers whose policy has mode "Off" are missing.
	// +optional
	ContainerRecommendations []RecommendedContainerResources `json:"containerRecommendations,omitempty"`
}

// RecommendedContainerResources is the recommendation for one container. All
// values are requests: CPU in cores, memory in bytes.
type RecommendedContainerResources struct {
	// containerName is the name of the container in the pod.
	ContainerName string `json:"containerName,omitempty"`

	// target is the request that the container should have. New and updated
	// pods get it. It respects minAllowed and maxAllowed. Example: {cpu: 250m,
	// memory: 512Mi}.
	Target corev1.ResourceList `json:"target"`

	// lowerBound is the least request at which a running pod is left alone: a
	// request below it makes the pod a candidate for an update. It respects
	// minAllowed and maxAllowed. With little history it lies far below target
	// and closes in over days.
	// +optional
	LowerBound corev1.ResourceList `json:"lowerBound,omitempty"`

	// upperBound is the greatest request at which a running pod is left alone:
	// a request above it makes the pod a candidate for an update. It respects
	// minAllowed and maxAllowed. With little history it lies far above target
	// and closes in over days.
	// +optional
	UpperBound corev1.ResourceList `json:"upperBound,omitempty"`

	// uncappedTarget is the target before minAllowed and maxAllowed were
	// applied. Nothing acts on it; compare it with target to see whether the
	// policy holds the workload back.
	// +optional
	UncappedTarget corev1.ResourceList `json:"uncappedTarget,omitempty"`
}

// VerticalPodAutoscalerConditionType is the kind of a condition.
type VerticalPodAutoscalerConditionType string

const (
	// RecommendationProvided is True when at least one container has a
	// recommendation. The updater and the admission controller need it.
	RecommendationProvided VerticalPodAutoscalerConditionType = "RecommendationProvided"
	// LowConfidence is kept for clients that look for it; nothing sets it.
	LowConfidence VerticalPodAutoscalerConditionType = "LowConfidence"
	// NoPodsMatched is True while the target has no pods.
	NoPodsMatched VerticalPodAutoscalerConditionType = "NoPodsMatched"
	// FetchingHistory is True while past usage is still being read; checkpoints
	// are not written meanwhile.
	FetchingHistory VerticalPodAutoscalerConditionType = "FetchingHistory"
	// ConfigDeprecated is True when the object uses something deprecated.
	ConfigDeprecated VerticalPodAutoscalerConditionType = "ConfigDeprecated"
	// ConfigUnsupported is True when the target cannot be sized; the message
	// says why.
	ConfigUnsupported VerticalPodAutoscalerConditionType = "ConfigUnsupported"
)

// VerticalPodAutoscalerCondition is one statement about the state of the object.
type VerticalPodAutoscalerCondition struct {
	// type is what the condition is about: "RecommendationProvided" (at least
	// one container has a recommendation), "NoPodsMatched" (the target has no
	// pods), "ConfigUnsupported" (the target cannot be sized; see message),
	// "ConfigDeprecated", "FetchingHistory" or "LowConfidence".
	Type VerticalPodAutoscalerConditionType `json:"type"`

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

	// observedGeneration is the metadata.generation that the condition was
	// computed from. 0 or absent: not recorded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
