// Package recommender measures a pass of the recommender on a local control plane
// with many pods, and that of the reference recommender beside it.
//
// It fills a cluster with Deployments that play recorded usage, lets a
// recommender serve them from nothing until every VPA has a recommendation, and
// then looks at some passes: how long each step took, what was asked of the API
// server, processor time and memory. `make scale` runs it and puts the table
// into docs/scale.md. It fails when a pass of ours takes longer than -limit.
package recommender
