// Command admission-controller gives new pods the resources their VPA
// recommends, and checks VPAs and SizingPolicies before they are stored.
//
// main parses the flags of Config; run builds every part and waits. The parts live in
// the folders beside this file: server speaks HTTPS, mutate and validate decide, certs
// makes the API server trust us. What becomes of a new pod is read in handlers.go first.
//
// A pod is never refused: whatever fails, it starts with what it asked for.
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
		Name:    "admission-controller",
		Version: serving.Version(),
		Config:  &config,
		Logging: &config.Logging,
		Run:     func(ctx context.Context) error { return run(ctx, config) },
	}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
