package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
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

// hopeless reports whether every similar query fails alike: the server refuses the credentials, or is no Prometheus.
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

// FormatDuration returns d in the format of Prometheus, which has no fractions: 7.5 s is 7s500ms.
// It rounds to milliseconds. Prometheus accepts no duration of 0, so the result is at least 1ms.
func FormatDuration(d time.Duration) string {
	return model.Duration(max(d.Round(time.Millisecond), time.Millisecond)).String()
}

// ParseDuration reads a duration in the format of Prometheus, such as 8d or 1h30m, or of Go, such as 7.5s.
func ParseDuration(text string) (time.Duration, error) {
	d, err := model.ParseDuration(text)
	if err == nil {
		return time.Duration(d), nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, err
}

// points reads `[[1435781430.781,"1"], …]` or a single `[1435781430.781,"1"]`. The general decoder would need some
// microseconds a point, and a day of a large cluster has millions.
type points struct {
	list     []Point
	unusable int   // NaN, which also marks the end of a series, and infinities
	odd      Point // the first of them
}

// pointError says what is wrong with a list of points.
type pointError struct{ text string }

func (e *pointError) Error() string { return e.text }

// UnmarshalJSON takes one JSON value.
func (p *points) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	rest, ok := follow(text, '[')
	if !ok {
		return broken(text)
	}
	if _, nested := follow(rest, '['); !nested && len(bytes.TrimSpace(rest)) > 1 {
		_, err := p.one(text)
		return err
	}
	for {
		if _, end := follow(rest, ']'); end {
			return nil
		}
		next, err := p.one(rest)
		if err != nil {
			return err
		}
		rest, _ = follow(next, ',')
	}
}

// one reads a single point and returns what follows it.
func (p *points) one(text []byte) ([]byte, error) {
	rest, ok := follow(text, '[')
	comma := bytes.IndexByte(rest, ',')
	if !ok || comma < 0 {
		return nil, broken(text)
	}
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(rest[:comma])), 64)
	if err != nil || math.Abs(seconds) > latest {
		return nil, broken(text)
	}
	rest, ok = follow(rest[comma+1:], '"')
	quote := bytes.IndexByte(rest, '"')
	if !ok || quote < 0 {
		return nil, broken(text)
	}
	value, err := strconv.ParseFloat(string(rest[:quote]), 64)
	if err != nil {
		return nil, broken(text)
	}
	rest, ok = follow(rest[quote+1:], ']')
	if !ok {
		return nil, broken(text)
	}
	point := Point{time.UnixMilli(int64(math.Round(seconds * 1000))).UTC(), value}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		if p.unusable++; p.unusable == 1 {
			p.odd = point
		}
		return rest, nil
	}
	p.list = append(p.list, point)
	return rest, nil
}

// latest is the largest time, in seconds, that is taken: beyond the year 5000.
const latest = 1e11

// follow reports whether text starts with c, blanks aside, and returns what comes after it. Otherwise it returns text.
func follow(text []byte, c byte) ([]byte, bool) {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != c {
		return text, false
	}
	return trimmed[1:], true
}

func broken(text []byte) error {
	const shown = 40
	return &pointError{fmt.Sprintf("%.*q is no [time, \"value\"]", shown, text)}
}
