// The recommender watches how much CPU and memory pods use and writes what they
// need into the status of VerticalPodAutoscaler objects.
//
// main parses the command line (Config), run connects and serves metrics and health, an
// assembly holds the informers, and Loop.RunOnce is one pass: read what changed, add
// usage, publish, save. The packages beside it do the work of each step: model knows what
// the cluster looks like, recommend and status make what goes out, checkpoints saves what
// must survive, backfill loads history, and quality says how good all of it is.
//
// It changes no pod: the updater and the admission controller do.
package main
