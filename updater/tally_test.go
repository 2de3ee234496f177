package updater

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/report"
)

func TestTally_ReportsReasonOnceInFiveMinutes(t *testing.T) {
	web, api := cache.NewObjectName("shop", "web"), cache.NewObjectName("shop", "api")
	noPolicy := func(cache.ObjectName) string { return "" }
	var tl tally
	texts := func(now time.Time) (lines []string) {
		for _, e := range tl.due(now, noPolicy) {
			lines = append(lines, e.key.policy+e.key.vpa.String()+" "+e.key.reason+": "+e.message)
		}
		return lines
	}
	tl.changed(web, "fleet", report.EventResizedPods, disruption.OutOfBounds)
	tl.changed(web, "fleet", report.EventResizedPods, disruption.OutOfMemory)
	tl.changed(web, "fleet", report.EventResizedPods, disruption.Shared)
	tl.changed(api, "fleet", report.EventResizedPods, disruption.OutOfBounds)
	tl.changed(api, "fleet", report.EventEvictedPod, disruption.ResizeStuck)
	require.Empty(t, texts(noon), "the round may continue")
	require.Empty(t, texts(noon), "the round may pause for an iteration")
	require.Equal(t, []string{
		"shop/api Resized: Resized 1 pod in place: OutOfBounds 1",
		"shop/web Resized: Resized 2 pods in place: OutOfBounds 1, OutOfMemory 1",
		"fleet EvictedPod: Evicted 1 pod of 1 workload: ResizeStuck 1",
		"fleet Resized: Resized 3 pods of 2 workloads in place: OutOfBounds 2, OutOfMemory 1",
	}, texts(noon))
	require.Empty(t, texts(noon))
	for range 100 {
		tl.changed(web, "", report.EventResizedPods, disruption.OutOfBounds)
		require.Empty(t, texts(noon.Add(time.Minute)))
	}
	require.Empty(t, texts(noon.Add(2*time.Minute)), "the round is over, and the last event is too recent")
	require.Equal(t, []string{"shop/web Resized: Resized 100 pods in place: OutOfBounds 100"}, texts(noon.Add(tallyInterval)))
	texts(noon.Add(2 * tallyInterval))
	require.Empty(t, tl.counts, "counts without changes are dropped")

	tl.Reverted(web, rollout.OOMKill)
	require.Empty(t, tl.due(noon, noPolicy), "the VPA has its own event")
	require.Empty(t, tl.counts)
	governed := func(cache.ObjectName) string { return "fleet" }
	tl.Reverted(web, rollout.OOMKill)
	require.Empty(t, tl.due(noon, governed))
	require.Empty(t, tl.due(noon, governed))
	events := tl.due(noon, governed)
	require.Len(t, events, 1)
	require.Equal(t, "Reverted changes of 1 pod of 1 workload: "+string(rollout.OOMKill)+" 1", events[0].message)
}

// A round of one pod per iteration emits one event. A round without end emits one every five
// minutes.
func TestTally_CountsRoundAcrossIterations(t *testing.T) {
	web := cache.NewObjectName("shop", "web")
	for _, tc := range []struct {
		name     string
		changes  string // one character per iteration
		expected []string
	}{
		{name: "short", changes: "xxx", expected: []string{"4m Resized 3 pods of 1 workload in place: OutOfBounds 3"}},
		{name: "with a pause", changes: "x.x", expected: []string{"4m Resized 2 pods of 1 workload in place: OutOfBounds 2"}},
		{name: "long", changes: "xxxxxxxx", expected: []string{
			"5m Resized 6 pods of 1 workload in place: OutOfBounds 6",
			"10m Resized 2 pods of 1 workload in place: OutOfBounds 2",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tl tally
			var events []string
			for minute := range 20 {
				if minute < len(tc.changes) && tc.changes[minute] == 'x' {
					tl.changed(web, "fleet", report.EventResizedPods, disruption.OutOfBounds)
				}
				for _, e := range tl.due(noon.Add(time.Duration(minute)*time.Minute), nil) {
					if e.key.policy != "" {
						events = append(events, fmt.Sprintf("%dm %s", minute, e.message))
					}
				}
			}
			require.Equal(t, tc.expected, events)
		})
	}
}

func TestRunOnce_ReportsChangesOnPolicy(t *testing.T) {
	r := newRolling(t, 4, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	resized := 0
	for minute := range 10 {
		r.at(time.Duration(minute) * time.Minute)
		for _, line := range r.drainEvents() {
			if strings.HasPrefix(line, "Normal Resized ") && strings.Contains(line, " of 1 workload in place: ") {
				resized++
			}
		}
	}
	require.Positive(t, resized)
	require.LessOrEqual(t, resized, 2, "once in five minutes at most")
}
