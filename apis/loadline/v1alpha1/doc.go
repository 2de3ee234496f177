// Package v1alpha1 defines the types of the API group loadline.dev/v1alpha1.
//
// SizingPolicy configures whether and how the pods of many workloads are sized. It is
// cluster-scoped and written by cluster operators. SizingRecord is the updater's state of one
// workload under a policy: its changes with their outcomes, and the next steps.
//
// The comments of the fields become the text of `kubectl explain`, and the markers become the
// custom resource definitions in deploy/crds. The definitions have no defaults: an absent field
// stays absent, and each program applies its default.
//
// The package decodes all objects that the schemas accept, and has no other behavior. Package
// convert validates policies.
//
// +k8s:deepcopy-gen=package
// +groupName=loadline.dev
package v1alpha1
