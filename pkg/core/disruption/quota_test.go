package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// The quota has room for the replacement once the failing pod is gone. Otherwise the pod would be
// OOM killed forever.
func TestOOMKill_FullQuotaAllowsEviction(t *testing.T) {
	full := func(kind resources.Kind) *Capacity {
		return NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.List{}.With(kind, 0)}}})
	}
	v := deployment(Recreate, 2, pods(2, func(i int, p *Pod) {
		p.Containers[0] = container(100, 100, 100, 1000)
		p.Footprint = p.Containers[0].Actual.Requests
		if i == 0 {
			p.Ready, p.Containers[0].OOM = false, OOM{Started: noon.Add(-time.Minute), Ended: noon.Add(-time.Second)}
		}
	})...)
	plan := func(r *Capacity) []string {
		return formatPlan(Plan(View{VPAs: []VPA{*v}, Room: r}, State{}, defaults(), noon))
	}
	require.Equal(t, []string{"evict p0: OutOfMemory", "skip p1: BudgetSpent"}, plan(full(resources.CPU)), "its CPU stays what it is")
	require.Equal(t, []string{"skip p0: QuotaFull", "skip p1: NoBudget"}, plan(full(resources.Memory)), "nothing would come back")
	v.Pods[0].Containers[0].OOM = OOM{}
	require.Contains(t, plan(full(resources.CPU)), "skip p0: QuotaFull", "its successor would wait for it, or be cut")
}
