// Command admission-controller sets the resources of new pods, and validates VerticalPodAutoscalers and SizingPolicies.
package main

import (
	"context"
	"os"

	admission "loadline.dev/loadline/admission-controller"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
)

func main() {
	config := admission.Default()
	program := flags.Program{
		Name:    "admission-controller",
		Version: serving.Version(),
		Config:  config,
		Logging: &config.Logging,
		Run:     func(ctx context.Context) error { return admission.Run(ctx, config, process.OS{}) },
	}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
