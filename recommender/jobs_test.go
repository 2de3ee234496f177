package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/resources"
)

// Histories are kept for eight days, which covers weekly jobs, also over a restart.
func TestJob_KeepsHistoryUntilNextRun(t *testing.T) {
	for apart, known := range map[time.Duration]bool{24 * time.Hour: true, 7 * 24 * time.Hour: true, 9 * 24 * time.Hour: false} {
		t.Run(apart.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, deployment("web"), webVPA("loadline")).start()
			runs := func(pods int) {
				require.Eventually(t, func() bool { w.iterate(1); return w.loop.Model.Find("ns", "web").Pods() == pods }, time.Minute, time.Millisecond)
			}
			for run := range 3 {
				if run > 0 {
					got := w.recommendations("web")
					require.Equal(t, known, len(got) > 0, "run %d", run)
					if known {
						require.GreaterOrEqual(t, got[0].Target.Cpu().MilliValue(), int64(2000), "run %d", run)
						require.GreaterOrEqual(t, got[0].Target.Memory().Value(), int64(400<<20), "run %d", run)
					}
				}
				w.create(aPod("web-1", "web", "a"))
				begun := w.now
				runs(1)
				for m := range 10 {
					cpu, mib := resources.Amount(100), resources.Amount(50)
					if m >= 5 {
						cpu, mib = 2000, 400
					}
					w.setUsage("web-1", "a", cpu, mib)
					w.iterate(1)
				}
				require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
				clear(w.usage)
				runs(0)
				for w.now.Before(begun.Add(apart - time.Hour)) {
					w.now = w.now.Add(59 * time.Minute)
					w.iterate(1)
				}
				w.loop.Close(t.Context(), w.now)
				w.start().iterate(2)
			}
		})
	}
}
