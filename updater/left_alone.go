package updater

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync/atomic"

	"loadline.dev/loadline/pkg/core/reason"
)

// leftAlone answers requests for the reasons for which pods were left alone in the last pass, as
// kubectl loadline asks for them: {"reasons": {"TooYoung": ["UID", ...]}}, of the pods that are
// named by ?uid=..., or of all. A replica that does not lead knows nothing and says so with
// status 503.
type leftAlone struct{ reporter atomic.Pointer[reporter] }

// leftAlonePath is where the answer is, beside the metrics.
const leftAlonePath = "/left-alone"

// ServeHTTP answers a request.
func (l *leftAlone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := l.reporter.Load()
	if from == nil {
		http.Error(w, "this replica does not lead", http.StatusServiceUnavailable)
		return
	}
	reasons, made := from.reasons(r.URL.Query()["uid"])
	if !made {
		http.Error(w, "no pass was made yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that went away needs no answer.
	_ = json.NewEncoder(w).Encode(map[string]any{"reasons": reasons})
}

// reasons returns the UIDs of the pods that were left alone, or of those among some, by reason. It is
// false as long as no pass was made.
func (t *reporter) reasons(uids []string) (map[reason.Reason][]string, bool) {
	found, made := t.reasonsOf(uids)
	for _, all := range found {
		slices.Sort(all)
	}
	return found, made
}

// reasonsOf does so in no order.
func (t *reporter) reasonsOf(uids []string) (map[reason.Reason][]string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		return nil, false
	}
	names := make(map[uint32]reason.Reason, len(t.ids))
	for why, id := range t.ids {
		names[id] = why
	}
	found := map[reason.Reason][]string{}
	if len(uids) > 0 {
		for _, uid := range uids {
			if s, known := t.pods[uid]; known {
				found[names[s.reason]] = append(found[names[s.reason]], uid)
			}
		}
		return found, true
	}
	for uid, s := range t.pods {
		found[names[s.reason]] = append(found[names[s.reason]], uid)
	}
	return found, true
}
