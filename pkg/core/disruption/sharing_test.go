package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// crowding is a node with some millicores left, and one with room for anything.
func crowding(cpu resources.Amount) *Capacity {
	large := resources.Of(100_000, 1<<40)
	return NewCapacity([]Node{{Name: "n1", Size: large, Free: resources.Of(cpu, 1<<40), Open: true}, {Name: "n2", Size: large, Free: large, Open: true}}, nil)
}

func onNode(p *Pod) {
	p.Node, p.Footprint = "n1", p.Containers[0].Current.Requests
}

// What finds no room is asked for once, so that its node grants it as soon as there is some; with
// OnlyFitting never.
func TestWhatDoesNotFitIsNotAskedFor(t *testing.T) {
	v := deployment(InPlace, 2, pods(2, func(_ int, p *Pod) { onNode(p) })...)
	plan := func(c Config) []string {
		return told(Plan(View{VPAs: []VPA{*v}, Room: crowding(900)}, State{}, c, noon))
	}
	c := defaults()
	c.FreeResizes = true
	require.Equal(t, []string{"resize p0: OutOfBounds", "resize p1: OutOfBounds"}, plan(c))
	c.OnlyFitting = true
	require.Equal(t, []string{"resize p0: OutOfBounds", "skip p1: NodeFull"}, plan(c), "the first one takes all there is")
}

// A pod that is to leave its node is evicted also where its VPA would resize it, or where it has what
// it would get, as far as its owner can spare it.
func TestPodsThatAreToLeaveTheirNode(t *testing.T) {
	leaving := func(ready int, changes ...func(i int, p *Pod)) *VPA {
		return deployment(InPlace, 4, pods(4, func(i int, p *Pod) {
			onNode(p)
			p.Containers[0] = container(1000, 1000, 1000, 1000)
			p.Leaves, p.Ready = i < 3, i < ready
			for _, change := range changes {
				change(i, p)
			}
		})...)
	}
	plan := func(v *VPA, c Config) []string {
		return told(Plan(View{VPAs: []VPA{*v}, Room: crowding(0)}, State{}, c, noon))
	}
	require.Equal(t, []string{"evict p0: NodeCrowded", "evict p1: NodeCrowded", "skip p3: Unchanged", "skip p2: BudgetSpent"}, plan(leaving(4), defaults()))

	generous := defaults()
	generous.Tolerance = 1
	require.Equal(t, []string{"evict p1: NodeCrowded", "evict p2: NodeCrowded", "skip p3: Unchanged", "skip p0: NoBudget"}, plan(leaving(1), generous),
		"the last one that is ready stays")
	held := func(i int, p *Pod) { p.Held = []Reason{UnderObservation, CoolingDown, "", ""}[i] }
	require.Equal(t, []string{"evict p1: NodeCrowded", "evict p2: NodeCrowded", "skip p3: Unchanged", "skip p0: UnderObservation"}, plan(leaving(4, held), defaults()),
		"it has nothing to do with a cooldown")
}
