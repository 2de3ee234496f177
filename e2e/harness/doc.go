// Package harness puts Loadline on a local control plane, for the promises in
// e2e and for the demo.
//
// Start brings a Cluster up and applies deploy/ to it as a user would. The
// programs then run as processes of this machine, each with the token of the
// service account that deploy/ gives it, so that a missing permission shows as
// it would in a pod. A Daemon can be stopped, killed and started again.
//
// The harness asserts nothing; tests and the demo do.
package harness
