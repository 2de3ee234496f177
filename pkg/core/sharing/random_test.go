package sharing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func drawAmount(t *rapid.T, k resources.Kind, label string) float64 {
	most := [resources.Kinds]float64{100e3, 64e9}[k]
	return rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, most), rapid.Map(rapid.IntRange(0, 20), func(i int) float64 { return float64(i) * most / 20 })).Draw(t, label)
}

func drawNode(t *rapid.T) (*Node, Rule) {
	n := &Node{Used: rapid.Float64Range(0, 1).Draw(t, "used")}
	for k := range resources.Kind(resources.Kinds) {
		n.Kinds[k] = rapid.Bool().Draw(t, "shared")
	}
	needs := Amounts{}
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		p := Pod{Name: fmt.Sprint("p", i), Rank: Rank(rapid.IntRange(0, 3).Draw(t, "rank")), Daemon: rapid.IntRange(0, 4).Draw(t, "daemon") == 0}
		for c := range rapid.IntRange(0, 3).Draw(t, "containers") {
			one := Container{Name: fmt.Sprint("c", c)}
			for k := range resources.Kind(resources.Kinds) {
				one.Base[k], one.Peak[k] = drawAmount(t, k, "base"), drawAmount(t, k, "peak")
				needs[k] += one.Base[k]
			}
			p.Containers = append(p.Containers, one)
		}
		if rapid.IntRange(0, 3).Draw(t, "init") == 0 {
			for k := range resources.Kind(resources.Kinds) {
				p.Init[k] = drawAmount(t, k, "init")
			}
		}
		n.Pods = append(n.Pods, p)
	}
	for k := range resources.Kind(resources.Kinds) {
		n.Available[k] = needs[k]*rapid.Float64Range(-0.1, 2).Draw(t, "available") + drawAmount(t, k, "more")
	}
	return n, Rule{
		Pooling:    Pooling(rapid.IntRange(0, 1).Draw(t, "pooling")),
		EvictAbove: rapid.SampledFrom([]float64{0, 0.5, 0.85}).Draw(t, "leave at"),
		NeverEvict: rapid.IntRange(0, 3).Draw(t, "stay") == 0,
	}
}

func (n *Node) remaining(leaves []int) *Node {
	rest := *n
	rest.Pods = nil
	for i := range n.Pods {
		if !slices.Contains(leaves, i) {
			rest.Pods = append(rest.Pods, n.Pods[i])
		}
	}
	return &rest
}

const nearly = 1e-8 // relative

func TestShares_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rule := drawNode(t)
		got := Shares(n, rule)
		require.Equal(t, got, Shares(n, rule), "the same again")
		for _, i := range got.Evictions {
			require.False(t, n.Pods[i].Daemon || n.Pods[i].Rank == Never || rule.NeverEvict, "%s must not leave", n.Pods[i].Name)
		}
		for i := range n.Pods {
			require.Equal(t, slices.Contains(got.Evictions, i), got.Shares[i] == nil)
		}
		for k := range resources.Kind(resources.Kinds) {
			if n.Kinds[k] {
				checkSums(t, n, rule, got, k)
			} else {
				require.False(t, got.Overcommitted[k])
				require.Zero(t, got.Headroom[k])
			}
		}
	})
}

// checkSums verifies that each share is within base and peak, and that the shares fit unless the
// bases exceed the node.
func checkSums(t *rapid.T, n *Node, rule Rule, got Result, k resources.Kind) {
	shares, bases, totals, largest, squares := 0.0, 0.0, 0.0, 0.0, 0.0
	for i, p := range n.Pods {
		if got.Shares[i] == nil {
			continue
		}
		pod := 0.0
		for c, own := range p.Containers {
			share := got.Shares[i][c][k]
			require.GreaterOrEqual(t, share, own.Base[k])
			require.LessOrEqual(t, share, max(own.Base[k], own.Peak[k]))
			h := max(own.Peak[k]-own.Base[k], 0)
			shares, pod, largest, squares = shares+share, pod+own.Base[k], max(largest, h), squares+h*h
		}
		bases, totals = bases+pod, totals+max(pod, p.Init[k])
	}
	require.LessOrEqual(t, shares, (bases+got.Headroom[k])*(1+nearly))
	room := n.Available[k] + nearly*max(n.Available[k], 0)
	switch pooled := got.Headroom[k]; {
	case got.Overcommitted[k]:
		require.Greater(t, totals, n.Available[k])
		require.Zero(t, pooled)
	case len(got.Evictions) < len(n.Pods):
		require.LessOrEqual(t, totals, room)
		require.LessOrEqual(t, totals+pooled, room*(1+nearly))
	}
	require.LessOrEqual(t, got.Headroom[k]*got.Headroom[k], squares*(1+nearly))
	if rule.Pooling == LargestHeadroom {
		require.LessOrEqual(t, got.Headroom[k], largest)
	}
}

func TestShares_IgnorePodOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rule := drawNode(t)
		got := Shares(n, rule)
		order := rapid.Permutation(func() (all []int) {
			for i := range n.Pods {
				all = append(all, i)
			}
			return all
		}()).Draw(t, "order")
		mixed := *n
		mixed.Pods = nil
		for _, i := range order {
			mixed.Pods = append(mixed.Pods, n.Pods[i])
		}
		other := Shares(&mixed, rule)
		require.Equal(t, n.names(got.Evictions), mixed.names(other.Evictions))
		for at, i := range order {
			require.Equal(t, got.Shares[i], other.Shares[at])
		}
		require.Equal(t, got.Headroom, other.Headroom)
		require.Equal(t, got.Overcommitted, other.Overcommitted)
	})
}

func TestShares_AreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rule := drawNode(t)
		got := Shares(n, rule)
		rest := n.remaining(got.Evictions)
		rest.Used = 0
		again := Shares(rest, rule)
		require.Empty(t, again.Evictions)
		require.Equal(t, slices.DeleteFunc(slices.Clone(got.Shares), func(s []Amounts) bool { return s == nil }), append([][]Amounts{}, again.Shares...))
		require.Equal(t, got.Headroom, again.Headroom)
	})
}

func TestShares_EvictionsAreMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rule := drawNode(t)
		rule.EvictAbove = 0
		n.Kinds[resources.Memory] = false // otherwise the other resource may cause the eviction
		leaves := Shares(n, rule).Evictions
		if len(leaves) == 0 {
			return
		}
		before := n.remaining(leaves[:len(leaves)-1])
		require.Len(t, Shares(before, rule).Evictions, 1)
		rule.NeverEvict = true
		sum := 0.0
		for i := range before.Pods {
			sum += before.Pods[i].total(resources.CPU)
		}
		require.Greater(t, sum+before.pooled(resources.CPU, rule, allPods(before)), before.Available[resources.CPU])
	})
}

func allPods(n *Node) (all []int) {
	for i := range n.Pods {
		all = append(all, i)
	}
	return all
}
