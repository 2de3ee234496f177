package trace

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// Required columns of a trace file.
const (
	timeColumn   = "time"
	cpuColumn    = "cpu_cores"
	memoryColumn = "memory_bytes"
)

// Trace is the recorded usage of one process. Each sample lasts until the next one, and traces are
// repeated.
type Trace struct {
	at     []float64 // seconds since the first sample, rising
	cpu    []float64 // cores
	memory []float64 // bytes
	length float64   // seconds until it repeats
}

// Columns are the columns to play. The zero value means cpu_cores and memory_bytes.
type Columns struct{ CPU, Memory string }

// Library loads the traces of one folder on demand. It is not safe for concurrent use.
type Library struct {
	dir    string
	traces map[string]*Trace
}

// NewLibrary returns the traces below dir, none if dir is empty.
func NewLibrary(dir string) *Library {
	return &Library{dir: dir, traces: map[string]*Trace{}}
}

// Names returns the sorted names of the traces: their path in the folder without .csv or .csv.gz.
func (l *Library) Names() ([]string, error) {
	if l.dir == "" {
		return nil, nil
	}
	var names []string
	err := filepath.WalkDir(l.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, ok := strings.CutSuffix(strings.TrimSuffix(path, ".gz"), ".csv")
		if rel, relErr := filepath.Rel(l.dir, name); ok && relErr == nil {
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read traces folder: %w", err)
	}
	sort.Strings(names)
	return names, nil
}

// Check returns the problems of all traces.
func (l *Library) Check() error {
	names, err := l.Names()
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		_, err := l.Trace(name, Columns{})
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Trace returns one trace. The error for an unknown name lists the known ones. Failures are not
// cached, so a file added later is found.
func (l *Library) Trace(name string, columns Columns) (*Trace, error) {
	key := name + ":" + columns.CPU + "," + columns.Memory
	if trace, ok := l.traces[key]; ok {
		return trace, nil
	}
	if l.dir == "" {
		return nil, fmt.Errorf("trace %q: this cluster has no traces; start it with --traces FOLDER", name)
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, fmt.Errorf("trace %q: want a file name below %s without .csv", name, l.dir)
	}
	for _, suffix := range []string{".csv", ".csv.gz"} {
		path := filepath.Join(l.dir, filepath.FromSlash(name)+suffix)
		trace, err := readFile(path, columns)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			l.traces[key] = trace
		}
		return trace, err
	}
	names, err := l.Names()
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("trace %q is not in %s; there are: %s", name, l.dir, strings.Join(names, ", "))
}

func readFile(path string, columns Columns) (*Trace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer func() { _ = file.Close() }()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s: want a gzip file: %w", path, err)
		}
	}
	trace, err := Parse(in, columns)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return trace, nil
}

// Parse parses comma-separated values with a header line, rising times in seconds, and no empty
// fields in the played columns. Other columns are ignored. The error is the first problem, with its
// line and the expected content.
func Parse(in io.Reader, columns Columns) (*Trace, error) {
	if columns.CPU == "" {
		columns.CPU = cpuColumn
	}
	if columns.Memory == "" {
		columns.Memory = memoryColumn
	}
	reader := csv.NewReader(in)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("line 1: want a header line with %s,%s,%s: %w", timeColumn, columns.CPU, columns.Memory, err)
	}
	var index [3]int
	names := [3]string{timeColumn, columns.CPU, columns.Memory}
	for i, name := range names {
		if index[i], err = position(header, name); err != nil {
			return nil, fmt.Errorf("line 1: %w", err)
		}
	}
	trace := &Trace{}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return trace.finish()
		}
		if err != nil {
			return nil, fmt.Errorf("want %d comma separated fields: %w", len(header), err)
		}
		var values [3]float64
		for i, name := range names {
			line, _ := reader.FieldPos(index[i])
			if values[i], err = number(record[index[i]]); err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", line, name, err)
			}
		}
		line, _ := reader.FieldPos(index[0])
		if n := len(trace.at); n > 0 && values[0] <= trace.at[n-1] {
			return nil, fmt.Errorf("line %d: time: want more than %v of the line before, got %v", line, trace.at[n-1], values[0])
		}
		trace.at = append(trace.at, values[0])
		trace.cpu = append(trace.cpu, values[1])
		trace.memory = append(trace.memory, values[2])
	}
}

func position(header []string, name string) (int, error) {
	for i, column := range header {
		if strings.TrimSpace(column) == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("want a column %q, got %s", name, strings.Join(header, ","))
}

func number(text string) (float64, error) {
	value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || value < 0 || math.IsInf(value, 0) || math.IsNaN(value) {
		return 0, fmt.Errorf("want a number that is 0 or more, got %q", text)
	}
	return value, nil
}

// finish shifts the first sample to second 0. The last sample lasts for the average interval.
func (t *Trace) finish() (*Trace, error) {
	n := len(t.at)
	if n == 0 {
		return nil, errors.New("line 2: want at least one sample")
	}
	first := t.at[0]
	for i := range t.at {
		t.at[i] -= first
	}
	step := 1.0
	if n > 1 {
		step = t.at[n-1] / float64(n-1)
	}
	t.length = t.at[n-1] + step
	return t, nil
}

// Length returns the number of seconds until the trace repeats.
func (t *Trace) Length() float64 { return t.length }

// Visit calls see for every interval of constant usage between two seconds of the endlessly
// repeated trace, in order, with its length in seconds. If from equals to, it calls see once with
// length 0.
func (t *Trace) Visit(from, to float64, see func(cpu, memory, seconds float64)) {
	at := math.Mod(from, t.length)
	i := sort.SearchFloat64s(t.at, at)
	if i == len(t.at) || t.at[i] > at {
		i--
	}
	for left := to - from; ; {
		end := t.length
		if i+1 < len(t.at) {
			end = t.at[i+1]
		}
		seconds := math.Min(left, end-at)
		see(t.cpu[i], t.memory[i], seconds)
		left -= seconds
		// A remainder this small is a rounding error.
		if left <= 1e-9 {
			return
		}
		at = end
		if i++; i == len(t.at) {
			i, at = 0, 0
		}
	}
}
