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

import (
	"context"
	"os"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/serving"
)

func main() {
	config := Default()
	program := flags.Program{
		Name:    "recommender",
		Version: serving.Version(),
		Config:  config,
		Logging: &config.Logging,
		Run:     func(ctx context.Context) error { return run(ctx, config) },
	}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
