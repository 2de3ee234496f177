package prometheus

import (
	"context"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/trace"
)

// ArchiveQuery selects the usage to read.
type ArchiveQuery struct {
	Usage   Usage
	Waiting string          // counter of seconds of CPU waiting, empty for none
	Pods    labels.Selector // selector for pod labels, nil for all
	// StateMatchers are additional PromQL matchers for kube-state-metrics series, without braces.
	StateMatchers string

	Since, Until time.Time     // first and last sample, the others at whole steps after Since
	Step         time.Duration // CPU samples are means over it, memory samples maximums

	// MinMemory raises lower memory samples to this value, in bytes.
	MinMemory float64
}

// ReadArchive yields recordings of all containers on a server that include accepts, and problems.
// Nil accepts all. A warning about a container comes with its recording, otherwise one of the two
// is nil. It stops early without a problem when the context ends.
func ReadArchive(ctx context.Context, client *Client, q ArchiveQuery, include func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem] {
	return readArchive(ctx, client, q, include, firstPause)
}

func readArchive(ctx context.Context, client *Client, q ArchiveQuery, include func(workload, container string) bool, pause time.Duration) iter.Seq2[*replay.Recording, *trace.Problem] {
	return func(yield func(*replay.Recording, *trace.Problem) bool) {
		r := &archiveReader{
			client: client, query: q, include: include, yield: yield, retries: Retries{Pause: pause, MaxFailures: maxFailures},
			times: Times{q.Since, q.Step, int(q.Until.Sub(q.Since)/q.Step) + 1},
		}
		if err := r.read(ctx); err != nil && ctx.Err() == nil {
			r.report(&trace.Problem{Text: err.Error()})
		}
	}
}

type archiveReader struct {
	client  *Client
	query   ArchiveQuery
	include func(workload, container string) bool // nil for all
	yield   func(*replay.Recording, *trace.Problem) bool
	stopped bool

	queried  []column
	times    Times
	retries  Retries
	tooShort int           // containers with less than two samples
	answered [columns]bool // columns with at least one response
	warned   bool
}

func (r *archiveReader) report(p *trace.Problem) {
	p.File = r.client.Server()
	if !r.stopped {
		r.stopped = !r.yield(nil, p)
	}
}

// read returns an error if nothing more can be read.
func (r *archiveReader) read(ctx context.Context) error {
	subjects, err := r.subjects(ctx)
	if err != nil {
		return err
	}
	for len(subjects) > 0 && !r.stopped {
		n := r.batchSize(subjects)
		b := r.newBatch(subjects[:n])
		subjects = subjects[n:]
		if err := r.fill(ctx, b); err != nil {
			return fmt.Errorf("%w; %d containers are not read", err, len(subjects)+n)
		}
		r.emit(b)
	}
	for _, c := range []column{cpuUsage, memoryUsage} {
		if !r.answered[c] {
			r.report(&trace.Problem{Warning: true, Text: fmt.Sprintf("no container has %s: expected at least one; a rate needs at least two scrapes within --history-resolution, which is %s", c, r.query.Step)})
		}
	}
	if r.tooShort > 0 {
		r.report(&trace.Problem{Warning: true, Text: fmt.Sprintf("skipped %d short-lived containers: expected at least two samples, %s apart; "+
			"a finer --history-resolution includes more of them", r.tooShort, r.query.Step)})
	}
	return nil
}

// MaxArchiveSamples is the maximum per container, because a whole container is held in memory.
const MaxArchiveSamples = batchValues

// Limits per batch and query: values of each kind in a batch, values of a query, and pods of a
// query, because their names are in its text.
const (
	batchValues = 1 << 20
	queryValues = 1 << 18
	queryPods   = 100
)

// maxFailures is the number of consecutive failed queries after which the server counts as
// unavailable. It is enough to find one bad container of a hundred.
const maxFailures = 16

// batchSize returns how many of the first subjects form a batch of one namespace.
func (r *archiveReader) batchSize(subjects []subject) int {
	limit := min(max(batchValues/r.times.Count, 1), queryPods, len(subjects))
	for n := range limit {
		if subjects[n].key.Namespace != subjects[0].key.Namespace {
			return n
		}
	}
	return limit
}

type column int

const (
	cpuUsage column = iota
	memoryUsage
	cpuWaiting
	columns // number of usage columns
	requests
	limits
)

// String returns the column name in files for usage, and the metric name for resources.
func (c column) String() string {
	return [...]string{cpuUsage: "cpu_cores", memoryUsage: "memory_bytes", cpuWaiting: "cpu_waiting_share",
		requests: "kube_pod_container_resource_requests", limits: "kube_pod_container_resource_limits"}[c]
}

func (r *archiveReader) queryText(c column, u Usage) string {
	switch c {
	case cpuUsage:
		return u.PerContainer(u.CPU(r.query.Step))
	case memoryUsage:
		return u.PerContainer(u.Peak(r.query.Step))
	}
	return u.PerContainer(u.Rate(r.query.Waiting, r.query.Step))
}

type containerData struct {
	subject
	values           [columns][]float64 // one per time, NaN if unknown, nil if not queried
	requests, limits resources.List
	problem          *trace.Problem // why the container is skipped, or nil
}

type archiveBatch []*containerData

func (r *archiveReader) newBatch(subjects []subject) archiveBatch {
	b := make(archiveBatch, len(subjects))
	for i, s := range subjects {
		b[i] = &containerData{subject: s}
		for _, c := range r.queried {
			b[i].values[c] = slices.Repeat([]float64{math.NaN()}, r.times.Count)
		}
	}
	return b
}

func (m *containerData) fail(c column, text string) {
	if m.problem == nil {
		m.problem = &trace.Problem{Column: c.String(), Series: m.name(), Text: text}
	}
}

func (b archiveBatch) index() map[usage.ContainerKey]*containerData {
	index := make(map[usage.ContainerKey]*containerData, len(b))
	for _, m := range b {
		index[m.key] = m
	}
	return index
}

func (b archiveBatch) pods(label string) string {
	var names []string
	for _, m := range b {
		names = append(names, m.key.Pod)
	}
	slices.Sort(names)
	return fmt.Sprintf("%s=~%q", label, OneOf(slices.Compact(names)))
}

// OneOf returns a regular expression that matches any of the texts literally.
func OneOf(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = regexp.QuoteMeta(text)
	}
	return strings.Join(quoted, "|")
}

type part struct {
	batch  archiveBatch
	column column
	times  Times
}

// fill queries all columns of a batch. Containers with unreadable declared resources are skipped.
func (r *archiveReader) fill(ctx context.Context, b archiveBatch) error {
	for _, c := range r.queried {
		var parts []part
		for _, times := range r.times.Cut(min(max(queryValues/len(b), 1), MaxTimes)) {
			parts = append(parts, part{b, c, times})
		}
		if _, err := ReadParts(ctx, &r.retries, parts, r.runQuery, r.markLost); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	for _, c := range []column{requests, limits} {
		_, err := ReadParts(ctx, &r.retries, []part{{b, c, r.times}}, r.runQuery, r.markLost)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			_ = r.markLost(part{b, c, r.times}, err) // never returns an error
		}
	}
	return nil
}

// minPartTimes is the minimum number of times of a query. A container that is too large even for
// such a query is skipped.
const minPartTimes = MaxTimes / 8

// Split halves the containers, and then the times if a part may succeed.
func (p part) Split(err error) (parts []part) {
	if half := len(p.batch) / 2; half > 0 {
		return []part{{p.batch[:half], p.column, p.times}, {p.batch[half:], p.column, p.times}}
	}
	if p.column < columns && IsDivisible(err) && p.times.Count/2 >= minPartTimes {
		for _, times := range p.times.Halves() {
			parts = append(parts, part{p.batch, p.column, times})
		}
	}
	return parts
}

func (r *archiveReader) markLost(p part, err error) error {
	for _, m := range p.batch {
		if p.column < columns {
			m.fail(p.column, fmt.Sprintf("from %s to %s: %v: expected a response", instant(p.times.Start), instant(p.times.Last()), err))
		} else if m.problem == nil {
			m.problem = &trace.Problem{Series: m.name(), Text: fmt.Sprintf("%s: %v: expected a response, even an empty one", p.column, err)}
		}
	}
	return nil
}

func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (r *archiveReader) runQuery(ctx context.Context, p part) (err error) {
	if len(p.batch) == 1 && p.batch[0].problem != nil {
		return nil //nolint:nilerr // it is reported when the batch is handed out, and the others go on
	}
	var answer Response
	if p.column < columns {
		answer, err = r.queryUsage(ctx, p)
	} else {
		answer, err = r.queryDeclared(ctx, p)
	}
	r.warn(answer)
	return err
}

func (r *archiveReader) queryUsage(ctx context.Context, p part) (Response, error) {
	u, c := r.query.Usage, p.column
	u.Namespace = p.batch[0].key.Namespace
	u.Matchers = strings.TrimPrefix(u.Matchers+", "+p.batch.pods(u.PodLabel), ", ")
	members := p.batch.index()
	find := func(labels map[string]string) *containerData {
		key, _ := u.Container(labels)
		return members[key] // nil for another container of the pods
	}
	distinct := NewAmbiguityDetector(u, r.query.Step)
	rejected := func(labels map[string]string, at time.Time, what string) {
		m := find(labels)
		_, named := u.Container(labels)
		switch {
		case !named:
			r.report(&trace.Problem{Column: c.String(), Text: fmt.Sprintf("a series with the labels %v %s: expected one of a container, with numbers", labels, what)})
		case m == nil:
		case at.IsZero():
			m.fail(c, fmt.Sprintf("%s: expected times and numbers", what))
		default:
			m.fail(c, fmt.Sprintf("%s, at %s: expected a number, or no sample if unknown", what, instant(at)))
		}
	}
	return r.client.Range(ctx, Range{Query: r.queryText(c, u), Times: p.times}, func(labels map[string]string, points []Point) {
		m := find(labels)
		switch {
		case m == nil:
		case distinct.Add(m.key, labels, points):
			r.store(m, c, points)
		default:
			r.answered = [columns]bool{cpuUsage: true, memoryUsage: true, cpuWaiting: true} // usage exists
			m.fail(c, distinct.Ambiguous(m.key).Error())
		}
	}, rejected)
}

// warn reports one warning. Thanos, for example, warns if it omits an unreachable store.
func (r *archiveReader) warn(answer Response) {
	if len(answer.Warnings) > 0 && !r.warned {
		r.warned = true
		r.report(&trace.Problem{Warning: true, Text: fmt.Sprintf("warning from the server: %s: expected a complete response", strings.Join(answer.Warnings, "; "))})
	}
}

func (r *archiveReader) store(m *containerData, c column, points []Point) {
	r.answered[c] = true
	for _, p := range points {
		step, found := r.times.Index(p.At)
		switch {
		case !found:
			m.fail(c, fmt.Sprintf("has a sample at %s: expected times from %s to %s", instant(p.At), instant(r.times.Start), instant(r.times.Last())))
		case p.Value < 0:
			m.fail(c, fmt.Sprintf("is %g at %s: expected 0 or more", p.Value, instant(p.At)))
		default:
			value := p.Value
			switch c {
			case cpuUsage:
				value *= 1000
			case cpuWaiting:
				value = min(value, 1) // a rate can be slightly higher
			}
			if before := m.values[c][step]; math.IsNaN(before) || value > before {
				m.values[c][step] = value
			}
		}
	}
}

// declaredSteps is the number of windows of the time range in which the first declared request is
// searched. The maximum of the first window with any request counts.
const declaredSteps = 100

func (r *archiveReader) queryDeclared(ctx context.Context, p part) (Response, error) {
	window := max(r.query.Step, (r.query.Until.Sub(r.query.Since) / declaredSteps).Truncate(time.Second))
	var queries []string
	for i, selector := range r.stateSelectors(p.column.String(), p.batch[0].key.Namespace, `resource=~"cpu|memory"`) {
		prefix := []string{"", exported}[i]
		selector = strings.TrimSuffix(selector, "}") + ", " + p.batch.pods(prefix+"pod") + "}"
		by := "namespace, pod, container, resource"
		if prefix != "" {
			by = "exported_namespace, exported_pod, exported_container, resource"
		}
		queries = append(queries, fmt.Sprintf("max by (%s) (max_over_time(%s[%s]))", by, selector, FormatDuration(window)))
	}
	query := strings.Join(queries, " or ")
	members := p.batch.index()
	return r.client.Range(ctx, Range{Query: query, Times: Times{r.query.Since, window, int(r.query.Until.Sub(r.query.Since)/window) + 2}},
		func(labels map[string]string, points []Point) {
			m := members[usage.ContainerKey{Namespace: StateLabel(labels, "namespace"), Pod: StateLabel(labels, "pod"), Container: StateLabel(labels, "container")}]
			if m == nil || points[0].Value <= 0 {
				return
			}
			k, scale := resources.CPU, 1000.0
			if labels["resource"] == "memory" {
				k, scale = resources.Memory, 1
			}
			to := &m.requests
			if p.column == limits {
				to = &m.limits
			}
			*to = to.With(k, resources.FromFloat(math.Round(points[0].Value*scale)))
		}, nil)
}

func (r *archiveReader) emit(b archiveBatch) {
	for _, m := range b {
		if r.stopped {
			return
		}
		if m.problem != nil {
			r.report(m.problem)
			continue
		}
		recording := r.recording(m)
		if len(recording.At) < 2 {
			r.tooShort++
			continue
		}
		var warning *trace.Problem
		if text := trace.DescribeGaps(recording); text != "" {
			warning = &trace.Problem{File: r.client.Server(), Column: "timestamp", Series: m.name(), Text: text, Warning: true}
		}
		r.stopped = !r.yield(recording, warning)
	}
}

func (r *archiveReader) recording(m *containerData) *replay.Recording {
	known := &replay.Recording{Dataset: r.client.Server(), Workload: m.workload, Container: m.container, Requests: m.requests, Limits: m.limits}
	for step := range r.times.Count {
		cpu, memory := m.values[cpuUsage][step], m.values[memoryUsage][step]
		if math.IsNaN(cpu) && math.IsNaN(memory) {
			continue
		}
		known.At = append(known.At, r.times.At(step).UnixNano())
		known.Use[resources.CPU] = append(known.Use[resources.CPU], cpu)
		known.Use[resources.Memory] = append(known.Use[resources.Memory], math.Max(memory, r.query.MinMemory)) // NaN stays
	}
	if waiting := m.values[cpuWaiting]; slices.ContainsFunc(waiting, func(v float64) bool { return !math.IsNaN(v) }) {
		for _, at := range known.At {
			known.Waiting = append(known.Waiting, waiting[int64(time.Duration(at-r.query.Since.UnixNano())/r.query.Step)])
		}
	}
	known.Class = replay.Classify(known)
	return known
}
