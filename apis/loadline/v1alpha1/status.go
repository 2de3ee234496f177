package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SizingPolicyStatus is the observed state of a policy.
type SizingPolicyStatus struct {
	// conditions are "Ready" (the policy is in use, its message lists problems), "Degraded"
	// (workloads with repeatedly reverted changes) and, after too many reverted rounds,
	// "FuseTripped" (no further round begins, or none in the namespaces named by its message, until
	// you set the annotation loadline.dev/acknowledge to the time in the message).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// counts are the numbers of workloads and pods under this policy.
	// +optional
	Counts *PolicyCounts `json:"counts,omitempty"`

	// savings is how much less the running pods of the selected workloads would request with the
	// recommendation, summed over the containers that need less: CPU in cores, memory in bytes.
	// Applied recommendations are not included. Example: {cpu: "12", memory: 30Gi}.
	// +optional
	Savings Sizes `json:"savings,omitempty"`

	// increases is how much more the running pods would request, summed over the containers that
	// need more.
	// +optional
	Increases Sizes `json:"increases,omitempty"`

	// workloads lists the workloads that this policy is responsible for, largest change first. The
	// change is savings plus increases in whole percent of the current requests of the running
	// pods, for CPU or memory, whichever is larger. Ties are sorted by namespace, kind and name. At
	// most 100. counts.selected has the total number.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Workloads []WorkloadStatus `json:"workloads,omitempty"`

	// errors describes the problems that prevent this policy from working. At most 10.
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

	// withRecommendation is the number of selected workloads with a recommendation.
	// +optional
	WithRecommendation int32 `json:"withRecommendation"`

	// applied is the number of workloads whose running pods all request the recommended resources,
	// within a tenth.
	// +optional
	Applied int32 `json:"applied"`

	// pending is the number of workloads whose running pods may be changed, and some of which do
	// not request the recommended resources yet. Workloads of a CronJob are never changed.
	// +optional
	Pending int32 `json:"pending"`

	// deferred is the number of workloads with pods whose change waits for room on their node,
	// according to the condition PodResizePending of the pods.
	// +optional
	Deferred int32 `json:"deferred"`

	// infeasible is the number of workloads with pods whose node can never fit the change,
	// according to the condition PodResizePending of the pods or the condition ResizeBlocked of the
	// SizingRecord.
	// +optional
	Infeasible int32 `json:"infeasible"`

	// reverted is the number of workloads whose last completed round of changes was reverted.
	// +optional
	Reverted int32 `json:"reverted"`

	// yielded is the number of workloads that this policy also selects, but that another policy is
	// responsible for.
	// +optional
	Yielded int32 `json:"yielded"`

	// refused is the number of workloads that opted out, or whose VerticalPodAutoscaler could not
	// be created or changed. In the latter case, errors has the cause.
	// +optional
	Refused int32 `json:"refused"`
}

// WorkloadStatus is the observed state of one workload.
type WorkloadStatus struct {
	// ref identifies the workload.
	Ref WorkloadReference `json:"ref"`

	// mode is the effective mode of this workload, after its VerticalPodAutoscaler and its
	// annotations are applied.
	// +optional
	Mode RolloutMode `json:"mode,omitempty"`

	// phase is the phase of the rollout: "Canary", "FullRollout" or "Halted". Empty in modes
	// without phases.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// lastChange is the start of the last round that changed a pod of the workload.
	// +optional
	LastChange *metav1.Time `json:"lastChange,omitempty"`

	// next is the end of the pause after the last round. Absent: there is no pause, or no running
	// pod may be changed.
	// +optional
	Next *metav1.Time `json:"next,omitempty"`

	// degraded means that changes of this workload were reverted repeatedly.
	// +optional
	Degraded bool `json:"degraded,omitempty"`

	// savings is how much less the running pods of this workload would request with the
	// recommendation.
	// +optional
	Savings Sizes `json:"savings,omitempty"`

	// increases is how much more they would request.
	// +optional
	Increases Sizes `json:"increases,omitempty"`
}

// WorkloadReference identifies a workload.
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

// RolloutPhase is the phase of a rollout.
type RolloutPhase string

const (
	// RolloutPhaseCanary changes only the members of the canary.
	RolloutPhaseCanary RolloutPhase = "Canary"
	// RolloutPhaseFullRollout changes all pods.
	RolloutPhaseFullRollout RolloutPhase = "FullRollout"
	// RolloutPhaseHalted changes no pod until the target or the policy changes.
	RolloutPhaseHalted RolloutPhase = "Halted"
)

// Sizes are quantities of resources: CPU in cores, memory in bytes.
//
// +kubebuilder:validation:MaxProperties=16
type Sizes map[corev1.ResourceName]resource.Quantity
