package disruption

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestPlan_OOMResizeNeedsNoBudget(t *testing.T) {
	for _, tc := range []struct {
		name     string
		mode     Mode
		replicas int
		ready    int // number of ready pods
		restarts bool
		want     []string
	}{
		{name: "all ready again", mode: InPlace, replicas: 2, ready: 2, want: []string{"resize p0: OutOfBounds", "resize p1: OutOfBounds"}},
		{name: "one ready again", mode: InPlaceOrRecreate, replicas: 2, ready: 1, want: []string{"resize p0: OutOfBounds", "resize p1: OutOfBounds"}},
		{name: "none ready", mode: InPlaceOrRecreate, replicas: 2, want: []string{"resize p0: OutOfBounds", "resize p1: OutOfBounds"}},
		{name: "single replica", mode: InPlaceOrRecreate, replicas: 1, ready: 1, want: []string{"resize p0: OutOfBounds"}},
		{name: "restart of a pod that is not ready", mode: InPlace, replicas: 2, restarts: true,
			want: []string{"resize p0: OutOfBounds", "resize p1: OutOfBounds"}},
		{name: "restart of ready pods", mode: InPlace, replicas: 2, ready: 2, restarts: true,
			want: []string{"resize p0: OutOfBounds", "skip p1: BudgetSpent"}},
		{name: "eviction", mode: Recreate, replicas: 2, ready: 2, want: []string{"evict p0: OutOfBounds", "skip p1: BudgetSpent"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := deployment(tc.mode, tc.replicas, pods(tc.replicas, func(i int, p *Pod) {
				p.Ready = i < tc.ready
				p.Containers[0].OOM = OOM{Started: noon.Add(-time.Hour), Ended: noon.Add(-time.Minute)}
				p.Containers[0].Restarts[resources.Memory] = tc.restarts
			})...)
			var got []string
			for _, line := range formatPlan(planAtNoon(t, v, defaults())) {
				got = append(got, strings.Replace(line, " or evict", "", 1))
			}
			require.Equal(t, tc.want, got)
		})
	}
}
