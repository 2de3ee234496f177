// Package admission sets the resources of new pods by the recommendation of their VPA, and validates VPAs and
// SizingPolicies. It refuses no pod: after a failure, a pod starts with the resources of its template.
//
// Run builds every part. handlers.go begins with a new pod. Package server serves HTTPS, mutate and validate
// decide, and certs manages the certificate that the API server trusts.
package admission
