package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/kube/lease"
)

const (
	// writeTimeout bounds a request that changes something, where its caller sets no earlier deadline.
	writeTimeout = 30 * time.Second
	// readTimeout bounds a request that reads. The longest one reads all objects of a kind at the start.
	readTimeout = 2 * time.Minute
)

// bounded gives every request but a watch a deadline, and sends no write of a leader that may have a
// successor.
type bounded struct{ http.RoundTripper }

// Bounded returns a copy of a configuration for clients that New does not build. Every request but a
// watch has a deadline, and no write is sent with the context of a leader that may have a successor.
func Bounded(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Wrap(func(sends http.RoundTripper) http.RoundTripper { return bounded{sends} })
	return own
}

// RoundTrip sends a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	limit := writeTimeout
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if r.URL.Query().Has("watch") {
			return b.RoundTripper.RoundTrip(r)
		}
		limit = readTimeout
	} else if err := lease.Check(r.Context()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), limit, fmt.Errorf("the API server did not answer within %s", limit))
	response, err := b.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &boundedBody{response.Body, cancel}
	return response, nil
}

// WrappedRoundTripper returns the next round tripper, for the client library.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// boundedBody ends the deadline of its request when it is closed.
type boundedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body.
func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
