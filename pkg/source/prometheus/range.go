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

// Times are the times of a range query: Count times from Start, Step apart.
type Times struct {
	Start time.Time
	Step  time.Duration
	Count int
}

// MaxTimes is the maximum of times of a query. Prometheus refuses over 11,000 points per series.
const MaxTimes = 10_000

// At returns the time at an index.
func (t Times) At(index int) time.Time { return t.Start.Add(time.Duration(index) * t.Step) }

// Last returns the last time.
func (t Times) Last() time.Time { return t.At(t.Count - 1) }

// Index returns the index of the time of a point. Some servers shift times by less than a step.
func (t Times) Index(at time.Time) (index int, found bool) {
	index = int((at.Sub(t.Start) + t.Step/2) / t.Step)
	return index, 0 <= index && index < t.Count && !at.Before(t.Start.Add(-t.Step))
}

// Cut splits t into parts of at most maxCount times, the earliest first.
func (t Times) Cut(maxCount int) (parts []Times) {
	for from := 0; from < t.Count; from += maxCount {
		parts = append(parts, Times{t.At(from), t.Step, min(maxCount, t.Count-from)})
	}
	return parts
}

// Halves splits t into two parts, the earlier first.
func (t Times) Halves() []Times {
	half := t.Count / 2
	return []Times{{t.Start, t.Step, half}, {t.At(half), t.Step, t.Count - half}}
}

// Retries limits the attempts of a failing query.
type Retries struct {
	Pause       time.Duration // initial delay of retries, 0 for no retries
	MaxFailures int           // consecutive failures until the server counts as unavailable
	// ContinueOnError splits no part and continues after a final error, which may concern one part.
	ContinueOnError bool
	failures        int
}

// Part is a part of data that may be too large for one query.
type Part[P any] interface {
	Split(err error) []P // returns smaller parts of a failed one, or none if it is lost
}

// ReadParts calls query for each part in turn. It retries a failed query if that may help, then
// splits its part. Lost parts go to skip, and an error of skip ends the read. After a final error
// it returns the remaining parts.
func ReadParts[P Part[P]](ctx context.Context, r *Retries, parts []P, query func(context.Context, P) error, skip func(P, error) error) (rest []P, err error) {
	for rest = parts; len(rest) > 0; {
		err := r.send(ctx, func() error { return query(ctx, rest[0]) })
		if err == nil {
			r.failures, rest = 0, rest[1:]
			continue
		}
		if r.failures++; ctx.Err() != nil || isFinal(err) && !r.ContinueOnError {
			return rest, err
		}
		var smaller []P
		if !r.ContinueOnError {
			smaller = rest[0].Split(err)
		}
		gaveUp := r.failures >= r.MaxFailures
		if len(smaller) == 0 && (!gaveUp || r.ContinueOnError) {
			if err := skip(rest[0], err); err != nil {
				return rest, err
			}
			rest = rest[1:]
		} else if len(smaller) > 0 {
			rest = slices.Concat(smaller, rest[1:])
		}
		if gaveUp {
			return rest, fmt.Errorf("%d consecutive queries failed: %w", r.failures, err)
		}
	}
	return nil, nil
}

// Number of attempts, for busy servers and others. A pause is at most maxPauseFactor times the
// first one, or as long as the server requests, up to maxPause.
const (
	maxAttempts     = 3
	maxBusyAttempts = 8
	firstPause      = time.Second
	maxPauseFactor  = 120
	maxPause        = 5 * time.Minute
)

func (r *Retries) send(ctx context.Context, ask func() error) error {
	const growth = 4
	pauses := wait.Backoff{Duration: r.Pause, Factor: growth, Steps: maxBusyAttempts, Cap: maxPauseFactor * r.Pause}
	for try := 1; ; try++ {
		err := ask()
		if err == nil || ctx.Err() != nil || r.Pause == 0 || try >= attempts(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(pauses.Step(), min(serverError(err).RetryAfter, maxPause))):
		}
	}
}

// noAnswer is the code of errors that do not come from the server.
const noAnswer = -1

func serverError(err error) Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return *e
	}
	return Error{Code: noAnswer}
}

func attempts(err error) int {
	switch code := serverError(err).Code; {
	case code == http.StatusTooManyRequests:
		return maxBusyAttempts
	case isPermanent(code) || IsTooExpensive(err) && code != http.StatusServiceUnavailable:
		return 1
	}
	return maxAttempts
}

// isPermanent reports whether every query fails: wrong credentials, or not Prometheus.
func isPermanent(code int) bool {
	return slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, code)
}

// isFinal reports whether further queries are useless, because parts would fail as well.
func isFinal(err error) bool {
	code := serverError(err).Code
	if code == noAnswer {
		return !IsDivisible(err)
	}
	return isPermanent(code) || code == http.StatusTooManyRequests
}

// FormatDuration returns d in the format of Prometheus, which has no fractions: 7.5 s is 7s500ms.
// It rounds to milliseconds. The result is at least 1ms, because Prometheus does not accept 0.
func FormatDuration(d time.Duration) string {
	return model.Duration(max(d.Round(time.Millisecond), time.Millisecond)).String()
}

// ParseDuration parses the format of Prometheus, such as 8d or 1h30m, or of Go, such as 7.5s.
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

// points parses `[[1435781430.781,"1"], …]` or a single `[1435781430.781,"1"]`. The generic
// decoder would need some microseconds per point, and a day of a large cluster has millions.
type points struct {
	list          []Point
	unusable      int // NaN, which also marks the end of a series, and infinities
	firstUnusable Point
}

type pointError struct{ text string }

func (e *pointError) Error() string { return e.text }

// UnmarshalJSON implements json.Unmarshaler.
func (p *points) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	rest, ok := skipByte(text, '[')
	if !ok {
		return newPointError(text)
	}
	if _, nested := skipByte(rest, '['); !nested && len(bytes.TrimSpace(rest)) > 1 {
		_, err := p.parsePoint(text)
		return err
	}
	for {
		if _, end := skipByte(rest, ']'); end {
			return nil
		}
		next, err := p.parsePoint(rest)
		if err != nil {
			return err
		}
		rest, _ = skipByte(next, ',')
	}
}

func (p *points) parsePoint(text []byte) ([]byte, error) {
	rest, ok := skipByte(text, '[')
	comma := bytes.IndexByte(rest, ',')
	if !ok || comma < 0 {
		return nil, newPointError(text)
	}
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(rest[:comma])), 64)
	if err != nil || math.Abs(seconds) > maxSeconds {
		return nil, newPointError(text)
	}
	rest, ok = skipByte(rest[comma+1:], '"')
	quote := bytes.IndexByte(rest, '"')
	if !ok || quote < 0 {
		return nil, newPointError(text)
	}
	value, err := strconv.ParseFloat(string(rest[:quote]), 64)
	if err != nil {
		return nil, newPointError(text)
	}
	rest, ok = skipByte(rest[quote+1:], ']')
	if !ok {
		return nil, newPointError(text)
	}
	point := Point{time.UnixMilli(int64(math.Round(seconds * 1000))).UTC(), value}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		if p.unusable++; p.unusable == 1 {
			p.firstUnusable = point
		}
		return rest, nil
	}
	p.list = append(p.list, point)
	return rest, nil
}

// maxSeconds is the maximum time in seconds since 1970, after the year 5000.
const maxSeconds = 1e11

// skipByte returns the text after blanks and c, or text and false.
func skipByte(text []byte, c byte) ([]byte, bool) {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != c {
		return text, false
	}
	return trimmed[1:], true
}

func newPointError(text []byte) error {
	const shown = 40
	return &pointError{fmt.Sprintf("%.*q is no [time, \"value\"]", shown, text)}
}
