// Package v1 holds the wire types of the API group autoscaling.k8s.io/v1.
//
// VerticalPodAutoscaler says whose pods to size, within which limits and how
// boldly; its status carries the recommendation.
// VerticalPodAutoscalerCheckpoint keeps what the recommender has learned about
// one container, so that a restart forgets nothing.
//
// The JSON shape is the one that clients of the Vertical Pod Autoscaler 1.8.1
// know, not one field more; e2e/compat proves it. The comments of the fields
// become the text of `kubectl explain`, the markers become the custom resource
// definitions in deploy/crds.
//
// The package has no behaviour: package convert turns these objects into
// values, and the admission controller applies defaults and checks them.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.k8s.io
package v1
