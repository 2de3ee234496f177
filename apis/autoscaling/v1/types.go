package v1

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerticalPodAutoscaler keeps the CPU and memory requests of the pods of one
// workload right. The recommender watches what the containers use and writes a
// recommendation into status; the admission controller gives it to new pods;
// the updater brings it to running pods, as far as spec.updatePolicy allows.
// A first object needs only spec.targetRef; with updatePolicy.updateMode "Off"
// it changes no pod and only shows what it would do.
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

	// metadata is the usual object metadata. The object must live in the
	// namespace of the workload it sizes.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want: whose pods, within which limits, and how boldly
	// running pods may be changed. Required.
	Spec VerticalPodAutoscalerSpec `json:"spec"`

	// status is what the recommender found out. It is written by the
	// recommender only; edits by hand are overwritten.
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
	// this object: a Deployment, StatefulSet, DaemonSet, ReplicaSet,
	// ReplicationController, Job or CronJob, or any custom resource with a
	// scale subresource that publishes its pod selector. It must be the topmost
	// controller: name the Deployment, not its ReplicaSet. When it is not, or
	// does not exist, the recommender sets the condition ConfigUnsupported and
	// recommends nothing. Required; exactly one workload, and only one
	// VerticalPodAutoscaler should name it (of several the oldest acts).
	// Example: {apiVersion: apps/v1, kind: Deployment, name: web}.
	TargetRef *autoscalingv1.CrossVersionObjectReference `json:"targetRef"`

	// updatePolicy says when and how the recommendation reaches pods: at
	// creation only, in place, by eviction, or never. When absent, the mode is
	// "Recreate".
	// +optional
	UpdatePolicy *PodUpdatePolicy `json:"updatePolicy,omitempty"`

	// resourcePolicy limits the recommendation, container by container: least
	// and greatest values, which resources, whether limits follow. When absent,
	// CPU and memory of every container are sized without such limits.
	// +optional
	ResourcePolicy *PodResourcePolicy `json:"resourcePolicy,omitempty"`

	// recommenders names the recommender that handles this object, for clusters
	// that run several (each started with its own --recommender-name). When
	// empty, the recommender called "default" does. At most one entry is
	// accepted. Example: [{name: night-batch}].
	// +optional
	Recommenders []*VerticalPodAutoscalerRecommenderSelector `json:"recommenders,omitempty"`

	// startupBoost gives containers more while they start, and takes it back
	// when the pod is ready. It holds for all containers; the entry of a
	// container in resourcePolicy.containerPolicies goes first. It works in
	// every update mode, "Off" included. It needs the feature gate
	// CPUStartupBoost in the admission controller. When absent,
	// nothing is boosted.
	// +optional
	StartupBoost *StartupBoost `json:"startupBoost,omitempty"`
}

// VerticalPodAutoscalerRecommenderSelector names one recommender.
type VerticalPodAutoscalerRecommenderSelector struct {
	// name is the --recommender-name of the recommender that is to handle the
	// object. No other recommender touches it. Required. Example: night-batch.
	Name string `json:"name"`
}
