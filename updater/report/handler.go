package report

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

// Handler serves the UIDs of skipped pods by reason, as {"reasons": {"TooYoung": ["UID", ...]}}: of the pods of
// ?uid=..., or of all. The zero value, as in a replica that does not lead, answers with status 503.
type Handler struct{ skips atomic.Pointer[Skips] }

// Serve serves the pods of s from now on.
func (h *Handler) Serve(s *Skips) { h.skips.Store(s) }

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := h.skips.Load()
	if from == nil {
		http.Error(w, explanation.ErrNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	reasons, known := from.reasons(r.URL.Query()["uid"])
	for _, uids := range reasons {
		slices.Sort(uids)
	}
	if !known {
		http.Error(w, explanation.ErrNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that disconnected needs no answer.
	_ = json.NewEncoder(w).Encode(explanation.Skips{Reasons: reasons})
}

// reasons returns the UIDs of skipped pods by reason. Without uids it returns all of them. It returns false
// before the first iteration.
func (t *Skips) reasons(uids []string) (map[reason.Reason][]string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		return nil, false
	}
	names := make(map[uint32]reason.Reason, len(t.ids))
	for name, id := range t.ids {
		names[id] = name
	}
	if len(uids) == 0 {
		uids = slices.Collect(maps.Keys(t.pods))
	}
	found := map[reason.Reason][]string{}
	for _, uid := range uids {
		if s, skipped := t.pods[uid]; skipped {
			found[names[s.reason]] = append(found[names[s.reason]], uid)
		}
	}
	return found, true
}
