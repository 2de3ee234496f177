// Package install installs Loadline as a new user does, on one real node with a pod
// network: the images are loaded into the node's containerd, the three programs run as
// pods with the roles of the manifests, and the API server reaches the webhook through
// its Service, which kube-proxy serves. It is upgraded under load, its processes are
// killed, and after it was uninstalled nothing is left.
//
// The programs have the flags of the manifests, so the times are those of a user. `make
// e2e-install` runs the tests in a network namespace of their own.
package install
