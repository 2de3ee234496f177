package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// SizingPolicy keeps the CPU and memory requests of many workloads right. It
// selects workloads by namespace, kind and label; for those that have no
// VerticalPodAutoscaler the recommender makes one. spec.rollout says how far
// running pods are changed, spec.safety when a change is taken back. Of several
// policies that select a workload only the one with the highest priority counts
// for it, and annotations of the workload and limits of a VerticalPodAutoscaler
// that a person wrote go before any policy; of two modes the more cautious one
// counts. A first object needs only spec.namespaces and
// spec.workloads; with rollout.mode "Recommend" it changes no pod and only shows
// what it would do.
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

	// metadata is the usual object metadata. The object belongs to no namespace.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want: which workloads, how boldly their pods may be
	// changed, and when a change is taken back. Required.
	Spec SizingPolicySpec `json:"spec"`

	// status is what came of it. It is written by the recommender only, at most
	// once a minute; edits by hand are overwritten.
	// +optional
	Status SizingPolicyStatus `json:"status,omitempty"`
}

// SizingPolicyList is a list of SizingPolicy objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SizingPolicyList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []SizingPolicy `json:"items"`
}

// SizingPolicySpec says which workloads are sized, and how.
type SizingPolicySpec struct {
	// priority decides between policies that select the same workload: the one
	// with the highest number is responsible for it, alone; of equal ones that
	// with the smaller name. From 1 to 1000. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority,omitempty"`

	// paused stops this policy: no pod is changed because of it, and nothing
	// that it made is removed. It stays responsible for its workloads. Nothing is
	// taken back either: a change that is under observation is judged when the
	// policy goes on, and never if that takes ten minutes more than the
	// observation. Default: false.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// recommender names the recommender that makes the VerticalPodAutoscalers of
	// this policy and writes its status, for clusters that run several (each
	// started with its own --recommender-name). Default: default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Recommender *string `json:"recommender,omitempty"`

	// namespaces are those whose workloads this policy selects. Required.
	Namespaces NamespaceSelection `json:"namespaces"`

	// workloads are the kinds that this policy selects, optionally only those
	// with a name or with labels. A workload that one entry fits is selected.
	// From 1 to 32 entries. Example: [{apiVersion: apps/v1, kind: Deployment}].
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Workloads []WorkloadSelection `json:"workloads"`

	// vpas says whether the recommender makes VerticalPodAutoscalers:
	// "IfMissing" makes one, of mode Off, for each selected workload that has
	// none; "Never" makes none, so that this policy counts only for workloads
	// whose VerticalPodAutoscaler somebody wrote. Default: IfMissing.
	// +optional
	VPAs *VPAMaking `json:"vpas,omitempty"`

	// vpaMetadata are labels and annotations of the VerticalPodAutoscalers that
	// the recommender makes for this policy, for example for tools that ask for
	// the label of an owner. Nothing is copied from the workload. Default: none.
	// +optional
	VPAMetadata *VPAMetadata `json:"vpaMetadata,omitempty"`

	// recipe says how recommendations are computed for the selected workloads:
	// the text of the annotation loadline.dev/recipe, which goes first where a
	// VerticalPodAutoscaler has it. Default: the recommender's flag --recipe.
	// Example: "loadline:cpu=tracking".
	// +optional
	// +kubebuilder:validation:MaxLength=1000
	Recipe *string `json:"recipe,omitempty"`

	// resourcePolicy limits recommendations, container by container, as in a
	// VerticalPodAutoscaler. It is written into those that the recommender makes
	// for this policy; others keep their own. Default: no limits.
	// +optional
	ResourcePolicy *vpav1.PodResourcePolicy `json:"resourcePolicy,omitempty"`

	// containers says which containers are left alone. It is written into the
	// VerticalPodAutoscalers that the recommender makes; others keep their own.
	// Default: none.
	// +optional
	Containers *ContainerSelection `json:"containers,omitempty"`

	// rollout says how far, how fast and when running pods are changed. When
	// absent, its mode is "Inherit".
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// safety says when a change that did harm is taken back. When absent, with
	// the defaults of its fields.
	// +optional
	Safety *Safety `json:"safety,omitempty"`

	// sharing lets the pods of a node share what the node has left, in place of
	// each having room for its own peak. When absent, nothing is shared.
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
}

// NamespaceSelection selects namespaces by name or by label.
//
// +kubebuilder:validation:XValidation:rule="has(self.selector) || has(self.names) && size(self.names) > 0",message="needs names or a selector; names: [\"*\"] selects all namespaces"
type NamespaceSelection struct {
	// names are the names of namespaces. "*" selects every namespace, but not
	// kube-system, kube-public, kube-node-lease and the namespace of the programs:
	// those are selected by their own name only. Names and selector add up. At
	// most 256. Example: [shop, shop-staging].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`

	// selector selects namespaces by their labels, in addition to names. It
	// never selects kube-system, kube-public, kube-node-lease and the namespace of
	// the programs. An empty selector selects all others. Example: {matchLabels:
	// {team: shop}}.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// exclude are the names of namespaces that are not selected, whatever names
	// and selector say. At most 256. Example: [shop-batch].
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
	// apiVersion is the group and version of the kind, as the manifest of a
	// workload has it. Required. Example: apps/v1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind: Deployment, StatefulSet and DaemonSet of apps/v1, CronJob
	// of batch/v1, or any other that has a scale subresource, as an Argo Rollout or
	// a CloneSet, which then needs a name and is found through the owners of pods.
	// Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name selects only workloads with this name. When empty, of any name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// selector selects only workloads with these labels (their own, not those of
	// their pods). Only for the four kinds that need no name. When absent, with
	// any labels. Example: {matchLabels: {tier: web}}.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// VPAMaking says whether VerticalPodAutoscalers are made.
// +kubebuilder:validation:Enum=IfMissing;Never
type VPAMaking string

const (
	// VPAsIfMissing makes one for each selected workload that has none. It is the
	// default.
	VPAsIfMissing VPAMaking = "IfMissing"
	// VPAsNever makes none.
	VPAsNever VPAMaking = "Never"
)

// VPAMetadata are labels and annotations of made VerticalPodAutoscalers.
type VPAMetadata struct {
	// labels of the made objects. Keys that begin with loadline.dev/ are those of
	// the programs. At most 32. Example: {owner: platform}.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the made objects. Keys that begin with loadline.dev/ are
	// those of the programs. At most 32.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ContainerSelection says which containers are left alone.
type ContainerSelection struct {
	// exclude are the names of containers that this policy does not size, such as
	// those of injected sidecars. At most 100. Example: [istio-proxy].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Exclude []string `json:"exclude,omitempty"`
}
