package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SizingRecord is what the updater remembers about one workload under a
// SizingPolicy: how far the rollout is, what was changed and with which outcome,
// and when the next change may come. `kubectl get sizings` in the namespace of a
// workload answers what happened to it. The updater makes one for each workload
// whose pods it may change because of a policy, and the workload owns it. It is
// not for editing; who deletes one makes the updater begin anew.
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

	// metadata is the usual object metadata. The owner is the workload.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the updater remembers. It is written by the updater only.
	// +optional
	Status SizingRecordStatus `json:"status,omitempty"`
}

// SizingRecordList is a list of SizingRecord objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SizingRecordList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []SizingRecord `json:"items"`
}

// SizingRecordStatus is what is remembered about one workload.
type SizingRecordStatus struct {
	// mode is the mode that counted for the workload when it was last changed.
	// +optional
	Mode RolloutMode `json:"mode,omitempty"`

	// phase is how far the rollout is: "Canary", "FullRollout" or "Halted". Empty
	// in modes without phases.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// policyHash stands for the fields of the policy on which phase and reverted
	// rest: recipe, resourcePolicy, containers, and of rollout mode, canary and
	// method. When it changes, the rollout begins anew.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// startedAt is when the first pod was changed under policyHash. It is absent before
	// that, and in records of versions without this field.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// canaryMembers are the pods that are changed first. One that is gone is
	// replaced by another pod.
	// +optional
	// +listType=map
	// +listMapKey=uid
	CanaryMembers []CanaryMember `json:"canaryMembers,omitempty"`

	// canarySince is when the first of these was changed.
	// +optional
	CanarySince *metav1.Time `json:"canarySince,omitempty"`

	// haltedTarget is what was recommended when the rollout was halted. Another
	// recommendation lets it begin anew.
	// +optional
	// +listType=map
	// +listMapKey=name
	HaltedTarget []ContainerSizes `json:"haltedTarget,omitempty"`

	// cooldownUntil is when the next round of changes may begin. Absent: at once.
	// +optional
	CooldownUntil *metav1.Time `json:"cooldownUntil,omitempty"`

	// consecutiveReverts is how many rounds in a row were taken back; each doubles
	// the pause until the next one, four times at most.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveReverts int32 `json:"consecutiveReverts,omitempty"`

	// kept are the last sizes of each container that did well. Nothing is lowered
	// below them as long as reverted has the container.
	// +optional
	// +listType=map
	// +listMapKey=name
	Kept []ContainerSizes `json:"kept,omitempty"`

	// reverted are the sizes of each container that did harm and were taken back.
	// They are tried again when the recommendation is higher, when the policy
	// changed, or after seven days.
	// +optional
	// +listType=map
	// +listMapKey=name
	Reverted []RevertedSizes `json:"reverted,omitempty"`

	// rounds are the last rounds of changes, the newest first. At most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Rounds []Round `json:"rounds,omitempty"`

	// conditions are "Degraded" (rounds were taken back repeatedly),
	// "ResizeBlocked" (the nodes cannot hold the change), "ScheduleBlocked" (the
	// schedule of the policy does not allow changes now), "EvidenceMissing" (not all
	// is known by which a change is judged) and "StartPending" (the policy has
	// changed since the last round).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CanaryMember is one of the pods that are changed first.
type CanaryMember struct {
	// uid is the UID of the pod.
	UID types.UID `json:"uid"`

	// outcome is what came of its last change. Empty: it was not changed yet, or
	// is still observed.
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

// RevertedSizes are resources of one container that did harm.
type RevertedSizes struct {
	ContainerSizes `json:",inline"`

	// time is when they were taken back.
	Time metav1.Time `json:"time"`
}

// Round is one target of a workload and what came of it.
type Round struct {
	// time is when the round began.
	Time metav1.Time `json:"time"`

	// lastChange is when a pod was last changed in it.
	// +optional
	LastChange *metav1.Time `json:"lastChange,omitempty"`

	// pods is how many pods were changed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pods int32 `json:"pods"`

	// from are the sizes before the round.
	// +optional
	// +listType=map
	// +listMapKey=name
	From []ContainerSizes `json:"from,omitempty"`

	// to are the sizes that the round brought.
	// +optional
	// +listType=map
	// +listMapKey=name
	To []ContainerSizes `json:"to,omitempty"`

	// outcome is the result of the round: "Success", "Reverted", "Deferred" (the
	// node did not apply the revert in time), "Failed", "Evicted", "Superseded"
	// (another client changed the pods) or "Unobserved" (the updater did not run
	// for too long). Empty while the round is in progress.
	// +optional
	Outcome RoundOutcome `json:"outcome,omitempty"`

	// soFar is what the round would end as if nothing more came of it.
	// +optional
	SoFar RoundOutcome `json:"soFar,omitempty"`

	// endedAt is when the round ended, or was reverted. Absent while it is in progress.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`

	// reason is why, in one word. Example: OOMKilled.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// RoundOutcome is what came of a round.
type RoundOutcome string

const (
	// RoundSuccess kept the change.
	RoundSuccess RoundOutcome = "Success"
	// RoundReverted took it back.
	RoundReverted RoundOutcome = "Reverted"
	// RoundDeferred was to be taken back, and a node did not carry that out in time.
	RoundDeferred RoundOutcome = "Deferred"
	// RoundFailed could not bring it to the pods.
	RoundFailed RoundOutcome = "Failed"
	// RoundEvicted brought it with new pods.
	RoundEvicted RoundOutcome = "Evicted"
	// RoundSuperseded ended because somebody else changed the pods.
	RoundSuperseded RoundOutcome = "Superseded"
	// RoundUnobserved ended while nobody looked.
	RoundUnobserved RoundOutcome = "Unobserved"
)
