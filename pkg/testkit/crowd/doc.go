// Package crowd is a large cluster that needs no room: an API server whose
// objects are made while they are sent, for measuring what programs keep of them.
//
// Its objects look like those of a real cluster: pods of two containers and an
// init container with probes, volumes, environment and managed fields, several
// of each Deployment, and old ReplicaSets of earlier revisions. Equal
// numbers give equal objects.
package crowd
