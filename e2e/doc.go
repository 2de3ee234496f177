// Package e2e tests Loadline's promises to its users, one file each, on a real API server with real
// controllers and simulated nodes.
//
// All promises share the three programs, which run under the roles of deploy/, and one local
// control plane. TestMain starts it if the variable LOADLINE_CLUSTER names its program, as with
// `make e2e`. A promise that kills or suspends a program uses separate ones. After the last
// promise, the audit log must show no forbidden requests of the programs and no superfluous
// permissions.
package e2e
