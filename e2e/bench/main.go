// Command bench measures the programs on a local control plane, with one subcommand for each. `make
// load`, `make rest`, `make scale` and `make scale-updater` run it.
package main

import (
	"fmt"
	"os"

	"loadline.dev/loadline/e2e/bench/recommender"
	"loadline.dev/loadline/e2e/bench/rest"
	"loadline.dev/loadline/e2e/bench/updater"
	"loadline.dev/loadline/e2e/bench/webhook"
)

func main() {
	commands := map[string]func(args []string){"webhook": webhook.Main, "rest": rest.Main, "recommender": recommender.Main, "updater": updater.Main}
	if len(os.Args) > 1 {
		if command := commands[os.Args[1]]; command != nil {
			command(os.Args[2:])
			return
		}
	}
	fmt.Fprintln(os.Stderr, "bench: the first argument must be webhook, rest, recommender or updater; -h after it lists its flags")
	os.Exit(2)
}
