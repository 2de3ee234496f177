package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rollout says how far, how fast and when running pods are changed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Canary' || has(self.canary) && has(self.canary.percentage)",message="mode Canary needs canary.percentage, for example 10"
type Rollout struct {
	// mode is how far recommendations go. Default: Inherit.
	//
	// "Inherit": the mode of a VerticalPodAutoscaler that a person wrote counts;
	// for those that the recommender made nothing is changed.
	// "Observe": usage is collected, and no recommendation is shown.
	// "Recommend": recommendations are shown; no pod is changed.
	// "OneShot": one pod of a workload is changed at a time, then it is observed.
	// "Canary": a share of the pods is changed and observed, then the rest.
	// "Auto": all pods are changed, at most maxConcurrent of a workload that are
	// not judged yet.
	// Where a person wrote a VerticalPodAutoscaler, the more cautious of both
	// modes counts.
	// +optional
	Mode *RolloutMode `json:"mode,omitempty"`

	// canary says which share of the pods is changed first, and for how long.
	// Only for mode Canary, which needs it.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// method is how running pods are changed: "InPlaceOnly" resizes them in
	// place, or not at all, and a container restarts only if its own resizePolicy
	// demands that; "InPlaceOrRecreate" evicts those that cannot be resized. Default: InPlaceOnly; with mode Inherit, as the
	// VerticalPodAutoscaler says.
	// +optional
	Method *RolloutMethod `json:"method,omitempty"`

	// cooldown is how long after a round of changes the next one of the same
	// workload may begin. After reverts it is longer. 0s: no pause; less than 1m
	// counts as 1m. Default: 1h; with mode Inherit no pause. Example: 6h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative; 0s: no pause"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// minHistory is the span of usage that a recommendation must rest on before
	// running and new pods get it, by container. It counts in steps of 1h, 6h,
	// 24h, 48h, 96h and 192h. Memory after an out-of-memory kill does not wait.
	// 0s: the first sample is enough. Default: 1h; with mode Inherit 0s.
	// Example: 24h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative; 0s: any history is enough"
	MinHistory *metav1.Duration `json:"minHistory,omitempty"`

	// maxConcurrent is how many pods of one workload may be changed and not
	// judged yet at the same time. 0: no limit. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// startRate limits how fast this policy spreads to workloads that it has not
	// changed yet: at most this number start within the first hour, and their total
	// at most doubles in each further hour. It applies again after a change of
	// recipe, resourcePolicy, containers, mode, canary or method, and to workloads
	// that are selected later. 0: no limit. Default: 10; with mode Inherit no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartRate *int32 `json:"startRate,omitempty"`

	// schedule says when running pods may be changed. Changes are taken back at
	// any time, and memory is given after an out-of-memory kill at any time. When
	// absent, always.
	// +optional
	Schedule *Schedule `json:"schedule,omitempty"`

	// initialSizing is what new pods get: "Target" gives them the recommendation,
	// "Off" leaves them as they are written. Default: Off for a
	// VerticalPodAutoscaler that the recommender made, until all running pods may
	// be changed; otherwise as the VerticalPodAutoscaler says.
	// +optional
	InitialSizing *InitialSizing `json:"initialSizing,omitempty"`

	// hpa says what becomes of a resource that a HorizontalPodAutoscaler of the
	// workload looks at: "LeaveOut" does not change it, "Proceed" changes it all
	// the same. Default: LeaveOut.
	// +optional
	HPA *HPAHandling `json:"hpa,omitempty"`
}

// RolloutMode is how far recommendations go.
// +kubebuilder:validation:Enum=Inherit;Observe;Recommend;OneShot;Canary;Auto
type RolloutMode string

const (
	// RolloutModeInherit leaves it to the VerticalPodAutoscaler. It is the default.
	RolloutModeInherit RolloutMode = "Inherit"
	// RolloutModeObserve collects usage and shows no recommendation.
	RolloutModeObserve RolloutMode = "Observe"
	// RolloutModeRecommend shows recommendations and changes no pod.
	RolloutModeRecommend RolloutMode = "Recommend"
	// RolloutModeOneShot changes one pod of a workload in a round.
	RolloutModeOneShot RolloutMode = "OneShot"
	// RolloutModeCanary changes a share of the pods, then the rest.
	RolloutModeCanary RolloutMode = "Canary"
	// RolloutModeAuto changes all pods.
	RolloutModeAuto RolloutMode = "Auto"
)

// Canary says which share of the pods is changed first.
type Canary struct {
	// percentage is the share of the pods of a workload that is changed first,
	// in percent, rounded down but at least one pod. From 1 to 100. Required for
	// mode Canary. Example: 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percentage *int32 `json:"percentage,omitempty"`

	// observationPeriod is how long these pods are watched. At least 1m.
	// Default: that of safety, else 5m. Example: 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	ObservationPeriod *metav1.Duration `json:"observationPeriod,omitempty"`

	// autoPromote lets the rest of the pods follow by itself when all that were
	// changed first did well for the whole period. Otherwise a person promotes
	// the canary, by setting this. Default: false.
	// +optional
	AutoPromote *bool `json:"autoPromote,omitempty"`
}

// RolloutMethod is how running pods are changed.
// +kubebuilder:validation:Enum=InPlaceOnly;InPlaceOrRecreate
type RolloutMethod string

const (
	// RolloutMethodInPlaceOnly resizes pods in place, or not at all.
	RolloutMethodInPlaceOnly RolloutMethod = "InPlaceOnly"
	// RolloutMethodInPlaceOrRecreate evicts pods that cannot be resized.
	RolloutMethodInPlaceOrRecreate RolloutMethod = "InPlaceOrRecreate"
)

// Schedule says when running pods may be changed.
type Schedule struct {
	// windows are the times of the day. When empty, the whole day. At most 32.
	// Example: [{start: "22:00", end: "06:00"}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Windows []Window `json:"windows,omitempty"`

	// daysOfWeek are the days on which windows open; one over midnight belongs to
	// the day on which it opened. When empty, every day. Example: [Saturday,
	// Sunday].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	DaysOfWeek []DayOfWeek `json:"daysOfWeek,omitempty"`

	// timezone is the zone of the times, by its name in the IANA time zone
	// database. Default: UTC. Example: Europe/Berlin.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Timezone *string `json:"timezone,omitempty"`
}

// Window is a time of the day.
//
// +kubebuilder:validation:XValidation:rule="self.start != self.end",message="start and end must differ; for the whole day leave out windows"
type Window struct {
	// start is the first minute, as HH:MM from 00:00 to 23:59. Required.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +kubebuilder:validation:MaxLength=5
	Start string `json:"start"`

	// end is the first minute after it, as HH:MM. One before start is that of the
	// next day. Required.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +kubebuilder:validation:MaxLength=5
	End string `json:"end"`
}

// DayOfWeek is the English name of a day.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type DayOfWeek string

// InitialSizing is what new pods get.
// +kubebuilder:validation:Enum=Off;Target
type InitialSizing string

const (
	// InitialSizingOff leaves new pods as they are written.
	InitialSizingOff InitialSizing = "Off"
	// InitialSizingTarget gives new pods the recommendation.
	InitialSizingTarget InitialSizing = "Target"
)

// HPAHandling is what becomes of a resource that a HorizontalPodAutoscaler looks
// at.
// +kubebuilder:validation:Enum=LeaveOut;Proceed
type HPAHandling string

const (
	// HPALeaveOut does not change it. It is the default.
	HPALeaveOut HPAHandling = "LeaveOut"
	// HPAProceed changes it all the same.
	HPAProceed HPAHandling = "Proceed"
)

// Safety says when a change that did harm is taken back. Only what was lowered
// can do harm; taking a change back never lowers anything.
type Safety struct {
	// autoRevert takes a change back when the pod does worse after it. Default:
	// true with the modes OneShot, Canary and Auto, otherwise false.
	// +optional
	AutoRevert *bool `json:"autoRevert,omitempty"`

	// observationPeriod is how long a changed pod is watched. At least 1m.
	// Default: that of the canary, else 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	ObservationPeriod *metav1.Duration `json:"observationPeriod,omitempty"`

	// restarts is how many restarts of a container that was lowered, since the
	// change, take it back. At least 1. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Restarts *int32 `json:"restarts,omitempty"`

	// throttle is the share of scheduling periods in which a container whose CPU
	// limit was lowered may be throttled: a greater share over five minutes takes
	// the change back. A decimal from 0 to 1, in quotes; "0" switches it off. Needs
	// Prometheus. Default: "0.5".
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`
	Throttle *string `json:"throttle,omitempty"`

	// pressure is the share of the time that a container whose CPU request was
	// lowered may wait for CPU: a greater share over five minutes, at least twice
	// that before, takes the change back. A decimal from 0 to 1, in quotes; "0"
	// switches it off. Needs Prometheus, and nodes with cgroup v2. Default: "0.3".
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`
	Pressure *string `json:"pressure,omitempty"`
}

// Sharing lets the pods of a node share what the node has left: each requests what
// it uses nearly always and a part of one headroom that they have together, in
// place of each having room for its own peak. Only pods share whose recipe is made
// for it; the annotation loadline.dev/sharing: "off" on a workload, its pod template
// or its VerticalPodAutoscaler keeps its pods out.
type Sharing struct {
	// mode switches sharing: "Off", "DryRun" (only metrics and the log show what it
	// would do) or "On". On needs rollout.mode Auto, or Canary once all pods may be
	// changed; until then it acts as DryRun. The condition Sharing says whether pods
	// share. Default: Off.
	// +optional
	Mode *SharingMode `json:"mode,omitempty"`

	// resources are those that are shared. Default: [cpu].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=cpu;memory
	Resources []corev1.ResourceName `json:"resources,omitempty"`

	// evict allows to evict pods when those of a node need more than it has, or when
	// it refuses a pod memory after an out-of-memory kill, where
	// rollout.method evicts, and within rollout.schedule. The
	// annotation loadline.dev/eviction-ranking on a workload, its pod template or its
	// VerticalPodAutoscaler says in which order they leave: "low" (first), "medium",
	// "high", or "no-eviction" (never); absent: medium for a StatefulSet and where
	// there is one replica, else low. Default: false.
	// +optional
	Evict *bool `json:"evict,omitempty"`

	// cpuLimit sets how CPU limits are treated. "Keep" keeps them. "NodeAllocatable"
	// raises the CPU limit of a running pod to the allocatable CPU of its node.
	// "Remove" does the same, because a limit cannot be removed in place, and removes
	// the CPU limit from new pods, unless a ResourceQuota counts CPU limits.
	// Default: Keep.
	// +optional
	CPULimit *SharingCPULimit `json:"cpuLimit,omitempty"`

	// nodeAutoscaler is what "On" means where something adds and removes nodes:
	// "DryRun" shares nothing there, "Accept" shares all the same. Default: DryRun.
	// +optional
	NodeAutoscaler *SharingNodeAutoscaler `json:"nodeAutoscaler,omitempty"`

	// maxEvictionRanking is the highest value of the annotation
	// loadline.dev/eviction-ranking that counts: "low", "medium", "high" or
	// "no-eviction". A higher value counts as this one. Default: no-eviction.
	// +optional
	MaxEvictionRanking *EvictionRanking `json:"maxEvictionRanking,omitempty"`

	// userVPAs sets which rules apply to a VerticalPodAutoscaler that a user created.
	// "Override": its recipe and resource policy override those of the policy.
	// "Restrict": while mode is On, its recipe is ignored, and maxAllowed of the policy
	// bounds shares, new pods and resizes of its containers. Default: Override.
	// +optional
	UserVPAs *SharingUserVPAs `json:"userVPAs,omitempty"`
}

// SharingMode switches sharing.
// +kubebuilder:validation:Enum=Off;DryRun;On
type SharingMode string

const (
	// SharingOff shares nothing. It is the default.
	SharingOff SharingMode = "Off"
	// SharingDryRun only shows what sharing would do.
	SharingDryRun SharingMode = "DryRun"
	// SharingOn shares.
	SharingOn SharingMode = "On"
)

// SharingCPULimit is what becomes of a CPU limit.
// +kubebuilder:validation:Enum=Keep;Remove;NodeAllocatable
type SharingCPULimit string

const (
	// SharingCPULimitKeep keeps it. It is the default.
	SharingCPULimitKeep SharingCPULimit = "Keep"
	// SharingCPULimitRemove removes it from new pods and raises it in running pods to the allocatable CPU of the node.
	SharingCPULimitRemove SharingCPULimit = "Remove"
	// SharingCPULimitNodeAllocatable raises it in running pods to the allocatable CPU of the node.
	SharingCPULimitNodeAllocatable SharingCPULimit = "NodeAllocatable"
)

// EvictionRanking is the order in which pods leave a node.
// +kubebuilder:validation:Enum=low;medium;high;no-eviction
type EvictionRanking string

// SharingUserVPAs is how pods of user VPAs share.
// +kubebuilder:validation:Enum=Override;Restrict
type SharingUserVPAs string

const (
	// SharingUserVPAsOverride lets user VPAs override the policy. It is the default.
	SharingUserVPAsOverride SharingUserVPAs = "Override"
	// SharingUserVPAsRestrict applies the recipe and maxAllowed of the policy.
	SharingUserVPAsRestrict SharingUserVPAs = "Restrict"
)

// SharingNodeAutoscaler is what On means where something adds and removes nodes.
// +kubebuilder:validation:Enum=DryRun;Accept
type SharingNodeAutoscaler string

const (
	// SharingNodeAutoscalerDryRun shares nothing there. It is the default.
	SharingNodeAutoscalerDryRun SharingNodeAutoscaler = "DryRun"
	// SharingNodeAutoscalerAccept shares all the same.
	SharingNodeAutoscalerAccept SharingNodeAutoscaler = "Accept"
)
