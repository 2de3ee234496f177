// Package updater applies the recommendations of VerticalPodAutoscalers to running pods: it resizes them in
// place, or evicts them so that they are created again with the new resources.
//
// program.go builds every part. Loop.RunOnce makes one iteration: it reads the caches, plans, runs the plan and
// publishes skips, events and metrics.
package updater
