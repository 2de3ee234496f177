package client

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

func TestBounded_SetsDeadlineExceptForWatches(t *testing.T) {
	for _, tc := range []struct {
		name, method, url string
		caller, want      time.Duration
	}{
		{name: "write", method: http.MethodPatch, url: "http://server/pods/p", want: writeTimeout},
		{name: "create", method: http.MethodPost, url: "http://server/pods", want: writeTimeout},
		{name: "read", method: http.MethodGet, url: "http://server/pods/p", want: readTimeout},
		{name: "earlier deadline of the caller", method: http.MethodPatch, url: "http://server/pods/p", caller: time.Second, want: time.Second},
		{name: "watch", method: http.MethodGet, url: "http://server/pods?watch=true", caller: time.Hour, want: time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.caller > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tc.caller)
					defer stop()
				}
				request, err := http.NewRequestWithContext(ctx, tc.method, tc.url, nil)
				require.NoError(t, err)
				began := time.Now()
				_, err = deadlineTransport{silent{}}.RoundTrip(request) //nolint:bodyclose // there is none
				require.Error(t, err)
				require.Equal(t, tc.want, time.Since(began))
			})
		})
	}
}

type answering struct{ requests *int }

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	*a.requests++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// A leader that is suspended during an iteration resumes with its pending writes.
func TestBounded_RejectsWritesOfFormerLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testkit.FrozenLeases{Interface: fake.NewClientset(), Frozen: new(atomic.Bool), Thaw: make(chan struct{})}
		election := flags.DefaultElection("test")
		election.Enabled = true
		ctx, stop := context.WithCancel(t.Context())
		var leading sync.WaitGroup
		leading.Go(func() {
			_ = lease.Lead(ctx, process.OS{}, kube, election, func(ctx context.Context) error {
				requests := 0
				send := func(method string) error {
					request, err := http.NewRequestWithContext(ctx, method, "http://server/pods/p", nil)
					require.NoError(t, err)
					response, err := deadlineTransport{answering{&requests}}.RoundTrip(request)
					if err == nil {
						require.NoError(t, response.Body.Close())
					}
					return err
				}
				require.NoError(t, send(http.MethodPatch))
				kube.Frozen.Store(true)
				time.Sleep(election.LeaseDuration)
				require.ErrorIs(t, send(http.MethodPatch), lease.ErrNotRenewed)
				require.ErrorIs(t, send(http.MethodPost), lease.ErrNotRenewed)
				require.NoError(t, send(http.MethodGet))
				require.Equal(t, 2, requests)
				kube.Frozen.Store(false)
				close(kube.Thaw)
				return nil
			})
		})
		time.Sleep(time.Minute)
		stop()
		leading.Wait()
	})
}
