// Package e2e keeps Loadline's promises to its users, one file each, on a real
// API server with real controllers and simulated nodes.
//
// All promises share one local control plane, which TestMain starts when the
// variable LOADLINE_CLUSTER names its program (`make e2e` does that), and the
// three programs, run under the roles of deploy/. A promise that kills or holds a program while
// others need it has one of its own. After the last promise the
// audit log must show that no request of theirs was forbidden and that no
// permission was superfluous.
package e2e
