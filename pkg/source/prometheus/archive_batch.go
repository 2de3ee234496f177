package prometheus

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/trace"
)

// column is what is asked of usage.
type column int

const (
	cpuUse column = iota
	memoryUse
	cpuWaiting
	columns
)

// String returns the name that files have for it.
func (c column) String() string {
	return [columns]string{"cpu_cores", "memory_bytes", "cpu_waiting_share"}[c]
}

// text returns the query for a column, of one namespace and some pods.
func (r *archiveReader) text(c column, u Usage) string {
	switch c {
	case cpuUse:
		return u.Each(u.CPU(r.query.Step))
	case memoryUse:
		return u.Each(u.Peak(r.query.Step))
	}
	return u.Each(u.Rate(r.query.Waiting, r.query.Step))
}

// member is a container while it is read.
type member struct {
	subject
	values           [columns][]float64 // at the times of the grid; NaN = unknown, nil = not asked for
	requests, limits resources.List
	wrong            *trace.Problem // why it is left out; nil = it is not
}

// archiveBatch are containers of one namespace that are read together.
type archiveBatch []*member

func (r *archiveReader) newBatch(subjects []subject) archiveBatch {
	b := make(archiveBatch, len(subjects))
	for i, s := range subjects {
		b[i] = &member{subject: s}
		for _, c := range r.asked {
			b[i].values[c] = slices.Repeat([]float64{math.NaN()}, r.steps)
		}
	}
	return b
}

func (m *member) fail(c column, text string) {
	if m.wrong == nil {
		m.wrong = &trace.Problem{Column: c.String(), Series: m.name(), Text: text}
	}
}

func (b archiveBatch) index() map[usage.ContainerKey]*member {
	index := make(map[usage.ContainerKey]*member, len(b))
	for _, m := range b {
		index[m.key] = m
	}
	return index
}

// pods returns the matcher for the pods of a batch, for a name of their label.
func (b archiveBatch) pods(label string) string {
	var names []string
	for _, m := range b {
		names = append(names, m.key.Pod)
	}
	slices.Sort(names)
	return fmt.Sprintf("%s=~%q", label, oneOf(slices.Compact(names)))
}

// oneOf returns a regular expression for some texts.
func oneOf(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = regexp.QuoteMeta(text)
	}
	return strings.Join(quoted, "|")
}

// part are some times of the grid.
type part struct{ from, steps int }

// fill asks for all that is to be known of a batch.
func (r *archiveReader) fill(ctx context.Context, b archiveBatch) error {
	for _, c := range r.asked {
		size := min(max(queryValues/len(b), 1), mostSteps)
		for from := 0; from < r.steps; from += size {
			if err := r.use(ctx, b, c, part{from, min(size, r.steps-from)}); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
	}
	for what, metric := range []string{"kube_pod_container_resource_requests", "kube_pod_container_resource_limits"} {
		unknown := func(m *member, err error) error {
			if m.wrong == nil {
				m.wrong = &trace.Problem{Series: m.name(), Text: fmt.Sprintf("%s: %v: expected an answer, if only that nothing is known", metric, err)}
			}
			return nil
		}
		of := func(m *member) *resources.List { return []*resources.List{&m.requests, &m.limits}[what] }
		err := r.apart(ctx, b, func(b archiveBatch) error { return r.declared(ctx, b, metric, of) }, unknown)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			for _, m := range b {
				_ = unknown(m, err) // is never an error
			}
		}
	}
	return nil
}

// leastPart is how many times are asked for at least. A container of which so few
// are still too much is left out.
const leastPart = mostSteps / 8

// use asks for a column in a part of the grid. What fails is asked for in
// halves, of the containers first and then of the times; one container that cannot
// be had is left out. An error ends it all.
func (r *archiveReader) use(ctx context.Context, b archiveBatch, c column, p part) error {
	ask := func(b archiveBatch) error { return r.ask(ctx, b, c, p) }
	return r.apart(ctx, b, ask, func(m *member, err error) error {
		half := p.steps / 2
		if !Heavy(err) || half < leastPart {
			m.fail(c, fmt.Sprintf("from %s to %s: %v: expected an answer", r.named(p.from), r.named(p.from+p.steps-1), err))
			return nil
		}
		if err := r.use(ctx, archiveBatch{m}, c, part{p.from, half}); err != nil {
			return err
		}
		return r.use(ctx, archiveBatch{m}, c, part{p.from + half, p.steps - half})
	})
}

// at returns a time of the grid.
func (r *archiveReader) at(step int) time.Time {
	return r.query.Since.Add(time.Duration(step) * r.query.Step)
}

func (r *archiveReader) named(step int) string { return instant(r.at(step)) }

func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// ask sends one query, and takes what its answer has of the members.
func (r *archiveReader) ask(ctx context.Context, b archiveBatch, c column, p part) error {
	u := r.query.Usage
	u.Namespace = b[0].key.Namespace
	u.Matchers = strings.TrimPrefix(u.Matchers+", "+b.pods(u.PodLabel), ", ")
	members := b.index()
	find := func(labels map[string]string) *member {
		key, _ := u.Container(labels)
		return members[key] // nil: it is of another container of the pods
	}
	answer, err := r.client.Range(ctx, Range{
		Query: r.text(c, u), Start: r.at(p.from), End: r.at(p.from + p.steps - 1), Step: r.query.Step,
		Rejected: func(labels map[string]string, at time.Time, what string) {
			m := find(labels)
			_, named := u.Container(labels)
			switch {
			case !named:
				r.tell(&trace.Problem{Column: c.String(), Text: fmt.Sprintf("a series with the labels %v %s: expected one of a container, with numbers", labels, what)})
			case m == nil:
			case at.IsZero():
				m.fail(c, fmt.Sprintf("%s: expected times and numbers", what))
			default:
				m.fail(c, fmt.Sprintf("%s, at %s: expected a number, or no sample if unknown", what, instant(at)))
			}
		},
	}, func(labels map[string]string, points []Point) {
		if m := find(labels); m != nil {
			r.take(m, c, points)
		}
	})
	r.warn(answer)
	return err
}

// warn hands on what the server says of its answer, once: Thanos, for example, leaves
// out a store that is away.
func (r *archiveReader) warn(answer Answer) {
	if len(answer.Warnings) > 0 && !r.warned {
		r.warned = true
		r.tell(&trace.Problem{Warning: true, Text: fmt.Sprintf("the server says of an answer: %s: expected a whole one", strings.Join(answer.Warnings, "; "))})
	}
}

// take puts points of a member into its grid. Some servers shift the times by less
// than a step.
func (r *archiveReader) take(m *member, c column, points []Point) {
	r.got[c] = true
	for _, p := range points {
		step := int((p.At.Sub(r.query.Since) + r.query.Step/2) / r.query.Step)
		switch {
		case step < 0 || step >= r.steps || p.At.Before(r.query.Since.Add(-r.query.Step)):
			m.fail(c, fmt.Sprintf("has a sample at %s: expected times from %s to %s", instant(p.At), r.named(0), r.named(r.steps-1)))
		case p.Value < 0:
			m.fail(c, fmt.Sprintf("is %g at %s: expected 0 or more", p.Value, instant(p.At)))
		case c == cpuUse:
			m.values[c][step] = p.Value * 1000
		case c == cpuWaiting:
			m.values[c][step] = min(p.Value, 1) // a rate may be a little more
		default:
			m.values[c][step] = p.Value
		}
	}
}

// declaredSteps is into how many stretches the time is cut in which the first
// request is looked for: the highest of the first that has any counts.
const declaredSteps = 100

// declared asks what containers request, or may use at most.
func (r *archiveReader) declared(ctx context.Context, b archiveBatch, metric string, of func(*member) *resources.List) error {
	window := max(r.query.Step, (r.query.Until.Sub(r.query.Since) / declaredSteps).Truncate(time.Second))
	matchers := []string{`resource=~"cpu|memory"`, b.pods("pod")}
	if r.query.Usage.Namespace == "" {
		matchers = append(matchers, fmt.Sprintf("namespace=%q", b[0].key.Namespace))
	}
	state := r.state(metric, matchers...)
	query := fmt.Sprintf("max by (namespace, pod, container, resource) (max_over_time(%s[%s]))", state, model.Duration(window))
	members := b.index()
	answer, err := r.client.Range(ctx, Range{Query: query, Start: r.query.Since, End: r.query.Until.Add(window), Step: window},
		func(labels map[string]string, points []Point) {
			m := members[usage.ContainerKey{Namespace: labels["namespace"], Pod: labels["pod"], Container: labels["container"]}]
			if m == nil || points[0].Value <= 0 {
				return
			}
			k, scale := resources.CPU, 1000.0
			if labels["resource"] == "memory" {
				k, scale = resources.Memory, 1
			}
			*of(m) = of(m).With(k, resources.FromFloat(math.Round(points[0].Value*scale)))
		})
	r.warn(answer)
	return err
}

// emit hands the members of a batch out.
func (r *archiveReader) emit(b archiveBatch) {
	for _, m := range b {
		if r.stopped {
			return
		}
		if m.wrong != nil {
			r.tell(m.wrong)
			continue
		}
		recording := r.recording(m)
		if len(recording.At) < 2 {
			r.short++
			continue
		}
		var warning *trace.Problem
		if text := trace.Unsteady(recording); text != "" {
			warning = &trace.Problem{File: r.client.Server(), Column: "timestamp", Series: m.name(), Text: text, Warning: true}
		}
		r.stopped = !r.yield(recording, warning)
	}
}

// recording returns what is known of a member. Times at which nothing is known are
// not in it.
func (r *archiveReader) recording(m *member) *replay.Recording {
	known := &replay.Recording{Dataset: r.client.Server(), Workload: m.workload, Container: m.container, Requests: m.requests, Limits: m.limits}
	for step := range r.steps {
		cpu, memory := m.values[cpuUse][step], m.values[memoryUse][step]
		if math.IsNaN(cpu) && math.IsNaN(memory) {
			continue
		}
		known.At = append(known.At, r.at(step).UnixNano())
		known.Use[resources.CPU] = append(known.Use[resources.CPU], cpu)
		known.Use[resources.Memory] = append(known.Use[resources.Memory], math.Max(memory, r.query.LeastMemory)) // NaN stays
	}
	if waiting := m.values[cpuWaiting]; slices.ContainsFunc(waiting, func(v float64) bool { return !math.IsNaN(v) }) {
		for _, at := range known.At {
			known.Waiting = append(known.Waiting, waiting[int64(time.Duration(at-r.query.Since.UnixNano())/r.query.Step)])
		}
	}
	known.Class = replay.Classify(known)
	return known
}
