// Package trace reads recorded usage from files, for the backtester.
//
// A file is a CSV, plain or gzip-compressed. The samples of each container are consecutive and in
// order of time. Read yields one replay.Recording after the other and holds only one in memory. An
// error in a file is a Problem with file, line and column. A container with a problem is skipped,
// or kept if the problem is only a warning, and reading continues.
package trace

import (
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// Columns of a file, in any order. Requests, limits and waiting are optional, and one of the two
// usage columns.
const (
	workload = iota
	container
	timestamp
	cpuUsage
	memoryUsage
	cpuRequest
	memoryRequest
	cpuLimit
	memoryLimit
	cpuWaiting
	columns
)

var names = [columns]string{
	"workload", "container", "timestamp", "cpu_cores", "memory_bytes",
	"cpu_request_cores", "memory_request_bytes", "cpu_limit_cores", "memory_limit_bytes",
	"cpu_waiting_share",
}

// Options configure Read.
type Options struct {
	// MinMemory raises lower samples, in bytes. Hypervisors may report none for a running guest.
	MinMemory float64
}

// Read yields the recordings and the problems of a file. A warning about a container comes with its
// recording, otherwise one of the two is nil.
func Read(content io.Reader, file string, o Options) iter.Seq2[*replay.Recording, *Problem] {
	return func(yield func(*replay.Recording, *Problem) bool) {
		r := &reader{options: o, yield: yield, seen: map[string]bool{}}
		if problem := r.read(content, file); problem != nil && !r.stopped {
			yield(nil, problem)
		}
	}
}

type reader struct {
	*lines
	options Options
	yield   func(*replay.Recording, *Problem) bool
	stopped bool

	capacity int // samples of the previous container, a guess for this one
	seen     map[string]bool

	name        string
	current     *replay.Recording
	broken      bool // the current container has a problem and is skipped
	gap         gap
	empty       empty
	firstValues [columns]string // request and limit columns of the first line
}

type gap struct {
	line   int
	length int64
}

// empty are lines without usage, which count as gaps.
type empty struct {
	rows, line int   // count, and the first line
	last       int64 // time of the last one, nanoseconds since 1970
}

func (r *reader) read(content io.Reader, file string) (problem *Problem) {
	if r.lines, problem = newLines(content, file, names[:], timestamp+1); problem != nil {
		return problem
	}
	if r.positions[cpuUsage] < 0 && r.positions[memoryUsage] < 0 {
		return r.problem(names[cpuUsage], "is missing, and %s too: expected at least one of them", names[memoryUsage])
	}
	for !r.stopped {
		more, problem := r.next()
		switch {
		case !more && problem != nil:
			problem.Series = r.name
			return problem // the container is incomplete
		case !more && len(r.seen) == 0:
			return r.problem("", "has no samples: expected at least one line after the first")
		case !more:
			r.emit()
			return nil
		case problem != nil: // the container of the line is unknown
			r.fail(problem)
			continue
		}
		if r.current == nil || string(r.text(container)) != r.current.Container || string(r.text(workload)) != r.current.Workload {
			r.begin()
		}
		if !r.broken && !r.stopped {
			r.sample()
		}
	}
	return nil
}

func (r *reader) begin() {
	r.emit()
	r.capacity = 0
	if r.current != nil {
		r.capacity = len(r.current.At)
	}
	r.current = &replay.Recording{Dataset: r.file, Workload: string(r.text(workload)), Container: string(r.text(container))}
	r.name, r.broken, r.gap, r.empty = r.current.Workload+"/"+r.current.Container, false, gap{}, empty{}
	for c := cpuRequest; c <= memoryLimit; c++ {
		r.firstValues[c] = string(r.text(c))
	}
	switch {
	case r.current.Container == "":
		r.fail(r.problem(names[container], "is empty: expected a name"))
	case r.seen[r.name]:
		r.fail(r.problem(names[container], "was there before: expected all lines of a container one after the other"))
	default:
		r.declared(resources.CPU, cpuRequest, cpuLimit, 1000)
		r.declared(resources.Memory, memoryRequest, memoryLimit, 1)
	}
	r.seen[r.name] = true
}

func (r *reader) declared(k resources.Kind, request, limit int, scale float64) {
	if value, ok := r.number(request); ok && value > 0 {
		r.current.Requests = r.current.Requests.With(k, resources.FromFloat(math.Round(value*scale)))
	}
	if value, ok := r.number(limit); ok && value > 0 {
		r.current.Limits = r.current.Limits.With(k, resources.FromFloat(math.Round(value*scale)))
	}
}

func (r *reader) number(column int) (value float64, known bool) {
	value, problem := r.value(column)
	if problem != nil {
		r.fail(problem)
	}
	return value, !math.IsNaN(value)
}

func (r *reader) sample() {
	const latest = 5e9 // seconds since 1970, in the year 2128
	at, ok := r.number(timestamp)
	if r.broken {
		return
	}
	if !ok || at > latest {
		r.fail(r.problem(names[timestamp], "is %q: expected seconds since 1970", r.text(timestamp)))
		return
	}
	instant := int64(math.Round(at * 1e9))
	if before, known := r.previousTime(); known && instant <= before {
		r.fail(r.problem(names[timestamp], "is %s, not later than %s in the line before: expected rising time", r.text(timestamp),
			strconv.FormatFloat(float64(before)/1e9, 'f', -1, 64)))
		return
	}
	cpu, hasCPU := r.number(cpuUsage)
	memory, hasMemory := r.number(memoryUsage)
	waiting, _ := r.number(cpuWaiting)
	if waiting > 1 {
		r.fail(r.problem(names[cpuWaiting], "is %s: expected a share of time, from 0 to 1", r.text(cpuWaiting)))
	}
	for c := cpuRequest; c <= memoryLimit && !r.broken; c++ {
		if string(r.text(c)) != r.firstValues[c] {
			r.fail(r.problem(names[c], "is %q, was %q: expected the same in all lines of a container", r.text(c), r.firstValues[c]))
		}
	}
	if r.broken {
		return
	}
	if !hasCPU && !hasMemory {
		r.skip(instant)
		return
	}
	if n := len(r.current.At); n > 0 && instant-r.current.At[n-1] > r.gap.length {
		r.gap = gap{r.line, instant - r.current.At[n-1]}
	}
	if r.positions[cpuWaiting] >= 0 {
		r.current.Waiting = append(r.current.Waiting, waiting)
	}
	if r.current.At == nil {
		r.current.At = make([]int64, 0, r.capacity)
		for k := range r.current.Use {
			r.current.Use[k] = make([]float64, 0, r.capacity)
		}
	}
	r.current.At = append(r.current.At, instant)
	r.current.Use[resources.CPU] = append(r.current.Use[resources.CPU], cpu*1000)
	r.current.Use[resources.Memory] = append(r.current.Use[resources.Memory], math.Max(memory, r.options.MinMemory)) // NaN stays
}

func (r *reader) previousTime() (at int64, known bool) {
	if n := len(r.current.At); n > 0 {
		at = r.current.At[n-1]
	}
	return max(at, r.empty.last), len(r.current.At) > 0 || r.empty.rows > 0
}

func (r *reader) skip(instant int64) {
	if r.empty.rows == 0 {
		r.empty.line = r.line
	}
	r.empty.rows, r.empty.last = r.empty.rows+1, instant
}

// fail reports the first problem of the current container.
func (r *reader) fail(p *Problem) {
	if p.Series = r.name; !r.broken && !r.stopped {
		r.stopped = !r.yield(nil, p)
	}
	r.broken = true
}

func (r *reader) emit() {
	if r.current == nil || r.broken || r.stopped {
		return
	}
	switch {
	case len(r.current.At) < 2 && r.empty.rows > 0:
		r.fail(r.emptyProblem("two samples or more"))
		return
	case len(r.current.At) < 2:
		r.fail(r.problem(names[timestamp], "is the only sample: expected at least two"))
		return
	}
	r.current.Class = replay.Classify(r.current)
	r.stopped = !r.yield(r.current, r.warning())
}

// maxOddSteps is the share of steps that may differ from the usual one by half without a warning. A
// gap is more than gapSteps usual steps long.
const (
	maxOddSteps = 0.05
	gapSteps    = 3
)

func (r *reader) warning() *Problem {
	text := DescribeGaps(r.current)
	p := &Problem{File: r.file, Line: r.gap.line, Column: names[timestamp], Series: r.name, Text: text}
	switch {
	case r.empty.rows > 0:
		p = r.emptyProblem("at least one of them; such a line is a gap")
		if text != "" {
			p.Text += "; " + text
		}
	case text == "":
		return nil
	}
	p.Warning = true
	return p
}

func (r *reader) emptyProblem(expected string) *Problem {
	return &Problem{File: r.file, Line: r.empty.line, Column: names[cpuUsage], Series: r.name,
		Text: fmt.Sprintf("is empty, and %s too, in %d of %d lines: expected %s", names[memoryUsage], r.empty.rows, r.empty.rows+len(r.current.At), expected)}
}

// DescribeGaps describes gaps and mixed steps in a recording. It is empty if there are none.
func DescribeGaps(r *replay.Recording) string {
	step := int64(r.Step())
	odd, gaps, longest := 0, 0, int64(0)
	for i := 1; i < len(r.At); i++ {
		length := r.At[i] - r.At[i-1]
		longest = max(longest, length)
		if length > gapSteps*step {
			gaps++
		} else if 2*length < step || 2*length > 3*step {
			odd++
		}
	}
	switch {
	case float64(odd) > maxOddSteps*float64(len(r.At)):
		return fmt.Sprintf("%d of %d steps are not about %s as usual: expected equal steps", odd, len(r.At)-1, time.Duration(step))
	case gaps > 0:
		return fmt.Sprintf("%d gaps, the longest of %s: expected a sample every %s; totals exclude gaps", gaps, time.Duration(longest), time.Duration(step))
	}
	return ""
}
