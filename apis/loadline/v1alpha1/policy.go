package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// SizingPolicy manages the CPU and memory requests of many workloads. It selects workloads by
// namespace, kind and label. The recommender generates a VerticalPodAutoscaler for each workload
// that has none. spec.rollout configures how far running pods are changed, and spec.safety when a
// change is reverted. If several policies select a workload, only the one with the highest priority
// applies. Annotations of the workload and the limits of a user-created VerticalPodAutoscaler
// override any policy. Of two modes, the more conservative one applies. A minimal policy needs only
// spec.namespaces and spec.workloads. With rollout.mode "Recommend" it changes no pod and only
// shows recommendations.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name must have at most 63 characters: VPAs have it as a label"
// +kubebuilder:resource:path=sizingpolicies,scope=Cluster,shortName=sp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.rollout.mode"
// +kubebuilder:printcolumn:name="Priority",type="integer",JSONPath=".spec.priority"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Fuse Tripped",type="string",JSONPath=".status.conditions[?(@.type=='FuseTripped')].status"
// +kubebuilder:printcolumn:name="Selected",type="integer",JSONPath=".status.counts.selected"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Paused",type="boolean",JSONPath=".spec.paused",priority=1
// +kubebuilder:printcolumn:name="Degraded",type="string",JSONPath=".status.conditions[?(@.type=='Degraded')].status",priority=1
// +kubebuilder:printcolumn:name="Applied",type="integer",JSONPath=".status.counts.applied",priority=1
// +kubebuilder:printcolumn:name="Reverted",type="integer",JSONPath=".status.counts.reverted",priority=1
type SizingPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The object is cluster-scoped.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired configuration: the workloads, how far their pods may be changed, and when
	// a change is reverted. Required.
	Spec SizingPolicySpec `json:"spec"`

	// status is the observed state. Only the recommender writes it, at most once a minute. Manual
	// edits are overwritten.
	// +optional
	Status SizingPolicyStatus `json:"status,omitempty"`
}

// SizingPolicyList is a list of SizingPolicy objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SizingPolicyList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []SizingPolicy `json:"items"`
}

// SizingPolicySpec configures which workloads are sized, and how.
type SizingPolicySpec struct {
	// priority decides between policies that select the same workload. Only the policy with the
	// highest number is responsible for it, and of equal ones the one with the smaller name. From 1
	// to 1000. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority,omitempty"`

	// paused suspends this policy: it changes no pod, and no generated object is removed. It stays
	// responsible for its workloads. Nothing is reverted either. A change under observation is
	// evaluated when the policy resumes, or never if that is more than ten minutes after the end of
	// the observation. Default: false.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// recommender names the recommender that generates the VerticalPodAutoscalers of this policy
	// and writes its status, for clusters with several recommenders (each started with its own
	// --recommender-name). Default: default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Recommender *string `json:"recommender,omitempty"`

	// namespaces selects the namespaces of the workloads. Required.
	Namespaces NamespaceSelection `json:"namespaces"`

	// workloads are the selected kinds, optionally restricted to a name or to labels. A workload is
	// selected if one entry matches. From 1 to 32 entries. Example: [{apiVersion: apps/v1, kind:
	// Deployment}].
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Workloads []WorkloadSelection `json:"workloads"`

	// vpas configures whether the recommender generates VerticalPodAutoscalers: "IfMissing"
	// generates one, of mode Off, for each selected workload without one. "Never" generates none,
	// so that this policy applies only to workloads with a user-created VerticalPodAutoscaler.
	// Default: IfMissing.
	// +optional
	VPAs *VPAMaking `json:"vpas,omitempty"`

	// vpaMetadata are labels and annotations of the generated VerticalPodAutoscalers, for example
	// for tools that require an owner label. Nothing is copied from the workload. Default: none.
	// +optional
	VPAMetadata *VPAMetadata `json:"vpaMetadata,omitempty"`

	// recipe configures how recommendations are computed for the selected workloads, in the format
	// of the annotation loadline.dev/recipe. The annotation of a VerticalPodAutoscaler overrides
	// it. Default: the recommender's flag --recipe. Example: "loadline:cpu=tracking".
	// +optional
	// +kubebuilder:validation:MaxLength=1000
	Recipe *string `json:"recipe,omitempty"`

	// resourcePolicy limits the recommendations of each container, as in a VerticalPodAutoscaler.
	// It is copied into generated VerticalPodAutoscalers. Others keep their own. Default: no
	// limits.
	// +optional
	ResourcePolicy *vpav1.PodResourcePolicy `json:"resourcePolicy,omitempty"`

	// containers configures which containers are skipped. It is copied into generated
	// VerticalPodAutoscalers. Others keep their own. Default: none.
	// +optional
	Containers *ContainerSelection `json:"containers,omitempty"`

	// rollout configures how far, how fast and when running pods are changed. Absent: mode
	// "Inherit".
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// safety configures when a harmful change is reverted. Absent: the defaults of its fields.
	// +optional
	Safety *Safety `json:"safety,omitempty"`

	// sharing lets the pods of a node share its free resources, instead of each having room for its
	// own peak. Absent: no sharing.
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
}

// NamespaceSelection selects namespaces by name or by label.
//
// +kubebuilder:validation:XValidation:rule="has(self.selector) || has(self.names) && size(self.names) > 0",message="needs names or a selector; names: [\"*\"] selects all namespaces"
type NamespaceSelection struct {
	// names are the names of namespaces. "*" selects every namespace except kube-system,
	// kube-public, kube-node-lease and the namespace of the programs, which must be selected by
	// name. Names and selector add up. At most 256. Example: [shop, shop-staging].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`

	// selector selects namespaces by their labels, in addition to names. It never selects
	// kube-system, kube-public, kube-node-lease and the namespace of the programs. An empty
	// selector selects all others. Example: {matchLabels: {team: shop}}.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// exclude are the names of namespaces that are never selected, regardless of names and
	// selector. At most 256. Example: [shop-batch].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Exclude []string `json:"exclude,omitempty"`
}

// WorkloadSelection selects workloads of one kind.
//
// +kubebuilder:validation:XValidation:rule="self.apiVersion == 'apps/v1' && self.kind in ['Deployment', 'StatefulSet', 'DaemonSet'] || self.apiVersion == 'batch/v1' && self.kind == 'CronJob' || has(self.name) && size(self.name) > 0",message="only Deployment, StatefulSet and DaemonSet of apps/v1 and CronJob of batch/v1 can be selected without a name: workloads of other kinds are found by their name"
type WorkloadSelection struct {
	// apiVersion is the group and version of the kind, as in the manifest of a workload. Required.
	// Example: apps/v1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind: Deployment, StatefulSet and DaemonSet of apps/v1, CronJob of batch/v1, or
	// any other kind with a scale subresource, such as an Argo Rollout or a CloneSet. Other kinds
	// require a name and are found through the owners of pods. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name selects only workloads with this name. Empty: any name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// selector selects only workloads with these labels (on the workload, not on its pods). Only
	// for the four kinds that need no name. Absent: any labels. Example: {matchLabels: {tier:
	// web}}.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// VPAMaking configures whether VerticalPodAutoscalers are generated.
// +kubebuilder:validation:Enum=IfMissing;Never
type VPAMaking string

const (
	// VPAsIfMissing generates one for each selected workload without one. It is the default.
	VPAsIfMissing VPAMaking = "IfMissing"
	// VPAsNever generates none.
	VPAsNever VPAMaking = "Never"
)

// VPAMetadata are labels and annotations of generated VerticalPodAutoscalers.
type VPAMetadata struct {
	// labels of the generated objects. Keys that begin with loadline.dev/ are reserved for the
	// programs. At most 32. Example: {owner: platform}.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the generated objects. Keys that begin with loadline.dev/ are reserved for the
	// programs. At most 32.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ContainerSelection configures which containers are skipped.
type ContainerSelection struct {
	// exclude are the names of containers that this policy does not size, such as injected
	// sidecars. At most 100. Example: [istio-proxy].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Exclude []string `json:"exclude,omitempty"`
}
