package updater

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"

	"loadline.dev/loadline/pkg/testkit"
)

// A Prometheus that fails, hangs or returns too much must cause neither a revert nor a Success
// outcome. Evidence from the API server still counts.
func TestPrometheus_UnusableAnswersCauseNoRevert(t *testing.T) {
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		missing bool // the metric shows it at once
	}{
		"fails": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}, true},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
		"a million series": {func(w http.ResponseWriter, _ *http.Request) {
			const series = `{"metric":{"loadline_counter":"container_pressure_cpu_waiting_seconds_total","namespace":"shop","pod":"web-1-0","container":"c%d"},"value":[1,"0.9"]}`
			_, err := fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[`+series, 0)
			for i := 1; i < 1_000_000 && err == nil; i++ {
				_, err = fmt.Fprintf(w, ","+series, i)
			}
			_, _ = fmt.Fprint(w, "]}}")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // otherwise it does not notice that the client is gone
				select {
				case asked <- struct{}{}:
				default:
				}
				c.answer(w, r)
			}))
			defer server.Close()
			config := Default()
			config.Evidence.Address = server.URL
			r := roll(t, config, append(deployment(3, nil), lowering(generatedVPA()), autoPolicy(everyRound), healthy("n1"))...)
			begun := time.Since(noon).Truncate(time.Second) // the observer uses the system clock
			r.at(begun)
			require.Contains(t, r.noted(), "web-1-0")
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); r.observer.Run(ctx) }()
			wait, err := r.sync("web-1-0", begun+5*time.Minute)
			require.NoError(t, err)
			require.Equal(t, 30*time.Second, wait, "it is asked for again")
			select {
			case <-asked:
			case <-time.After(time.Minute):
				require.Fail(t, "nobody asks")
			}
			if c.missing {
				require.Eventually(t, func() bool { return r.value("loadline_updater_evidence_missing_total") > 0 }, time.Minute, 10*time.Millisecond)
			}
			stop()
			<-ended
			r.judge(begun + 14*time.Minute)
			require.Contains(t, r.noted(), "web-1-0", "somebody may know yet")
			r.judge(begun + 16*time.Minute)
			require.Empty(t, r.noted())
			require.Zero(t, r.reverts())
			require.Equal(t, "50m 50Mi", r.requests("web-1-0"))
			s := r.record()
			require.Contains(t, []loadlinev1alpha1.RoundOutcome{s.Rounds[0].Outcome, s.Rounds[0].SoFar}, loadlinev1alpha1.RoundOutcome("Unobserved"))
			require.Empty(t, s.Kept)
			require.Zero(t, s.ConsecutiveReverts)
		})
	}
}
