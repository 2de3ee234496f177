// Package recommender observes the CPU and memory usage of pods and writes recommended resources into the
// status of VerticalPodAutoscalers. It changes no pod.
//
// Run connects and serves metrics and health, an assembly holds the informers, and Loop.RunOnce is one pass:
// read changes, add usage, publish, save. The packages beside it do the work of each step: model is the state
// of the cluster, recommend and status compute and write statuses, checkpoints stores usage histories, backfill
// loads history, and quality measures recommendations.
package recommender
