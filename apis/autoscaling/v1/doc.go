// Package v1 contains the types of the API group autoscaling.k8s.io/v1.
//
// VerticalPodAutoscaler selects the pods to size, the limits of the recommendation and the way pods
// are updated. Its status contains the recommendation. VerticalPodAutoscalerCheckpoint stores the
// usage history of one container across restarts of the recommender.
//
// The JSON format is compatible with clients of the Vertical Pod Autoscaler 1.8.1 and has no
// additional fields, as tested by e2e/compat. The comments of the fields become the text of
// `kubectl explain`, and the markers become the custom resource definitions in deploy/crds.
//
// The package has no behaviour: package convert turns these objects into values, and the admission
// controller applies defaults and validates them.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.k8s.io
package v1
