package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerticalPodAutoscalerCheckpoint stores the usage history of one container under one
// VerticalPodAutoscaler, so that a restarted recommender resumes with it. The recommender creates,
// updates and deletes these objects, and users need not edit them. If you delete one, the
// recommender forgets the history of that container at its next start.
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

	// metadata is the standard object metadata. The name consists of the name of the
	// VerticalPodAutoscaler, a hyphen, and the name of the container.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec identifies the container.
	// +optional
	Spec VerticalPodAutoscalerCheckpointSpec `json:"spec,omitempty"`

	// status is the usage history. It is written together with the rest of the object, because
	// there is no status subresource.
	// +optional
	Status VerticalPodAutoscalerCheckpointStatus `json:"status,omitempty"`
}

// VerticalPodAutoscalerCheckpointList is a list of VerticalPodAutoscalerCheckpoint objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VerticalPodAutoscalerCheckpointList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of objects.
	Items []VerticalPodAutoscalerCheckpoint `json:"items"`
}

// VerticalPodAutoscalerCheckpointSpec identifies the container of a checkpoint.
type VerticalPodAutoscalerCheckpointSpec struct {
	// vpaObjectName is the name of the VerticalPodAutoscaler, in the same namespace. The
	// recommender deletes a checkpoint after its VerticalPodAutoscaler.
	VPAObjectName string `json:"vpaObjectName,omitempty"`

	// containerName is the name of the container in the pods.
	ContainerName string `json:"containerName,omitempty"`
}

// VerticalPodAutoscalerCheckpointStatus is the usage history of one container, merged over all pods
// of the workload.
type VerticalPodAutoscalerCheckpointStatus struct {
	// lastUpdateTime is the time of the last write by the recommender.
	// +optional
	// +nullable
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`

	// version is the format of the data. Only "v3" is supported. Checkpoints of other versions are
	// ignored.
	// +optional
	Version string `json:"version,omitempty"`

	// cpuHistogram is the distribution of CPU usage, in cores.
	// +optional
	CPUHistogram HistogramCheckpoint `json:"cpuHistogram,omitempty"`

	// memoryHistogram is the distribution of the memory peaks of each window, in bytes. A window is
	// a day by default.
	// +optional
	MemoryHistogram HistogramCheckpoint `json:"memoryHistogram,omitempty"`

	// firstSampleStart is the time of the oldest CPU sample in the histogram. Together with
	// lastSampleStart and totalSamplesCount it determines the confidence in the recommendation.
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

// HistogramCheckpoint is a distribution of usage in which samples lose weight with age. After one
// half-life, a day by default, a sample has half the weight of a new one.
type HistogramCheckpoint struct {
	// referenceTimestamp is the reference time of totalWeight. A sample taken at this time has its
	// plain weight, a later sample has more, an earlier one less.
	// +optional
	// +nullable
	ReferenceTimestamp metav1.Time `json:"referenceTimestamp,omitempty"`

	// bucketWeights maps the number of a bucket to its weight. Bucket numbers are decimal strings
	// in JSON from 0 to 175, and each bucket is 5% wider than the previous one. Weights are whole
	// numbers from 1 to 10000, where 10000 is the heaviest bucket. Buckets without weight are
	// missing. Example: {"18": 5000, "34": 10000}.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BucketWeights map[int]uint32 `json:"bucketWeights,omitempty"`

	// totalWeight is the sum of the weights of all samples as of referenceTimestamp. The part of a
	// bucket is its weight divided by the sum of bucketWeights.
	// +optional
	TotalWeight float64 `json:"totalWeight,omitempty"`
}
