package report

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

func TestHandler_ReturnsSkipReasons(t *testing.T) {
	l := NewHandler()
	ask := func(query string) (int, string) {
		w := httptest.NewRecorder()
		l.ServeHTTP(w, httptest.NewRequest(http.MethodGet, explanation.SkipsPath+query, nil))
		return w.Code, w.Body.String()
	}
	code, _ := ask("")
	require.Equal(t, http.StatusServiceUnavailable, code, "it does not lead")
	r := &Skips{}
	l.Serve(r)
	code, _ = ask("")
	require.Equal(t, http.StatusServiceUnavailable, code, "there was no pass")

	r.Report(t.Context(), []disruption.Skip{skip("a", "p2", reason.BelowMinReplicas), skip("a", "p1", reason.BelowMinReplicas), skip("b", "p3", reason.TooYoung)}, noon)
	code, text := ask("")
	require.Equal(t, http.StatusOK, code)
	require.JSONEq(t, `{"reasons":{"BelowMinReplicas":["p1","p2"],"TooYoung":["p3"]}}`, text)
	_, text = ask("?uid=p3&uid=none")
	require.JSONEq(t, `{"reasons":{"TooYoung":["p3"]}}`, text)

	r.Report(t.Context(), nil, noon)
	_, text = ask("")
	require.JSONEq(t, `{"reasons":{}}`, text, "none is left alone any more")
}

// Any pod of the cluster may request all skipped pods repeatedly.
func TestHandler_AnswersOneRequestAtATime(t *testing.T) {
	h := NewHandler()
	h.Serve(&Skips{pods: map[string]skipped{}})
	h.turns <- struct{}{}
	ask := func() int {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, explanation.SkipsPath, nil))
		return w.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, ask())
	<-h.turns
	require.Eventually(t, func() bool { return ask() == http.StatusOK }, 10*time.Second, time.Millisecond)
}
