// Package prometheus reads usage from Prometheus or a server with a compatible query API.
//
// Responses are decoded as a stream and handed over series by series, so that a large response is
// never held in memory. The size of a response is bounded. NaN and infinite values are dropped and
// counted.
//
// LiveReader reads current usage, and ReadArchive makes recordings for the backtester. ReadParts
// splits reads that are too large for one query, for recordings and for the history that the
// recommender backfills.
package prometheus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"loadline.dev/loadline/pkg/process"
)

// Config configures the connection to Prometheus, with at most one authentication method.
type Config struct {
	Address  string // URL, with an optional path before /api/v1
	Insecure bool   // do not verify the TLS certificate
	CAFile   string // PEM file with trusted certificates, empty for the system's

	Username, Password string
	Token, TokenFile   string // the file is read for each request, as tokens rotate

	Headers     []string // "Name: value", of each request
	HeadersFile string   // more headers, one per line, read for each request

	Timeout time.Duration
	Limits  Limits

	// Observe is called for each request, for metrics. The code is the HTTP status, or "error"
	// without a response. The method is in lower case. Nil disables it.
	Observe func(code, method string, took time.Duration)
}

// Client sends queries. It is safe for concurrent use.
type Client struct {
	config  Config
	base    *url.URL
	http    *http.Client
	useGet  atomic.Bool // the server or a proxy does not accept POST
	maxTime string
}

// New returns an error for an invalid address, or a certificate file without certificates.
func New(env process.Environment, c Config) (*Client, error) {
	base, err := ParseAddress(c.Address)
	if err != nil {
		return nil, err
	}
	transport := process.Transport(env)
	if c.Insecure || c.CAFile != "" {
		trusted, err := loadRootCAs(c.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted, InsecureSkipVerify: c.Insecure} // requested by --prometheus-insecure
	}
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	return &Client{
		config: c, base: base, http: &http.Client{Transport: transport},
		maxTime: FormatDuration(c.Timeout),
	}, nil
}

// loadRootCAs returns nil for the certificates of the system.
func loadRootCAs(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificates to trust: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the certificates to trust: %s has none, must be a PEM file", file)
	}
	return pool, nil
}

var (
	// ErrTimeout means that a query took longer than Config.Timeout.
	ErrTimeout = errors.New("no complete response")
	// ErrCut means that the connection was closed in the middle of a response.
	ErrCut = errors.New("connection closed before the end of the response")
)

// ParseAddress parses the URL of a server.
func ParseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("must be a URL such as http://prometheus.monitoring.svc:9090")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s must be a URL such as http://prometheus.monitoring.svc:9090", u.Redacted())
	}
	return u, nil
}

// Range is a query for the values of an expression at several times.
type Range struct {
	Query string
	Times
}

// Range sends a range query and visits the series of its response like Decode.
func (c *Client) Range(ctx context.Context, r Range, visit Visit, rejected Rejected) (Response, error) {
	answer, err := c.query(ctx, "query_range", url.Values{
		"query": {r.Query}, "start": {seconds(r.Start)}, "end": {seconds(r.Last())},
		"step": {strconv.FormatFloat(r.Step.Seconds(), 'f', -1, 64)},
	}, func(body io.Reader) (Response, error) { return Decode(body, c.config.Limits, visit, rejected) })
	if err == nil && answer.Type != "matrix" {
		err = fmt.Errorf("query %s returned a %s: must return series over time (a matrix)", r.Query, answer.Type)
	}
	return answer, err
}

// Server returns the host and the path of the server address, without credentials.
func (c *Client) Server() string { return c.base.Host + strings.TrimSuffix(c.base.Path, "/") }

// Instant visits the series of a query at one time, where zero is the current time of the server.
// The response is a vector, or a matrix for a range such as [8d].
func (c *Client) Instant(ctx context.Context, query string, at time.Time, visit Visit) (Response, error) {
	form := url.Values{"query": {query}}
	if !at.IsZero() {
		form.Set("time", seconds(at))
	}
	answer, err := c.query(ctx, "query", form, func(body io.Reader) (Response, error) { return Decode(body, c.config.Limits, visit, nil) })
	if err == nil && answer.Type != "matrix" && answer.Type != "vector" {
		err = fmt.Errorf("query %s returned a %s: must return series (a vector or a matrix)", query, answer.Type)
	}
	return answer, err
}

// Labels visits the labels of series that match a selector and have a point from start to end.
func (c *Client) Labels(ctx context.Context, selectors []string, start, end time.Time, visit func(labels map[string]string)) (Response, error) {
	return c.query(ctx, "series", url.Values{"match[]": selectors, "start": {seconds(start)}, "end": {seconds(end)}},
		func(body io.Reader) (Response, error) { return DecodeLabels(body, c.config.Limits, visit) })
}

func seconds(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', -1, 64)
}

type bodyDecoder func(body io.Reader) (Response, error)

func (c *Client) query(ctx context.Context, path string, form url.Values, body bodyDecoder) (Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout,
		fmt.Errorf("%w within %s (--prometheus-query-timeout)", ErrTimeout, c.config.Timeout))
	defer cancel()
	form.Set("timeout", c.maxTime)
	answer, err := c.send(ctx, path, form, body)
	if err == nil {
		return answer, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return answer, fmt.Errorf("query %s: %w", c.base.Redacted(), err)
}

func (c *Client) send(ctx context.Context, path string, form url.Values, body bodyDecoder) (Response, error) {
	var response *http.Response
	var err error
	if !c.useGet.Load() {
		response, err = c.request(ctx, http.MethodPost, path, form)
		if err != nil {
			return Response{}, err
		}
		if response.StatusCode == http.StatusMethodNotAllowed || response.StatusCode == http.StatusNotImplemented {
			c.useGet.Store(true)
			response.Body.Close()
		}
	}
	if c.useGet.Load() {
		if response, err = c.request(ctx, http.MethodGet, path, form); err != nil {
			return Response{}, err
		}
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return Response{}, readError(response)
	}
	return body(response.Body)
}

func (c *Client) request(ctx context.Context, method, path string, form url.Values) (*http.Response, error) {
	target, body := c.base.JoinPath("api/v1", path), ""
	if method == http.MethodGet {
		target.RawQuery = form.Encode()
	} else {
		body = form.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if err := c.authorize(request); err != nil {
		return nil, err
	}
	headers, err := readHeaders(c.config.Headers, c.config.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("read the headers (--prometheus-headers-file): %w", err)
	}
	maps.Copy(request.Header, headers)
	start := time.Now()
	response, err := c.http.Do(request)
	if c.config.Observe != nil {
		code := "error"
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}
		c.config.Observe(code, strings.ToLower(method), time.Since(start))
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, which may contain a password
	}
	return response, err
}

// authorize sets the Authorization header. It sets it on the request instead of the transport, so
// that the HTTP client drops it on a redirect to another host.
func (c *Client) authorize(request *http.Request) error {
	token := c.config.Token
	if file := c.config.TokenFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the token (--prometheus-bearer-token-file): %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	switch {
	case token != "":
		request.Header.Set("Authorization", "Bearer "+token)
	case c.config.Username != "":
		request.SetBasicAuth(c.config.Username, c.config.Password)
	}
	return nil
}

// readHeaders parses header lines and the lines of a file. It skips blank lines and comments.
func readHeaders(lines []string, file string) (http.Header, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		lines = slices.Concat(lines, strings.Split(string(text), "\n"))
	}
	headers := http.Header{}
	for i, line := range lines {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" || strings.ContainsAny(name, " \t") || strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("line %d is no \"Name: value\"", i+1)
		}
		headers.Add(name, strings.TrimSpace(value))
	}
	return headers, nil
}

func readError(response *http.Response) error {
	const enough = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, enough))
	e := &Error{Code: response.StatusCode, Type: http.StatusText(response.StatusCode), RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now())}
	var parsed struct{ ErrorType, Error string }
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if json.Unmarshal(text, &parsed) == nil && parsed.Error != "" {
		e.Type, e.Message = parsed.ErrorType, parsed.Error
	} else if kind == "text/plain" {
		e.Message = fmt.Sprintf("%.200s", strings.TrimSpace(string(text)))
	}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Message = strings.TrimSpace(e.Message + " Check --prometheus-bearer-token, its file, or --username and --password.")
	case http.StatusNotFound:
		e.Message = strings.TrimSpace(e.Message + " Check --prometheus-address: /api/v1/query must exist below it.")
	}
	return e
}

func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
