// Package vectors runs files of conformance vectors against handlers.
//
// A vector is a case: an input, and the output of a reference for it. Suite.Run runs the handler of
// each case and returns a Report. A case with an intended difference is listed in Suite.ByDesign,
// and passes only if it differs in the listed way.
//
// The package only handles the file formats. The meaning of the kinds is in the handlers, next to
// the programs that they call.
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

// Handler runs production code on the input of a case. It returns nil if the output is as expected,
// else the differences.
type Handler func(c Case) error

// ErrUnsupported is the error of a handler for a case that needs a missing feature. The case is
// skipped.
var ErrUnsupported = errors.New("not yet supported")

// Deviation is a documented difference from the reference.
type Deviation struct {
	Reason string // the fixed defect, for users
	// Expected is a JSON merge patch (RFC 7396) from the output of the reference to the output of
	// Loadline.
	Expected string
}

// Suite configures a run of vectors.
type Suite struct {
	Handlers map[string]Handler   // by kind, a kind without handler is skipped
	ByDesign map[string]Deviation // by Case.Key
	Absent   map[string]string    // reasons by kind of features that are absent by design
}

// Outcome is the result of a case.
type Outcome int

// Outcomes of a case. ByDesign counts as passed.
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
	Detail  string // differences of a failure, or reason of a deviation
}

// FileReport holds the results of one file.
type FileReport struct {
	Name    string
	Err     error // why the file is unusable, counts as one failure
	Results []Result
}

// Report holds the results of a directory.
type Report struct {
	Files []FileReport
}

// Run runs all vectors of a directory. It returns an error if there are none.
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
		if err := runHandler(handler, c); errors.Is(err, ErrUnsupported) {
			return Result{c, Skipped, err.Error()}
		} else if err != nil {
			return Result{c, Failed, err.Error()}
		}
		return Result{c, Passed, ""}
	}
	if runHandler(handler, c) == nil {
		return Result{c, Failed, "gives the reference's output, but is listed as deviating by design: " + deviation.Reason}
	}
	ours, err := jsonpatch.MergePatch(c.Expected, []byte(deviation.Expected))
	if err != nil {
		return Result{c, Failed, fmt.Sprintf("expected output of the deviation: %v", err)}
	}
	changed := c
	changed.Expected = ours
	if err := runHandler(handler, changed); err != nil {
		return Result{c, Failed, "deviates in another way than documented: " + err.Error()}
	}
	return Result{c, ByDesign, deviation.Reason}
}

// runHandler turns a panic of the tested code into a failure of the case.
func runHandler(h Handler, c Case) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", p))
		}
	}()
	return h(c)
}

// Counts returns the numbers of passed (including by design), failed and skipped cases. An unusable
// file counts as one failure.
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

// Print writes a readable report: every file with its counts, failures, deviations and unsupported
// kinds, and a last line "N passed, M failed, K skipped".
func (r Report) Print(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps the first error
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
