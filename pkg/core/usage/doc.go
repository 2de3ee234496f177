// Package usage turns samples of running containers into histories that outlive
// the containers.
//
// A series is one history: that of all containers with the same namespace,
// container name and pod labels. A tracked container is one running instance; it
// feeds its series and owns the window in which its memory peak is sought. Store
// holds both in lists; slots and names go when a series expires or a container
// is forgotten, so a store is as large as what it knows.
//
// Write, then read: Track, Feed, Forget, Observe, ObserveOOM, Resume, SetRules,
// Expire, Fold and Absorb need the store for themselves; all else may run side by side.
// There is no lock.
//
// The package does not know VPAs, does not log and never asks for the time.
package usage
