package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// longest is how long a line may be.
const longest = 64 << 10

// Options say how a file is read.
type Options struct {
	// LeastMemory raises lower samples of memory to it, in bytes: a container that
	// runs uses some, whatever a hypervisor reports of its guest.
	LeastMemory float64
}

// Read yields the containers of a file with a name, and its problems. With a
// warning comes the container that it is about; otherwise one of the two is nil.
func Read(content io.Reader, file string, o Options) iter.Seq2[*replay.Recording, *Problem] {
	return func(yield func(*replay.Recording, *Problem) bool) {
		r := &reader{file: file, options: o, yield: yield, seen: map[string]bool{}}
		if err := r.read(content); err != nil && !r.stopped {
			yield(nil, err)
		}
	}
}

type reader struct {
	file    string
	options Options
	yield   func(*replay.Recording, *Problem) bool
	stopped bool

	header header
	width  int
	line   int
	room   int // samples of the container before: the present one may have as many
	fields [][]byte
	seen   map[string]bool // containers that came already

	name   string // of the present container
	now    *replay.Recording
	broken bool // the present container has a problem, and is skipped
	gap    gap
	fixed  [columns]string // request and limit columns, as first seen
}

// gap is the longest time between two samples.
type gap struct {
	line   int
	length int64
}

// read reads all of the file. It returns what ends it early.
func (r *reader) read(content io.Reader) *Problem {
	buffered := bufio.NewReaderSize(content, longest)
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return r.problem("", fmt.Sprintf("gzip: %v: expected a file as gzip writes it", err))
		}
		buffered = bufio.NewReaderSize(unpacked, longest)
	}
	for {
		line, err := buffered.ReadSlice('\n')
		if len(line) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			r.line++
			if problem := r.take(bytes.TrimRight(line, "\r\n")); problem != nil {
				return problem
			}
		}
		switch {
		case r.stopped:
			return nil
		case errors.Is(err, io.EOF):
			return r.end()
		case errors.Is(err, bufio.ErrBufferFull):
			r.line++
			return r.problem("", fmt.Sprintf("is longer than %d bytes: expected a line of %d columns", longest, columns))
		case err != nil:
			r.line++
			r.broken = true // what is known of the container is not all of it
			return r.problem("", fmt.Sprintf("cannot be read: %v: expected a whole file", err))
		}
	}
}

func (r *reader) end() *Problem {
	if r.line == 0 {
		return r.problem("", "is empty: expected a first line "+Columns())
	}
	if len(r.seen) == 0 {
		return r.problem("", "has no samples: expected at least one line after the first")
	}
	r.emit()
	return nil
}

func (r *reader) problem(column, text string) *Problem {
	return &Problem{File: r.file, Line: r.line, Column: column, Series: r.name, Text: text}
}

// take reads one line. It returns only a problem of the whole file.
func (r *reader) take(line []byte) *Problem {
	if r.line == 1 {
		h, width, column, err := parseHeader(line)
		if err != nil {
			return r.problem(column, err.Error())
		}
		r.header, r.width = h, width
		return nil
	}
	fields, err := split(line, r.fields)
	if err != nil { // whose line it is cannot be told
		r.fail(r.problem("", err.Error()))
		return nil
	}
	r.fields = fields
	if len(fields) != r.width {
		r.fail(r.problem("", fmt.Sprintf("has %d fields: expected %d", len(fields), r.width)))
		return nil
	}
	if r.now == nil || string(r.field(container)) != r.now.Container || string(r.field(workload)) != r.now.Workload {
		r.begin()
	}
	if !r.broken && !r.stopped {
		r.sample()
	}
	return nil
}

func (r *reader) field(column int) []byte {
	if at := r.header[column]; at >= 0 {
		return r.fields[at]
	}
	return nil
}

// begin ends the container before and begins that of the line.
func (r *reader) begin() {
	r.emit()
	r.room = 0
	if r.now != nil {
		r.room = len(r.now.At)
	}
	r.now = &replay.Recording{Dataset: r.file, Workload: string(r.field(workload)), Container: string(r.field(container))}
	r.name, r.broken, r.gap = r.now.Workload+"/"+r.now.Container, false, gap{}
	for c := cpuRequest; c <= memoryLimit; c++ {
		r.fixed[c] = string(r.field(c))
	}
	switch {
	case r.now.Container == "":
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
		r.now.Requests = r.now.Requests.With(k, resources.FromFloat(math.Round(value*scale)))
	}
	if value, ok := r.number(limit); ok && value > 0 {
		r.now.Limits = r.now.Limits.With(k, resources.FromFloat(math.Round(value*scale)))
	}
}

// number returns the number of a column, or false if it is empty or none.
func (r *reader) number(column int) (float64, bool) {
	field := r.field(column)
	if len(field) == 0 {
		return math.NaN(), false
	}
	if value, ok := decimal(field); ok {
		return value, true
	}
	value, err := strconv.ParseFloat(string(field), 64)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
		r.fail(r.problem(names[column], fmt.Sprintf("is %q: expected a number, or nothing if unknown", field)))
	case value < 0:
		r.fail(r.problem(names[column], fmt.Sprintf("is %s: expected 0 or more", field)))
	default:
		return value, true
	}
	return math.NaN(), false
}

// sample takes the sample of the line.
func (r *reader) sample() {
	const latest = 5e9 // seconds since 1970, in the year 2128
	at, ok := r.number(timestamp)
	if r.broken {
		return
	}
	if !ok || at > latest {
		r.fail(r.problem(names[timestamp], fmt.Sprintf("is %q: expected seconds since 1970", r.field(timestamp))))
		return
	}
	instant := int64(math.Round(at * 1e9))
	if n := len(r.now.At); n > 0 {
		step := instant - r.now.At[n-1]
		if step <= 0 {
			r.fail(r.problem(names[timestamp], fmt.Sprintf("is %s, not later than %s in the line before: expected rising time", r.field(timestamp),
				strconv.FormatFloat(float64(r.now.At[n-1])/1e9, 'f', -1, 64))))
			return
		}
		if step > r.gap.length {
			r.gap = gap{r.line, step}
		}
	}
	cpu, hasCPU := r.number(cpuUse)
	memory, hasMemory := r.number(memoryUse)
	if !hasCPU && !hasMemory && !r.broken {
		r.fail(r.problem(names[cpuUse], "is empty, and "+names[memoryUse]+" too: expected at least one of them"))
	}
	waiting, _ := r.number(cpuWaiting)
	if waiting > 1 {
		r.fail(r.problem(names[cpuWaiting], fmt.Sprintf("is %s: expected a share of time, from 0 to 1", r.field(cpuWaiting))))
	}
	for c := cpuRequest; c <= memoryLimit && !r.broken; c++ {
		if string(r.field(c)) != r.fixed[c] {
			r.fail(r.problem(names[c], fmt.Sprintf("is %q, was %q: expected the same in all lines of a container", r.field(c), r.fixed[c])))
		}
	}
	if r.broken {
		return
	}
	if r.header[cpuWaiting] >= 0 {
		r.now.Waiting = append(r.now.Waiting, waiting)
	}
	if r.now.At == nil {
		r.now.At = make([]int64, 0, r.room)
		for k := range r.now.Use {
			r.now.Use[k] = make([]float64, 0, r.room)
		}
	}
	r.now.At = append(r.now.At, instant)
	r.now.Use[resources.CPU] = append(r.now.Use[resources.CPU], cpu*1000)
	r.now.Use[resources.Memory] = append(r.now.Use[resources.Memory], math.Max(memory, r.options.LeastMemory)) // NaN stays
}

// fail reports a problem of the present container, once.
func (r *reader) fail(p *Problem) {
	if !r.broken && !r.stopped {
		r.stopped = !r.yield(nil, p)
	}
	r.broken = true
}

// emit hands the present container out.
func (r *reader) emit() {
	if r.now == nil || r.broken || r.stopped {
		return
	}
	if len(r.now.At) < 2 {
		r.fail(&Problem{File: r.file, Line: r.line, Column: names[timestamp], Series: r.name, Text: "is the only one: expected two samples or more"})
		return
	}
	r.now.Class = replay.Classify(r.now)
	r.stopped = !r.yield(r.now, r.warning())
}

// Shares of steps that may differ from the usual one by half before they are
// told, and how much longer than that a gap is.
const (
	oddSteps = 0.05
	gapSteps = 3
)

// warning tells of gaps and mixed steps, nil if there are none.
func (r *reader) warning() *Problem {
	text := Unsteady(r.now)
	if text == "" {
		return nil
	}
	return &Problem{File: r.file, Line: r.gap.line, Column: names[timestamp], Series: r.name, Warning: true, Text: text}
}

// Unsteady tells of gaps and mixed steps in a recording, nothing if there are none.
func Unsteady(r *replay.Recording) string {
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
	case float64(odd) > oddSteps*float64(len(r.At)):
		return fmt.Sprintf("%d of %d steps are not about %s as usual: expected equal steps", odd, len(r.At)-1, time.Duration(step))
	case gaps > 0:
		return fmt.Sprintf("%d gaps, the longest of %s: expected a sample every %s; gaps are left out of all totals", gaps, time.Duration(longest), time.Duration(step))
	}
	return ""
}
