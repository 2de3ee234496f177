package v1

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerticalPodAutoscaler adjusts the CPU and memory requests of the pods of one workload to their
// usage. The recommender observes the usage of the containers and writes a recommendation to
// status. The admission controller applies it to new pods, and the updater applies it to running
// pods, as allowed by spec.updatePolicy. Only spec.targetRef is required. With
// updatePolicy.updateMode "Off" the object changes no pod and only provides a recommendation.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=vpa
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/kubernetes/pull/63797"
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.updatePolicy.updateMode"
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.recommendation.containerRecommendations[0].target.cpu"
// +kubebuilder:printcolumn:name="Mem",type="string",JSONPath=".status.recommendation.containerRecommendations[0].target.memory"
// +kubebuilder:printcolumn:name="Provided",type="string",JSONPath=".status.conditions[?(@.type=='RecommendationProvided')].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="MinReplicas",type="integer",JSONPath=".spec.updatePolicy.minReplicas",priority=1
// +kubebuilder:printcolumn:name="OOMSeconds",type="integer",JSONPath=".spec.updatePolicy.evictAfterOOMSeconds",priority=1
type VerticalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The object must be in the namespace of its
	// workload.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired behavior: which pods to size, within which limits, and how to update
	// running pods. Required.
	Spec VerticalPodAutoscalerSpec `json:"spec"`

	// status is the state reported by the recommender. Manual changes are overwritten.
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
	// targetRef is the workload to size, in the namespace of this object: a Deployment,
	// StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job or CronJob, or any custom
	// resource with a scale subresource that publishes its pod selector. It must be the topmost
	// controller: the Deployment, not its ReplicaSet. If it is not, or does not exist, the
	// recommender sets the condition ConfigUnsupported and recommends nothing. Only one
	// VerticalPodAutoscaler should target a workload. If there are several, the oldest takes
	// effect. Required. Example: {apiVersion: apps/v1, kind: Deployment, name: web}.
	TargetRef *autoscalingv1.CrossVersionObjectReference `json:"targetRef"`

	// updatePolicy defines when and how the recommendation is applied to pods: only at creation, in
	// place, by eviction, or never. If absent, the mode is "Recreate".
	// +optional
	UpdatePolicy *PodUpdatePolicy `json:"updatePolicy,omitempty"`

	// resourcePolicy limits the recommendation for each container: minimum and maximum values, the
	// resources to size, and whether limits are scaled with requests. If absent, CPU and memory of
	// all containers are sized without such limits.
	// +optional
	ResourcePolicy *PodResourcePolicy `json:"resourcePolicy,omitempty"`

	// recommenders selects the recommender for this object in clusters that run several, each with
	// its own --recommender-name. If empty, the recommender named "default" is used. At most one
	// entry is accepted. Example: [{name: night-batch}].
	// +optional
	Recommenders []*VerticalPodAutoscalerRecommenderSelector `json:"recommenders,omitempty"`

	// startupBoost raises the resources of containers during startup, and removes the boost when
	// the pod is ready. It applies to all containers without a startupBoost in
	// resourcePolicy.containerPolicies. It applies in every update mode, including "Off". If
	// absent, nothing is boosted. Requires the feature gate CPUStartupBoost in the admission
	// controller.
	// +optional
	StartupBoost *StartupBoost `json:"startupBoost,omitempty"`
}

// VerticalPodAutoscalerRecommenderSelector selects one recommender.
type VerticalPodAutoscalerRecommenderSelector struct {
	// name is the --recommender-name of the recommender for this object. Other recommenders ignore
	// the object. Required. Example: night-batch.
	Name string `json:"name"`
}
