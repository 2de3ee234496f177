package client

import (
	"context"
	"net/http"
)

type onceKey struct{}

// Once returns a context whose requests are sent one time only. Without it the client
// library sends a request up to ten times more where the answer names a time after which
// that makes sense, and the caller waits all along.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// once takes the time out of the answers to requests of such a context.
type once struct{ http.RoundTripper }

// RoundTrip sends a request.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(r)
	if response != nil && r.Context().Value(onceKey{}) != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper returns what sends the requests, for the client library.
func (o once) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }
