// Package v1beta2 holds the wire types of the API group
// autoscaling.k8s.io/v1beta2, the version before v1.
//
// The API server does not serve this version: the custom resource definitions
// declare it so that objects stored long ago stay readable, and mark it
// deprecated. The package exists to generate that declaration and to decode
// old manifests. It has no client, and nothing in Loadline acts on its objects.
//
// Types whose shape did not change on the way to v1 are those of package v1.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.k8s.io
package v1beta2
