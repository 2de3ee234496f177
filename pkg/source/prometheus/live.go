package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// LiveReader reads current usage.
type LiveReader struct {
	Client *Client
	Usage  Usage
	Window time.Duration // for the mean CPU usage, covers several scrapes

	Waiting    string // counter of seconds of CPU waiting, empty for none
	Throttling bool   // also query CPU throttling

	Ambiguities *AmbiguousContainers // receives skipped containers, may be nil

	// WaitingUnknown is set by Samples if Prometheus has the Waiting metric for no container.
	WaitingUnknown bool
}

// Samples queries CPU and memory and calls yield for each sample. The highest of several series of
// a container counts, as before and after a restart. Containers with series that differ in other
// labels are skipped. They, and series without namespace, pod or container, cause an error after
// all samples. If the query for one resource fails, the other continues.
//
// If requested, CPU samples include the shares of time that tasks waited for CPU, if reported, and
// that the container was throttled.
func (l *LiveReader) Samples(ctx context.Context, yield func(usage.Sample)) error {
	known, err := l.shares(ctx)
	ambiguous := map[usage.ContainerKey]error{}
	errs := []error{err}
	for k := range resources.Kind(resources.Kinds) {
		if err := l.samples(ctx, k, known, ambiguous, yield); err != nil {
			errs = append(errs, fmt.Errorf("%s usage from Prometheus: %w", k, err))
		}
	}
	l.Ambiguities.setLive(ambiguous)
	return errors.Join(errs...)
}

// shares are optional data of containers, each above 0 and at most 1.
type shares struct {
	waiting, throttled map[usage.ContainerKey]float64
}

// shares sends the optional queries. An empty response is no error, because few nodes report
// waiting and few containers have a limit. The error joins all failures, and the rest is valid.
func (l *LiveReader) shares(ctx context.Context) (shares, error) {
	var known shares
	var waiting, throttled error
	if l.Waiting != "" {
		var containers int
		known.waiting, containers, waiting = l.share(ctx, l.Usage.PerContainer(l.Usage.Rate(l.Waiting, l.Window)))
		l.WaitingUnknown = waiting == nil && containers == 0
		if waiting != nil {
			waiting = fmt.Errorf("time that work waited for CPU from Prometheus: %w", waiting)
		}
	}
	if l.Throttling {
		if known.throttled, _, throttled = l.share(ctx, l.Usage.Throttled(l.Window)); throttled != nil {
			throttled = fmt.Errorf("time in which CPU limits were reached from Prometheus: %w", throttled)
		}
	}
	return known, errors.Join(waiting, throttled)
}

// share returns the positive shares in a response, and the number of all its containers.
func (l *LiveReader) share(ctx context.Context, query string) (byContainer map[usage.ContainerKey]float64, containers int, err error) {
	byContainer = map[usage.ContainerKey]float64{}
	answer, err := l.Client.Instant(ctx, query, time.Time{}, func(labels map[string]string, points []Point) {
		if share := points[len(points)-1].Value; share > 0 { // also excludes NaN
			if container, ok := l.Usage.Container(labels); ok {
				byContainer[container] = min(share, 1)
			}
		}
	})
	return byContainer, answer.Series, err
}

func (l *LiveReader) samples(ctx context.Context, k resources.Kind, known shares, ambiguous map[usage.ContainerKey]error, yield func(usage.Sample)) error {
	unlabelled := 0
	distinct := NewAmbiguityDetector(l.Usage, l.Window)
	var samples []usage.Sample
	query := l.Usage.PerContainer(l.Usage.Query(k, l.Window))
	answer, err := l.Client.Instant(ctx, query, time.Time{}, func(labels map[string]string, points []Point) {
		container, ok := l.Usage.Container(labels)
		if !ok {
			unlabelled++
			return
		}
		if !distinct.Add(container, labels, points) {
			return
		}
		last := points[len(points)-1]
		s := usage.Sample{Container: container, Kind: k, At: last.At, Amount: Amount(k, last.Value)}
		if k == resources.CPU {
			s.Pressure, s.Throttled = known.waiting[container], known.throttled[container]
		}
		samples = append(samples, s)
	})
	maps.Copy(ambiguous, distinct.ambiguous)
	for _, s := range samples {
		if distinct.Ambiguous(s.Container) == nil {
			yield(s)
		}
	}
	switch {
	case err != nil:
		return err
	case distinct.Err() != nil:
		return distinct.Err()
	case unlabelled > 0:
		return fmt.Errorf("%d of %d series lack the label %s, %s or %s", unlabelled, answer.Series,
			l.Usage.NamespaceLabel, l.Usage.PodLabel, l.Usage.ContainerLabel)
	case answer.Broken > 0:
		return fmt.Errorf("failed to parse %d series, such as: %w", answer.Broken, answer.Last)
	case answer.Series == 0:
		return fmt.Errorf("no series for query %s: check the names of the metric, job and labels", query)
	}
	return nil
}
