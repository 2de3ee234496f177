// The recommender watches how much CPU and memory pods use and writes what they
// need into the status of VerticalPodAutoscaler objects.
//
// main parses the command line (Config), run connects and serves metrics and
// health, an assembly holds the informers, and Loop.RunOnce is one pass: read
// what changed, add usage, publish, save. The rooms beside it do the work of each
// step: intake and feed what comes in, ingest the samples, advice and status what
// goes out, checkpoint what must survive.
//
// It changes no pod: the updater and the admission controller do.
package main
