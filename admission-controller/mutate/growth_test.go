package mutate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/testkit"
)

// crowd returns a pod with n containers, each with its own recommendation and policy, in a
// namespace where a LimitRange scales all of them.
func crowd(n int) (*corev1.Pod, *vpav1.VerticalPodAutoscaler, Constraints) {
	pod, vpa := testkit.Pod("p"), testkit.VPA("v")
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, testkit.Container(name, "cpu=100m memory=1Mi", "cpu=200m memory=2Mi"))
		testkit.Recommend(name, fmt.Sprintf("cpu=%dm memory=1Mi", 100+i%7))(vpa)
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: name, MaxAllowed: testkit.List("cpu=1"), MinAllowed: testkit.List("cpu=1m")})(vpa)
	}
	return pod, vpa, podRange("", fmt.Sprintf("cpu=%dm", 150*n))
}

func BenchmarkPatchOfManyContainers(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pod, vpa, namespace := crowd(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := (Config{}).Patch(pod, vpa, namespace); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/container")
		})
	}
}

func TestPatch_AllocatesLinearlyInContainers(t *testing.T) {
	allocations := func(n int) float64 {
		pod, vpa, namespace := crowd(n)
		return testing.AllocsPerRun(3, func() {
			m, err := Config{}.Patch(pod, vpa, namespace)
			require.NoError(t, err)
			require.Len(t, m.Patch, 5*n+3)
		})
	}
	require.Less(t, allocations(1000), 12*allocations(100))
}
