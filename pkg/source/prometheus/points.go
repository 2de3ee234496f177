package prometheus

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

// points reads `[[1435781430.781,"1"], …]` or a single `[1435781430.781,"1"]`.
// The general decoder would need some microseconds a point, and a day of a large
// cluster has millions.
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

// follow reports whether text starts with c, blanks aside, and returns what comes
// after it. Otherwise it returns text.
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
