// Command updater makes running pods have what VerticalPodAutoscaler objects
// recommend: it resizes them in place, or evicts them so that they come back
// with the new sizes.
//
// main.go parses flags (config.go), run.go wires everything, and loop.go shows
// one pass from the caches to the API server: package view reads, package
// disruption plans, package actuate carries out. metrics.go counts, report.go reports what
// stays undone, and oom.go wakes the loop for pods that were killed for want of memory.
//
// What a pod would get is not decided here but in package policy, which the
// admission controller uses too.
package main

import (
	"context"
	"os"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/serving"
)

func main() {
	config := Default()
	program := flags.Program{
		Name:    "updater",
		Version: serving.Version(),
		Config:  config,
		Logging: &config.Logging,
		Run:     func(ctx context.Context) error { return run(ctx, config, os.Stdout) },
	}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
