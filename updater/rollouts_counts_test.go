package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func (r *rolling) written() (count int) {
	for _, a := range r.vpa.Actions() {
		if a.GetResource().Resource == "sizingrecords" && (a.GetVerb() == "create" || a.GetVerb() == "update") {
			count++
		}
	}
	r.vpa.ClearActions()
	return count
}

// The start of a round, the change of a pod, its verdict and the end of the round each take one
// write.
func TestRecord_OneWritePerTransition(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	for _, step := range []struct {
		what   string
		does   func(time.Duration)
		after  time.Duration
		writes int
	}{
		{"the round begins and a pod is changed", func(d time.Duration) { r.at(d) }, 0, 2},
		{"nothing", func(d time.Duration) { r.at(d) }, time.Minute, 0},
		{"nothing is known yet", r.judge, 4 * time.Minute, 0},
		{"the change is judged", r.judge, 5 * time.Minute, 1},
		{"the next pod is changed", func(d time.Duration) { r.at(d) }, 6 * time.Minute, 1},
		{"that is judged, and is no news", r.judge, 11 * time.Minute, 0},
		{"the round ends", func(d time.Duration) { r.at(d) }, 12 * time.Minute, 1},
		{"the cooldown lasts", func(d time.Duration) { r.at(d) }, 13 * time.Minute, 0},
		{"the cooldown ends", func(d time.Duration) { r.at(d) }, 3 * time.Hour, 0},
	} {
		step.does(step.after)
		require.Equal(t, step.writes, r.written(), step.what)
	}
	require.Equal(t, "50m 50m", r.sizes())
}

func TestRunOnce_AllocatesNothingPerPodAtRest(t *testing.T) {
	const vpas, few, many = 400, 2, 12
	allocations := func(pods int, policies ...*loadlinev1alpha1.SizingPolicy) float64 {
		loop, _ := steadyCluster{vpas: vpas, pods: pods, policies: policies}.loop(t)
		loop.RunOnce(t.Context(), noon)
		return testing.AllocsPerRun(3, func() { loop.RunOnce(t.Context(), noon) })
	}
	for name, policies := range map[string][]*loadlinev1alpha1.SizingPolicy{"no policy": nil, "Auto": {clusterPolicy()}} {
		require.Less(t, allocations(many, policies...)-allocations(few, policies...), float64(vpas)/10, name)
	}
}
