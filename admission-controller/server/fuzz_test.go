package server

import (
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
)

// FuzzReview sends arbitrary bodies. Each answer must allow the object.
func FuzzReview(f *testing.F) {
	f.Add(review)
	f.Add(`{"request":{"resource":{"resource":"pods"},"object":{"spec":null}}}`)
	h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(func() Answer { return Answer{} })}, Recorder: &recorder{}}).Handler(klog.Background())
	f.Fuzz(func(t *testing.T, body string) {
		request := httptest.NewRequest("POST", "/", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request)
		if w.Code == 200 && !strings.Contains(w.Body.String(), `"allowed":true`) {
			t.Fatalf("answer %q", w.Body.String())
		}
	})
}
