package policies

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/model"
)

// BenchmarkCachedRecord measures records with twenty rounds, without their keys.
func BenchmarkCachedRecord(b *testing.B) {
	const count = 10_000
	for range b.N {
		kept := make([]any, 0, count)
		before := testkit.LiveHeap()
		for i := range count {
			object, err := trimRecord(record(fmt.Sprint("web", i), func(s *loadlinev1alpha1.SizingRecordStatus) {
				s.Phase, s.CooldownUntil = "Canary", new(at(5))
				for n := range 20 {
					s.Rounds = append(s.Rounds, round(-n, 3, "Success"))
				}
			}))
			require.NoError(b, err)
			kept = append(kept, object)
		}
		b.ReportMetric(float64(testkit.LiveHeap()-before)/count, "B/record")
		b.ReportMetric(0, "ns/op")
		require.Len(b, kept, count)
	}
}

func TestRunOnce_NoAllocationsPerVPAWithoutPolicy(t *testing.T) {
	allocations := func(vpas int) (pass, follow float64) {
		m := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
		var objects []runtime.Object
		var observed []model.Observed
		for i := range vpas {
			vpa := newUserVPA(fmt.Sprint("vpa", i), fmt.Sprint("web", i))
			objects, observed = append(objects, vpa), append(observed, model.Observed{Object: vpa, Selector: labels.Everything()})
		}
		m.SyncVPAs(observed, time.Now())
		runInCluster(t, func(c *cluster) {
			pass = testing.AllocsPerRun(10, func() { c.keeper.RunOnce(c.t.Context(), time.Now()) })
			follow = testing.AllocsPerRun(10, func() { Follow(c.keeper.Policies, m) })
		}, objects...)
		require.Len(t, m.VPAs(), vpas)
		return pass, follow
	}
	one, follow := allocations(1)
	require.Zero(t, follow)
	many, follow := allocations(200)
	require.Zero(t, follow)
	require.Equal(t, one, many)
}
