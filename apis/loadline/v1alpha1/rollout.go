package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rollout configures how far, how fast and when running pods are changed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Canary' || has(self.canary) && has(self.canary.percentage)",message="mode Canary needs canary.percentage, for example 10"
type Rollout struct {
	// mode is how far recommendations are applied. Default: Inherit.
	//
	// "Inherit": the mode of a user-created VerticalPodAutoscaler applies. Pods of
	// generated VerticalPodAutoscalers are not changed.
	// "Observe": usage is collected, and no recommendation is shown.
	// "Recommend": recommendations are shown, and no pod is changed.
	// "OneShot": one pod of a workload is changed at a time, then observed.
	// "Canary": a share of the pods is changed and observed, then the rest.
	// "Auto": all pods are changed, with at most maxConcurrent pods of a workload under
	// observation.
	//
	// For a user-created VerticalPodAutoscaler, the more conservative of both modes applies.
	// +optional
	Mode *RolloutMode `json:"mode,omitempty"`

	// canary configures the share of the pods that is changed first, and for how long it is
	// observed. Only for mode Canary, which requires it.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// method is how running pods are changed. "InPlaceOnly" resizes pods in place or not at all,
	// and a container restarts only if its own resizePolicy requires it. "InPlaceOrRecreate" evicts
	// pods that cannot be resized. Default: InPlaceOnly, but with mode Inherit the method of the
	// VerticalPodAutoscaler.
	// +optional
	Method *RolloutMethod `json:"method,omitempty"`

	// cooldown is the pause between two rounds of changes of the same workload. It is longer after
	// reverts. 0s: no pause. Less than 1m counts as 1m. Default: 1h, with mode Inherit no pause.
	// Example: 6h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative; 0s: no pause"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// minHistory is the usage history that the recommendation of a container requires before it is
	// applied to running and new pods. It counts in steps of 1h, 6h, 24h, 48h, 96h and 192h. Memory
	// after an out-of-memory kill does not wait. 0s: the first sample is enough. Default: 1h, with
	// mode Inherit 0s. Example: 24h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative; 0s: any history is enough"
	MinHistory *metav1.Duration `json:"minHistory,omitempty"`

	// maxConcurrent is the maximum number of pods of one workload that may be changed and still
	// under observation at the same time. 0: no limit. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// startRate limits how fast this policy spreads to workloads that it has not changed yet: at
	// most this number start within the first hour, and their total at most doubles in each further
	// hour. It applies again after a change of recipe, resourcePolicy, containers, mode, canary or
	// method, and to workloads that are selected later. 0: no limit. Default: 10, with mode Inherit
	// no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartRate *int32 `json:"startRate,omitempty"`

	// schedule restricts when running pods may be changed. Reverts, and more memory after an
	// out-of-memory kill, are applied at any time. Absent: always.
	// +optional
	Schedule *Schedule `json:"schedule,omitempty"`

	// initialSizing configures new pods: "Target" applies the recommendation, and "Off" leaves them
	// unchanged. Default: Off for a generated VerticalPodAutoscaler until all running pods may be
	// changed, otherwise the setting of the VerticalPodAutoscaler.
	// +optional
	InitialSizing *InitialSizing `json:"initialSizing,omitempty"`

	// hpa configures resources that a HorizontalPodAutoscaler of the workload scales on: "LeaveOut"
	// does not change them, "Proceed" changes them anyway. Default: LeaveOut.
	// +optional
	HPA *HPAHandling `json:"hpa,omitempty"`
}

// RolloutMode is how far recommendations are applied.
// +kubebuilder:validation:Enum=Inherit;Observe;Recommend;OneShot;Canary;Auto
type RolloutMode string

const (
	// RolloutModeInherit uses the mode of the VerticalPodAutoscaler. It is the default.
	RolloutModeInherit RolloutMode = "Inherit"
	// RolloutModeObserve collects usage and shows no recommendation.
	RolloutModeObserve RolloutMode = "Observe"
	// RolloutModeRecommend shows recommendations and changes no pod.
	RolloutModeRecommend RolloutMode = "Recommend"
	// RolloutModeOneShot changes one pod of a workload in each round.
	RolloutModeOneShot RolloutMode = "OneShot"
	// RolloutModeCanary changes a share of the pods, then the rest.
	RolloutModeCanary RolloutMode = "Canary"
	// RolloutModeAuto changes all pods.
	RolloutModeAuto RolloutMode = "Auto"
)

// Canary configures the pods that are changed first.
type Canary struct {
	// percentage is the share of the pods of a workload that is changed first, in percent, rounded
	// down but at least one pod. From 1 to 100. Required for mode Canary. Example: 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percentage *int32 `json:"percentage,omitempty"`

	// observationPeriod is how long the changed pods are observed. At least 1m. Default: the period
	// of safety, else 5m. Example: 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	ObservationPeriod *metav1.Duration `json:"observationPeriod,omitempty"`

	// autoPromote changes the remaining pods automatically if all canary pods succeeded for the
	// whole period. Otherwise, promote the canary by setting this field. Default: false.
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

// Schedule restricts when running pods may be changed.
type Schedule struct {
	// windows are the times of the day. Empty: the whole day. At most 32. Example: [{start:
	// "22:00", end: "06:00"}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Windows []Window `json:"windows,omitempty"`

	// daysOfWeek are the days on which windows open. A window over midnight belongs to the day on
	// which it opens. Empty: every day. Example: [Saturday, Sunday].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	DaysOfWeek []DayOfWeek `json:"daysOfWeek,omitempty"`

	// timezone is the time zone of the schedule, by its name in the IANA time zone database.
	// Default: UTC. Example: Europe/Berlin.
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

	// end is the first minute after the window, as HH:MM. An end before start is on the next day.
	// Required.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +kubebuilder:validation:MaxLength=5
	End string `json:"end"`
}

// DayOfWeek is the English name of a day.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type DayOfWeek string

// InitialSizing configures the resources of new pods.
// +kubebuilder:validation:Enum=Off;Target
type InitialSizing string

const (
	// InitialSizingOff leaves new pods unchanged.
	InitialSizingOff InitialSizing = "Off"
	// InitialSizingTarget applies the recommendation to new pods.
	InitialSizingTarget InitialSizing = "Target"
)

// HPAHandling configures resources that a HorizontalPodAutoscaler scales on.
// +kubebuilder:validation:Enum=LeaveOut;Proceed
type HPAHandling string

const (
	// HPALeaveOut does not change them. It is the default.
	HPALeaveOut HPAHandling = "LeaveOut"
	// HPAProceed changes them anyway.
	HPAProceed HPAHandling = "Proceed"
)

// Safety configures when a harmful change is reverted. Only lowered resources can do harm. A revert
// never lowers a resource.
type Safety struct {
	// autoRevert reverts a change if the pod does worse after it. Default: true with the modes
	// OneShot, Canary and Auto, otherwise false.
	// +optional
	AutoRevert *bool `json:"autoRevert,omitempty"`

	// observationPeriod is how long a changed pod is observed. At least 1m. Default: the period of
	// the canary, else 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	ObservationPeriod *metav1.Duration `json:"observationPeriod,omitempty"`

	// restarts is the number of restarts since the change that reverts it, for a container with
	// lowered resources. At least 1. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Restarts *int32 `json:"restarts,omitempty"`

	// throttle is the share of scheduling periods in which a container with a lowered CPU limit may
	// be throttled. A larger share over five minutes reverts the change. A decimal from 0 to 1, in
	// quotes. "0" disables the check. Requires Prometheus. Default: "0.5".
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`
	Throttle *string `json:"throttle,omitempty"`

	// pressure is the share of time that a container with a lowered CPU request may wait for CPU. A
	// larger share over five minutes, at least twice the share before the change, reverts it. A
	// decimal from 0 to 1, in quotes. "0" disables the check. Requires Prometheus, and nodes with
	// cgroup v2. Default: "0.3".
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`
	Pressure *string `json:"pressure,omitempty"`
}

// Sharing lets the pods of a node share its free resources: each requests its steady-state usage
// and a part of the headroom of the node, instead of room for its own peak. Only pods with a recipe
// for sharing take part. The annotation loadline.dev/sharing: "off" on a workload, its pod template
// or its VerticalPodAutoscaler excludes its pods.
type Sharing struct {
	// mode switches sharing: "Off", "DryRun" (sharing only appears in metrics and in the log) or
	// "On". On requires rollout.mode Auto, or Canary once all pods may be changed. Until then it
	// acts as DryRun. The condition Sharing reports whether pods share. Default: Off.
	// +optional
	Mode *SharingMode `json:"mode,omitempty"`

	// resources are the resources to share. Default: [cpu].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=cpu;memory
	Resources []corev1.ResourceName `json:"resources,omitempty"`

	// evict allows evicting pods if the pods of a node need more than it has, or if the node
	// refuses memory to a pod after an out-of-memory kill. It requires that rollout.method evicts,
	// and respects rollout.schedule. The annotation loadline.dev/eviction-ranking on a workload,
	// its pod template or its VerticalPodAutoscaler sets the order of eviction: "low" (first),
	// "medium", "high", or "no-eviction" (never). Without it, medium for a StatefulSet or a single
	// replica, else low. Default: false.
	// +optional
	Evict *bool `json:"evict,omitempty"`

	// cpuLimit sets how CPU limits are treated. "Keep" keeps them. "NodeAllocatable"
	// raises the CPU limit of a running pod to the allocatable CPU of its node.
	// "Remove" does the same, because a limit cannot be removed in place, and removes
	// the CPU limit from new pods, unless a ResourceQuota counts CPU limits.
	// Default: Keep.
	// +optional
	CPULimit *SharingCPULimit `json:"cpuLimit,omitempty"`

	// nodeAutoscaler sets the effect of "On" in clusters with a node autoscaler: "DryRun" shares
	// nothing, "Accept" shares anyway. Default: DryRun.
	// +optional
	NodeAutoscaler *SharingNodeAutoscaler `json:"nodeAutoscaler,omitempty"`

	// maxEvictionRanking is the highest effective value of the annotation
	// loadline.dev/eviction-ranking: "low", "medium", "high" or "no-eviction". A higher value
	// counts as this one. Default: no-eviction.
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
	// SharingDryRun only shows the effect of sharing.
	SharingDryRun SharingMode = "DryRun"
	// SharingOn shares.
	SharingOn SharingMode = "On"
)

// SharingCPULimit sets how CPU limits are treated.
// +kubebuilder:validation:Enum=Keep;Remove;NodeAllocatable
type SharingCPULimit string

const (
	// SharingCPULimitKeep keeps them. It is the default.
	SharingCPULimitKeep SharingCPULimit = "Keep"
	// SharingCPULimitRemove removes them from new pods and raises them in running pods to the
	// allocatable CPU of the node.
	SharingCPULimitRemove SharingCPULimit = "Remove"
	// SharingCPULimitNodeAllocatable raises them in running pods to the allocatable CPU of the
	// node.
	SharingCPULimitNodeAllocatable SharingCPULimit = "NodeAllocatable"
)

// EvictionRanking is the order in which pods are evicted from a node.
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

// SharingNodeAutoscaler sets the effect of On in clusters with a node autoscaler.
// +kubebuilder:validation:Enum=DryRun;Accept
type SharingNodeAutoscaler string

const (
	// SharingNodeAutoscalerDryRun shares nothing. It is the default.
	SharingNodeAutoscalerDryRun SharingNodeAutoscaler = "DryRun"
	// SharingNodeAutoscalerAccept shares anyway.
	SharingNodeAutoscalerAccept SharingNodeAutoscaler = "Accept"
)
