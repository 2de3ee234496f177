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
	for name, c := range map[string]struct {
		last    func(*Pod) // makes the last pod cause the panic
		breaks  func(*PodStates)
		earlier PodStates
	}{
		"while it looks at the pods": {func(p *Pod) { p.Resize = ResizeDeferred }, func(s *PodStates) { s.Resizing = nil }, PodStates{}},
		"while it plans":             {restartsOnFullNode, func(s *PodStates) { s.Crowded = nil }, PodStates{}},
		"while it plans what was put off": {restartsOnFullNode, func(s *PodStates) { s.Crowded = nil },
			PodStates{Protected: map[string]time.Time{"uid-bad3": noon}}},
	} {
		bad, good := deployment(InPlaceOrRecreate, 4, pods(4, nil)...), deployment(Recreate, 4, pods(4, nil)...)
		bad.Name, good.Name = "bad", "good"
		for i := range bad.Pods {
			bad.Pods[i].Name = "bad" + bad.Pods[i].Name[1:]
			bad.Pods[i].UID = "uid-" + bad.Pods[i].Name
		}
		c.last(&bad.Pods[3])
		full := Node{Name: "full", Allocatable: resources.NewList(1e6, 1<<50), Free: resources.NewList(0, 0), AcceptsPods: true}
		wide := Node{Name: "wide", Allocatable: full.Allocatable, Free: full.Allocatable, AcceptsPods: true}
		config := defaults()
		config.Tolerance = 1 // no budget limit, so that the last pod is reached
		p := plan{config: config, now: noon, previous: c.earlier, room: NewCapacity([]Node{full, wide}, nil)}
		p.result.State = State{}.Next(noon)
		c.breaks(&p.result.State.Recommended)
		p.planVPAs([]*VPA{bad, good})
		require.ElementsMatch(t, []string{
			"evict p0: OutOfBounds", "evict p1: OutOfBounds", "evict p2: OutOfBounds", "evict p3: OutOfBounds",
			"skip bad0: InternalError", "skip bad1: InternalError", "skip bad2: InternalError", "skip bad3: InternalError",
		}, formatPlan(p.result), name)
		require.Len(t, p.result.Problems, 1, name)
		problem := p.result.Problems[0]
		require.Equal(t, []string{"shop", "bad"}, []string{problem.Namespace, problem.VPA}, name)
		require.Contains(t, problem.Panic, "nil map", name)
		require.Contains(t, problem.Panic, "disruption.(*plan)", "%s: the stack", name)
	}
}
