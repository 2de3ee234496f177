// Package vectors runs files of conformance vectors against handlers.
//
// A vector is a case: an input, and the output that some reference gave for it. Load reads a directory of vector files,
// Suite says which handler runs which kind of case, Suite.Run makes a Report of it. Typed makes a handler of a
// function; Compare finds the differences of two JSON values, with a tolerance for fractions.
//
// A case that production code answers differently on purpose is listed in
// Suite.ByDesign: it passes only if it differs in the listed way.
//
// The package knows the formats of the files, not the meaning of any kind; the
// handlers live with the programs whose code they call.
package vectors

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// Handler runs production code on the input of a case. It returns nil if the
// output is as expected, else what is different.
type Handler func(c Case) error

// ErrUnsupported is what a handler returns for a case that needs a feature which is not there yet. The case is skipped.
var ErrUnsupported = errors.New("not yet supported")

// Deviation is a documented difference from the reference.
type Deviation struct {
	Reason string // which defect is fixed, for people
	// Expected is a JSON merge patch (RFC 7396) that turns the reference's output into ours.
	Expected string
}

// Suite is what vectors are run with.
type Suite struct {
	Handlers map[string]Handler   // by kind; a kind without handler is skipped
	ByDesign map[string]Deviation // by Case.Key
	Absent   map[string]string    // reasons by kind of feature that is absent by design
}

// Outcome says how a case ended.
type Outcome int

// The outcomes. ByDesign counts as passed.
const (
	Passed Outcome = iota
	ByDesign
	Failed
	Skipped
	Absent
)

// Result is the outcome of one case.
type Result struct {
	Case    Case
	Outcome Outcome
	Detail  string // of a failure: what is different; of a deviation: the reason
}

// FileReport holds the results of one file.
type FileReport struct {
	Name    string
	Err     error // the file could not be used, which counts as one failure
	Results []Result
}

// Report holds the results of a directory.
type Report struct {
	Files []FileReport
}

// Run runs all vectors of a directory. The error says that there is none.
func (s Suite) Run(dir string) (Report, error) {
	files, err := Load(dir)
	if err != nil {
		return Report{}, err
	}
	var report Report
	for _, f := range files {
		r := FileReport{Name: f.Name, Err: f.Err}
		for _, c := range f.Cases {
			r.Results = append(r.Results, s.run(c))
		}
		report.Files = append(report.Files, r)
	}
	return report, nil
}

func (s Suite) run(c Case) Result {
	if reason, absent := s.Absent[c.Kind]; absent {
		return Result{c, Absent, reason}
	}
	handler := s.Handlers[c.Kind]
	if handler == nil {
		return Result{c, Skipped, "kind " + c.Kind + " is not yet supported"}
	}
	deviation, deviates := s.ByDesign[c.Key()]
	if !deviates {
		if err := guarded(handler, c); errors.Is(err, ErrUnsupported) {
			return Result{c, Skipped, err.Error()}
		} else if err != nil {
			return Result{c, Failed, err.Error()}
		}
		return Result{c, Passed, ""}
	}
	if guarded(handler, c) == nil {
		return Result{c, Failed, "gives the reference's output, but is listed as deviating by design: " + deviation.Reason}
	}
	ours, err := jsonpatch.MergePatch(c.Expected, []byte(deviation.Expected))
	if err != nil {
		return Result{c, Failed, fmt.Sprintf("expected output of the deviation: %v", err)}
	}
	changed := c
	changed.Expected = ours
	if err := guarded(handler, changed); err != nil {
		return Result{c, Failed, "deviates in another way than documented: " + err.Error()}
	}
	return Result{c, ByDesign, deviation.Reason}
}

// guarded turns a panic of the code under test into a failure of its case.
func guarded(h Handler, c Case) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", p))
		}
	}()
	return h(c)
}

// Counts returns how many cases passed (by design or not), failed and were
// skipped. A file that cannot be used counts as one failure.
func (r Report) Counts() (passed, failed, skipped int) {
	for _, f := range r.Files {
		p, x, s := f.counts()
		passed, failed, skipped = passed+p, failed+x, skipped+s
	}
	return passed, failed, skipped
}

func (f FileReport) counts() (passed, failed, skipped int) {
	if f.Err != nil {
		failed++
	}
	for _, result := range f.Results {
		switch result.Outcome {
		case Failed:
			failed++
		case Skipped, Absent:
			skipped++
		default:
			passed++
		}
	}
	return passed, failed, skipped
}

// Print writes the report for people: every file with its numbers, failures, deviations and kinds that are not yet
// supported, and last a line "N passed, M failed, K skipped".
func (r Report) Print(w io.Writer) error {
	out := bufio.NewWriter(w) // it keeps the first error
	for _, f := range r.Files {
		f.print(out)
	}
	passed, failed, skipped := r.Counts()
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return out.Flush()
}

func (f FileReport) print(out io.Writer) {
	passed, failed, _ := f.counts()
	unsupported, absent := map[string]int{}, map[string]int{}
	for _, result := range f.Results {
		switch result.Outcome {
		case Skipped:
			unsupported[result.Case.Kind]++
		case Absent:
			absent[result.Case.Kind+": "+result.Detail]++
		}
	}
	fmt.Fprintf(out, "%s: %d passed, %d failed, %d not yet supported\n", f.Name, passed, failed, sum(unsupported))
	if f.Err != nil {
		fmt.Fprintf(out, "  FAILED: %v\n", f.Err)
	}
	for _, result := range f.Results {
		switch result.Outcome {
		case Failed:
			fmt.Fprintf(out, "  FAILED %s (%s): %s\n    %s\n", result.Case.ID, result.Case.Kind, result.Case.Description, result.Detail)
		case ByDesign:
			fmt.Fprintf(out, "  by design %s (%s): %s\n", result.Case.ID, result.Case.Kind, result.Detail)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(unsupported)) {
		fmt.Fprintf(out, "  not yet supported: %s (%d)\n", kind, unsupported[kind])
	}
	for _, kind := range slices.Sorted(maps.Keys(absent)) {
		fmt.Fprintf(out, "  absent by design (%d): %s\n", absent[kind], kind)
	}
}

func sum(counts map[string]int) (total int) {
	for _, count := range counts {
		total += count
	}
	return total
}
