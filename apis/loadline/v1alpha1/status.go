package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SizingPolicyStatus is what came of a policy.
type SizingPolicyStatus struct {
	// conditions are "Ready" (the policy is used; its message says what is not),
	// "Degraded" (workloads whose changes were taken back repeatedly) and, once too
	// many rounds were reverted, "FuseTripped" (no further round begins, or none in
	// the namespaces that its message names, until you set the annotation
	// loadline.dev/acknowledge to the time in the message).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// counts are the numbers of workloads and pods under this policy.
	// +optional
	Counts *PolicyCounts `json:"counts,omitempty"`

	// savings are what the running pods of the selected workloads would request
	// less than now with what is recommended, over the containers that need less:
	// CPU in cores, memory in bytes. What is applied is no longer part of it.
	// Example: {cpu: "12", memory: 30Gi}.
	// +optional
	Savings Sizes `json:"savings,omitempty"`

	// increases are what they would request more, over the containers that need
	// more.
	// +optional
	Increases Sizes `json:"increases,omitempty"`

	// workloads are those that this policy is responsible for, the largest change
	// first: by how much of what its running pods request now savings and increases
	// are together, of CPU or of memory, whichever is more, in whole percent. Equal
	// ones by namespace, kind and name. At most 100; counts.selected has the number
	// of all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Workloads []WorkloadStatus `json:"workloads,omitempty"`

	// errors are what keeps this policy from its work, in sentences. At most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Errors []string `json:"errors,omitempty"`
}

// PolicyCounts are numbers of workloads and pods.
type PolicyCounts struct {
	// selected is the number of workloads that this policy is responsible for.
	// +optional
	Selected int32 `json:"selected"`

	// withRecommendation is the number of these that have a recommendation.
	// +optional
	WithRecommendation int32 `json:"withRecommendation"`

	// applied is the number of workloads all of whose running pods request what is
	// recommended, give or take a tenth of it.
	// +optional
	Applied int32 `json:"applied"`

	// pending is the number of workloads whose running pods may be changed, and of
	// which some do not request what is recommended yet. Those of a CronJob are
	// never changed.
	// +optional
	Pending int32 `json:"pending"`

	// deferred is the number of workloads with pods whose change waits for room on
	// their node, as condition PodResizePending of the pods says.
	// +optional
	Deferred int32 `json:"deferred"`

	// infeasible is the number of workloads with pods whose node can never hold
	// the change, as condition PodResizePending of the pods says, or condition
	// ResizeBlocked of the SizingRecord.
	// +optional
	Infeasible int32 `json:"infeasible"`

	// reverted is the number of workloads whose last round of changes that has
	// ended was taken back.
	// +optional
	Reverted int32 `json:"reverted"`

	// yielded is the number of workloads that this policy selects too, but for
	// which another policy is responsible.
	// +optional
	Yielded int32 `json:"yielded"`

	// refused is the number of workloads that opted out, or whose
	// VerticalPodAutoscaler could not be made or changed; errors says why it
	// could not.
	// +optional
	Refused int32 `json:"refused"`
}

// WorkloadStatus is the state of one workload.
type WorkloadStatus struct {
	// ref names the workload.
	Ref WorkloadReference `json:"ref"`

	// mode is the mode that counts for this workload, after what its
	// VerticalPodAutoscaler and its annotations say.
	// +optional
	Mode RolloutMode `json:"mode,omitempty"`

	// phase is how far the rollout is: "Canary", "FullRollout" or "Halted". Empty
	// in modes without phases.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// lastChange is when the last round began that changed a pod of the workload.
	// +optional
	LastChange *metav1.Time `json:"lastChange,omitempty"`

	// next is when the pause after the last round ends. Absent: there is none, or
	// no running pod may be changed.
	// +optional
	Next *metav1.Time `json:"next,omitempty"`

	// degraded says that changes of this workload were taken back repeatedly.
	// +optional
	Degraded bool `json:"degraded,omitempty"`

	// savings are what the running pods of this workload would request less than
	// now with what is recommended.
	// +optional
	Savings Sizes `json:"savings,omitempty"`

	// increases are what they would request more.
	// +optional
	Increases Sizes `json:"increases,omitempty"`
}

// WorkloadReference names a workload.
type WorkloadReference struct {
	// apiVersion is the group and version of the kind. Example: apps/v1.
	APIVersion string `json:"apiVersion"`

	// kind is the kind. Example: Deployment.
	Kind string `json:"kind"`

	// namespace is the namespace of the workload.
	Namespace string `json:"namespace"`

	// name is the name of the workload.
	Name string `json:"name"`
}

// RolloutPhase is how far a rollout is.
type RolloutPhase string

const (
	// RolloutPhaseCanary changes the members of the canary only.
	RolloutPhaseCanary RolloutPhase = "Canary"
	// RolloutPhaseFullRollout changes all pods.
	RolloutPhaseFullRollout RolloutPhase = "FullRollout"
	// RolloutPhaseHalted changes none until the target or the policy changes.
	RolloutPhaseHalted RolloutPhase = "Halted"
)

// Sizes are amounts of resources: CPU in cores, memory in bytes.
//
// +kubebuilder:validation:MaxProperties=16
type Sizes map[corev1.ResourceName]resource.Quantity
