package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SizingRecord is the updater's state of one workload under a SizingPolicy: the phase of the
// rollout, the changes with their outcomes, and the time of the next change. `kubectl get sizings`
// in the namespace of a workload shows its history. The updater creates a record for each workload
// whose pods it may change under a policy, and the workload owns it. Do not edit it. Deleting it
// makes the updater start over.
//
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=sizingrecords,shortName=sizing;sizings
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".status.mode"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Last Change",type="date",JSONPath=".status.rounds[0].lastChange"
// +kubebuilder:printcolumn:name="Outcome",type="string",JSONPath=".status.rounds[0].outcome"
// +kubebuilder:printcolumn:name="Next",type="string",JSONPath=".status.cooldownUntil"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.rounds[0].reason",priority=1
// +kubebuilder:printcolumn:name="Reverts",type="integer",JSONPath=".status.consecutiveReverts",priority=1
type SizingRecord struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The owner is the workload.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the state of the updater. Only the updater writes it.
	// +optional
	Status SizingRecordStatus `json:"status,omitempty"`
}

// SizingRecordList is a list of SizingRecord objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SizingRecordList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []SizingRecord `json:"items"`
}

// SizingRecordStatus is the updater's state of one workload.
type SizingRecordStatus struct {
	// mode is the effective mode of the workload at its last change.
	// +optional
	Mode RolloutMode `json:"mode,omitempty"`

	// phase is the phase of the rollout: "Canary", "FullRollout" or "Halted". Empty in modes
	// without phases.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// policyHash identifies the policy fields that phase and reverted depend on: recipe,
	// resourcePolicy, containers, and mode, canary and method of rollout. When it changes, the
	// rollout starts over.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// startedAt is the time of the first change of a pod under policyHash. It is absent before
	// that, and in records of versions without this field.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// canaryMembers are the pods that are changed first. A deleted member is replaced by another
	// pod.
	// +optional
	// +listType=map
	// +listMapKey=uid
	CanaryMembers []CanaryMember `json:"canaryMembers,omitempty"`

	// canarySince is the time of the first change of a canary member.
	// +optional
	CanarySince *metav1.Time `json:"canarySince,omitempty"`

	// haltedTarget is the recommendation at which the rollout was halted. Another recommendation
	// restarts it.
	// +optional
	// +listType=map
	// +listMapKey=name
	HaltedTarget []ContainerSizes `json:"haltedTarget,omitempty"`

	// cooldownUntil is the earliest time of the next round of changes. Absent: at once.
	// +optional
	CooldownUntil *metav1.Time `json:"cooldownUntil,omitempty"`

	// consecutiveReverts is the number of reverted rounds in a row. Each one doubles the pause
	// before the next round, at most four times.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveReverts int32 `json:"consecutiveReverts,omitempty"`

	// kept are the last resources of each container that caused no harm. Nothing is lowered below
	// them while reverted contains the container.
	// +optional
	// +listType=map
	// +listMapKey=name
	Kept []ContainerSizes `json:"kept,omitempty"`

	// reverted are the resources of each container that caused harm and were reverted. They are
	// tried again when the recommendation is higher, when the policy changes, or after seven days.
	// +optional
	// +listType=map
	// +listMapKey=name
	Reverted []RevertedSizes `json:"reverted,omitempty"`

	// rounds are the last rounds of changes, newest first. At most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Rounds []Round `json:"rounds,omitempty"`

	// conditions are "Degraded" (rounds were reverted repeatedly), "ResizeBlocked" (the nodes
	// cannot fit the change), "ScheduleBlocked" (the schedule of the policy does not allow changes
	// now), "EvidenceMissing" (some inputs for evaluating a change are unavailable) and
	// "StartPending" (the policy has changed since the last round).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CanaryMember is one of the pods that are changed first.
type CanaryMember struct {
	// uid is the UID of the pod.
	UID types.UID `json:"uid"`

	// outcome is the outcome of its last change. Empty: not changed yet, or still under
	// observation.
	// +optional
	Outcome RoundOutcome `json:"outcome,omitempty"`
}

// ContainerSizes are the resources of one container.
type ContainerSizes struct {
	// name is the name of the container.
	Name string `json:"name"`

	// requests are its requests. Example: {cpu: 250m, memory: 128Mi}.
	// +optional
	Requests Sizes `json:"requests,omitempty"`

	// limits are its limits.
	// +optional
	Limits Sizes `json:"limits,omitempty"`
}

// RevertedSizes are resources of one container that caused harm.
type RevertedSizes struct {
	ContainerSizes `json:",inline"`

	// time is the time of the revert.
	Time metav1.Time `json:"time"`
}

// Round is one target of a workload with its outcome.
type Round struct {
	// time is the start of the round.
	Time metav1.Time `json:"time"`

	// lastChange is the time of the last change of a pod in the round.
	// +optional
	LastChange *metav1.Time `json:"lastChange,omitempty"`

	// pods is the number of changed pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pods int32 `json:"pods"`

	// from are the resources before the round.
	// +optional
	// +listType=map
	// +listMapKey=name
	From []ContainerSizes `json:"from,omitempty"`

	// to are the resources that the round applies.
	// +optional
	// +listType=map
	// +listMapKey=name
	To []ContainerSizes `json:"to,omitempty"`

	// outcome is the result of the round: "Success", "Reverted", "Deferred" (the node did not apply
	// the revert in time), "Failed", "Evicted", "Superseded" (another client changed the pods) or
	// "Unobserved" (the updater did not run for too long). Empty while the round is in progress.
	// +optional
	Outcome RoundOutcome `json:"outcome,omitempty"`

	// soFar is the outcome if the round ended now.
	// +optional
	SoFar RoundOutcome `json:"soFar,omitempty"`

	// endedAt is the time when the round ended or was reverted. Absent while it is in progress.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`

	// reason is a one-word reason of the outcome. Example: OOMKilled.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// RoundOutcome is the outcome of a round.
type RoundOutcome string

const (
	// RoundSuccess kept the change.
	RoundSuccess RoundOutcome = "Success"
	// RoundReverted reverted the change.
	RoundReverted RoundOutcome = "Reverted"
	// RoundDeferred means that a node did not apply a revert in time.
	RoundDeferred RoundOutcome = "Deferred"
	// RoundFailed could not apply the change to the pods.
	RoundFailed RoundOutcome = "Failed"
	// RoundEvicted applied the change with new pods.
	RoundEvicted RoundOutcome = "Evicted"
	// RoundSuperseded ended because another client changed the pods.
	RoundSuperseded RoundOutcome = "Superseded"
	// RoundUnobserved ended while the updater did not run.
	RoundUnobserved RoundOutcome = "Unobserved"
)
