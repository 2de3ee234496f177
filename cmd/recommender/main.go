// Command recommender writes recommended resources into the status of VerticalPodAutoscalers.
package main

import (
	"context"
	"os"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender"
)

func main() {
	config := recommender.Default()
	program := flags.Program{
		Name:    "recommender",
		Version: serving.Version(),
		Config:  config,
		Logging: &config.Logging,
		Run:     func(ctx context.Context) error { return recommender.Run(ctx, config, process.OS{}) },
	}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
