package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func resourceList(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *quantity(cpu), corev1.ResourceMemory: *quantity(memory)}
}

// minAllowed and maxAllowed apply to the target and both bounds, but not to the uncapped target.
func TestResourcePolicy_CapsTargetAndBounds(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "caps"), Name: "pair", Replicas: 1,
		Containers:  []harness.Container{{Name: "large", CPU: "100m", Memory: "300Mi"}, {Name: "small", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Merge(harness.Uses("large", "800m", "900Mi"), harness.Uses("small", "20m", "150Mi")),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withContainerPolicies(
		vpav1.ContainerResourcePolicy{ContainerName: "large", MaxAllowed: resourceList("300m", "400Mi")},
		vpav1.ContainerResourcePolicy{ContainerName: "small", MinAllowed: resourceList("200m", "700Mi"), MaxAllowed: resourceList("250m", "750Mi")},
	)))
	both := awaitRecommendation(t, w).Status.Recommendation.ContainerRecommendations
	large, small := both[0], both[1]
	for _, kind := range kinds {
		most, least, mostOfSmall := resourceList("300m", "400Mi")[kind], resourceList("200m", "700Mi")[kind], resourceList("250m", "750Mi")[kind]
		for what, list := range map[string]corev1.ResourceList{"target": large.Target, "lower bound": large.LowerBound, "upper bound": large.UpperBound} {
			atMost(t, most.String(), list[kind], what+" of large for "+string(kind))
		}
		atLeast(t, most.String(), large.Target[kind], "target of large, whose need is above the maximum, for "+string(kind))
		uncapped := large.UncappedTarget[kind]
		require.Positive(t, uncapped.Cmp(most), "the uncapped target of large for %s is %s", kind, uncapped.String())
		for what, list := range map[string]corev1.ResourceList{"target": small.Target, "lower bound": small.LowerBound, "upper bound": small.UpperBound} {
			atLeast(t, least.String(), list[kind], what+" of small for "+string(kind))
		}
		atMost(t, mostOfSmall.String(), small.UpperBound[kind], "upper bound of small for "+string(kind))
		uncapped = small.UncappedTarget[kind]
		require.Negative(t, uncapped.Cmp(least), "the uncapped target of small for %s is %s", kind, uncapped.String())
	}
}

func TestResourcePolicy_ModeOffExcludesContainers(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "mode-off"), Name: "web", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}, {Name: "proxy", CPU: "100m", Memory: "300Mi"}, {Name: "logs", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Merge(harness.Uses("app", "400m", "500Mi"), harness.Uses("proxy", "100m", "100Mi"), harness.Uses("logs", "100m", "100Mi")),
	}
	off, auto := vpav1.ContainerScalingModeOff, vpav1.ContainerScalingModeAuto
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withContainerPolicies(
		vpav1.ContainerResourcePolicy{ContainerName: vpav1.DefaultContainerResourcePolicy, Mode: &off},
		vpav1.ContainerResourcePolicy{ContainerName: "app", Mode: &auto},
	)))
	served := w
	served.Containers = w.Containers[:1]
	got := onlyContainer(t, awaitRecommendation(t, served))
	require.Equal(t, "app", got.ContainerName)
	atLeast(t, "400m", got.Target[corev1.ResourceCPU], "CPU target")
	// The minimum memory of a pod is not split between containers in mode Off.
	atLeast(t, "250M", got.Target[corev1.ResourceMemory], "memory target")
	during(t, 5*time.Second, func() { require.Equal(t, "app", onlyContainer(t, getVPA(t, w)).ContainerName) })
}

// With an empty list of controlled resources nothing is recommended. The API server accepts the
// empty status, and other VPAs are unaffected.
func TestResourcePolicy_EmptyControlledResources(t *testing.T) {
	parallelTest(t)
	ns := namespace(t, "uncontrolled")
	w := harness.Workload{
		Namespace: ns, Name: "nothing", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "400m", "500Mi"),
	}
	onlyCPU := w
	onlyCPU.Name = "only-cpu"
	none, cpu := []corev1.ResourceName{}, []corev1.ResourceName{corev1.ResourceCPU}
	for _, c := range []struct {
		w          harness.Workload
		controlled *[]corev1.ResourceName
	}{{w, &none}, {onlyCPU, &cpu}} {
		require.NoError(t, cluster.CreateWorkload(t.Context(), c.w))
		require.NoError(t, cluster.CreateVPA(t.Context(), c.w, vpav1.UpdateModeOff, withContainerPolicies(
			vpav1.ContainerResourcePolicy{ContainerName: "*", ControlledResources: c.controlled},
		)))
	}
	got := onlyContainer(t, awaitRecommendation(t, onlyCPU))
	require.Contains(t, got.Target, corev1.ResourceCPU)
	require.NotContains(t, got.Target, corev1.ResourceMemory)
	eventually(t, "status of the VPA that controls nothing", func() error {
		vpa := getVPA(t, w)
		if len(vpa.Status.Conditions) == 0 {
			return errors.New("it has no conditions")
		}
		if vpa.Status.Recommendation == nil || len(vpa.Status.Recommendation.ContainerRecommendations) == 0 {
			return fmt.Errorf("recommendation is %+v", vpa.Status.Recommendation)
		}
		return nil
	})
	empty := onlyContainer(t, getVPA(t, w))
	require.Equal(t, "app", empty.ContainerName)
	require.Empty(t, empty.Target)
	require.Empty(t, empty.UncappedTarget)
}
