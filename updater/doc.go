// Package updater applies the recommendations of VerticalPodAutoscalers to running pods: it resizes them in
// place, or evicts them so that they are created again with the new resources.
//
// run.go builds every part. loop.go is one pass from the caches to the API server: package view reads, package
// disruption plans, package actuate carries out. metrics.go counts, report.go reports skipped pods, and oom.go
// wakes the loop after OOM kills. Package policy computes the resources, as in the admission controller.
package updater
