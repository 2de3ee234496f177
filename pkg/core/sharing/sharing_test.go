package sharing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// pod has one container that shares CPU, with base and peak in millicores.
func pod(name string, base, peak float64, changes ...func(*Pod)) Pod {
	p := Pod{Name: name, Containers: []Container{{Name: "c", Base: Amounts{resources.CPU: base}, Peak: Amounts{resources.CPU: peak}}}}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func ranked(r Rank) func(*Pod)        { return func(p *Pod) { p.Rank = r } }
func daemon(p *Pod)                   { p.Daemon = true }
func starting(cpu float64) func(*Pod) { return func(p *Pod) { p.Init[resources.CPU] = cpu } }

func memory(base, peak float64) func(*Pod) {
	return func(p *Pod) {
		p.Containers[0].Base[resources.Memory], p.Containers[0].Peak[resources.Memory] = base, peak
	}
}

func withContainer(name string, base, peak float64) func(*Pod) {
	return func(p *Pod) {
		p.Containers = append(p.Containers, pod("", base, peak).Containers...)
		p.Containers[len(p.Containers)-1].Name = name
	}
}

func node(cpu float64, pods ...Pod) *Node {
	return &Node{Kinds: [resources.Kinds]bool{resources.CPU: true}, Available: Amounts{resources.CPU: cpu}, Pods: pods}
}

func (n *Node) names(leaves []int) (names []string) {
	for _, i := range leaves {
		names = append(names, n.Pods[i].Name)
	}
	return names
}

func TestShares_CPU(t *testing.T) {
	three := []Pod{pod("a", 500, 1400), pod("b", 500, 1400), pod("c", 500, 1400)}
	for _, tc := range []struct {
		name      string
		node      *Node
		rule      Rule
		shares    [][]float64 // millicores; nil: evicted
		evictions []string
		headroom  float64
		over      bool
	}{
		{name: "no pods", node: node(1000), shares: [][]float64{}},
		{name: "no pods on an overcommitted node", node: node(-1000), shares: [][]float64{}},
		{name: "single pod gets its peak", node: node(4000, pod("a", 500, 1500)), shares: [][]float64{{1500}}, headroom: 1000},
		{
			name:   "largest headroom",
			node:   node(4000, pod("a", 500, 1500), pod("b", 200, 800)),
			shares: [][]float64{{1125}, {575}}, headroom: 1000,
		},
		{name: "three equal pods", node: node(4000, three...), shares: [][]float64{{800}, {800}, {800}}, headroom: 900},
		{
			name: "root of three headrooms",
			node: node(4000, pod("a", 0, 300), pod("b", 0, 400), pod("c", 10, 10)), rule: Rule{Pooling: RootSumSquares},
			shares: [][]float64{{214.285714}, {285.714286}, {10}}, headroom: 500,
		},
		{
			name: "root of one headroom",
			node: node(4000, pod("a", 500, 1500)), rule: Rule{Pooling: RootSumSquares},
			shares: [][]float64{{1500}}, headroom: 1000,
		},
		{name: "no headroom", node: node(4000, pod("a", 500, 500)), shares: [][]float64{{500}}},
		{
			name:   "peak below the base",
			node:   node(4000, pod("a", 500, 400), pod("b", 500, 1500)),
			shares: [][]float64{{500}, {1500}}, headroom: 1000,
		},
		{
			name:   "two containers of one pod",
			node:   node(3000, pod("a", 500, 1500, withContainer("d", 250, 750))),
			shares: [][]float64{{1166.666667, 583.333333}}, headroom: 1000,
		},
		{
			name:   "exact fit",
			node:   node(2000, pod("a", 500, 1500), pod("b", 500, 1000)),
			shares: [][]float64{{1166.666667}, {833.333333}}, headroom: 1000,
		},
		{
			name:   "lowest rank is evicted first",
			node:   node(2000, pod("a", 900, 1100, ranked(Medium)), pod("b", 900, 1000), pod("c", 900, 1900, ranked(High))),
			shares: [][]float64{nil, nil, {1900}}, evictions: []string{"b", "a"}, headroom: 1000,
		},
		{
			name:   "largest headroom is evicted next",
			node:   node(2000, pod("a", 800, 1100), pod("b", 800, 1600), pod("c", 800, 1000)),
			shares: [][]float64{{980}, nil, {920}}, evictions: []string{"b"}, headroom: 300,
		},
		{
			name:   "first name is evicted next",
			node:   node(2000, pod("b", 800, 1000), pod("a", 800, 1000), pod("c", 800, 1000)),
			shares: [][]float64{{900}, nil, {900}}, evictions: []string{"a"}, headroom: 200,
		},
		{
			name:   "only the largest container headroom counts",
			node:   node(2000, pod("a", 400, 500, withContainer("d", 400, 500)), pod("b", 800, 950), pod("c", 800, 1000)),
			shares: [][]float64{{442.857143, 442.857143}, {864.285714}, nil}, evictions: []string{"c"}, headroom: 150,
		},
		{
			name:   "protected pod stays",
			node:   node(1500, pod("a", 800, 1400, ranked(Never)), pod("b", 700, 900, ranked(High))),
			shares: [][]float64{{1400}, nil}, evictions: []string{"b"}, headroom: 600,
		},
		{
			name:   "daemon stays",
			node:   node(1500, pod("a", 800, 1400, daemon), pod("b", 700, 900)),
			shares: [][]float64{{1400}, nil}, evictions: []string{"b"}, headroom: 600,
		},
		{
			name:   "headroom is cut",
			node:   node(1000, pod("a", 400, 1400, ranked(Never)), pod("b", 200, 700, daemon)),
			shares: [][]float64{{666.666667}, {333.333333}}, headroom: 400,
		},
		{
			name:   "bases exceed the node",
			node:   node(1000, pod("a", 800, 1600, ranked(Never)), pod("b", 700, 900, ranked(Never))),
			shares: [][]float64{{800}, {700}}, over: true,
		},
		{name: "nothing available", node: node(-500, pod("a", 100, 200, daemon)), shares: [][]float64{{100}}, over: true},
		{
			name:   "init container exceeds the node",
			node:   node(2000, pod("a", 500, 1000, starting(1800)), pod("b", 300, 500, ranked(High))),
			shares: [][]float64{nil, {500}}, evictions: []string{"a"}, headroom: 200,
		},
		{name: "every pod is evicted", node: node(100, pod("a", 500, 1000)), shares: [][]float64{nil}, evictions: []string{"a"}},
		{
			name: "evictions disabled",
			node: node(1000, pod("a", 400, 1400), pod("b", 200, 700)), rule: Rule{NeverEvict: true},
			shares: [][]float64{{666.666667}, {333.333333}}, headroom: 400,
		},
		{
			name: "eviction by usage ignores headroom",
			node: node(1000, pod("a", 400, 1400), pod("b", 200, 700)), rule: Rule{EvictAbove: 0.85},
			shares: [][]float64{{666.666667}, {333.333333}}, headroom: 400,
		},
		{
			name: "eviction by usage if bases do not fit",
			node: node(1000, pod("a", 800, 1000), pod("b", 700, 800, ranked(High))), rule: Rule{EvictAbove: 0.85},
			shares: [][]float64{nil, {800}}, evictions: []string{"a"}, headroom: 100,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Shares(tc.node, tc.rule)
			require.Equal(t, tc.evictions, tc.node.names(got.Evictions))
			require.Len(t, got.Shares, len(tc.shares))
			for i, want := range tc.shares {
				require.Equal(t, want == nil, got.Shares[i] == nil)
				for k := range want {
					require.InDelta(t, want[k], got.Shares[i][k][resources.CPU], 1e-6, tc.node.Pods[i].Name)
					require.Zero(t, got.Shares[i][k][resources.Memory], "memory is not shared")
				}
			}
			require.InDelta(t, tc.headroom, got.Headroom[resources.CPU], 1e-6)
			require.Equal(t, [resources.Kinds]bool{resources.CPU: tc.over}, got.Overcommitted)
		})
	}
}

func TestShares_NeverExceedPeak(t *testing.T) {
	for _, pooling := range []Pooling{LargestHeadroom, RootSumSquares} {
		for i := range 1000 {
			base, peak := float64(i)/7, float64(i)*11/3
			require.LessOrEqual(t, Shares(node(1e6, pod("a", base, peak)), Rule{Pooling: pooling}).Shares[0][0][resources.CPU], peak)
		}
	}
}

func TestShares_SaturatedNodeEvictsOnePod(t *testing.T) {
	n := node(4000, pod("a", 400, 1400), pod("b", 200, 700), pod("c", 200, 900))
	n.Used = 0.86
	require.Equal(t, []string{"a"}, n.names(Shares(n, Rule{EvictAbove: 0.85}).Evictions))
	require.Empty(t, Shares(n, Rule{EvictAbove: 0.86}).Evictions, "as much as may be is not more")
	require.Empty(t, Shares(n, Rule{}).Evictions, "nobody looks at use")
	require.Empty(t, Shares(n, Rule{EvictAbove: 0.85, NeverEvict: true}).Evictions)
	n.Available[resources.CPU] = 390
	require.Equal(t, []string{"a", "c"}, n.names(Shares(n, Rule{EvictAbove: 0.85}).Evictions), "and for the bases as many as must")
}

func TestShares_MemoryBeforeCPU(t *testing.T) {
	n := node(2000, pod("a", 100, 200, memory(300e6, 310e6)), pod("b", 1500, 1900, memory(150e6, 350e6)))
	n.Kinds[resources.Memory], n.Available[resources.Memory] = true, 500e6
	got := Shares(n, Rule{})
	require.Equal(t, []string{"b"}, n.names(got.Evictions), "it has the larger headroom of memory")
	require.Equal(t, [][]Amounts{{{200, 310e6}}, nil}, got.Shares, "and those who stay share the CPU")

	n.Kinds[resources.Memory] = false
	got = Shares(n, Rule{})
	require.Empty(t, got.Evictions, "the CPU is enough, and memory is not shared")
	require.Zero(t, got.Headroom[resources.Memory])

	n = node(1500, pod("a", 900, 1000, memory(100e6, 100e6)), pod("b", 900, 950, memory(300e6, 310e6)))
	n.Kinds[resources.Memory], n.Available[resources.Memory] = true, 200e6
	require.Equal(t, []string{"b"}, n.names(Shares(n, Rule{}).Evictions), "the one that memory makes leave need not leave for CPU")
}

func BenchmarkShares(b *testing.B) {
	nodes := make([]*Node, 500)
	for i := range nodes {
		n := node(0)
		n.Kinds[resources.Memory] = true
		for p := range 100 {
			base := float64(50 + (i*7+p*13)%100)
			n.Pods = append(n.Pods, pod(fmt.Sprintf("namespace/workload-%02d-%05d", p%40, i*100+p), base, base*float64(1+p%5), memory(base*1e6, base*float64(1+p%3)*1e6), ranked(Rank(p%4))))
		}
		slices.Reverse(n.Pods)
		for k := range resources.Kind(resources.Kinds) {
			for p := range n.Pods {
				n.Available[k] += n.Pods[p].Containers[0].Base[k]
			}
		}
		nodes[i] = n
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, n := range nodes {
			if len(Shares(n, Rule{}).Evictions) == 0 {
				b.Fatal("somebody has to leave")
			}
		}
	}
}

func TestPod_CappedTo(t *testing.T) {
	p := Pod{Init: Amounts{1}, Containers: []Container{{Base: Amounts{5, 1}, Peak: Amounts{9, 2}}, {Base: Amounts{1, 1}, Peak: Amounts{2, 2}}}}
	cut := p.CappedTo(Amounts{4, 4})
	require.Equal(t, []Container{{Base: Amounts{4, 1}, Peak: Amounts{4, 2}}, {Base: Amounts{1, 1}, Peak: Amounts{2, 2}}}, cut.Containers)
	require.InDelta(t, 5.0, p.Containers[0].Base[0], 0, "others may have the same containers")

	n := Node{Kinds: [resources.Kinds]bool{true}, Available: Amounts{6, 0}}
	require.True(t, n.FitsBases(&p), "memory is not shared")
	n.Available[0] = 5
	require.False(t, n.FitsBases(&p))
}
