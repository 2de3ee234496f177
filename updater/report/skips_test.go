package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func skip(vpa, pod string, why reason.Reason) disruption.Skip {
	return disruption.Skip{Subject: disruption.Subject{Namespace: "shop", VPA: vpa, Pod: pod, UID: pod}, Reason: why}
}

func eventsOf(t *testing.T, r *Skips, skips []disruption.Skip, now time.Time) []SkipEvent {
	_, events := r.Report(t.Context(), skips, now)
	return events
}

func TestSkips_LastingReasonIsReportedOnce(t *testing.T) {
	r := Skips{After: 10 * time.Minute}
	tell := func(minutes int, skips ...disruption.Skip) []SkipEvent {
		return eventsOf(t, &r, skips, noon.Add(time.Duration(minutes)*time.Minute))
	}
	small := []disruption.Skip{skip("a", "p1", reason.BelowMinReplicas), skip("a", "p2", reason.BelowMinReplicas), skip("b", "p3", reason.TooYoung)}
	require.Empty(t, tell(0, small...))
	require.Empty(t, tell(9, small...))
	events := tell(10, small...)
	require.Len(t, events, 1, "what passes by itself is not told")
	require.Equal(t, reason.BelowMinReplicas, events[0].Reason)
	require.Equal(t, "Skipped pods: 2, such as p1: fewer live pods than the minimum", events[0].Message)
	require.Empty(t, tell(60, small...), "it is known")
	require.Empty(t, tell(61))
	require.Empty(t, r.cases)
	require.Empty(t, r.pods)
	require.Empty(t, tell(62, small...), "it begins anew")
	require.Len(t, tell(72, small...), 1)
}

// Whether evictions wait for room depends on the cluster, so the event explains it.
func TestSkips_NodeFullEventExplainsRoom(t *testing.T) {
	r := Skips{After: 10 * time.Minute, Room: "evictions wait"}
	skips := []disruption.Skip{skip("a", "p1", reason.NodeFull), skip("b", "p2", reason.TooLargeForNode), skip("c", "p3", reason.QuotaFull)}
	require.Empty(t, eventsOf(t, &r, skips, noon))
	var ends []bool
	for _, e := range eventsOf(t, &r, skips, noon.Add(r.After)) {
		ends = append(ends, strings.HasSuffix(e.Message, "; evictions wait"))
	}
	require.Equal(t, []bool{true, true, false}, ends)
}

func TestSkips_LimitEventsPerIteration(t *testing.T) {
	r := Skips{After: 10 * time.Minute}
	var skips []disruption.Skip
	for i := range 50 {
		skips = append(skips, skip(fmt.Sprintf("v%02d", i), fmt.Sprint(i), reason.QuotaFull))
	}
	require.Empty(t, eventsOf(t, &r, skips, noon))
	told := map[string]bool{}
	for _, want := range []int{20, 20, 10, 0} {
		events := eventsOf(t, &r, skips, noon.Add(time.Hour))
		require.Len(t, events, want)
		for _, e := range events {
			require.False(t, told[e.VPA.Name])
			told[e.VPA.Name] = true
		}
	}
}
