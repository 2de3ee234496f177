// Command updater applies the recommendations of VerticalPodAutoscalers to running pods.
package main

import (
	"context"
	"os"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater"
)

func main() {
	config := updater.Default()
	program := flags.Program{
		Name:    "updater",
		Version: serving.Version(),
		Config:  config,
		Logging: &config.Logging,
		Run:     func(ctx context.Context) error { return updater.Run(ctx, config, process.OS{}) },
	}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
