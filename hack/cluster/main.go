package main

import (
	"os"

	"loadline.dev/loadline/hack/cluster/local"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 {
		if run, ok := components[args[0]]; ok {
			os.Exit(run(args))
		}
	}
	os.Exit(local.Main(args))
}
