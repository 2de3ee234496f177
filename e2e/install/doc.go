// Package install tests the installation of Loadline on one real node with a pod network. The
// images are loaded into the node's containerd, the three programs run as pods with the roles of
// the manifests, and the API server reaches the webhook through its Service, which kube-proxy
// serves. The tests upgrade Loadline under load, kill its processes, and check that an uninstall
// removes everything.
//
// The programs have the flags of the manifests, so the measured times are realistic. The tests run
// with `make e2e-install`, in a separate network namespace.
package install
