// Package v1beta1 holds the wire types of the API group
// autoscaling.k8s.io/v1beta1, the first version.
//
// No API server knows this version any more and no custom resource definition
// declares it: the package only decodes old manifests. Its objects chose pods
// by label selector, where later versions name a workload. It has no client,
// and nothing in Loadline acts on its objects.
//
// Types whose shape did not change on the way to v1beta2 or v1 are those of
// the later package.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.k8s.io
package v1beta1
