package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerticalPodAutoscalerCheckpoint keeps what the recommender has learned about
// one container under one VerticalPodAutoscaler, so that a restarted recommender
// goes on where it stopped. The recommender creates, writes and deletes these
// objects; people need not touch them. Deleting one makes the next start of the
// recommender forget that container's past.
//
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=vpacheckpoint;checkpoint;checkpoints
// +kubebuilder:printcolumn:name="VPA",type="string",JSONPath=".spec.vpaObjectName"
// +kubebuilder:printcolumn:name="Container",type="string",JSONPath=".spec.containerName"
// +kubebuilder:printcolumn:name="Samples",type="integer",JSONPath=".status.totalSamplesCount"
// +kubebuilder:printcolumn:name="Newest",type="date",JSONPath=".status.lastSampleStart"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/kubernetes/pull/63797"
type VerticalPodAutoscalerCheckpoint struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual object metadata. The name is the name of the
	// VerticalPodAutoscaler, a hyphen, and the name of the container.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says whose history this is.
	// +optional
	Spec VerticalPodAutoscalerCheckpointSpec `json:"spec,omitempty"`

	// status is the history. Unlike the status of other objects it is written
	// together with the rest; there is no status subresource.
	// +optional
	Status VerticalPodAutoscalerCheckpointStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerCheckpointList is a list of
// VerticalPodAutoscalerCheckpoint objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VerticalPodAutoscalerCheckpointList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the usual list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects.
	Items []VerticalPodAutoscalerCheckpoint `json:"items"`
}

// VerticalPodAutoscalerCheckpointSpec says whose history a checkpoint holds.
type VerticalPodAutoscalerCheckpointSpec struct {
	// vpaObjectName is the name of the VerticalPodAutoscaler, in the same
	// namespace. A checkpoint whose VerticalPodAutoscaler is gone is deleted.
	VPAObjectName string `json:"vpaObjectName,omitempty"`

	// containerName is the name of the container in the pods.
	ContainerName string `json:"containerName,omitempty"`
}

// VerticalPodAutoscalerCheckpointStatus is the history of one container, merged
// over all pods of the workload.
type VerticalPodAutoscalerCheckpointStatus struct {
	// lastUpdateTime is when the recommender last wrote this object.
	// +optional
	// +nullable
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`

	// version is the format of the data. Only "v3" is read; a checkpoint of
	// another version is ignored.
	// +optional
	Version string `json:"version,omitempty"`

	// cpuHistogram is the distribution of CPU usage, in cores.
	// +optional
	CPUHistogram HistogramCheckpoint `json:"cpuHistogram,omitempty"`

	// memoryHistogram is the distribution of the memory peaks of each window
	// (a day, unless configured otherwise), in bytes.
	// +optional
	MemoryHistogram HistogramCheckpoint `json:"memoryHistogram,omitempty"`

	// firstSampleStart is the time of the oldest CPU sample in the histogram.
	// Together with lastSampleStart and totalSamplesCount it tells how much the
	// recommendation can be trusted.
	// +optional
	// +nullable
	FirstSampleStart metav1.Time `json:"firstSampleStart,omitempty"`

	// lastSampleStart is the time of the newest CPU sample in the histogram.
	// +optional
	// +nullable
	LastSampleStart metav1.Time `json:"lastSampleStart,omitempty"`

	// totalSamplesCount is the number of CPU samples in the histogram.
	// +optional
	TotalSamplesCount int `json:"totalSamplesCount,omitempty"`
}

// HistogramCheckpoint is a distribution of usage whose samples lose weight with
// age: after one half-life (a day, unless configured otherwise) a sample counts
// half as much as a new one.
type HistogramCheckpoint struct {
	// referenceTimestamp is the moment to which totalWeight refers: a sample
	// taken then has its plain weight, a later one more, an earlier one less.
	// +optional
	// +nullable
	ReferenceTimestamp metav1.Time `json:"referenceTimestamp,omitempty"`

	// bucketWeights maps the number of a bucket (a decimal string in JSON; 0 to
	// 175, each bucket 5% wider than the one before) to its weight, a whole
	// number from 1 to 10000 where 10000 is the heaviest bucket. Buckets without
	// weight are missing. Example: {"18": 5000, "34": 10000}.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BucketWeights map[int]uint32 `json:"bucketWeights,omitempty"`

	// totalWeight is the sum of the weights of all samples as of
	// referenceTimestamp. Each bucket's share of it is its weight divided by the
	// sum of bucketWeights.
	// +optional
	TotalWeight float64 `json:"totalWeight,omitempty"`
}
