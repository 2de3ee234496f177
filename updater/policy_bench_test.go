package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
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

// BenchmarkPassUnderAPolicy is a pass over the same cluster with a policy and without.
func BenchmarkPassUnderAPolicy(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	one := func(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) []*loadlinev1alpha1.SizingPolicy {
		return []*loadlinev1alpha1.SizingPolicy{everywhere(changes...)}
	}
	const vpas, each = 10_000, 5
	for _, c := range []struct {
		name    string
		cluster quiet
		due     bool
	}{
		{"none/at_rest", quiet{vpas: vpas, pods: each}, false},
		{"Auto/at_rest", quiet{vpas: vpas, pods: each, policies: one()}, false},
		{"Auto/at_rest/20_rounds", quiet{vpas: vpas, pods: each, policies: one(), rounds: 20}, false},
		{"Auto/held", quiet{vpas: vpas, pods: each, policies: one(closed)}, true},
		{"Auto/held/20_rounds", quiet{vpas: vpas, pods: each, policies: one(closed), rounds: 20}, true},
		{"Recommend/held", quiet{vpas: vpas, pods: each, policies: one(recommendOnly)}, true},
		{"none/one_namespace", quiet{vpas: vpas, pods: each, inNamespace: vpas}, false},
		{"Auto/one_namespace", quiet{vpas: vpas, pods: each, inNamespace: vpas, policies: one()}, false},
		{"Auto/1000_policies", quiet{vpas: vpas, pods: each, policies: manyPolicies(1000)}, false},
		{"Auto/held/5000_pods", quiet{vpas: 1, pods: 5000, policies: one(closed)}, true},
		{"none/5000_pods", quiet{vpas: 1, pods: 5000}, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			loop, _ := c.cluster.loop(b)
			if c.due {
				due(b, loop)
			}
			loop.RunOnce(b.Context(), noon)
			b.ReportAllocs()
			begin, passes := cpuTime(b), 0
			for b.Loop() {
				loop.RunOnce(b.Context(), noon)
				passes++
			}
			b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/1000/float64(passes), "cpu-ms/op")
		})
	}
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
