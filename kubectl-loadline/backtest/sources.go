package backtest

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/pkg/source/trace"
)

// Source is a file or a server that has recordings.
type Source struct {
	Name    string // in arguments
	Dataset string // in results
	Reader
}

// Reader reads recordings.
type Reader interface {
	// Read yields recordings and problems until the context ends, at least those of the containers that want returns
	// true for. Nil: of all.
	Read(ctx context.Context, want func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem]
}

// Sources says how recordings are read.
type Sources struct {
	Files   trace.Options
	Servers Servers
	Query   prometheus.ArchiveQuery // of servers
}

// Find returns the files and servers that arguments name: an address stands for
// a server, a file for itself, or for the addresses in it if it is a list of them,
// and a directory for the recordings and lists in it. They are in order of names.
func (s *Sources) Find(args []string) ([]Source, error) {
	names, err := spread(args)
	if err != nil {
		return nil, fmt.Errorf("read recordings: %w", err)
	}
	slices.Sort(names)
	var all []Source
	for _, name := range slices.Compact(names) {
		if !isAddress(name) {
			all = append(all, Source{Name: name, Dataset: filepath.Base(name), Reader: file{name, s.Files}})
			continue
		}
		one, err := s.server(name)
		if err != nil {
			return nil, fmt.Errorf("read recordings: %w", err)
		}
		if !slices.ContainsFunc(all, func(other Source) bool { return other.Dataset == one.Dataset && isAddress(other.Name) }) {
			all = append(all, one) // else it is the same server in another spelling
		}
	}
	return all, nil
}

// spread returns the files and addresses that arguments stand for.
func spread(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		if isAddress(arg) {
			names = append(names, arg)
			continue
		}
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		files := []string{arg}
		if info.IsDir() {
			if files, err = within(arg); err != nil {
				return nil, err
			}
		}
		for _, name := range files {
			if !strings.HasSuffix(name, list) {
				names = append(names, name)
				continue
			}
			addresses, err := addresses(name)
			if err != nil {
				return nil, err
			}
			names = append(names, addresses...)
		}
	}
	return names, nil
}

// within returns the recordings of a directory, and the lists of servers.
func within(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		n := e.Name()
		if !e.IsDir() && (strings.HasSuffix(n, ".csv") && n != catalogue || strings.HasSuffix(n, ".csv.gz") || strings.HasSuffix(n, list)) {
			files = append(files, filepath.Join(directory, n))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: has no file that ends in .csv, .csv.gz or %s", directory, list)
	}
	return files, nil
}

// list is how the name of a file ends that has addresses of servers, one a line.
const list = ".servers"

// addresses reads a list of servers. Empty lines and those after # say nothing.
func addresses(name string) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var found []string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case isAddress(line):
			found = append(found, line)
		default:
			return nil, fmt.Errorf("%s:%d: is %q: expected an address such as http://prometheus.monitoring.svc:9090", name, number, line)
		}
	}
	return found, nil
}

// file reads a file with recordings.
type file struct {
	name    string
	options trace.Options
}

// Read reads all recordings.
func (f file) Read(ctx context.Context, _ func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem] {
	return func(yield func(*replay.Recording, *trace.Problem) bool) {
		content, err := os.Open(f.name)
		if err != nil {
			yield(nil, &trace.Problem{File: f.name, Text: fmt.Sprintf("cannot be opened: %v", err)})
			return
		}
		defer content.Close() //nolint:errcheck // it was only read
		for r, problem := range trace.Read(content, filepath.Base(f.name), f.options) {
			if problem != nil {
				problem.File = f.name
			}
			if ctx.Err() != nil || !yield(r, problem) {
				return
			}
		}
	}
}

// catalogue lists the recordings of a directory, and is none itself.
const catalogue = "series.csv"
