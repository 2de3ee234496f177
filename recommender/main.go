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
