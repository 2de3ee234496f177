package mutate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// podRange returns a namespace with a LimitRange of type Pod.
func podRange(least, most string) Constraints {
	return inNamespace([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: testkit.List(least), Max: testkit.List(most)})})
}

func TestPatch_MeetsPodMinimumExactly(t *testing.T) {
	pod := testkit.Pod("p")
	vpa := testkit.VPA("v")
	for _, name := range []string{"a", "b", "c"} {
		pod.Spec.Containers = append(pod.Spec.Containers, testkit.Container(name, "memory=50Mi", "memory=50Mi"))
		testkit.Recommend(name, "memory=100Mi")(vpa)
	}
	m, err := Config{}.Patch(pod, vpa, podRange("memory=1e9", ""))
	require.NoError(t, err)
	var sum int64
	for _, c := range apply(t, pod, m.Patch).Spec.Containers {
		sum += c.Resources.Requests.Memory().Value()
	}
	require.EqualValues(t, 1e9, sum)
	require.Empty(t, m.Warnings)
}

func TestPatch_PodRangeIgnoresContainersInModeOff(t *testing.T) {
	off := vpav1.ContainerScalingModeOff
	pod := testkit.Pod("p", testkit.Container("a", "cpu=900m", "cpu=900m"), testkit.Container("off", "", ""))
	vpa := testkit.VPA("v", testkit.Recommend("a", "cpu=900m"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "off", Mode: &off}))
	m, err := Config{}.Patch(pod, vpa, podRange("", "cpu=500m"))
	require.NoError(t, err)
	require.Equal(t, "500m", apply(t, pod, m.Patch).Spec.Containers[0].Resources.Requests.Cpu().String())
}

func TestPatch_KeepsContainersWithoutRecommendation(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("a", "cpu=900m", "cpu=900m"), testkit.Container("plain", "cpu=100m", "cpu=100m"), testkit.Container("free", "cpu=100m", ""))
	m, err := Config{}.Patch(pod, testkit.VPA("v", testkit.Recommend("a", "cpu=900m")), podRange("", "cpu=500m"))
	require.NoError(t, err)
	got := apply(t, pod, m.Patch)
	require.Equal(t, "400m", got.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Equal(t, pod.Spec.Containers[1:], got.Spec.Containers[1:])
}

// Shrinking one container is not enough to meet the pod maximum, and the API server would refuse
// the pod forever.
func TestPatch_ShrinksContainersWithoutRecommendationForPodRange(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("a", "cpu=100m", "cpu=100m"), testkit.Container("plain", "cpu=400m memory=1Mi", "cpu=800m"))
	m, err := Config{}.Patch(pod, testkit.VPA("v", testkit.Recommend("a", "cpu=200m")), podRange("", "cpu=500m"))
	require.NoError(t, err)
	got := apply(t, pod, m.Patch)
	require.Equal(t, "100m", got.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Equal(t, "200m", got.Spec.Containers[1].Resources.Requests.Cpu().String())
	require.Equal(t, "400m", got.Spec.Containers[1].Resources.Limits.Cpu().String())
	require.Equal(t, "1Mi", got.Spec.Containers[1].Resources.Requests.Memory().String())
	require.Equal(t, "Pod resources updated by v: container 0: memory: limit NOT set since originalLimit is nil or 0, cpu request, cpu limit; container 1: cpu request, cpu limit", got.Annotations[convert.UpdatesAnnotation])
	require.Equal(t, []string{"VerticalPodAutoscaler v: container a: cpu cut from 200m to 100m to fit the LimitRanges of namespace default",
		"VerticalPodAutoscaler v: container plain: cpu changed from 400m to 200m without a recommendation, because the pod would not fit the LimitRanges of namespace default"}, m.Warnings)
	again, err := Config{}.Patch(got, testkit.VPA("v", testkit.Recommend("a", "cpu=200m")), podRange("", "cpu=500m"))
	require.NoError(t, err)
	require.Equal(t, got.Spec, apply(t, got, again.Patch).Spec, "the pod that has it fits")

	m, err = Config{}.Patch(pod, testkit.VPA("v"), podRange("", "cpu=500m"))
	require.NoError(t, err)
	require.False(t, m.Resized, "a VPA that recommends nothing moves nothing")
}

func TestPatch_OnlyAnnotatesContainersWithoutResources(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "", ""))
	m, err := Config{}.Patch(pod, testkit.VPA("v"), Constraints{})
	require.NoError(t, err)
	require.Equal(t, []client.PatchOperation{
		client.PatchAdd("/metadata/annotations", map[string]string{}), client.PatchAdd("/metadata/annotations/"+convert.ObservedAnnotation, "c")}, m.Patch)
}

func TestPatch_FailsForAnotherContainer(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	m, err := Config{}.Patch(pod, testkit.VPA("v", testkit.Recommend("c", "cpu=1")), Constraints{})
	require.NoError(t, err)
	other := pod.DeepCopy()
	other.Spec.Containers[0].Name = "injected before it"
	_, err = applied(other, m.Patch)
	require.ErrorContains(t, err, "test")
}
