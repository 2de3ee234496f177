package mutate

import (
	"encoding/json"
	"strconv"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

func TestPatch_TestsContainerNameBeforeChange(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("plain", "cpu=100m", ""), testkit.Container("c", "cpu=100m", "cpu=200m"))
	m, err := Config{}.Patch(pod, testkit.VPA("v", testkit.Recommend("c", "cpu=150m")), Constraints{})
	require.NoError(t, err)
	require.True(t, m.Resized)
	require.Equal(t, []client.PatchOperation{
		client.PatchAdd("/metadata/annotations", map[string]string{}),
		client.PatchTest("/spec/containers/1/name", "c"),
		client.PatchAdd("/spec/containers/1/resources/requests/cpu", "150m"),
		client.PatchAdd("/spec/containers/1/resources/limits/cpu", "300m"),
		client.PatchAdd("/metadata/annotations/vpaUpdates", "Pod resources updated by v: container 1: memory: limit NOT set since originalLimit is nil or 0, cpu request, cpu limit"),
		client.PatchAdd("/metadata/annotations/vpaObservedContainers", "plain, c"),
	}, m.Patch)
}

func inNamespace(objects []*corev1.LimitRange) Constraints {
	return Constraints{Ranges: convert.Ranges(objects)}
}

// applied applies a patch to a pod with an independent library.
func applied(pod *corev1.Pod, operations []client.PatchOperation) (*corev1.Pod, error) {
	raw, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return nil, err
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, err
	}
	var patched corev1.Pod
	return &patched, json.Unmarshal(after, &patched)
}

func apply(t *testing.T, pod *corev1.Pod, operations []client.PatchOperation) *corev1.Pod {
	t.Helper()
	patched, err := applied(pod, operations)
	require.NoError(t, err)
	return patched
}

func TestPatch_IsIdempotent(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=300m memory=300Mi", "cpu=1 memory=1000Mi"))
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=100m memory=100000001"))
	ranges := inNamespace([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=300m")})})
	first, err := Config{}.Patch(pod, vpa, ranges)
	require.NoError(t, err)
	once := apply(t, pod, first.Patch)
	second, err := Config{}.Patch(once, vpa, ranges)
	require.NoError(t, err)
	require.Equal(t, once.Spec, apply(t, once, second.Patch).Spec)
}

func TestPatch_IgnoresInitContainersAndSidecars(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	sidecar := testkit.Container("side", "cpu=100m", "")
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []corev1.Container{testkit.Container("init", "cpu=100m", ""), sidecar}
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=1"), testkit.Recommend("init", "cpu=1"), testkit.Recommend("side", "cpu=1"))
	m, err := Config{}.Patch(pod, vpa, Constraints{})
	require.NoError(t, err)
	require.Equal(t, pod.Spec.InitContainers, apply(t, pod, m.Patch).Spec.InitContainers)
}

func TestPatch_IgnoresContainersInModeOff(t *testing.T) {
	off := vpav1.ContainerScalingModeOff
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=1"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", Mode: &off}))
	m, err := Config{Boost: true}.Patch(testkit.Pod("p", testkit.Container("c", "cpu=100m", "")), vpa, Constraints{})
	require.NoError(t, err)
	require.False(t, m.Resized, "even while the status still has a recommendation")
}

func TestPatch_FailsOnInvalidBoost(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=1"))
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor}}
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	m, err := Config{Boost: true}.Patch(pod, vpa, Constraints{})
	require.ErrorIs(t, err, policy.ErrBoost)
	require.Empty(t, m.Patch)
	m, err = Config{}.Patch(pod, vpa, Constraints{})
	require.NoError(t, err, "without the feature the boost is not looked at")
	require.True(t, m.Resized)
}

func TestPatch_IgnoresBoostWithoutCPU(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=1"))
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{}
	m, err := Config{Boost: true}.Patch(testkit.Pod("p", testkit.Container("c", "cpu=100m", "")), vpa, Constraints{})
	require.NoError(t, err)
	require.True(t, m.Resized)
}

func TestPatch_WarnsOfTargetOutsideLimitRange(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=250m"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", MinAllowed: testkit.List("cpu=700m")}))
	ranges := inNamespace([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=500m")})})
	m, err := Config{}.Patch(testkit.Pod("p", testkit.Container("c", "cpu=100m", "cpu=100m")), vpa, ranges)
	require.NoError(t, err)
	require.Equal(t, []string{"VerticalPodAutoscaler v: container c: cpu held at the value that the LimitRanges admit"}, m.Warnings)
}

func TestPatch_WarnsOfPodThatWillBeRefused(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=250m"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", MinAllowed: testkit.List("cpu=700m")}))
	ranges := inNamespace([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=500m")})})
	m, err := Config{}.Patch(testkit.Pod("p", testkit.Container("c", "cpu=600m", "cpu=600m")), vpa, ranges)
	require.NoError(t, err)
	require.Equal(t, []string{"VerticalPodAutoscaler v: container c: cpu does not fit the container LimitRange; the pod will probably be refused"}, m.Warnings)
}

func TestPatch_WarnsOfCappedTarget(t *testing.T) {
	only := vpav1.ContainerControlledValuesRequestsOnly
	limits := func(kind corev1.LimitType) Constraints {
		return inNamespace([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: kind, Max: testkit.List("cpu=500m")})})
	}
	for _, tc := range []struct {
		name      string
		policy    vpav1.ContainerResourcePolicy
		namespace Constraints
		want      string
	}{
		{name: "LimitRange of the container", namespace: limits(corev1.LimitTypeContainer),
			want: "cpu cut from 900m to 500m to fit the LimitRanges of namespace default"},
		{name: "LimitRange of the pod", namespace: limits(corev1.LimitTypePod),
			want: "cpu cut from 900m to 500m to fit the LimitRanges of namespace default"},
		{name: "maxAllowed", policy: vpav1.ContainerResourcePolicy{MaxAllowed: testkit.List("cpu=300m")},
			want: "cpu cut from 900m to 300m to fit maxAllowed"},
		{name: "the narrower of maxAllowed and LimitRange", policy: vpav1.ContainerResourcePolicy{MaxAllowed: testkit.List("cpu=300m")},
			namespace: limits(corev1.LimitTypeContainer), want: "cpu cut from 900m to 300m to fit maxAllowed"},
		{name: "limit that is not changed", policy: vpav1.ContainerResourcePolicy{ControlledValues: &only},
			want: "cpu cut from 900m to 100m to fit the limit of the container, which stays"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.policy.ContainerName = "c"
			vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=900m memory=50Mi"), testkit.Policy(tc.policy))
			m, err := Config{}.Patch(testkit.Pod("p", testkit.Container("c", "cpu=100m memory=50Mi", "cpu=100m")), vpa, tc.namespace)
			require.NoError(t, err)
			require.Equal(t, []string{"VerticalPodAutoscaler v: container c: " + tc.want}, m.Warnings)
		})
	}
	m, err := Config{}.Patch(testkit.Pod("p", testkit.Container("c", "cpu=100m", "cpu=100m")), testkit.VPA("v", testkit.Recommend("c", "cpu=300m")), limits(corev1.LimitTypePod))
	require.NoError(t, err)
	require.Empty(t, m.Warnings, "nothing is missing")
}

func TestPatchPath_EscapesNames(t *testing.T) {
	require.Equal(t, "/metadata/annotations/vpaCpuStartupBoost~1a~0b", client.PatchPath("metadata", "annotations", "vpaCpuStartupBoost/a~b"))
}

func twoContainers() (*corev1.Pod, *vpav1.VerticalPodAutoscaler) {
	return testkit.Pod("p", testkit.Container("a", "cpu=100m memory=100Mi", "cpu=200m memory=200Mi"), testkit.Container("b", "cpu=100m memory=100Mi", "")),
		testkit.VPA("v", testkit.Recommend("a", "cpu=150m memory=120Mi"), testkit.Recommend("b", "cpu=150m memory=120Mi"))
}

func BenchmarkPatch(b *testing.B) {
	pod, vpa := twoContainers()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Config{}).Patch(pod, vpa, Constraints{}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzPatch(f *testing.F) {
	f.Add(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}}]}}`,
		`{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","maxAllowed":{"cpu":"1"}}]}},"status":{"recommendation":{"containerRecommendations":[{"containerName":"c","target":{"cpu":"3"}}]}}}`)
	f.Fuzz(func(t *testing.T, rawPod, rawVPA string) {
		var pod corev1.Pod
		var vpa vpav1.VerticalPodAutoscaler
		if json.Unmarshal([]byte(rawPod), &pod) != nil || json.Unmarshal([]byte(rawVPA), &vpa) != nil {
			t.Skip()
		}
		m, err := Config{Boost: true}.Patch(&pod, &vpa, Constraints{})
		if err == nil && len(m.Patch) == 0 {
			t.Fatal("the observed containers are always noted")
		}
	})
}

func TestPatch_KeepsDeviceClaims(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "", ""))
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
	m, err := Config{}.Patch(pod, testkit.VPA("v", testkit.Recommend("c", "cpu=1")), Constraints{})
	require.NoError(t, err)
	got := apply(t, pod, m.Patch).Spec.Containers[0].Resources
	require.Equal(t, pod.Spec.Containers[0].Resources.Claims, got.Claims)
	require.Equal(t, "1", got.Requests.Cpu().String())
}

func TestPatch_SkipsPodsWithPodLevelResources(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: testkit.List("cpu=200m")}
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=1"))
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3))}}
	m, err := Config{Boost: true}.Patch(pod, vpa, Constraints{})
	require.NoError(t, err)
	require.False(t, m.Resized, "the API server would refuse containers that need more than their pod has")
	require.Equal(t, pod.Spec, apply(t, pod, m.Patch).Spec)
	require.Equal(t, []string{"VerticalPodAutoscaler v: containers left unchanged, because spec.resources of the pod bounds them"}, m.Warnings)
}

func TestPatch_RequestsOnlyKeepsLimitRangeRatio(t *testing.T) {
	only := vpav1.ContainerControlledValuesRequestsOnly
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=100m"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", ControlledValues: &only}))
	ranges := inNamespace([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: testkit.List("cpu=4")})})
	pod := testkit.Pod("p", testkit.Container("c", "cpu=500m", "cpu=1"))
	m, err := Config{}.Patch(pod, vpa, ranges)
	require.NoError(t, err)
	require.Equal(t, "250m", apply(t, pod, m.Patch).Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Empty(t, m.Warnings)

	vpa.Spec.ResourcePolicy.ContainerPolicies[0].MaxAllowed = testkit.List("cpu=200m")
	m, err = Config{}.Patch(pod, vpa, ranges)
	require.NoError(t, err)
	require.Equal(t, "250m", apply(t, pod, m.Patch).Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Len(t, m.Warnings, 1, "maxAllowed is below what the LimitRange admits")
}

func TestPatch_CapsToQuota(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m memory=100Mi", "cpu=200m"), testkit.Container("d", "cpu=100m", ""))
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=500m memory=300Mi"))
	leaves := func(hard string) Constraints {
		return Constraints{Room: RoomFor(pod, []*corev1.ResourceQuota{{Status: corev1.ResourceQuotaStatus{Hard: testkit.List(hard)}}})}
	}
	m, err := Config{}.Patch(pod, vpa, leaves("cpu=400m limits.memory=1"))
	require.NoError(t, err)
	got := apply(t, pod, m.Patch).Spec.Containers[0].Resources
	require.Equal(t, "300m", got.Requests.Cpu().String(), "the other container keeps its 100m")
	require.Equal(t, "600m", got.Limits.Cpu().String())
	require.Equal(t, "300Mi", got.Requests.Memory().String())
	require.Equal(t, []string{"VerticalPodAutoscaler v: container c: cpu cut from 500m to 300m to fit the ResourceQuotas of namespace default"}, m.Warnings)

	last := testkit.Pod("p", pod.Spec.Containers[1], pod.Spec.Containers[0])
	m, err = Config{}.Patch(last, vpa, quotas(last, "cpu=400m"))
	require.NoError(t, err)
	require.Equal(t, "300m", apply(t, last, m.Patch).Spec.Containers[1].Resources.Requests.Cpu().String(), "also behind a container for which nothing is recommended")
	m, err = Config{}.Patch(last, vpa, quotas(last, "cpu=150m"))
	require.NoError(t, err)
	require.Equal(t, "100m", apply(t, last, m.Patch).Spec.Containers[1].Resources.Requests.Cpu().String())

	m, err = Config{}.Patch(pod, vpa, leaves("cpu=150m"))
	require.NoError(t, err)
	require.Equal(t, "100m", apply(t, pod, m.Patch).Spec.Containers[0].Resources.Requests.Cpu().String(), "never below what its author wrote")
	require.Equal(t, []string{"VerticalPodAutoscaler v: container c: cpu does not fit the ResourceQuotas of namespace default even with 100m; the pod will probably be refused"}, m.Warnings)

	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(10))}}
	m, err = Config{Boost: true}.Patch(pod, vpa, leaves("cpu=2"))
	require.NoError(t, err)
	boosted := apply(t, pod, m.Patch)
	total := boosted.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() + boosted.Spec.Containers[1].Resources.Requests.Cpu().MilliValue()
	require.LessOrEqual(t, total, int64(2000), "a boost must fit, too")
	require.Greater(t, total, int64(1900))
}

func quotas(pod *corev1.Pod, hard string) Constraints {
	return Constraints{Room: RoomFor(pod, []*corev1.ResourceQuota{{Status: corev1.ResourceQuotaStatus{Hard: testkit.List(hard)}}})}
}

func TestPatch_QuotaCapsToLowerBoundWithoutRequest(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=500m memory=300Mi"))
	vpa.Status.Recommendation.ContainerRecommendations[0].LowerBound = testkit.List("cpu=200m")
	for _, own := range []string{"", "cpu=0"} {
		pod := testkit.Pod("p", testkit.Container("c", own, ""))
		for _, tc := range []struct{ name, hard, want string }{
			{name: "quota above the lower bound", hard: "cpu=300m", want: "300m"},
			{name: "quota below the lower bound", hard: "cpu=100m", want: "200m"},
		} {
			t.Run("request "+strconv.Quote(own)+", "+tc.name, func(t *testing.T) {
				m, err := Config{}.Patch(pod, vpa, quotas(pod, tc.hard))
				require.NoError(t, err)
				got := apply(t, pod, m.Patch).Spec.Containers[0].Resources
				require.Equal(t, tc.want, got.Requests.Cpu().String())
				require.Equal(t, "300Mi", got.Requests.Memory().String())
				require.Len(t, m.Warnings, 1)
			})
		}
	}
}

func TestPatch_QuotaCapsBoostToOwnRequest(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	vpa := testkit.VPA("v") // no recommendation yet
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(10))}}
	for _, tc := range []struct{ name, hard, want string }{
		{name: "room for the boost", hard: "cpu=2", want: "1"},
		{name: "room for a part of the boost", hard: "cpu=400m", want: "400m"},
		{name: "no room", hard: "cpu=50m", want: "100m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Config{Boost: true}.Patch(pod, vpa, quotas(pod, tc.hard))
			require.NoError(t, err)
			got := apply(t, pod, m.Patch)
			require.Equal(t, tc.want, got.Spec.Containers[0].Resources.Requests.Cpu().String())
			original := got.Annotations["vpaCpuStartupBoost/c"] // restored by the updater
			require.JSONEq(t, `{"requests":{"cpu":"100m"},"limits":{}}`, original)
		})
	}
}

func TestPatch_AnnotatesEachCapOnce(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "", ""))
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=100m memory=100Mi"),
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", MinAllowed: testkit.List("cpu=200m"), MaxAllowed: testkit.List("memory=50Mi")}))
	m, err := Config{}.Patch(pod, vpa, Constraints{})
	require.NoError(t, err)
	require.Contains(t, m.Patch, client.PatchAdd("/spec/containers/0/resources", map[string]string{}), "it has none that requests could be added to")
	require.Equal(t, "Pod resources updated by v: container 0: cpu capped to minAllowed, memory capped to maxAllowed, cpu request, memory request",
		apply(t, pod, m.Patch).Annotations[convert.UpdatesAnnotation])
	require.Equal(t, []string{"VerticalPodAutoscaler v: container c: memory cut from 100Mi to 50Mi to fit maxAllowed"}, m.Warnings)
}

func TestPatch_AllocatesLittle(t *testing.T) {
	pod, vpa := twoContainers()
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := (Config{}).Patch(pod, vpa, Constraints{}); err != nil {
			t.Fatal(err)
		}
	})
	require.LessOrEqual(t, allocations, 60.)
}
