package explanation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
)

const (
	// answerTime is the maximum time of an answer.
	answerTime = 5 * time.Second
	// workShare is the divisor of the time in which explanations are computed: any pod can request them, and they
	// hold up the loop.
	workShare = 10
	// maxPause is the maximum pause between two explanations. The time of one includes the wait for the loop.
	maxPause = time.Second
	// maxQuery is the maximum length of a query, twice that of the longest names.
	maxQuery = 1024
)

// Explainer explains objects. It returns an error that wraps ErrUnknown for objects that the program does not
// serve.
type Explainer interface {
	Explain(ctx context.Context, namespace, name string) (any, error)
}

// ErrUnknown is the cause of status 404.
var ErrUnknown = errors.New("not served by this program")

// Handler answers GET requests with ?namespace=NAMESPACE&name=NAME. It computes one explanation at a time.
type Handler struct {
	explainer atomic.Pointer[Explainer]
	turn      chan struct{}
}

// NewHandler returns a Handler that answers with status 503 until Serve is called.
func NewHandler() *Handler { return &Handler{turn: make(chan struct{}, 1)} }

// Serve sets the explainer.
func (h *Handler) Serve(e Explainer) { h.explainer.Store(&e) }

// Stop makes the handler answer with status 503.
func (h *Handler) Stop() { h.explainer.Store(nil) }

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, fmt.Sprintf("method %.10q: must be GET", r.Method), http.StatusMethodNotAllowed)
		return
	}
	if n := len(r.URL.RawQuery); n > maxQuery {
		http.Error(w, fmt.Sprintf("query: has %d bytes, must have at most %d, such as namespace=default&name=web", n, maxQuery), http.StatusRequestURITooLong)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		http.Error(w, "query: must have the form namespace=default&name=web", http.StatusBadRequest)
		return
	}
	namespace, name := query.Get("namespace"), query.Get("name")
	if err := errors.Join(check("namespace", namespace, "default", validation.ValidateNamespaceName),
		check("name", name, "web", validation.NameIsDNSSubdomain)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	answer, err := h.explain(ctx, namespace, name)
	var text []byte
	if err == nil {
		text, err = json.Marshal(answer)
	}
	switch {
	case errors.Is(err, ErrUnknown):
		http.Error(w, fmt.Sprintf("%s/%s: %v", namespace, name, err), http.StatusNotFound)
	case errors.Is(err, ErrNotReady):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		http.Error(w, "busy: try again", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		// A client that disconnected needs no answer.
		_, _ = w.Write(text)
	}
}

// ErrNotReady is the error of a replica that does not explain yet.
var ErrNotReady = errors.New("this replica does not lead, or its first iteration has not ended")

// explain waits for its turn, and for the loop.
func (h *Handler) explain(ctx context.Context, namespace, name string) (any, error) {
	if h.explainer.Load() == nil {
		return nil, ErrNotReady
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	defer func() { time.AfterFunc(min((workShare-1)*time.Since(began), maxPause), func() { <-h.turn }) }()
	e := h.explainer.Load()
	if e == nil {
		return nil, ErrNotReady
	}
	return (*e).Explain(ctx, namespace, name)
}

// check returns an error that names a parameter and a valid value.
func check(parameter, value, example string, validate validation.ValidateNameFunc) error {
	problems := validate(value, false)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s=%.80q: must be the %s of an object, such as %s=%s", parameter, value, parameter, parameter, example)
}
