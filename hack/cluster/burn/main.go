package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(burn(os.Args[0], os.Args[1:]))
}

func burn(name string, args []string) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	cpu := flags.String("cpu", "", "cores to use: AMOUNT:DURATION,AMOUNT:DURATION,...,AMOUNT such as 50m:30s,400m")
	memory := flags.String("memory", "", "memory to use: the same, such as 20Mi:30s,100Mi")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "burn: want only flags, got %q\n", flags.Args())
		return 2
	}
	p, err := newPlan(*cpu, *memory)
	if err != nil {
		fmt.Fprintln(os.Stderr, "burn:", err)
		return 2
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	if err := p.run(stop); err != nil {
		fmt.Fprintln(os.Stderr, "burn:", err)
		return 1
	}
	return 0
}
