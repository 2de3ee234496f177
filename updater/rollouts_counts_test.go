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
		name   string
		do     func(time.Duration)
		after  time.Duration
		writes int
	}{
		{name: "the round begins and a pod is changed", do: func(d time.Duration) { r.at(d) }, after: 0, writes: 2},
		{name: "nothing changes", do: func(d time.Duration) { r.at(d) }, after: time.Minute, writes: 0},
		{name: "the change is observed", do: r.judge, after: 4 * time.Minute, writes: 0},
		{name: "the change is judged", do: r.judge, after: 5 * time.Minute, writes: 1},
		{name: "the next pod is changed", do: func(d time.Duration) { r.at(d) }, after: 6 * time.Minute, writes: 1},
		{name: "the next change is judged without a write", do: r.judge, after: 11 * time.Minute, writes: 0},
		{name: "the round ends", do: func(d time.Duration) { r.at(d) }, after: 12 * time.Minute, writes: 1},
		{name: "the cooldown lasts", do: func(d time.Duration) { r.at(d) }, after: 13 * time.Minute, writes: 0},
		{name: "the cooldown ends", do: func(d time.Duration) { r.at(d) }, after: 3 * time.Hour, writes: 0},
	} {
		step.do(step.after)
		require.Equal(t, step.writes, r.written(), step.name)
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
