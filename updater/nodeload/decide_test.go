package nodeload

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var unknown = math.NaN()

// idle returns open nodes with 4 CPUs and no load, named n00, n01 and so on.
func idle(count int) (nodes []Node) {
	for i := range count {
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%02d", i), Cores: 4})
	}
	return nodes
}

// with returns ten idle nodes after change.
func with(change func(n []Node)) []Node {
	nodes := idle(10)
	change(nodes)
	return nodes
}

func named(changes []Change) (names []string) {
	for _, c := range changes {
		names = append(names, c.Node)
	}
	return names
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		nodes                     []Node
		keep, taint, free, capped []string
		overloaded                int
		why                       Reason // of the first node in free
	}{
		"as much as the threshold is not above": {nodes: with(func(n []Node) { n[0].Load, n[1].Load = 4, 4.001 }), taint: []string{"n01"}, overloaded: 1},
		"counted by capacity":                   {nodes: with(func(n []Node) { n[0].Load, n[0].Cores, n[1].Load, n[1].Cores = 9, 16, 1.5, 1 }), taint: []string{"n01"}, overloaded: 1},
		"kept while above":                      {nodes: with(func(n []Node) { n[0].Load, n[0].Tainted = 5, true }), keep: []string{"n00"}, overloaded: 1},
		"freed when not above":                  {nodes: with(func(n []Node) { n[0].Load, n[0].Tainted = 4, true }), free: []string{"n00"}, why: NotOverloaded},
		"freed without data":                    {nodes: with(func(n []Node) { n[0].Load, n[0].Tainted, n[1].Load = unknown, true, unknown }), free: []string{"n00"}, why: LoadUnknown},
		"freed without capacity":                {nodes: with(func(n []Node) { n[0].Load, n[0].Cores, n[0].Tainted = 5, 0, true }), free: []string{"n00"}, why: LoadUnknown},
		"the most overloaded first": {nodes: with(func(n []Node) { n[0].Load, n[1].Load, n[2].Load, n[3].Load, n[4].Load = 5, 9, 6, 8, 7 }),
			taint: []string{"n01", "n03", "n04"}, capped: []string{"n02", "n00"}, overloaded: 5},
		"equally overloaded by name": {nodes: with(func(n []Node) {
			for i := range n {
				n[i].Load = 8
			}
		}), taint: []string{"n00", "n01", "n02"}, capped: []string{"n03", "n04", "n05", "n06", "n07", "n08", "n09"}, overloaded: 10},
		"who has it stays": {nodes: with(func(n []Node) {
			n[0].Load, n[1].Load, n[2].Load, n[3].Load = 9, 9, 9, 5
			n[3].Tainted = true
		}), keep: []string{"n03"}, taint: []string{"n00", "n01"}, capped: []string{"n02"}, overloaded: 4},
		"of too many the least overloaded is freed": {nodes: with(func(n []Node) {
			for i := range 4 {
				n[i].Load, n[i].Tainted = 5+float64(i), true
			}
		}), keep: []string{"n01", "n02", "n03"}, free: []string{"n00"}, capped: []string{"n00"}, overloaded: 4, why: TooMany},
		"nodes that are closed do not count": {nodes: with(func(n []Node) {
			for i := range 7 {
				n[i].Closed = true
			}
			n[8].Load = 8
		}), capped: []string{"n08"}, overloaded: 1},
		"a closed node gets none": {nodes: with(func(n []Node) { n[0].Load, n[0].Closed = 8, true }), overloaded: 1},
		"a closed node keeps it":  {nodes: with(func(n []Node) { n[0].Load, n[0].Closed, n[0].Tainted = 8, true, true }), keep: []string{"n00"}, overloaded: 1},
		"closed nodes that keep it take places": {nodes: with(func(n []Node) {
			n[0].Load, n[0].Closed, n[0].Tainted = 8, true, true
			n[1].Load, n[2].Load = 8, 9
		}), keep: []string{"n00"}, taint: []string{"n02"}, capped: []string{"n01"}, overloaded: 3},
		"more closed nodes than may have it": {nodes: with(func(n []Node) {
			for i := range 4 {
				n[i].Load, n[i].Tainted, n[i].Closed = 8, true, i < 3
			}
		}), keep: []string{"n00", "n01", "n02"}, free: []string{"n03"}, capped: []string{"n03"}, overloaded: 4, why: TooMany},
		"a closed node without load":   {nodes: with(func(n []Node) { n[0].Closed, n[0].Tainted = true, true }), free: []string{"n00"}, why: NotOverloaded},
		"the control plane gets none":  {nodes: with(func(n []Node) { n[0].Load, n[0].Reserved = 8, true })},
		"the control plane loses it":   {nodes: with(func(n []Node) { n[0].Load, n[0].Reserved, n[0].Tainted = 8, true, true }), free: []string{"n00"}, why: ControlPlane},
		"three nodes are too few":      {nodes: []Node{{Name: "a", Load: 8, Cores: 1}, {Name: "b", Cores: 1}, {Name: "c", Cores: 1}}, capped: []string{"a"}, overloaded: 1},
		"four nodes are enough":        {nodes: append(idle(3), Node{Name: "a", Load: 8, Cores: 1}), taint: []string{"a"}, overloaded: 1},
		"no node":                      {},
		"freed ones are sorted":        {nodes: []Node{{Name: "b", Tainted: true, Cores: 1}, {Name: "a", Tainted: true, Cores: 1}}, free: []string{"a", "b"}, why: NotOverloaded},
		"infinitely much is too much":  {nodes: with(func(n []Node) { n[0].Load = math.Inf(1) }), taint: []string{"n00"}, overloaded: 1},
		"a negative load is none":      {nodes: with(func(n []Node) { n[0].Load, n[0].Tainted = -8, true }), free: []string{"n00"}, why: NotOverloaded},
		"negative capacity is unknown": {nodes: with(func(n []Node) { n[0].Load, n[0].Cores = -8, -1 })},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.nodes, Limits{Threshold: 1, MaxShare: 0.3})
			require.Equal(t, c.keep, d.Keep)
			require.Equal(t, c.taint, named(d.Taint))
			require.Equal(t, c.free, named(d.Untaint))
			require.Equal(t, c.capped, d.Capped)
			require.Equal(t, c.overloaded, d.Overloaded)
			if len(d.Untaint) > 0 {
				require.Equal(t, c.why, d.Untaint[0].Reason)
			}
		})
	}
}

func TestDecide_CountsNodes(t *testing.T) {
	nodes := idle(10)
	nodes[0].Reserved, nodes[1].Closed = true, true
	nodes[2].Load, nodes[3].Load = unknown, 6
	nodes[0].Load = unknown
	d := Decide(nodes, Limits{Threshold: 1.5, MaxShare: 0.3})
	require.Equal(t, 8, d.Open)
	require.Equal(t, 2, d.MaxTainted, "a share of the open nodes, rounded down")
	require.Equal(t, 1, d.Unknown, "nobody asks for that of the control plane")
	require.Zero(t, d.Overloaded, "6 is 1.5 for each of 4 CPUs")
	require.Equal(t, 2, d.FreePlaces)
	require.Equal(t, 29, Decide(idle(100), Limits{Threshold: 1, MaxShare: 0.29}).MaxTainted, "not 28, as the product of floats says")
}

func drawNodes(t *rapid.T) []Node {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Node {
		return Node{
			Name:     rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "name"),
			Load:     rapid.SampledFrom([]float64{unknown, 0, 1, 2, 3, 4, 5, 9}).Draw(t, "load"),
			Cores:    rapid.SampledFrom([]float64{0, 1, 2, 4}).Draw(t, "cores"),
			Tainted:  rapid.Bool().Draw(t, "tainted"),
			Closed:   rapid.IntRange(0, 4).Draw(t, "closed") == 0,
			Reserved: rapid.IntRange(0, 4).Draw(t, "reserved") == 0,
		}
	}), 0, 40, func(n Node) string { return n.Name }).Draw(t, "nodes")
}

func TestDecide_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		l := Limits{Threshold: rapid.SampledFrom([]float64{0.5, 1, 2}).Draw(t, "threshold"), MaxShare: rapid.Float64Range(0.01, 0.99).Draw(t, "most")}
		d := Decide(nodes, l)

		has := map[string]bool{}
		for _, name := range append(slices.Clone(d.Keep), named(d.Taint)...) {
			if has[name] {
				t.Fatalf("%s is named twice", name)
			}
			has[name] = true
		}
		tainted, open, held := 0, 0, 0
		for i, n := range nodes {
			if has[n.Name] && (n.Cores == 0 || !(n.Load/n.Cores > l.Threshold)) {
				t.Fatalf("%+v has the taint", n)
			}
			if has[n.Name] && n.Reserved {
				t.Fatalf("%+v is of the control plane", n)
			}
			if n.Tainted && !has[n.Name] != slices.Contains(named(d.Untaint), n.Name) {
				t.Fatalf("%+v is neither kept nor freed", n)
			}
			if !n.Closed && !n.Reserved {
				open++
				if has[n.Name] {
					tainted++
				}
			}
			if n.Closed && has[n.Name] {
				held++
			}
			nodes[i].Tainted = has[n.Name]
		}
		if float64(tainted) > l.MaxShare*float64(open)+1e-6 || tainted > d.MaxTainted {
			t.Fatalf("%d of %d have the taint", tainted, open)
		}
		if places := max(d.MaxTainted-held, 0); tainted+d.FreePlaces > places {
			t.Fatalf("%d open and %d closed nodes have it, %d may, and %d are left", tainted, held, d.MaxTainted, d.FreePlaces)
		}
		for i := range nodes { // shuffle
			j := rapid.IntRange(0, i).Draw(t, "place")
			nodes[i], nodes[j] = nodes[j], nodes[i]
		}
		again := Decide(nodes, l)
		if len(again.Taint)+len(again.Untaint) > 0 {
			t.Fatalf("nothing has changed, and the next round would taint %v and free %v", again.Taint, again.Untaint)
		}
		if !slices.Equal(again.Capped, d.Capped) {
			t.Fatalf("capped: first %v, then %v", d.Capped, again.Capped)
		}
	})
}
