// Package v1alpha1 holds the wire types of the API group loadline.dev/v1alpha1.
//
// SizingPolicy says for many workloads at once whether and how their pods are
// sized. It is an object of the cluster, written by whoever runs the platform.
// SizingRecord is what the updater remembers about one workload that a policy
// is responsible for: what it changed, with which outcome, and what comes next.
//
// The comments of the fields become the text of `kubectl explain`, the markers
// become the custom resource definitions in deploy/crds. The definitions have
// no defaults: what is absent stays absent, and each program knows what absent
// means.
//
// The package reads what the schema of the definitions lets pass, and has no
// other behaviour: package convert checks policies.
//
// +k8s:deepcopy-gen=package
// +groupName=loadline.dev
package v1alpha1
