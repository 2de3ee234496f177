package prometheus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// Live takes the usage of right now.
type Live struct {
	Client *Client
	Usage  Usage
	Window time.Duration // over which the use of CPU is a mean; several scrapes

	Waiting string      // counter of the seconds in which work waited for CPU; empty = none
	Wanted  func() bool // whether somebody wants to know how long it waited; nil = nobody does
}

// Samples asks for CPU and memory and calls yield for each sample. Of several
// series of a container, such as before and after a restart, the highest counts.
// One kind that fails does not stop the other; the error names it. Series without
// namespace, pod or container are an error too, after all samples.
//
// If it is wanted, samples of CPU say how long work waited for it, where a node knows.
func (l *Live) Samples(ctx context.Context, yield func(usage.Sample)) error {
	var errs []error
	waiting, err := l.waiting(ctx)
	if err != nil {
		errs = append(errs, fmt.Errorf("time that work waited for CPU from Prometheus: %w", err))
	}
	for k := range resources.Kind(resources.Kinds) {
		if err := l.samples(ctx, k, waiting, yield); err != nil {
			errs = append(errs, fmt.Errorf("%s usage from Prometheus: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// waiting returns the share of the time in which work of containers waited for CPU. That
// there is none is no error: few nodes know it.
func (l *Live) waiting(ctx context.Context) (map[usage.ContainerKey]float64, error) {
	if l.Waiting == "" || l.Wanted == nil || !l.Wanted() {
		return nil, nil
	}
	shares := map[usage.ContainerKey]float64{}
	_, err := l.Client.Instant(ctx, l.Usage.Each(l.Usage.Rate(l.Waiting, l.Window)), time.Time{}, func(labels map[string]string, points []Point) {
		if container, ok := l.Usage.Container(labels); ok {
			shares[container] = min(max(points[len(points)-1].Value, 0), 1)
		}
	})
	return shares, err
}

func (l *Live) samples(ctx context.Context, k resources.Kind, waiting map[usage.ContainerKey]float64, yield func(usage.Sample)) error {
	unlabelled := 0
	query := l.Usage.Each(l.Usage.Query(k, l.Window))
	answer, err := l.Client.Instant(ctx, query, time.Time{}, func(labels map[string]string, points []Point) {
		container, ok := l.Usage.Container(labels)
		if !ok {
			unlabelled++
			return
		}
		last := points[len(points)-1]
		s := usage.Sample{Container: container, Kind: k, At: last.At, Amount: Amount(k, last.Value)}
		if k == resources.CPU {
			s.Waiting = waiting[container]
		}
		yield(s)
	})
	switch {
	case err != nil:
		return err
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
