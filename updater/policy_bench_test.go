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
	"loadline.dev/loadline/updater/view"
)

// everywhere is a policy in mode Auto for all Deployments.
func everywhere(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return auto(append(changes, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{"*"} })...)
}

// closed is a policy whose schedule is not open at noon.
func closed(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
}

func recommendOnly(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
}

// due makes all VPAs of a quiet cluster recommend something else than the pods have.
func due(tb testing.TB, loop *Loop) {
	all, err := loop.reader.VPAs.List(labels.Everything())
	require.NoError(tb, err)
	for _, vpa := range all {
		one := &vpa.Status.Recommendation.ContainerRecommendations[0]
		one.LowerBound, one.Target, one.UpperBound = list("40m", "40Mi"), list("50m", "50Mi"), list("60m", "60Mi")
	}
}

// BenchmarkPassUnderAPolicy is a pass over a cluster under a policy beside one over the same cluster
// without: in turns, so that both have the same machine, and twice, so that each is once the one
// that was made first, whose passes take some hundredths less time. What the measurement itself is worth
// shows "alike", where neither has a policy. Run it with GOMAXPROCS=1: other processors collect
// garbage at any time.
func BenchmarkPassUnderAPolicy(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	one := func(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) []*loadlinev1alpha1.SizingPolicy {
		return []*loadlinev1alpha1.SizingPolicy{everywhere(changes...)}
	}
	large, single := quiet{vpas: 10_000, pods: 5}, quiet{vpas: 1, pods: 5_000}
	for _, c := range []struct {
		name     string
		cluster  quiet
		policies []*loadlinev1alpha1.SizingPolicy
		rounds   int
		due      bool
		most     float64 // ratio of processor time that fails; 0: any will do
	}{
		{"alike", large, nil, 0, false, 0},
		{"at_rest", large, one(), 0, false, 1.1},
		{"at_rest/20_rounds", large, one(), 20, false, 1.1},
		{"held", large, one(closed), 0, true, 0},
		{"held/20_rounds", large, one(closed), 20, true, 0},
		{"recommended_only", large, one(recommendOnly), 0, true, 0},
		{"one_namespace", quiet{vpas: 10_000, pods: 5, inNamespace: 10_000}, one(), 0, false, 0},
		{"1000_policies", large, manyPolicies(1000), 0, false, 0},
		{"one_workload/at_rest", single, one(), 0, false, 0},
		{"one_workload/held", single, one(closed), 0, true, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			with := c.cluster
			with.policies, with.rounds = c.policies, c.rounds
			without, under := measured(b, c.cluster), measured(b, with)
			under2, without2 := measured(b, with), measured(b, c.cluster)
			for _, m := range []*measuredLoop{without, under, under2, without2} {
				if c.due && (m == under || m == under2) {
					due(b, m.loop)
				}
				m.loop.RunOnce(b.Context(), noon) // the first one remembers
				m.loop.RunOnce(b.Context(), noon)
			}
			var ratios []float64 // of passes that follow each other, so that a busy machine is busy for both
			for b.Loop() {
				for _, pair := range [][2]*measuredLoop{{without, under}, {without2, under2}} {
					first, second := pair[0], pair[1]
					if len(ratios)/2%2 > 0 {
						first, second = second, first
					}
					first.pass(b)
					second.pass(b)
					ratios = append(ratios, float64(pair[1].last())/float64(pair[0].last()))
				}
			}
			b.ReportMetric(0, "ns/op")
			without.and(without2).report(b, "without-")
			under.and(under2).report(b, "")
			slices.Sort(ratios)
			ratio := ratios[len(ratios)/2]
			b.ReportMetric(ratio, "x-cpu")
			if c.most > 0 && len(ratios) >= 60 { // fewer say little
				require.LessOrEqual(b, ratio, c.most, "a policy costs too much processor time")
			}
		})
	}
}

// measured is a loop whose passes are measured.
func measured(tb testing.TB, of quiet) *measuredLoop {
	loop, _ := of.loop(tb)
	return &measuredLoop{loop: loop}
}

type measuredLoop struct {
	loop          *Loop
	cpu           []time.Duration
	bytes, allocs uint64
}

func (m *measuredLoop) pass(tb testing.TB) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := testkit.CPUTime(tb)
	m.loop.RunOnce(tb.Context(), noon)
	m.cpu = append(m.cpu, testkit.CPUTime(tb)-begin)
	runtime.ReadMemStats(&after)
	m.bytes, m.allocs = m.bytes+after.TotalAlloc-before.TotalAlloc, m.allocs+after.Mallocs-before.Mallocs
}

// and returns the passes of both.
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

// manyPolicies are so many, each for a namespace of its own, and one for all the others.
func manyPolicies(n int) (all []*loadlinev1alpha1.SizingPolicy) {
	for i := range n - 1 {
		p := auto(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{fmt.Sprintf("ns-%d", i)} })
		p.Name, p.Spec.Priority = fmt.Sprintf("team-%d", i), new(int32(500))
		all = append(all, p)
	}
	return append(all, everywhere())
}

// Where all pods of a policy are held, all of them are.
func TestAPassUnderAPolicyHoldsAll(t *testing.T) {
	const vpas, each = 20, 5
	loop, _ := quiet{vpas: vpas, pods: each, policies: []*loadlinev1alpha1.SizingPolicy{everywhere(closed)}}.loop(t)
	due(t, loop)
	s, plan, err := loop.look(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	require.Len(t, s.rollouts, vpas)
	require.Empty(t, plan.Actions)
	require.Len(t, plan.Skipped, vpas*each)
	for _, skip := range plan.Skipped {
		require.Equal(t, "OutsideWindow", skip.Reason.String())
	}
}

// Where there is no policy, none of what serves policies allocates anything in a pass.
func TestWithoutAPolicyNothingMoreIsAllocated(t *testing.T) {
	allocations := func(pods int, change func(*view.Reader)) float64 {
		loop, _ := quiet{vpas: 40, pods: pods}.loop(t)
		change(loop.reader)
		loop.RunOnce(t.Context(), noon)
		return testing.AllocsPerRun(20, func() { loop.RunOnce(t.Context(), noon) })
	}
	for _, pods := range []int{1, 5} {
		never := allocations(pods, func(r *view.Reader) { r.Policies, r.Records, r.HPAs = nil, nil, nil })
		require.Equal(t, never, allocations(pods, func(*view.Reader) {}), "%d pods", pods)
	}
}

// A pass at rest allocates nothing for the 200 workloads of a policy, whatever is remembered of them.
func TestPolicy_AllocatesNothingForAWorkloadAtRest(t *testing.T) {
	const vpas = 200
	allocations := func(rounds int, policies ...*loadlinev1alpha1.SizingPolicy) float64 {
		loop, _ := quiet{vpas: vpas, pods: 2, policies: policies, rounds: rounds}.loop(t)
		loop.RunOnce(t.Context(), noon)
		loop.RunOnce(t.Context(), noon)
		return testing.AllocsPerRun(20, func() { loop.RunOnce(t.Context(), noon) })
	}
	without := allocations(0)
	for _, rounds := range []int{0, 20} {
		require.InDelta(t, without, allocations(rounds, everywhere()), 30, "%d rounds", rounds)
	}
}
