package backfill

import (
	"context"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/prometheus"
)

// chunk is a part of the past of one kind: steps times, step apart.
type chunk struct {
	kind  resources.Kind
	from  time.Time
	step  time.Duration
	steps int
}

const (
	chunkLength = 24 * time.Hour
	mostSteps   = 10_000 // Prometheus refuses more than 11,000 points a series
)

// plan cuts the past of now into chunks, the oldest first. Their times are those
// of one query from now-length to now.
func plan(now time.Time, length, step time.Duration) []chunk {
	start := now.Truncate(time.Second).Add(-length)
	total := int(length/step) + 1
	size := min(max(int(chunkLength/step), 1), mostSteps)
	var chunks []chunk
	for done := 0; done < total; done += size {
		for k := range resources.Kind(resources.Kinds) {
			chunks = append(chunks, chunk{k, start.Add(time.Duration(done) * step), step, min(size, total-done)})
		}
	}
	return chunks
}

// points is how many points in time chunks have.
func points(chunks []chunk) int {
	n := 0
	for _, c := range chunks {
		n += c.steps
	}
	return n
}

// halves returns c in two parts if it failed because it was too much for one
// query, else c.
func (c chunk) halves(err error) []chunk {
	if !prometheus.Heavy(err) || c.steps < 2 {
		return []chunk{c}
	}
	early, late := c, c
	early.steps = c.steps / 2
	late.from, late.steps = c.from.Add(time.Duration(early.steps)*c.step), c.steps-early.steps
	return []chunk{early, late}
}

// batch is what a chunk holds, as amounts: those of container i are
// values[i*steps] to values[(i+1)*steps-1], and none is negative.
type batch struct {
	chunk
	index      map[usage.ContainerKey]int
	containers []usage.ContainerKey
	values     []resources.Amount
	counts     map[string]int // samples that are not in values, by reason
}

const none resources.Amount = -1

// fetch asks for a chunk. An answer that is not whole gives nothing.
func (l *Loader) fetch(ctx context.Context, c chunk) (*batch, error) {
	b := &batch{chunk: c, index: map[usage.ContainerKey]int{}, counts: map[string]int{}}
	answer, err := l.config.Client.Range(ctx, prometheus.Range{
		Query: l.config.Usage.Query(c.kind, l.config.Step),
		Start: c.from,
		End:   c.from.Add(time.Duration(c.steps-1) * c.step),
		Step:  c.step,
	}, func(labels map[string]string, points []prometheus.Point) {
		key, ok := l.config.Usage.Container(labels)
		if !ok {
			b.counts[noContainer] += len(points)
			return
		}
		b.add(key, points)
	})
	b.counts[notNumber] += answer.Unusable
	b.counts[unreadable] += answer.Broken
	return b, err
}

// add takes the points of one series of a container. Where several series of it
// have the same time, as around a restart, the highest value counts.
func (b *batch) add(key usage.ContainerKey, points []prometheus.Point) {
	i, known := b.index[key]
	if !known {
		i = len(b.containers)
		b.index[key] = i
		b.containers = append(b.containers, key)
		for range b.steps {
			b.values = append(b.values, none)
		}
	}
	for _, p := range points {
		// Some servers shift the grid by less than a step.
		step := int((p.At.Sub(b.from) + b.step/2) / b.step)
		value := prometheus.Amount(b.kind, p.Value)
		switch {
		case step < 0 || step >= b.steps || p.At.Before(b.from.Add(-b.step)):
			b.counts[outside]++
		case value < 0:
			b.counts[negative]++
		default:
			at := i*b.steps + step
			b.values[at] = max(b.values[at], value)
		}
	}
}
