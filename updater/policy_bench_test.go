package updater

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/updater/policies"
)

// clusterPolicy returns a policy in mode Auto for all Deployments.
func clusterPolicy(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return autoPolicy(append(changes, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{"*"} })...)
}

// outsideWindow closes the schedule of a policy at noon.
func outsideWindow(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
}

func recommendOnly(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
}

func makeDue(tb testing.TB, loop *Loop) {
	all, err := loop.reader.VPAs.List(labels.Everything())
	require.NoError(tb, err)
	for _, vpa := range all {
		one := &vpa.Status.Recommendation.ContainerRecommendations[0]
		one.LowerBound, one.Target, one.UpperBound = list("40m", "40Mi"), list("50m", "50Mi"), list("60m", "60Mi")
	}
}

// BenchmarkPassUnderAPolicy alternates iterations over a cluster with and without a policy. Each
// loop is measured twice, since the first one built is some hundredths faster. "alike" has no
// policy on either side and shows the measurement error. The budget for 50,000 pods is one second
// of CPU time. Run it with GOMAXPROCS=1, because other processors collect garbage at any time.
func BenchmarkPassUnderAPolicy(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	one := func(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) []*loadlinev1alpha1.SizingPolicy {
		return []*loadlinev1alpha1.SizingPolicy{clusterPolicy(changes...)}
	}
	large, single := steadyCluster{vpas: 10_000, pods: 5}, steadyCluster{vpas: 1, pods: 5_000}
	for _, c := range []struct {
		name     string
		cluster  steadyCluster
		policies []*loadlinev1alpha1.SizingPolicy
		rounds   int
		due      bool
		budget   time.Duration // of CPU time, 0: none
	}{
		{"alike", large, nil, 0, false, 0},
		{"at_rest", large, one(), 0, false, time.Second},
		{"at_rest/20_rounds", large, one(), 20, false, time.Second},
		{"held", large, one(outsideWindow), 0, true, 0},
		{"held/20_rounds", large, one(outsideWindow), 20, true, 0},
		{"recommended_only", large, one(recommendOnly), 0, true, 0},
		{"one_namespace", steadyCluster{vpas: 10_000, pods: 5, inNamespace: 10_000}, one(), 0, false, 0},
		{"1000_policies", large, manyPolicies(1000), 0, false, 0},
		{"one_workload/at_rest", single, one(), 0, false, 0},
		{"one_workload/held", single, one(outsideWindow), 0, true, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			with := c.cluster
			with.policies, with.rounds = c.policies, c.rounds
			without, under := newMeasuredLoop(b, c.cluster), newMeasuredLoop(b, with)
			under2, without2 := newMeasuredLoop(b, with), newMeasuredLoop(b, c.cluster)
			for _, m := range []*measuredLoop{without, under, under2, without2} {
				if c.due && (m == under || m == under2) {
					makeDue(b, m.loop)
				}
				m.loop.RunOnce(b.Context(), noon) // the first one fills the caches
				m.loop.RunOnce(b.Context(), noon)
			}
			var ratios []float64 // of consecutive iterations, so that load on the machine affects both
			for b.Loop() {
				for _, pair := range [][2]*measuredLoop{{without, under}, {without2, under2}} {
					first, second := pair[0], pair[1]
					if len(ratios)/2%2 > 0 {
						first, second = second, first
					}
					first.runOnce(b)
					second.runOnce(b)
					ratios = append(ratios, float64(pair[1].last())/float64(pair[0].last()))
				}
			}
			b.ReportMetric(0, "ns/op")
			without.and(without2).report(b, "without-")
			under.and(under2).report(b, "")
			slices.Sort(ratios)
			ratio := ratios[len(ratios)/2]
			b.ReportMetric(ratio, "x-cpu")
			if c.budget > 0 {
				require.LessOrEqual(b, under.and(under2).median(), c.budget, "median processor time")
			}
		})
	}
}

func newMeasuredLoop(tb testing.TB, of steadyCluster) *measuredLoop {
	loop, _ := of.loop(tb)
	return &measuredLoop{loop: loop}
}

type measuredLoop struct {
	loop          *Loop
	cpu           []time.Duration
	bytes, allocs uint64
}

func (m *measuredLoop) runOnce(tb testing.TB) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := testkit.CPUTime(tb)
	m.loop.RunOnce(tb.Context(), noon)
	m.cpu = append(m.cpu, testkit.CPUTime(tb)-begin)
	runtime.ReadMemStats(&after)
	m.bytes, m.allocs = m.bytes+after.TotalAlloc-before.TotalAlloc, m.allocs+after.Mallocs-before.Mallocs
}

func (m *measuredLoop) and(o *measuredLoop) *measuredLoop {
	return &measuredLoop{cpu: slices.Concat(m.cpu, o.cpu), bytes: m.bytes + o.bytes, allocs: m.allocs + o.allocs}
}

func (m *measuredLoop) last() time.Duration { return m.cpu[len(m.cpu)-1] }

func (m *measuredLoop) median() time.Duration {
	return slices.Sorted(slices.Values(m.cpu))[len(m.cpu)/2]
}

func (m *measuredLoop) report(b *testing.B, prefix string) {
	b.Helper()
	passes := float64(len(m.cpu))
	b.ReportMetric(float64(m.median().Microseconds())/1000, prefix+"cpu-ms")
	b.ReportMetric(float64(m.bytes)/passes/1e6, prefix+"MB")
	b.ReportMetric(float64(m.allocs)/passes, prefix+"allocs")
}

// manyPolicies returns n policies: one per namespace, and one for all other namespaces.
func manyPolicies(n int) (all []*loadlinev1alpha1.SizingPolicy) {
	for i := range n - 1 {
		p := autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{fmt.Sprintf("ns-%d", i)} })
		p.Name, p.Spec.Priority = fmt.Sprintf("team-%d", i), new(int32(500))
		all = append(all, p)
	}
	return append(all, clusterPolicy())
}

func TestPolicy_ScheduleHoldsAllPods(t *testing.T) {
	const vpas, each = 20, 5
	loop, _ := steadyCluster{vpas: vpas, pods: each, policies: []*loadlinev1alpha1.SizingPolicy{clusterPolicy(outsideWindow)}}.loop(t)
	makeDue(t, loop)
	it, err := loop.read(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	loop.decide(t.Context(), it, noon)
	require.Empty(t, it.plan.Actions)
	require.Len(t, it.plan.Skipped, vpas*each)
	for _, skip := range it.plan.Skipped {
		require.Equal(t, "OutsideWindow", skip.Reason.String())
	}
}

func TestPolicy_AllocatesNothingWhenUnused(t *testing.T) {
	allocations := func(pods int, change func(*policies.Resolver)) float64 {
		loop, _ := steadyCluster{vpas: 40, pods: pods}.loop(t)
		change(loop.policies)
		loop.RunOnce(t.Context(), noon)
		return testing.AllocsPerRun(20, func() { loop.RunOnce(t.Context(), noon) })
	}
	for _, pods := range []int{1, 5} {
		never := allocations(pods, func(r *policies.Resolver) { r.Policies, r.Records, r.HPAs = nil, nil, nil })
		require.Equal(t, never, allocations(pods, func(*policies.Resolver) {}), "%d pods", pods)
	}
}

// The limit holds for any number of recorded rounds.
func TestPolicy_AllocatesPerWorkloadAtRest(t *testing.T) {
	const vpas = 200
	allocations := func(rounds int, policies ...*loadlinev1alpha1.SizingPolicy) float64 {
		loop, _ := steadyCluster{vpas: vpas, pods: 2, policies: policies, rounds: rounds}.loop(t)
		loop.RunOnce(t.Context(), noon)
		return testing.AllocsPerRun(20, func() { loop.RunOnce(t.Context(), noon) })
	}
	without := allocations(0)
	for _, rounds := range []int{0, 20} {
		require.LessOrEqual(t, allocations(rounds, clusterPolicy())-without, 40.0*vpas, "%d rounds", rounds)
	}
}
