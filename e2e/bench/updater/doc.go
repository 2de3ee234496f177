// Package updater measures how long the updater takes when every pod of many VPAs
// needs a resize in place at once, and the updater of the reference beside it.
//
// For each size it makes Deployments of two pods and VPAs with recommendations that
// are written by hand, runs an updater from its start until all pods are resized, and
// removes everything again. `make scale-updater` runs it and puts the table into
// docs/scale.md. It fails when a pod is evicted, or has not what is recommended in
// the end.
package updater
