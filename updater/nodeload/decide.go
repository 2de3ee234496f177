// Package nodeload keeps new pods off overloaded nodes: it puts a taint on them while more tasks
// run or wait there than the node has CPUs, and takes it off again.
//
// Config has the flags, Source asks Prometheus for the load of each node, Decide says which nodes
// are to have the taint, and Watcher asks, decides and writes at every interval. A node of which the
// load is not known is freed; if it is known of no node, only after three minutes. The taints
// themselves are the only lasting state, so any process can go on with them; Clear takes them off where
// nobody wants them any more.
//
// It evicts nothing: pods that run on a tainted node stay there.
package nodeload

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Node is what Decide looks at.
type Node struct {
	Name     string
	Load     float64 // tasks that run or wait, the fewest of two minutes; NaN: not known
	Cores    float64 // capacity in CPUs; 0: not known
	Tainted  bool    // has the taint
	Closed   bool    // takes no new ordinary pods anyway: it is not ready, cordoned, or has such a taint of others
	Reserved bool    // for the control plane
}

// relative returns the load for each CPU, NaN if it is not known.
func (n *Node) relative() float64 {
	if n.Cores <= 0 {
		return math.NaN()
	}
	return n.Load / n.Cores
}

// Limits say when a node is overloaded, and how many nodes may have the taint.
type Limits struct {
	Threshold float64 // load for each CPU above which a node is overloaded, more than 0
	Most      float64 // largest share of the open nodes that has the taint, more than 0 and less than 1
}

// Reason says why a node loses its taint.
type Reason string

// The reasons.
const (
	NotOverloaded Reason = "NotOverloaded"
	LoadUnknown   Reason = "LoadUnknown"  // also where its capacity is not known
	TooMany       Reason = "TooMany"      // others are more overloaded, and Limits.Most allows no more
	ControlPlane  Reason = "ControlPlane" // it is reserved for that by now
)

// Change is a node whose taint changes.
type Change struct {
	Node   string
	Load   float64 // for each CPU; NaN: not known
	Reason Reason  // empty for one that gets the taint
}

// Decision says which nodes are to have the taint. A node is open if it is neither closed nor
// reserved for the control plane.
type Decision struct {
	Keep   []string // have it and keep it, by name
	Taint  []Change // get it, the most overloaded first
	Free   []Change // lose it, by name
	Capped []string // are overloaded and do not have it because of Limits.Most, the most overloaded first

	Overloaded int // nodes above the threshold
	Unknown    int // nodes of which the load is not known
	Open       int // nodes
	Most       int // nodes that may have the taint at once, a share of the open ones
	Held       int // closed nodes that keep it; they take the places of open ones
	Spare      int // of Most are left
}

// Decide says which of the nodes, in any order, are to have the taint.
//
// Reserved nodes are left out of everything. Closed ones take no new pods, so they neither get the
// taint nor count as open; one that has it keeps it while it is overloaded, in order not to be open
// without it for a round, and takes a place, as it may be open at any moment. Where more nodes are
// overloaded than may have the taint, those that have it come first, so that it does not wander;
// then the more overloaded, then the smaller name.
func Decide(nodes []Node, l Limits) Decision {
	var d Decision
	all := make([]*Node, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
	}
	slices.SortFunc(all, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	frees := map[*Node]Reason{}
	var candidates []*Node
	for _, n := range all {
		load := n.relative()
		if !n.Closed && !n.Reserved {
			d.Open++
		}
		switch {
		case n.Reserved:
			frees[n] = ControlPlane
			continue
		case math.IsNaN(load):
			d.Unknown++
			frees[n] = LoadUnknown
			continue
		case load <= l.Threshold:
			frees[n] = NotOverloaded
			continue
		}
		d.Overloaded++
		if !n.Closed {
			candidates = append(candidates, n)
		} else if n.Tainted {
			d.Held++
		}
	}
	slices.SortFunc(candidates, first)
	d.Most = share(l.Most, d.Open)
	places := max(d.Most-d.Held, 0)
	d.Spare = max(places-len(candidates), 0)
	may := min(places, len(candidates))
	for _, n := range candidates[:may] {
		if !n.Tainted {
			d.Taint = append(d.Taint, Change{Node: n.Name, Load: n.relative()})
		}
	}
	slices.SortFunc(candidates[may:], moreOverloaded)
	for _, n := range candidates[may:] {
		d.Capped = append(d.Capped, n.Name)
		frees[n] = TooMany
	}
	for _, n := range all {
		if why, free := frees[n]; n.Tainted && free {
			d.Free = append(d.Free, Change{Node: n.Name, Load: n.relative(), Reason: why})
		} else if n.Tainted {
			d.Keep = append(d.Keep, n.Name)
		}
	}
	return d
}

// spare keeps the taint on the nodes that would lose it only because their load is not known.
func (d *Decision) spare() {
	d.Free = slices.DeleteFunc(d.Free, func(c Change) bool {
		if c.Reason == LoadUnknown {
			d.Keep = append(d.Keep, c.Node)
		}
		return c.Reason == LoadUnknown
	})
	slices.Sort(d.Keep)
}

// first orders nodes by who has the taint sooner.
func first(a, b *Node) int {
	switch {
	case a.Tainted && !b.Tainted:
		return -1
	case b.Tainted && !a.Tainted:
		return 1
	}
	return moreOverloaded(a, b)
}

func moreOverloaded(a, b *Node) int {
	return cmp.Or(cmp.Compare(b.relative(), a.relative()), strings.Compare(a.Name, b.Name))
}

// share returns a part of so many nodes, rounded down. A product such as 0.29 × 100 is a little
// less than 29 as a float.
func share(part float64, nodes int) int {
	const exact = 1e-9
	return int(math.Floor(part*float64(nodes) + exact))
}
