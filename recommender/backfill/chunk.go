package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/prometheus"
)

// chunk is a part of the history of one kind.
type chunk struct {
	kind resources.Kind
	prometheus.Times
}

const chunkLength = 24 * time.Hour

// plan cuts the history of now into chunks, the oldest first. Their times are whole steps since a
// fixed time, so that each start within the same step reads the same points, and now, because
// the last step may hold all usage that there is.
func plan(now time.Time, length, step time.Duration) []chunk {
	now = now.Truncate(time.Second)
	all := prometheus.Times{Start: now.Truncate(step).Add(-length.Truncate(step)), Step: step, Count: int(length/step) + 1}
	parts := all.Cut(min(max(int(chunkLength/step), 1), prometheus.MostTimes))
	if all.Last().Before(now) {
		parts = append(parts, prometheus.Times{Start: now, Step: step, Count: 1})
	}
	var chunks []chunk
	for _, times := range parts {
		for k := range resources.Kind(resources.Kinds) {
			chunks = append(chunks, chunk{k, times})
		}
	}
	return chunks
}

// split returns the chunks that replace a failed one: two halves if the answer was too large or ended early,
// as at a proxy with a limit, else the chunk itself.
func (c chunk) split(err error) (parts []chunk) {
	tooLarge := prometheus.Heavy(err) || errors.Is(err, prometheus.ErrCut) || errors.Is(err, io.ErrUnexpectedEOF)
	if !tooLarge || c.Count == 1 {
		return []chunk{c}
	}
	for _, half := range c.Halves() {
		parts = append(parts, chunk{c.kind, half})
	}
	return parts
}

// batch is what a chunk holds, as amounts: those of container i are
// values[i*Count] to values[(i+1)*Count-1], and none is negative.
type batch struct {
	chunk
	index      map[usage.ContainerKey]int
	containers []usage.ContainerKey
	values     []resources.Amount
	waiting    []float64 // shares of the time in which work waited for CPU, in the same order; nil = not known
	distinct   *prometheus.Distinct
	counts     map[string]int // samples that are not in values, by reason
}

const none resources.Amount = -1

// fetch asks for a chunk. An answer that is not whole gives nothing.
func (l *Loader) fetch(ctx context.Context, d *directory, c chunk) (*batch, error) {
	b := &batch{chunk: c, index: map[usage.ContainerKey]int{}, counts: map[string]int{}, distinct: prometheus.NewDistinct(l.config.Usage, l.config.Step)}
	query := l.config.Usage.Query(c.kind, l.config.Step)
	answer, err := l.config.Client.Range(ctx, prometheus.Range{Query: query, Times: c.Times}, func(labels map[string]string, points []prometheus.Point) {
		key, ok := l.config.Usage.Container(labels)
		if !ok {
			b.counts[noContainer] += len(points)
			return
		}
		b.distinct.Add(key, labels, points)
		switch cluster := prometheus.Cluster(labels); {
		case cluster == "" || d.live[podName{key.Namespace, key.Pod}] != nil: // two of one name are for Distinct
		case l.own.problem != nil:
			b.distinct.Refuse(key, l.own.problem)
		case l.own.known && cluster != l.own.name:
			b.counts[otherCluster] += len(points)
			l.logOther(ctx, cluster)
			return
		}
		b.add(key, points)
	})
	l.config.Ambiguities.AddPast(b.distinct)
	if err := b.distinct.Err(); err != nil && !l.ambiguous {
		l.ambiguous = true
		klog.FromContext(ctx).Error(err, "No history of containers whose series differ in labels that are not known")
	}
	b.counts[notNumber] += answer.Unusable
	b.counts[unreadable] += answer.Broken
	return b, err
}

// ownCluster is the cluster of the pods that run, by the labels of their usage.
type ownCluster struct {
	name    string // matchers of PromQL; empty: without a label
	known   bool
	problem error // the clusters of series cannot be told apart
}

// findCluster reads which clusters the usage of now is from. Where that fails, pods that are gone have no
// history if their series name a cluster.
func (l *Loader) findCluster(ctx context.Context, d *directory) {
	var clusters prometheus.Clusters
	_, err := l.config.Client.Instant(ctx, l.config.Usage.Memory(), time.Time{}, func(labels map[string]string, _ []prometheus.Point) {
		if key, ok := l.config.Usage.Container(labels); ok {
			pod := ""
			if d.live[podName{key.Namespace, key.Pod}] != nil {
				pod = key.Namespace + "/" + key.Pod
			}
			clusters.Add(pod, labels)
		}
	})
	l.own.name, l.own.known, l.own.problem = clusters.Own()
	if err != nil {
		l.own.problem = fmt.Errorf("series of a cluster that is not known: %w", err)
	}
}

// logOther logs once that series of another cluster are left out.
func (l *Loader) logOther(ctx context.Context, cluster string) {
	if !l.otherLogged {
		l.otherLogged = true
		klog.FromContext(ctx).Info("History of other clusters in Prometheus is left out", "cluster", l.own.name, "other", cluster)
	}
}

// add takes the points of one series of a container. Where several series of it
// have the same time, as around a restart, the highest value counts.
func (b *batch) add(key usage.ContainerKey, points []prometheus.Point) {
	i, known := b.index[key]
	if !known {
		i = len(b.containers)
		b.index[key] = i
		b.containers = append(b.containers, key)
		for range b.Count {
			b.values = append(b.values, none)
		}
	}
	for _, p := range points {
		index, found := b.Index(p.At)
		value := prometheus.Amount(b.kind, p.Value)
		switch {
		case !found:
			b.counts[outside]++
		case value < 0:
			b.counts[negative]++
		default:
			at := i*b.Count + index
			b.values[at] = max(b.values[at], value)
		}
	}
}

// waiting is what is known of how long work waited for CPU.
type waiting uint8

const (
	notAsked waiting = iota // nobody wants to know
	unknown                 // somebody does, and no container has such a figure
	known
	refusedOnce // Prometheus did not answer
)

// fetchWaiting asks for how long work waited for CPU at the times of a batch. Usage is worth more
// than that: where it cannot be had, CPU use counts as it is. What was not answered is logged
// once.
func (l *Loader) fetchWaiting(ctx context.Context, b *batch) {
	query := l.config.Usage.Rate(l.config.Waiting, l.config.Step)
	shares := make([]float64, len(b.values))
	answer, err := l.config.Client.Range(ctx, prometheus.Range{Query: query, Times: b.Times}, func(labels map[string]string, points []prometheus.Point) {
		key, _ := l.config.Usage.Container(labels)
		i, found := b.index[key]
		if !found {
			return
		}
		for _, p := range points {
			if n, found := b.Index(p.At); found {
				at := i*b.Count + n
				shares[at] = max(shares[at], min(p.Value, 1))
			}
		}
	})
	switch {
	case ctx.Err() != nil:
	case err != nil && l.waiting != refusedOnce:
		l.waiting = refusedOnce
		klog.FromContext(ctx).Error(err, "Cannot load for how long work waited for CPU in the past: CPU use counts as it is", "metric", l.config.Waiting)
	case err != nil:
	case answer.Series > 0:
		b.waiting, l.waiting = shares, max(l.waiting, known)
	default:
		l.waiting = max(l.waiting, unknown)
	}
}

// waited returns the share of the time, 0 to 1, for which work of container i waited for CPU at
// time n; 0 also where that is not known.
func (b *batch) waited(i, n int) float64 {
	if b.waiting == nil {
		return 0
	}
	return b.waiting[i*b.Count+n]
}
