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
	for name, c := range map[string]struct {
		node     *Node
		rule     Rule
		shares   [][]float64 // millicores; nil: evicted
		leaves   []string
		headroom float64
		over     bool
	}{
		"nobody":                    {node(1000), Rule{}, [][]float64{}, nil, 0, false},
		"nobody, where others are":  {node(-1000), Rule{}, [][]float64{}, nil, 0, false},
		"alone: all of its own":     {node(4000, pod("a", 500, 1500)), Rule{}, [][]float64{{1500}}, nil, 1000, false},
		"the largest headroom":      {node(4000, pod("a", 500, 1500), pod("b", 200, 800)), Rule{}, [][]float64{{1125}, {575}}, nil, 1000, false},
		"three that are equal":      {node(4000, three...), Rule{}, [][]float64{{800}, {800}, {800}}, nil, 900, false},
		"the root of three":         {node(4000, pod("a", 0, 300), pod("b", 0, 400), pod("c", 10, 10)), Rule{Pooling: RootSumSquares}, [][]float64{{214.285714}, {285.714286}, {10}}, nil, 500, false},
		"the root of one":           {node(4000, pod("a", 500, 1500)), Rule{Pooling: RootSumSquares}, [][]float64{{1500}}, nil, 1000, false},
		"no headroom: the base":     {node(4000, pod("a", 500, 500)), Rule{}, [][]float64{{500}}, nil, 0, false},
		"a peak below the base":     {node(4000, pod("a", 500, 400), pod("b", 500, 1500)), Rule{}, [][]float64{{500}, {1500}}, nil, 1000, false},
		"containers of one pod":     {node(3000, pod("a", 500, 1500, withContainer("d", 250, 750))), Rule{}, [][]float64{{1166.666667, 583.333333}}, nil, 1000, false},
		"an exact fit":              {node(2000, pod("a", 500, 1500), pod("b", 500, 1000)), Rule{}, [][]float64{{1166.666667}, {833.333333}}, nil, 1000, false},
		"a low rank first":          {node(2000, pod("a", 900, 1100, ranked(Medium)), pod("b", 900, 1000), pod("c", 900, 1900, ranked(High))), Rule{}, [][]float64{nil, nil, {1900}}, []string{"b", "a"}, 1000, false},
		"then the larger headroom":  {node(2000, pod("a", 800, 1100), pod("b", 800, 1600), pod("c", 800, 1000)), Rule{}, [][]float64{{980}, nil, {920}}, []string{"b"}, 300, false},
		"then the name":             {node(2000, pod("b", 800, 1000), pod("a", 800, 1000), pod("c", 800, 1000)), Rule{}, [][]float64{{900}, nil, {900}}, []string{"a"}, 200, false},
		"the larger container only": {node(2000, pod("a", 400, 500, withContainer("d", 400, 500)), pod("b", 800, 950), pod("c", 800, 1000)), Rule{}, [][]float64{{442.857143, 442.857143}, {864.285714}, nil}, []string{"c"}, 150, false},
		"protected ones stay":       {node(1500, pod("a", 800, 1400, ranked(Never)), pod("b", 700, 900, ranked(High))), Rule{}, [][]float64{{1400}, nil}, []string{"b"}, 600, false},
		"daemons stay":              {node(1500, pod("a", 800, 1400, daemon), pod("b", 700, 900)), Rule{}, [][]float64{{1400}, nil}, []string{"b"}, 600, false},
		"headroom is what is left":  {node(1000, pod("a", 400, 1400, ranked(Never)), pod("b", 200, 700, daemon)), Rule{}, [][]float64{{666.666667}, {333.333333}}, nil, 400, false},
		"bases alone are too much":  {node(1000, pod("a", 800, 1600, ranked(Never)), pod("b", 700, 900, ranked(Never))), Rule{}, [][]float64{{800}, {700}}, nil, 0, true},
		"nothing is left at all":    {node(-500, pod("a", 100, 200, daemon)), Rule{}, [][]float64{{100}}, nil, 0, true},
		"an init container":         {node(2000, pod("a", 500, 1000, starting(1800)), pod("b", 300, 500, ranked(High))), Rule{}, [][]float64{nil, {500}}, []string{"a"}, 200, false},
		"everybody leaves":          {node(100, pod("a", 500, 1000)), Rule{}, [][]float64{nil}, []string{"a"}, 0, false},
		"but not where all stay":    {node(1000, pod("a", 400, 1400), pod("b", 200, 700)), Rule{NeverEvict: true}, [][]float64{{666.666667}, {333.333333}}, nil, 400, false},
		"by use: no headroom asked": {node(1000, pod("a", 400, 1400), pod("b", 200, 700)), Rule{EvictAbove: 0.85}, [][]float64{{666.666667}, {333.333333}}, nil, 400, false},
		"by use: bases must fit":    {node(1000, pod("a", 800, 1000), pod("b", 700, 800, ranked(High))), Rule{EvictAbove: 0.85}, [][]float64{nil, {800}}, []string{"a"}, 100, false},
	} {
		got := Shares(c.node, c.rule)
		require.Equal(t, c.leaves, c.node.names(got.Evictions), name)
		require.Len(t, got.Shares, len(c.shares), name)
		for i, want := range c.shares {
			require.Equal(t, want == nil, got.Shares[i] == nil, name)
			for k := range want {
				require.InDelta(t, want[k], got.Shares[i][k][resources.CPU], 1e-6, "%s: %s", name, c.node.Pods[i].Name)
				require.Zero(t, got.Shares[i][k][resources.Memory], "%s: memory is not shared", name)
			}
		}
		require.InDelta(t, c.headroom, got.Headroom[resources.CPU], 1e-6, name)
		require.Equal(t, [resources.Kinds]bool{resources.CPU: c.over}, got.Overcommitted, name)
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
