// Package v1beta2 contains the types of the API group autoscaling.k8s.io/v1beta2, the version
// before v1.
//
// The API server does not serve this version. The custom resource definitions declare it as
// deprecated, so that objects stored long ago stay readable. The package exists to generate that
// declaration and to decode old manifests. It has no client, and no program acts on its objects.
//
// Types that are unchanged in v1 are defined in package v1.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.k8s.io
package v1beta2
