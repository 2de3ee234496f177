package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Times are the times of a range query: Count of them from Start on, Step apart.
type Times struct {
	Start time.Time
	Step  time.Duration
	Count int
}

// MostTimes is the largest number of times of a query. Prometheus refuses more than 11,000 points per series.
const MostTimes = 10_000

// At returns the time with an index.
func (t Times) At(index int) time.Time { return t.Start.Add(time.Duration(index) * t.Step) }

// Last returns the last time.
func (t Times) Last() time.Time { return t.At(t.Count - 1) }

// Index returns the index of the time that a point is of, and false if it is of none.
// Some servers shift the times by less than a step.
func (t Times) Index(at time.Time) (index int, found bool) {
	index = int((at.Sub(t.Start) + t.Step/2) / t.Step)
	return index, 0 <= index && index < t.Count && !at.Before(t.Start.Add(-t.Step))
}

// Cut returns t in parts of at most so many times, the earliest first.
func (t Times) Cut(most int) (parts []Times) {
	for from := 0; from < t.Count; from += most {
		parts = append(parts, Times{t.At(from), t.Step, min(most, t.Count-from)})
	}
	return parts
}

// Halves returns t in two parts, the earlier first.
func (t Times) Halves() []Times {
	half := t.Count / 2
	return []Times{{t.Start, t.Step, half}, {t.At(half), t.Step, t.Count - half}}
}

// Retries limits the attempts of a query that fails.
type Retries struct {
	Pause        time.Duration // before a query is sent again, at first; 0 = it is sent once
	MostFailures int           // queries in a row after which the server is taken to be away
	// GoOn splits no part, and continues with the next part after a final error, because the server may refuse
	// single parts, for example by metric.
	GoOn     bool
	failures int
}

// Part is a part of data that may be too large for one query.
type Part[P any] interface {
	Split(err error) []P // returns the parts that replace a failed one; none: it is lost
}

// ReadParts sends a query for one part after the other by ask, which also takes the answer. It repeats a failed
// query after a pause if that may help, and then splits its part. It passes a part that is lost to lost, whose
// error ends reading. After a final error it returns the parts that are left.
func ReadParts[P Part[P]](ctx context.Context, r *Retries, parts []P, ask func(context.Context, P) error, lost func(P, error) error) (rest []P, err error) {
	for rest = parts; len(rest) > 0; {
		err := r.send(ctx, func() error { return ask(ctx, rest[0]) })
		if err == nil {
			r.failures, rest = 0, rest[1:]
			continue
		}
		if r.failures++; ctx.Err() != nil || final(err) && !r.GoOn {
			return rest, err
		}
		var smaller []P
		if !r.GoOn {
			smaller = rest[0].Split(err)
		}
		gaveUp := r.failures >= r.MostFailures
		if len(smaller) == 0 && (!gaveUp || r.GoOn) {
			if err := lost(rest[0], err); err != nil {
				return rest, err
			}
			rest = rest[1:]
		} else if len(smaller) > 0 {
			rest = slices.Concat(smaller, rest[1:])
		}
		if gaveUp {
			return rest, fmt.Errorf("%d queries one after the other failed: %w", r.failures, err)
		}
	}
	return nil, nil
}

// Attempts of a query, for a busy server and for others. A pause is at most slack times the first one, or as long
// as the server requests, up to longestPause.
const (
	tries        = 3
	busyTries    = 8
	firstPause   = time.Second
	slack        = 120
	longestPause = 5 * time.Minute
)

// send calls ask until it succeeds or fails with an error that a further attempt does not change.
func (r *Retries) send(ctx context.Context, ask func() error) error {
	const growth = 4
	pauses := wait.Backoff{Duration: r.Pause, Factor: growth, Steps: busyTries, Cap: slack * r.Pause}
	for try := 1; ; try++ {
		err := ask()
		if err == nil || ctx.Err() != nil || r.Pause == 0 || try >= attempts(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(pauses.Step(), min(said(err).Later, longestPause))):
		}
	}
}

// noAnswer is the code of an error that does not come from the server.
const noAnswer = -1

// said returns the error that the server returned for a query.
func said(err error) Error {
	var e *Error
	if errors.As(err, &e) {
		return *e
	}
	return Error{Code: noAnswer}
}

// attempts returns the number of attempts of a query that fails with an error.
func attempts(err error) int {
	switch code := said(err).Code; {
	case code == http.StatusTooManyRequests:
		return busyTries
	case hopeless(code) || Heavy(err) && code != http.StatusServiceUnavailable:
		return 1
	}
	return tries
}

// hopeless reports whether every similar query fails alike: the server refuses the credentials, or is no
// Prometheus.
func hopeless(code int) bool {
	return slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, code)
}

// final reports whether further queries are useless: the server is unreachable, overloaded for long, or would
// refuse a part as well.
func final(err error) bool {
	code := said(err).Code
	if code == noAnswer {
		return !Divisible(err)
	}
	return hopeless(code) || code == http.StatusTooManyRequests
}
