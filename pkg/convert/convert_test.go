package convert_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/testkit"
)

func TestAmount_RoundsUpAndSaturates(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind resources.Kind
		text string
		want resources.Amount
	}{
		{name: "millicores", kind: resources.CPU, text: "250m", want: 250},
		{name: "whole cores", kind: resources.CPU, text: "2", want: 2000},
		{name: "fraction of a millicore", kind: resources.CPU, text: "1500u", want: 2},
		{name: "zero CPU", kind: resources.CPU, text: "0", want: 0},
		{name: "negative CPU", kind: resources.CPU, text: "-1", want: 0},
		{name: "large CPU", kind: resources.CPU, text: "100G", want: 1e14},
		{name: "CPU above the maximum", kind: resources.CPU, text: "10E", want: math.MaxInt64},
		{name: "CPU with an exponent above the maximum", kind: resources.CPU, text: "1e30", want: math.MaxInt64},
		{name: "binary memory", kind: resources.Memory, text: "200Mi", want: 200 << 20},
		{name: "decimal memory", kind: resources.Memory, text: "262144k", want: 262144000},
		{name: "fraction of a byte", kind: resources.Memory, text: "1500m", want: 2},
		{name: "large memory", kind: resources.Memory, text: "7E", want: 7e18},
		{name: "memory above the maximum", kind: resources.Memory, text: "100E", want: math.MaxInt64},
		{name: "negative memory", kind: resources.Memory, text: "-5Mi", want: 0},
		{name: "large memory with a fraction of a byte", kind: resources.Memory, text: "1320702443520m", want: 1320702444},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, convert.Amount(tc.kind, resource.MustParse(tc.text)))
		})
	}
}

func TestResources_IgnoresOtherResources(t *testing.T) {
	require.Equal(t, resources.NewList(100, 1), convert.Resources(testkit.List("cpu=100m memory=1 example.com/gpu=2")))
	require.True(t, convert.Resources(nil).Empty())
	require.Nil(t, convert.FormatLike(resources.List{}))
}

func text(list corev1.ResourceList) map[string]string {
	if list == nil {
		return nil
	}
	texts := map[string]string{}
	for name, q := range list {
		texts[string(name)] = q.String()
	}
	return texts
}

func TestFormat_RoundsToSteps(t *testing.T) {
	for _, tc := range []struct {
		name        string
		format      convert.Format
		cpu, memory resources.Amount
		want        map[string]string
	}{
		{
			name: "steps of one unit", format: convert.Format{CPUStep: 1, MemoryStep: 1}, cpu: 11, memory: 262144000,
			want: map[string]string{"cpu": "11m", "memory": "250Mi"},
		},
		{
			name: "steps of 100m and 1Mi", format: convert.Format{CPUStep: 100, MemoryStep: 1 << 20}, cpu: 101, memory: 262144001,
			want: map[string]string{"cpu": "200m", "memory": "251Mi"},
		},
		{
			name: "zero amounts", format: convert.Format{CPUStep: 100, MemoryStep: 1 << 20, HumanizeMemory: true}, cpu: 0, memory: 0,
			want: map[string]string{"cpu": "0", "memory": "0"},
		},
		{
			name: "humanized memory with a fraction", format: convert.Format{HumanizeMemory: true}, cpu: 1500, memory: 1320702443,
			want: map[string]string{"cpu": "1500m", "memory": "1320702443520m"},
		},
		{
			name: "large amounts without steps", format: convert.Format{}, cpu: 1e14, memory: 1e14,
			want: map[string]string{"cpu": "100G", "memory": "97656250000Ki"},
		},
		{
			name: "negative CPU step", format: convert.Format{CPUStep: -1, HumanizeMemory: true}, cpu: 37, memory: 5000,
			want: map[string]string{"cpu": "37m", "memory": "4997120m"},
		},
		{
			name: "humanized memory below 1Ki", format: convert.Format{HumanizeMemory: true}, cpu: 1, memory: 1023,
			want: map[string]string{"cpu": "1m", "memory": "1023"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, text(tc.format.List(resources.NewList(tc.cpu, tc.memory))))
		})
	}
}

func TestFormatLike_KeepsWrittenForm(t *testing.T) {
	got := convert.FormatLike(resources.NewList(1000, 262144000), testkit.List("cpu=5"), testkit.List("memory=262144k"))
	require.Equal(t, map[string]string{"cpu": "1", "memory": "262144k"}, text(got), "the same value: as written")
	got = convert.FormatLike(resources.NewList(1000, 131072000), nil, testkit.List("memory=262144k"))
	require.Equal(t, map[string]string{"cpu": "1", "memory": "131072k"}, text(got), "another value: the same number format")
	got = convert.FormatLike(resources.NewList(1, 131072000))
	require.Equal(t, map[string]string{"cpu": "1m", "memory": "125Mi"}, text(got))
}

func sizesOf(f policy.ContainerTarget, current corev1.ResourceRequirements, vpa *vpav1.VerticalPodAutoscaler, ranges convert.LimitRanges) corev1.ResourceRequirements {
	p := convert.NewPrinter(vpa, ranges)
	return p.Sizes(f, current)
}

func TestPrinterSizes_FollowFormatOfSource(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=250m memory=262144k"),
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "*", MaxAllowed: testkit.List("memory=300M")}))
	current := testkit.Container("c", "cpu=100m memory=100Mi", "cpu=300m memory=200Mi").Resources
	ranges := convert.Ranges([]*corev1.LimitRange{testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("memory=2G")})})
	size := func(requests, limits resources.List) (r, l map[string]string) {
		s := sizesOf(policy.ContainerTarget{Name: "c", Requests: requests, Limits: limits}, current, vpa, ranges)
		return text(s.Requests), text(s.Limits)
	}
	r, l := size(resources.NewList(250, 262144000), resources.NewList(750, 524288000))
	require.Equal(t, map[string]string{"cpu": "250m", "memory": "262144k"}, r)
	require.Equal(t, map[string]string{"cpu": "750m", "memory": "500Mi"}, l, "in the format of the limit it came from")
	r, l = size(resources.NewList(250, 300e6), resources.NewList(250, 300e6))
	require.Equal(t, map[string]string{"cpu": "250m", "memory": "300M"}, r)
	require.Equal(t, r, l, "a limit equal to the request is written like it")
	r, _ = size(resources.NewList(250, 2e9), resources.List{})
	require.Equal(t, "2G", r["memory"])
	r, l = size(resources.List{}, resources.List{})
	require.Nil(t, r)
	require.Nil(t, l)
}

// Among several LimitRanges, the effective quantity determines the format.
func TestPrinterSizes_FollowFormatOfEffectiveLimitRange(t *testing.T) {
	item := func(least, most, standard string) *corev1.LimitRange {
		return testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: testkit.List(least), Max: testkit.List(most), Default: testkit.List(standard)})
	}
	ranges := convert.Ranges([]*corev1.LimitRange{item("memory=1Ki", "memory=8Gi", "memory=4Gi"), item("memory=2e3", "memory=4G", "memory=1G"), item("", "memory=4000M", "cpu=2")})
	sizes := func(request, limit resources.Amount) (string, string) {
		f := policy.ContainerTarget{Name: "c", Requests: resources.List{}.With(resources.Memory, request), Limits: resources.List{}.With(resources.Memory, limit)}
		s := sizesOf(f, corev1.ResourceRequirements{}, testkit.VPA("v"), ranges)
		return s.Requests.Memory().String(), s.Limits.Memory().String()
	}
	request, limit := sizes(2000, 1e9)
	require.Equal(t, "2e3", request)
	require.Equal(t, "1G", limit)
	request, _ = sizes(4e9, 5e9)
	require.Equal(t, "4G", request, "the first of equal ones")
}

func TestPrinterSizes_FractionsOfByteKeepGuaranteedClass(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "memory=1320702443520m"))
	current := testkit.Container("c", "memory=1Gi", "memory=1Gi").Resources
	fitted := policy.Fit(policy.Pod{Containers: []policy.Container{{Name: "c", Requests: convert.Resources(current.Requests), Limits: convert.Resources(current.Limits)}}},
		convert.Recommendation(vpa.Status.Recommendation), convert.Rules(vpa), policy.Ranges{}).Containers[0]
	sizes := sizesOf(fitted, current, vpa, convert.LimitRanges{})
	require.Zero(t, sizes.Requests.Memory().Cmp(*sizes.Limits.Memory()), "otherwise the pod would lose the Guaranteed class")
}

func TestPod_ReadsResourcesFromStatus(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("a", "cpu=1", ""), testkit.Container("b", "cpu=1", "cpu=2"), testkit.Container("c", "cpu=1", ""))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "a", Resources: &corev1.ResourceRequirements{Requests: testkit.List("cpu=300m"), Limits: testkit.List("cpu=400m")}},
		{Name: "b", Resources: &corev1.ResourceRequirements{}},
		{Name: "c"},
	}
	got := convert.Pod(pod).Containers
	require.Equal(t, resources.Amount(300), got[0].Requests.Value(resources.CPU))
	require.Equal(t, resources.Amount(400), got[0].Limits.Value(resources.CPU))
	require.True(t, got[1].Requests.Empty() && got[1].Limits.Empty(), "an empty status counts")
	require.Equal(t, resources.Amount(1000), got[2].Requests.Value(resources.CPU))
	require.Equal(t, resources.Amount(1000), convert.NewPod(pod).Containers[0].Requests.Value(resources.CPU), "a new pod has no status worth reading")
}

func TestRules_ReadContainerPolicies(t *testing.T) {
	off, only := vpav1.ContainerScalingModeOff, vpav1.ContainerControlledValuesRequestsOnly
	memory, nothing := []corev1.ResourceName{"memory"}, []corev1.ResourceName{}
	factor, seconds := int32(3), int32(20)
	vpa := testkit.VPA("v",
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "off", Mode: &off}),
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "only", ControlledValues: &only, ControlledResources: &memory, MinAllowed: testkit.List("cpu=1")}),
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "none", ControlledResources: &nothing, StartupBoost: &vpav1.StartupBoost{}}),
	)
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Factor: &factor, DurationSeconds: &seconds}}
	rules := convert.Rules(vpa)
	require.True(t, rules.For("off").Off)
	require.True(t, rules.For("only").RequestsOnly)
	require.Equal(t, [resources.Kinds]bool{false, true}, rules.For("only").Controlled)
	require.Equal(t, resources.Amount(1000), rules.For("only").Min.Value(resources.CPU))
	require.Equal(t, [resources.Kinds]bool{}, rules.For("none").Controlled, "an empty list controls nothing")
	require.Equal(t, [resources.Kinds]bool{true, true}, rules.For("other").Controlled, "an absent list controls both")
	require.Equal(t, policy.Boost{Type: policy.BoostFactor, Factor: 3, Duration: 20 * time.Second}, rules.For("none").Boost, "a boost without cpu counts as absent")
	require.True(t, convert.HasBoost(vpa))
	require.Equal(t, 20*time.Second, convert.BoostDuration(vpa, "none"), "a boost without cpu counts as absent")
	own := vpav1.GenericStartupBoost{Factor: &factor, DurationSeconds: new(int32(90))}
	vpa.Spec.ResourcePolicy.ContainerPolicies[0].StartupBoost = &vpav1.StartupBoost{CPU: &own}
	require.Equal(t, 90*time.Second, convert.BoostDuration(vpa, "off"))
	require.Zero(t, convert.BoostDuration(testkit.VPA("v"), "off"))
	require.False(t, convert.HasBoost(testkit.VPA("v", testkit.Policy(vpav1.ContainerResourcePolicy{StartupBoost: &vpav1.StartupBoost{}}))))
}

func TestMode_DefaultsToRecreate(t *testing.T) {
	require.Equal(t, vpav1.UpdateModeRecreate, convert.Mode(testkit.VPA("v")))
	require.Equal(t, vpav1.UpdateModeRecreate, convert.Mode(testkit.VPA("v", testkit.Mode(""))))
	require.Equal(t, vpav1.UpdateModeInPlace, convert.Mode(testkit.VPA("v", testkit.Mode("InPlace"))))
}

func TestContainerPolicy_AgreesWithRules(t *testing.T) {
	vpa := testkit.VPA("v")
	for i, name := range []string{"*", "a", "a", "*"} {
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: name, MinAllowed: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(i+1), resource.DecimalSI)}})(vpa)
	}
	for _, name := range []string{"a", "b"} {
		require.Equal(t, convert.Rules(vpa).For(name).Min, convert.Resources(convert.ContainerPolicy(vpa, name).MinAllowed), name)
	}
	require.Nil(t, convert.ContainerPolicy(testkit.VPA("v"), "a"))
}

func TestRanges_MergeLimitRanges(t *testing.T) {
	container := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=1"), Default: testkit.List("cpu=500m")}
	other := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=1500m memory=1Gi"), Min: testkit.List("cpu=10m"), Default: testkit.List("cpu=300m")}
	pod := corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: testkit.List("cpu=4"), Default: testkit.List("cpu=1")}
	volume := corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: testkit.List("cpu=1m")}
	got := convert.Ranges([]*corev1.LimitRange{testkit.LimitRange("a", container, pod), testkit.LimitRange("b", other, volume)})
	require.Equal(t, resources.NewList(1000, 1<<30), got.Container.Max)
	require.Equal(t, resources.Amount(10), got.Container.Min.Value(resources.CPU))
	require.Equal(t, resources.Amount(300), got.Container.Default.Value(resources.CPU))
	require.Equal(t, resources.Amount(4000), got.Pod.Max.Value(resources.CPU))
	require.True(t, got.Pod.Default.Empty())
	back := convert.Ranges([]*corev1.LimitRange{testkit.LimitRange("b", other, volume), testkit.LimitRange("a", container, pod)})
	require.Equal(t, got.Ranges, back.Ranges, "the order does not matter")
}

func TestParseObserved_RoundTrips(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("a", "", ""), testkit.Container("b", "", ""))
	_, ok := convert.ParseObserved(pod)
	require.False(t, ok)
	for value, want := range map[string][]string{convert.FormatObserved(pod): {"a", "b"}, "": nil} {
		pod.Annotations = map[string]string{convert.ObservedAnnotation: value}
		got, ok := convert.ParseObserved(pod)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	pod.Annotations[convert.ObservedAnnotation] = "a,b"
	_, ok = convert.ParseObserved(pod)
	require.False(t, ok, "no list of container names: as if it were absent")
}

func TestBoostAnnotation_RoundTrips(t *testing.T) {
	key, value := convert.BoostAnnotation(testkit.Container("c", "cpu=100m memory=100Mi example.com/gpu=1", ""))
	require.Equal(t, "vpaCpuStartupBoost/c", key)
	require.Equal(t, `{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{}}`, value)
	pod := testkit.Pod("p")
	pod.Annotations = map[string]string{key: value, "other": "x"}
	got, err := convert.BoostedContainers(pod)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"cpu": "100m", "memory": "100Mi"}, text(got["c"].Requests))

	pod.Annotations[key] = "{"
	got, err = convert.BoostedContainers(pod)
	require.ErrorContains(t, err, "pod default/p: annotation vpaCpuStartupBoost/c")
	require.Contains(t, got, "c", "it still counts as boosted")
}

func TestRecommendation_FirstEntryOfNameWins(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=1"), testkit.Recommend("c", "cpu=2"))
	got := convert.Recommendation(vpa.Status.Recommendation)
	require.Equal(t, resources.Amount(1000), got["c"].Target.Value(resources.CPU), "the first entry of a name counts")
	require.True(t, got["c"].Lower.Empty())
	require.Empty(t, convert.Recommendation(nil))
}
