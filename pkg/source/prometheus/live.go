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

// Live takes the usage of right now.
type Live struct {
	Client *Client
	Usage  Usage
	Window time.Duration // over which the use of CPU is a mean; several scrapes

	Waiting    string // counter of the seconds in which work waited for CPU; empty = not requested
	Throttling bool   // request for how long CPU limits were reached

	Ambiguities *Ambiguities // gets the containers that are left out; nil = not needed

	// WaitingUnknown is set by Samples if Prometheus knows Waiting of no container.
	WaitingUnknown bool
}

// Samples asks for CPU and memory and calls yield for each sample. Of several series of a container, such as before and
// after a restart, the highest counts. Those that differ in other labels are an error, after all samples, and none of
// them counts. One kind that fails does not stop the other; the error names it. Series without namespace, pod or
// container are an error too, after all samples.
//
// If requested, samples of CPU include how long work waited for it, where a node knows, and for
// how long the limit was reached.
func (l *Live) Samples(ctx context.Context, yield func(usage.Sample)) error {
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

// shares are what is known of containers besides usage, each above 0 and at most 1.
type shares struct {
	waiting, throttled map[usage.ContainerKey]float64
}

// shares sends the optional requests. That there is none is no error: few nodes know how long work
// waited, and few containers may have a limit. The error joins what failed; the rest is right.
func (l *Live) shares(ctx context.Context) (shares, error) {
	var known shares
	var waiting, throttled error
	if l.Waiting != "" {
		var containers int
		known.waiting, containers, waiting = l.share(ctx, l.Usage.Each(l.Usage.Rate(l.Waiting, l.Window)))
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

// share returns the answer to a query for a share of the time of each container, and of how
// many containers it is, those with a share of 0 among them.
func (l *Live) share(ctx context.Context, query string) (of map[usage.ContainerKey]float64, containers int, err error) {
	of = map[usage.ContainerKey]float64{}
	answer, err := l.Client.Instant(ctx, query, time.Time{}, func(labels map[string]string, points []Point) {
		if share := points[len(points)-1].Value; share > 0 { // and not NaN
			if container, ok := l.Usage.Container(labels); ok {
				of[container] = min(share, 1)
			}
		}
	})
	return of, answer.Series, err
}

func (l *Live) samples(ctx context.Context, k resources.Kind, known shares, ambiguous map[usage.ContainerKey]error, yield func(usage.Sample)) error {
	unlabelled := 0
	distinct := NewDistinct(l.Usage, l.Window)
	var samples []usage.Sample
	query := l.Usage.Each(l.Usage.Query(k, l.Window))
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
			s.Waiting, s.Throttled = known.waiting[container], known.throttled[container]
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
		return fmt.Errorf("%d series cannot be read, such as: %w", answer.Broken, answer.Last)
	case answer.Series == 0:
		return fmt.Errorf("the query %s finds nothing: check the names of metric, job and labels", query)
	}
	return nil
}
