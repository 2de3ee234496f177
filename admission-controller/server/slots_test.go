package server

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
)

func inNamespace(body, namespace string) string {
	return strings.Replace(body, `"namespace":"ns"`, `"namespace":"`+namespace+`"`, 1)
}

// Slow or large reviews of one namespace do not delay other namespaces.
func TestServer_BoundsReviewsPerNamespace(t *testing.T) {
	large := padded(maxSmallBody + 1000)
	for _, tc := range []struct {
		name       string
		body       string
		inProgress int
		next       string // of the same namespace, answered without waiting
	}{
		{name: "reviews of usual size", body: review, inProgress: maxConcurrentReviews / namespaceShare},
		{name: "large reviews", body: large, inProgress: maxLargePerNamespace, next: review},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{}
				leave := make(chan struct{})
				var hogs atomic.Int32
				handler := pods(nil)
				handler.Answer = func(_ context.Context, request *admissionv1.AdmissionRequest) Answer {
					if request.Namespace == "hog" {
						hogs.Add(1)
						<-leave
						hogs.Add(-1)
					}
					return Answer{}
				}
				h := New(Config{Environment: process.OS{}, Recorder: r, Handlers: []Handler{handler}}).Handler(klog.Background())
				for range 2 * maxConcurrentReviews {
					go postReview(h, "/?timeout=30s", inNamespace(tc.body, "hog"))
				}
				synctest.Wait()
				require.EqualValues(t, tc.inProgress, hogs.Load())
				start := time.Now()
				for _, body := range []string{review, large} {
					answer := postReview(h, "/?timeout=2s", inNamespace(body, "shop"))
					require.Contains(t, answer, `"uid":"u1","allowed":true`)
					require.NotContains(t, answer, "this one was not checked")
				}
				require.Zero(t, time.Since(start))
				if tc.next != "" {
					go postReview(h, "/", inNamespace(tc.next, "hog"))
					synctest.Wait()
					require.EqualValues(t, tc.inProgress+1, hogs.Load(), "a small review does not wait for large ones")
				}
				require.Empty(t, r.causes)
				close(leave)
				synctest.Wait()
				require.Zero(t, hogs.Load())
			})
		})
	}
}

func TestNamespaceOf_ReadsHeadOfReview(t *testing.T) {
	for _, tc := range []struct{ name, body, want string }{
		{name: "as API servers write it", body: `{"kind":"AdmissionReview","request":{"uid":"u","resource":{"namespace":"x"},"namespace":"shop","object":{"a`, want: "shop"},
		{name: "no namespace", body: `{"request":{"uid":"u","object":{"namespace":"x"}}}`},
		{name: "after the object", body: `{"request":{"object":{},"namespace":"shop"}}`},
		{name: "null", body: `{"request":null,"namespace":"shop"}`},
		{name: "cut off", body: `{"request":{"namespace":"sh`},
		{name: "not JSON", body: `namespace`},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, namespaceOf([]byte(tc.body))) })
	}
}

// Large bodies of one namespace fill the memory. Another namespace gets the first part that is
// released.
func TestServer_LargeBodiesDoNotDelayOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const answerTakes = 50 * time.Millisecond
		handler := pods(func() Answer { time.Sleep(answerTakes); return Answer{} })
		h := New(Config{Environment: process.OS{}, Recorder: &recorder{}, Handlers: []Handler{handler}}).Handler(klog.Background())
		body := inNamespace(padded(3<<20), "hog")
		var hogs sync.WaitGroup
		defer hogs.Wait()
		for range maxConcurrentReviews {
			hogs.Go(func() { postReview(h, "/?timeout=30s", body) })
		}
		synctest.Wait()
		start := time.Now()
		require.NotContains(t, postReview(h, "/?timeout=5s", inNamespace(padded(maxSmallBody+1000), "shop")), "this one was not checked")
		require.LessOrEqual(t, time.Since(start), 3*answerTakes)
	})
}
