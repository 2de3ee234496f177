package recommender

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/recommender/status"
)

func (w *world) simulateHours(n int, mib func(hour int) resources.Amount) {
	w.t.Helper()
	for h := range n {
		w.now = w.now.Add(59 * time.Minute)
		w.setUsage("web-1", "a", 100, mib(h))
		w.iterate(1)
	}
}

// The message has the growth rate and the limit, also after a restart.
func TestMemoryGrowth_SetsCondition(t *testing.T) {
	leak := func(hour int) resources.Amount { return 100 + resources.Amount(hour)*31/24 }
	for _, c := range []struct{ recipe, limit, says string }{
		{"loadline", "1Gi", "container a: memory grew by 31 MiB a day over 6 days, to 342 MiB; at this rate it reaches its limit of 1 GiB in 22 days"},
		{"loadline", "350Mi", "container a: memory grew by 31 MiB a day over 6 days, to 342 MiB; at this rate it reaches its limit of 350 MiB within a day"},
		{"autopilot", "", "container a: memory grew by 31 MiB a day over 6 days, to 342 MiB"},
		{"loadline", "1Ti", "container a: memory grew by 31 MiB a day over 6 days, to 342 MiB"},
		{"vpa", "1Gi", ""},
	} {
		t.Run(c.recipe+" "+c.limit, func(t *testing.T) {
			t.Parallel()
			pod := aPod("web-1", "web", "a")
			if c.limit != "" {
				pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.limit)}
			}
			w := newWorld(t, deployment("web"), pod, webVPA(c.recipe)).start()
			w.simulateHours(6*24, leak)
			told, _ := w.condition("web", status.MemoryGrowth)
			require.Empty(t, told, "six days are too few")
			require.Zero(t, testutil.ToFloat64(w.metrics.rising))
			w.simulateHours(2*24, func(h int) resources.Amount { return leak(6*24 + h) })
			told, message := w.condition("web", status.MemoryGrowth)
			require.Equal(t, c.says, message)
			if c.says == "" {
				return
			}
			require.Equal(t, corev1.ConditionTrue, told)
			require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.rising))
			require.Equal(t, "RecommendationProvided", string(w.vpa("web").Status.Conditions[0].Type), "clients read the first by position")

			w.start().iterate(2)
			_, again := w.condition("web", status.MemoryGrowth)
			require.Equal(t, message, again, "a restart knows it, too")
			require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.rising))

			w.setRecipe("vpa")
			w.iterate(2)
			told, _ = w.condition("web", status.MemoryGrowth)
			require.Empty(t, told, "a recipe that keeps no peaks does not know")
			w.setRecipe(c.recipe)
			w.iterate(2)
			_, again = w.condition("web", status.MemoryGrowth)
			require.Equal(t, message, again, "what was known is kept for a day")

			w.simulateHours(4*24, func(int) resources.Amount { return 350 })
			told, _ = w.condition("web", status.MemoryGrowth)
			require.Empty(t, told, "it has ended")
			require.Zero(t, testutil.ToFloat64(w.metrics.rising))
		})
	}
}

// The message changes at most once in each six-hour window.
func TestMemoryGrowth_LimitsMessageChanges(t *testing.T) {
	w := newWorld(t, deployment("web"), podWithCPULimit("750m"), webVPA("loadline")).start()
	messages := map[string]bool{}
	w.simulateHours(10*24, func(h int) resources.Amount {
		_, message := w.condition("web", status.MemoryGrowth)
		messages[message] = true
		return 100 + resources.Amount(h)/2
	})
	require.Greater(t, len(messages), 3)
	require.LessOrEqual(t, len(messages), 1+4*4)
}
