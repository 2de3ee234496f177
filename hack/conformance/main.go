// Command conformance runs every vector file of a directory through production code and reports the
// result of each case.
//
// Each kind of case has a handler, which only translates between the case and calls of production
// code. A kind without handler is reported as not yet supported, unless it is absent by design.
// Cases with an intended improvement over the reference are in by_design.json, each with a JSON
// merge patch from the output of the reference to the output of Loadline.
//
// The exit code is 0 if no case failed, 1 if one did, and 2 for a wrong command line.
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
	s, err := suite()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	report, err := s.Run(*dir)
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
