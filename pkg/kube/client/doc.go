// Package client connects a program to the API server and decides what its
// caches hold.
//
// Load turns the Kube flags into a rest configuration, New into Clients, and
// Clients.WaitForServer checks that somebody answers. Factory and VPAFactory
// build informer factories whose transforms store trimmed objects: a cluster
// has many pods, and the programs read few of their fields. Trim documents
// which.
//
// PatchAdd and PatchTest are the operations of a JSON patch.
//
// It holds no knowledge of what the objects mean, and no retry policy besides
// the one at the start: client-go's reflectors retry by themselves.
package client
