package backtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/pkg/source/trace"
)

// Source is a file or a server with recordings.
type Source struct {
	Name    string // in arguments
	Dataset string // in results
	Reader
}

// Reader reads recordings.
type Reader interface {
	// Read yields problems and recordings, at least of the containers that want accepts, nil: all.
	Read(ctx context.Context, want func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem]
}

// Sources holds the options for reading recordings.
type Sources struct {
	Files   trace.Options
	Servers Servers
	Query   prometheus.ArchiveQuery // of servers
}

// Find returns the files and servers named by arguments, sorted by name. An address is a server, a
// list file stands for the servers in it, and a directory for the recordings and lists in it.
func (s *Sources) Find(args []string) ([]Source, error) {
	names, err := expand(args)
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
			all = append(all, one) // skip another spelling of the same server
		}
	}
	return all, nil
}

func expand(args []string) ([]string, error) {
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
			if files, err = recordingsIn(arg); err != nil {
				return nil, err
			}
		}
		for _, name := range files {
			if !strings.HasSuffix(name, listSuffix) {
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

func recordingsIn(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		n := e.Name()
		if !e.IsDir() && (strings.HasSuffix(n, ".csv") && n != catalogue || strings.HasSuffix(n, ".csv.gz") || strings.HasSuffix(n, listSuffix)) {
			files = append(files, filepath.Join(directory, n))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: has no file that ends in .csv, .csv.gz or %s", directory, listSuffix)
	}
	return files, nil
}

// listSuffix is the suffix of files with one server address on each line.
const listSuffix = ".servers"

// addresses reads a list of servers. Empty lines and text after # are ignored.
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

type file struct {
	name    string
	options trace.Options
}

func (f file) Read(ctx context.Context, _ func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem] {
	return func(yield func(*replay.Recording, *trace.Problem) bool) {
		content, err := os.Open(f.name)
		if err != nil {
			yield(nil, &trace.Problem{File: f.name, Text: fmt.Sprintf("cannot be opened: %v", err)})
			return
		}
		defer content.Close()
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

// catalogue is the index of the recordings in a directory, not a recording.
const catalogue = "series.csv"

// Servers holds the options for reading from Prometheus. The addresses are arguments.
type Servers struct {
	prometheus.Access
	prometheus.Usage
	CAFile string

	Length, Resolution string // of history, as Prometheus durations
	Since, Until       string // RFC 3339, empty: by Length, and now

	Selector, WaitingMetric, StateMatchers string
}

// DefaultServers returns the metric names of current kubelets, and a step of five minutes: at least
// four scrapes of a minute, and at most the pace at which memory kills.
func DefaultServers() Servers {
	s := Servers{
		Access: prometheus.DefaultAccess(), Length: "8d", Resolution: "5m", WaitingMetric: prometheus.WaitingMetric,
		Usage: prometheus.DefaultUsage(),
	}
	s.QueryTimeout = "1m"
	return s
}

// AddFlags binds the group to fs. Flags that the recommender has too have the same names.
func (s *Servers) AddFlags(fs *pflag.FlagSet) {
	text := func(field *string, name, usage string) { fs.StringVar(field, name, *field, usage) }
	s.Access.AddFlags(fs)
	text(&s.CAFile, "prometheus-ca-file", "PEM file with the CAs trusted for Prometheus. Unset: the system CAs.")
	text(&s.Length, "history-length", "Prometheus: how far back before --until usage is read.")
	text(&s.Resolution, "history-resolution", "Prometheus: time between two samples; CPU is a mean over it, memory its maximum. At least four scrapes.")
	text(&s.Since, "since", "Prometheus: first sample, as in 2026-03-02T08:00:00Z, in place of --history-length.")
	text(&s.Until, "until", "Prometheus: last sample. Unset: now.")
	fs.StringVarP(&s.Namespace, "namespace", "n", s.Namespace, "Prometheus: the only namespace that is read. Unset: all.")
	fs.StringVarP(&s.Selector, "selector", "l", s.Selector, "Prometheus: labels of the pods that are read, as for kubectl. It needs kube_pod_labels of kube-state-metrics.")
	text(&s.StateMatchers, "state-matchers", "Prometheus: additional matchers for series of kube-state-metrics, which provide owners, requests and limits.")
	text(&s.Job, "prometheus-cadvisor-job-name", "Value of the label job of usage metrics. Unset: any.")
	text(&s.CPUMetric, "history-cpu-metric", "Counter of CPU seconds.")
	text(&s.MemoryMetric, "history-memory-metric", "Gauge of memory bytes.")
	text(&s.WaitingMetric, "history-cpu-waiting-metric", "Counter of seconds spent waiting for CPU, for recipes that use it. Unset: none.")
	text(&s.NamespaceLabel, "container-namespace-label", "Label with the namespace in usage metrics.")
	text(&s.PodLabel, "container-pod-name-label", "Label with the name of the pod in usage metrics.")
	text(&s.ContainerLabel, "container-name-label", "Label with the name of the container in usage metrics.")
}

// Query returns the query for each server, or all problems of the group. The query ends at now by
// default. It includes the metric of waiting, which callers without a recipe for it remove.
func (s *Servers) Query(now time.Time) (prometheus.ArchiveQuery, error) {
	q := prometheus.ArchiveQuery{Usage: s.Usage, Waiting: s.WaitingMetric, StateMatchers: s.StateMatchers}
	q.Usage.Matchers = s.Access.Matchers
	problems := []error{s.Complete(), s.Validate(true)}
	for _, name := range []struct{ flag, value string }{
		{"history-cpu-metric", s.CPUMetric}, {"history-memory-metric", s.MemoryMetric}, {"container-namespace-label", s.NamespaceLabel},
		{"container-pod-name-label", s.PodLabel}, {"container-name-label", s.ContainerLabel},
	} {
		problems = append(problems, flags.Check(name.value != "", name.flag, `""`, "must not be empty"))
	}
	var err error
	if q.Pods, err = labels.Parse(s.Selector); err != nil {
		problems = append(problems, flags.Problem("selector", s.Selector, "must be a label selector such as app=web,tier in (front,back)"))
	}
	problems = append(problems, s.times(&q, now))
	return q, errors.Join(problems...)
}

// times sets the times of a query to whole steps since 1970, so that two runs query the same times.
func (s *Servers) times(q *prometheus.ArchiveQuery, now time.Time) error {
	length, err1 := prometheus.ParseDuration(s.Length)
	step, err2 := prometheus.ParseDuration(s.Resolution)
	problems := []error{
		flags.Check(err1 == nil && length > 0, "history-length", s.Length, "must be a duration such as 8d, 12h or 90m"),
		flags.Check(err2 == nil && step >= time.Second, "history-resolution", s.Resolution, "must be a duration of at least 1s, such as 5m, 1m or 30s"),
	}
	q.Until = now
	if s.Until != "" {
		at, err := time.Parse(time.RFC3339, s.Until)
		problems = append(problems, flags.Check(err == nil, "until", s.Until, "must be a time such as 2026-03-02T08:00:00Z"))
		q.Until = at
	}
	q.Since = q.Until.Add(-length)
	if s.Since != "" {
		at, err := time.Parse(time.RFC3339, s.Since)
		problems = append(problems, flags.Check(err == nil, "since", s.Since, "must be a time such as 2026-03-02T08:00:00Z"))
		q.Since = at
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	q.Step = step
	q.Since, q.Until = q.Since.Truncate(q.Step).UTC(), q.Until.Truncate(q.Step).UTC()
	return errors.Join(
		flags.Check(q.Until.Sub(q.Since)/q.Step < prometheus.MaxArchiveSamples, "history-resolution", s.Resolution, fmt.Sprintf("must be longer: a container would have more than %d samples", prometheus.MaxArchiveSamples)),
		flags.Check(q.Until.Sub(q.Since) >= q.Step, "since", q.Since.Format(time.RFC3339), "must be at least --history-resolution="+s.Resolution+" before the last sample, "+q.Until.Format(time.RFC3339)),
		flags.Check(!q.Until.After(now), "until", s.Until, "must not be in the future"))
}

func isAddress(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}

func (s *Sources) server(address string) (Source, error) {
	config := s.Servers.Client(address)
	config.CAFile = s.Servers.CAFile
	client, err := prometheus.New(process.OS{}, config)
	if err != nil {
		return Source{}, err
	}
	return Source{Name: address, Dataset: client.Server(), Reader: archive{client, s.Query}}, nil
}

type archive struct {
	client *prometheus.Client
	query  prometheus.ArchiveQuery
}

func (a archive) Read(ctx context.Context, want func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem] {
	return prometheus.ReadArchive(ctx, a.client, a.query, want)
}
