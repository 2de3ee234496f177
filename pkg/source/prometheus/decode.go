package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Point is a finite value at a time.
type Point struct {
	At    time.Time
	Value float64
}

// Visit receives the labels and points of a series. The points are valid until it returns.
type Visit func(labels map[string]string, points []Point)

// Rejected is called for a series with unusable points, with the time of the first NaN or infinite
// point and a description. Without a time the whole series is unreadable. Labels may be incomplete.
type Rejected func(labels map[string]string, at time.Time, what string)

// Response is the metadata of a response.
type Response struct {
	Type     string // of the result: matrix, vector, scalar or string
	Series   int
	Points   int      // passed to Visit
	Unusable int      // NaN and infinite points
	Broken   int      // unreadable series
	Last     error    // of the last broken series
	Warnings []string // from the server
}

// Error is the error that Prometheus returns for a query.
type Error struct {
	Code       int    // HTTP status, 0 if unknown
	Type       string // such as bad_data, execution or timeout
	Message    string
	RetryAfter time.Duration // delay until the next attempt, 0 if not requested
}

func (e Error) Error() string {
	what := e.Type
	if e.Code != 0 {
		what = fmt.Sprintf("%d, %s", e.Code, e.Type)
	}
	if e.Message != "" {
		e.Message = ": " + e.Message
	}
	return "Prometheus rejected the query (" + what + ")" + e.Message
}

// Limits bounds the size of a response.
type Limits struct {
	Bytes       int64 // of the whole response
	SeriesBytes int64 // of one series
	Series      int
}

// DefaultLimits fits a day of 500,000 containers with hourly points and 2 KB of labels each.
func DefaultLimits() Limits {
	return Limits{Bytes: 2 << 30, SeriesBytes: 16 << 20, Series: 2_000_000}
}

// TooLargeError means that a response exceeds a limit.
type TooLargeError struct {
	Unit  string // unit of the limit, such as series
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the response exceeds %d %s: query less, such as one namespace or a coarser resolution", e.Limit, e.Unit)
}

// IsTooExpensive reports whether a query exceeded a limit, so that a smaller one may succeed.
func IsTooExpensive(err error) bool {
	var large *TooLargeError
	var refused *Error
	return errors.As(err, &large) || errors.Is(err, ErrTimeout) ||
		errors.As(err, &refused) && (refused.Code == http.StatusUnprocessableEntity || refused.Code == http.StatusServiceUnavailable || refused.Code == http.StatusGatewayTimeout)
}

// IsDivisible reports whether a part may succeed: too expensive, or the response ended early.
func IsDivisible(err error) bool {
	return IsTooExpensive(err) || errors.Is(err, ErrCut) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Decode decodes a response and visits each series with points. Unreadable series are counted and
// skipped. A failure that Prometheus reports is an *Error. After any other error the response is
// invalid, incomplete or too large, and the series before the error were visited. Unusable points
// are passed to rejected unless it is nil.
func Decode(r io.Reader, limits Limits, visit Visit, rejected Rejected) (Response, error) {
	d := newDecoder(r, limits)
	d.visit, d.rejected = visit, rejected
	err := d.readResponse(d.readData)
	return d.Response, err
}

// DecodeLabels decodes label sets and visits each of them. Unreadable labels count as broken.
func DecodeLabels(r io.Reader, limits Limits, visit func(labels map[string]string)) (Response, error) {
	d := newDecoder(r, limits)
	err := d.readResponse(func() error { return d.readList(func() error { return d.readLabels(visit) }) })
	return d.Response, err
}

func newDecoder(r io.Reader, limits Limits) *decoder {
	meter := &meter{reader: r, limits: limits, whole: limits.Bytes, series: limits.SeriesBytes}
	return &decoder{Decoder: json.NewDecoder(meter), meter: meter}
}

type decoder struct {
	*json.Decoder
	Response
	meter    *meter
	visit    Visit
	rejected Rejected

	points points
	labels map[string]string
}

func (d *decoder) readResponse(data func() error) error {
	err := d.envelope(data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("truncated response: %w", io.ErrUnexpectedEOF)
	}
	return err
}

func (d *decoder) envelope(data func() error) error {
	var status string
	var found bool
	var failed Error
	err := d.readObject(func(key string) error {
		switch key {
		case "status":
			return d.Decode(&status)
		case "errorType":
			return d.Decode(&failed.Type)
		case "error":
			return d.Decode(&failed.Message)
		case "warnings":
			return d.Decode(&d.Warnings)
		case "data":
			found = true
			return data()
		}
		return d.skip()
	})
	switch {
	case err != nil:
		return err
	case status == "error":
		return &failed
	case status != "success":
		return fmt.Errorf("unexpected status %q in the response: check that the server is Prometheus", status)
	case !found:
		return errors.New("no data in the response: check that the server is Prometheus")
	}
	return nil
}

func (d *decoder) readData() error {
	return d.readObject(func(key string) error {
		switch key {
		case "resultType":
			return d.Decode(&d.Type)
		case "result":
			return d.readList(d.readSeries)
		}
		return d.skip()
	})
}

func (d *decoder) readList(one func() error) error {
	start, err := d.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("the result is %v: want a list", start)
	}
	for d.More() {
		d.meter.series = d.meter.limits.SeriesBytes
		if err := one(); err != nil {
			return err
		}
	}
	return d.expect(json.Delim(']'))
}

func (d *decoder) readLabels(visit func(labels map[string]string)) error {
	labels := map[string]string{}
	err := d.Decode(&labels)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		d.Broken++
		d.Last = err
		return nil
	case err != nil:
		return err
	}
	if d.Series++; d.Series > d.meter.limits.Series {
		return &TooLargeError{"series", int64(d.meter.limits.Series)}
	}
	visit(labels)
	return nil
}

// readSeries counts a series with invalid values, and reading continues after it.
func (d *decoder) readSeries() error {
	d.labels, d.points.list, d.points.unusable = map[string]string{}, d.points.list[:0], 0
	series := struct {
		Metric *map[string]string `json:"metric"`
		Value  *points            `json:"value"`
		Values *points            `json:"values"`
	}{&d.labels, &d.points, &d.points}
	err := d.Decode(&series)
	var kind *json.UnmarshalTypeError
	var point *pointError
	switch {
	case errors.As(err, &kind), errors.As(err, &point):
		d.Broken++
		d.Last = err
		if d.rejected != nil {
			d.rejected(d.labels, time.Time{}, "cannot be read: "+err.Error())
		}
		return nil
	case err != nil:
		return err
	}
	if d.Unusable += d.points.unusable; d.points.unusable > 0 && d.rejected != nil {
		d.rejected(d.labels, d.points.firstUnusable.At, fmt.Sprintf("is %g, the first of %d such", d.points.firstUnusable.Value, d.points.unusable))
	}
	if d.Series++; d.Series > d.meter.limits.Series {
		return &TooLargeError{"series", int64(d.meter.limits.Series)}
	}
	if len(d.points.list) > 0 {
		d.Points += len(d.points.list)
		d.visit(d.labels, d.points.list)
	}
	return nil
}

// readObject treats null as an empty object.
func (d *decoder) readObject(field func(key string) error) error {
	d.meter.series = d.meter.limits.SeriesBytes
	start, err := d.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('{') {
		return fmt.Errorf("unexpected %v in the response, must be an object: check that the server is Prometheus", start)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if err := field(key.(string)); err != nil {
			return err
		}
	}
	return d.expect(json.Delim('}'))
}

func (d *decoder) skip() error {
	var skipped json.RawMessage
	return d.Decode(&skipped)
}

func (d *decoder) expect(want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		return fmt.Errorf("unexpected %v in the response, must be %v", token, want)
	}
	return err
}

type meter struct {
	reader        io.Reader
	limits        Limits
	whole, series int64
}

func (m *meter) Read(p []byte) (int, error) {
	if m.whole <= 0 {
		return 0, &TooLargeError{"bytes", m.limits.Bytes}
	}
	if m.series <= 0 {
		return 0, &TooLargeError{"bytes in one series", m.limits.SeriesBytes}
	}
	if limit := min(m.whole, m.series); int64(len(p)) > limit {
		p = p[:limit]
	}
	n, err := m.reader.Read(p)
	m.whole, m.series = m.whole-int64(n), m.series-int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrCut, err)
	}
	return n, err
}
