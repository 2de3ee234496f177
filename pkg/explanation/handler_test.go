package explanation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// explainer answers after a delay or with an error.
type explainer struct {
	takes time.Duration
	err   error
}

func (e explainer) Explain(ctx context.Context, namespace, name string) (any, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(e.takes):
	}
	return map[string]string{"is": namespace + "/" + name}, e.err
}

func ask(h *Handler, method, query string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(method, VPAPath+query, nil))
	return answer
}

func TestHandler_Answers(t *testing.T) {
	const valid = "?namespace=shop&name=web"
	for _, tc := range []struct {
		name, method, query string
		explainer           Explainer
		status              int
		want                string
	}{
		{name: "answer", query: valid, explainer: explainer{}, status: http.StatusOK, want: `{"is":"shop/web"}`},
		{name: "unknown object", query: valid, explainer: explainer{err: fmt.Errorf("VPA: %w", ErrUnknown)}, status: http.StatusNotFound, want: "shop/web: VPA: not served by this program"},
		{name: "failure", query: valid, explainer: explainer{err: errors.New("broken")}, status: http.StatusInternalServerError, want: "broken"},
		{name: "not leading", query: valid, status: http.StatusServiceUnavailable, want: "this replica does not lead"},
		{name: "no parameters", explainer: explainer{}, status: http.StatusBadRequest, want: "namespace=\"\": must be the namespace of an object, such as namespace=default\nname=\"\": must be the name of an object, such as name=web"},
		{name: "no name", query: "?namespace=shop", explainer: explainer{}, status: http.StatusBadRequest, want: `name="": must be the name of an object, such as name=web`},
		{name: "invalid namespace", query: "?namespace=..%2F&name=web", explainer: explainer{}, status: http.StatusBadRequest, want: `namespace="../": must be`},
		{name: "control characters", query: "?namespace=shop&name=%1b%5b2J", explainer: explainer{}, status: http.StatusBadRequest, want: `name="\x1b[2J": must be`},
		{name: "malformed query", query: "?namespace=%zz", explainer: explainer{}, status: http.StatusBadRequest, want: "query: must have the form namespace=default&name=web"},
		{name: "long query", query: valid + strings.Repeat("&name=web", 200), explainer: explainer{}, status: http.StatusRequestURITooLong, want: "query: has 1823 bytes, must have at most 1024"},
		{name: "other method", method: http.MethodPost, query: valid, explainer: explainer{}, status: http.StatusMethodNotAllowed, want: `method "POST": must be GET`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := NewHandler()
			if tc.explainer != nil {
				h.Serve(tc.explainer)
			}
			method := http.MethodGet
			if tc.method != "" {
				method = tc.method
			}
			answer := ask(h, method, tc.query)
			require.Equal(t, tc.status, answer.Code)
			require.Contains(t, answer.Body.String(), tc.want)
			require.Less(t, answer.Body.Len(), 512)
		})
	}
}

func TestHandler_IsBusyAfterFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began := NewHandler(), time.Now()
		h.Serve(explainer{takes: time.Hour})
		answer := ask(h, http.MethodGet, "?namespace=shop&name=web")
		require.Equal(t, http.StatusServiceUnavailable, answer.Code)
		require.Contains(t, answer.Body.String(), "busy: try again")
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

// Explanations use at most a tenth of the time, so that requests do not delay the loop.
func TestHandler_PausesAfterEachExplanation(t *testing.T) {
	for _, tc := range []struct {
		name        string
		takes, want time.Duration // want is the time of four explanations
	}{
		{name: "short", takes: 10 * time.Millisecond, want: 310 * time.Millisecond},
		{name: "long", takes: 400 * time.Millisecond, want: 12400 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := NewHandler(), time.Now()
				h.Serve(explainer{takes: tc.takes})
				for range 4 {
					require.Equal(t, http.StatusOK, ask(h, http.MethodGet, "?namespace=shop&name=web").Code)
				}
				require.Equal(t, tc.want, time.Since(began))
			})
		})
	}
}

func TestHandler_StopEndsExplanations(t *testing.T) {
	h := NewHandler()
	h.Serve(explainer{})
	h.Stop()
	require.Equal(t, http.StatusServiceUnavailable, ask(h, http.MethodGet, "?namespace=shop&name=web").Code)
}
