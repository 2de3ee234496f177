package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerticalPodAutoscalerStatus is the state reported by the recommender.
type VerticalPodAutoscalerStatus struct {
	// recommendation is the latest recommendation, with one entry for each sized container. The
	// recommender writes it in each iteration, and the updater and the admission controller apply
	// it. It is absent until usage has been observed.
	// +optional
	Recommendation *RecommendedPodResources `json:"recommendation,omitempty"`

	// conditions describe the state of this object, sorted by type. Check them first if there is no
	// recommendation.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Conditions []VerticalPodAutoscalerCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// observedGeneration is the metadata.generation last processed by the recommender. While it is
	// lower than metadata.generation, the rest of the status belongs to an earlier spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// RecommendedPodResources is the recommendation for one pod.
type RecommendedPodResources struct {
	// containerRecommendations has one entry for each sized container. Containers with mode "Off"
	// in their policy are missing.
	// +optional
	ContainerRecommendations []RecommendedContainerResources `json:"containerRecommendations,omitempty"`
}

// RecommendedContainerResources is the recommendation for one container. All values are requests,
// with CPU in cores and memory in bytes.
type RecommendedContainerResources struct {
	// containerName is the name of the container in the pod.
	ContainerName string `json:"containerName,omitempty"`

	// target is the recommended request. New and updated pods get it. It respects minAllowed and
	// maxAllowed. Example: {cpu: 250m, memory: 512Mi}.
	Target corev1.ResourceList `json:"target"`

	// lowerBound is the lowest request of a running pod that needs no update. A pod with a lower
	// request is a candidate for an update. It respects minAllowed and maxAllowed. With a short
	// history it is far below target, and it approaches target over days.
	// +optional
	LowerBound corev1.ResourceList `json:"lowerBound,omitempty"`

	// upperBound is the highest request of a running pod that needs no update. A pod with a higher
	// request is a candidate for an update. It respects minAllowed and maxAllowed. With a short
	// history it is far above target, and it approaches target over days.
	// +optional
	UpperBound corev1.ResourceList `json:"upperBound,omitempty"`

	// uncappedTarget is the target before minAllowed and maxAllowed are applied. It is
	// informational only. Compare it with target to see whether the policy limits the
	// recommendation.
	// +optional
	UncappedTarget corev1.ResourceList `json:"uncappedTarget,omitempty"`
}

// VerticalPodAutoscalerConditionType is the type of a condition.
type VerticalPodAutoscalerConditionType string

const (
	// RecommendationProvided is True if at least one container has a recommendation. The updater
	// and the admission controller require it.
	RecommendationProvided VerticalPodAutoscalerConditionType = "RecommendationProvided"
	// LowConfidence exists for compatibility with clients and is never set.
	LowConfidence VerticalPodAutoscalerConditionType = "LowConfidence"
	// NoPodsMatched is True while the target has no pods.
	NoPodsMatched VerticalPodAutoscalerConditionType = "NoPodsMatched"
	// FetchingHistory is True while past usage is being read. Checkpoints are not written
	// meanwhile.
	FetchingHistory VerticalPodAutoscalerConditionType = "FetchingHistory"
	// ConfigDeprecated is True if the object uses a deprecated feature.
	ConfigDeprecated VerticalPodAutoscalerConditionType = "ConfigDeprecated"
	// ConfigUnsupported is True if the target cannot be sized. The message contains the reason.
	ConfigUnsupported VerticalPodAutoscalerConditionType = "ConfigUnsupported"
)

// VerticalPodAutoscalerCondition describes one aspect of the state of the object.
type VerticalPodAutoscalerCondition struct {
	// type is the type of the condition: "RecommendationProvided" (at least one container has a
	// recommendation), "NoPodsMatched" (the target has no pods), "ConfigUnsupported" (the target
	// cannot be sized, see message), "ConfigDeprecated", "FetchingHistory" or "LowConfidence".
	Type VerticalPodAutoscalerConditionType `json:"type"`

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

	// observedGeneration is the metadata.generation for which the condition was computed. If 0 or
	// absent, it was not recorded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
