package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
)

// FuzzReview sends arbitrary bodies. Each body up to MaxBody must be answered, and the object
// allowed.
func FuzzReview(f *testing.F) {
	f.Add(review)
	f.Add(`{"request":{"resource":{"resource":"pods"},"object":{"spec":null}}}`)
	h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(func() Answer { return Answer{} })}, Recorder: &recorder{}}).Handler(klog.Background())
	f.Fuzz(func(t *testing.T, body string) {
		request := httptest.NewRequest("POST", "/", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request)
		if len(body) > MaxBody {
			require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
			return
		}
		require.Equal(t, http.StatusOK, w.Code)
		var answer admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
		require.NotNil(t, answer.Response)
		require.True(t, answer.Response.Allowed, w.Body.String())
	})
}
