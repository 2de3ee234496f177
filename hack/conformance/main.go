package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("vectors", "testdata/vectors", "directory with vector files")
	if flags.Parse(args) != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	report, err := suite().Run(*dir)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if err := report.Print(stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if _, failed, _ := report.Counts(); failed > 0 {
		return 1
	}
	return 0
}
