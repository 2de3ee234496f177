package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// All pods of the VPA are skipped, including those already planned. Nil maps cause the panics.
func TestPlan_RecoversPanicOfOneVPA(t *testing.T) {
	restartsOnFullNode := func(p *Pod) { // so the planner records since when
		p.Node, p.Containers[0].Restarts[resources.CPU] = "full", true
	}
	for _, tc := range []struct {
		name    string
		last    func(*Pod) // makes the last pod cause the panic
		breaks  func(*PodStates)
		earlier PodStates
	}{
		{name: "while assessing pods", last: func(p *Pod) { p.Resize = ResizeDeferred }, breaks: func(s *PodStates) { s.Resizing = nil }},
		{name: "while planning changes", last: restartsOnFullNode, breaks: func(s *PodStates) { s.Crowded = nil }},
		{
			name:    "while planning postponed changes",
			last:    restartsOnFullNode,
			breaks:  func(s *PodStates) { s.Crowded = nil },
			earlier: PodStates{Protected: map[string]time.Time{"uid-bad3": noon}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad, good := deployment(InPlaceOrRecreate, 4, pods(4, nil)...), deployment(Recreate, 4, pods(4, nil)...)
			bad.Name, good.Name = "bad", "good"
			for i := range bad.Pods {
				bad.Pods[i].Name = "bad" + bad.Pods[i].Name[1:]
				bad.Pods[i].UID = "uid-" + bad.Pods[i].Name
			}
			tc.last(&bad.Pods[3])
			full := Node{Name: "full", Allocatable: resources.NewList(1e6, 1<<50), Free: resources.NewList(0, 0), AcceptsPods: true}
			wide := Node{Name: "wide", Allocatable: full.Allocatable, Free: full.Allocatable, AcceptsPods: true}
			config := defaults()
			config.Tolerance = 1 // no budget limit, so that the last pod is reached
			p := plan{config: config, now: noon, previous: tc.earlier, room: NewCapacity([]Node{full, wide}, nil)}
			p.result.State = State{}.Next(noon)
			tc.breaks(&p.result.State.Recommended)
			p.planVPAs([]*VPA{bad, good})
			require.ElementsMatch(t, []string{
				"evict p0: OutOfBounds", "evict p1: OutOfBounds", "evict p2: OutOfBounds", "evict p3: OutOfBounds",
				"skip bad0: InternalError", "skip bad1: InternalError", "skip bad2: InternalError", "skip bad3: InternalError",
			}, formatPlan(p.result))
			require.Len(t, p.result.Problems, 1)
			problem := p.result.Problems[0]
			require.Equal(t, []string{"shop", "bad"}, []string{problem.Namespace, problem.VPA})
			require.Contains(t, problem.Panic, "nil map")
			require.Contains(t, problem.Panic, "disruption.(*plan)", "the stack")
		})
	}
}
