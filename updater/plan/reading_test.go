package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

var noon = metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))

func newVPA(v *vpav1.VerticalPodAutoscaler) *snapshot.VPA {
	return new(snapshot.NewVPA(v, &convert.LimitRanges{}))
}

func quantities(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func pod(containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u"}}
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: quantities("100m", "100Mi")}})
	}
	return p
}

func vpa(containers ...string) *vpav1.VerticalPodAutoscaler {
	v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "v"}}
	v.Status.Recommendation = &vpav1.RecommendedPodResources{}
	for _, name := range containers {
		v.Status.Recommendation.ContainerRecommendations = append(v.Status.Recommendation.ContainerRecommendations,
			vpav1.RecommendedContainerResources{ContainerName: name, Target: quantities("200m", "200Mi")})
	}
	return v
}

func TestVPAPod_DuringResize(t *testing.T) {
	p := pod("app", "side")
	p.Annotations = map[string]string{convert.ObservedAnnotation: "app"}
	p.Spec.Containers[0].Resources.Requests = quantities("200m", "200Mi")
	p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}, {ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &noon, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", Resources: &corev1.ResourceRequirements{Requests: quantities("100m", "100Mi")},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", StartedAt: noon, FinishedAt: noon}},
	}}}
	off := vpav1.ContainerScalingModeOff
	v := vpa("app", "side")
	v.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "side", Mode: &off}}}
	got := newVPA(v).Pod(p)

	require.Equal(t, noon.Time, got.Started)
	app, side := got.Containers[0], got.Containers[1]
	require.Equal(t, resources.NewList(100, 100<<20), app.Actual.Requests, "what the status says is in force")
	require.Equal(t, resources.NewList(200, 200<<20), app.Spec.Requests)
	require.Equal(t, resources.NewList(200, 200<<20), app.Target.Requests)
	require.Equal(t, [resources.Kinds]bool{resources.Memory: true}, app.Restarts)
	require.Equal(t, disruption.OOM{Started: noon.Time, Ended: noon.Time}, app.OOM)
	require.True(t, app.Observed)
	require.False(t, side.Observed)
	require.True(t, side.Off)
	require.Equal(t, policy.ContainerTarget{Name: "side"}, side.Target)
}

// Pod traits for quotas must survive the trimming of cached pods.
func TestVPAPod_ReadsQuotaTraits(t *testing.T) {
	read := func(change func(*corev1.Pod)) disruption.Pod {
		p := pod("app")
		change(p)
		trimmed, err := client.Trim(p)
		require.NoError(t, err)
		return newVPA(vpa("app")).Pod(trimmed.(*corev1.Pod))
	}
	plain := read(func(*corev1.Pod) {})
	require.Equal(t, disruption.PodTraits{}, plain.Traits)
	require.False(t, plain.SizedByVPA)
	require.Equal(t, disruption.PodTraits{Terminating: true, Class: "high"}, read(func(p *corev1.Pod) {
		p.Spec.ActiveDeadlineSeconds, p.Spec.PriorityClassName = new(int64), "high"
	}).Traits)
	for _, annotation := range []string{convert.UpdatesAnnotation, convert.ResizedAnnotation} {
		require.True(t, read(func(p *corev1.Pod) { p.Annotations = map[string]string{annotation: "x"} }).SizedByVPA, annotation)
	}
}

func TestVPACore_ReadsUpdatePolicy(t *testing.T) {
	v := vpa()
	require.Equal(t, disruption.VPA{Namespace: "shop", Name: "v", Mode: disruption.Recreate}, newVPA(v).Core(true))

	v.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{
		UpdateMode: new(vpav1.UpdateModeInPlace), MinReplicas: new(int32(3)), EvictAfterOOMSeconds: new(int32(30)),
		EvictionRequirements: []*vpav1.EvictionRequirement{nil, {Resources: []corev1.ResourceName{"memory", "gpu"}, ChangeRequirement: vpav1.TargetHigherThanRequests}},
	}
	want := disruption.VPA{Namespace: "shop", Name: "v", Mode: disruption.InPlace, MinReplicas: 3,
		Requirements: []disruption.Requirement{{Kinds: [resources.Kinds]bool{resources.Memory: true}, Higher: true}}}
	require.Equal(t, want, newVPA(v).Core(false))
	want.QuickOOMTime = 30 * time.Second
	require.Equal(t, want, newVPA(v).Core(true))
	for text, want := range map[vpav1.UpdateMode]disruption.Mode{"Auto": disruption.Recreate, "Initial": disruption.Initial, "Off": disruption.Off,
		"InPlaceOrRecreate": disruption.InPlaceOrRecreate, "Future": disruption.Off} {
		require.Equal(t, want, snapshot.ModeOf(&vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &text}}}))
	}
}

func BenchmarkPod(b *testing.B) {
	p := pod("app")
	p.Annotations = map[string]string{convert.ObservedAnnotation: "app"}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &noon, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", Resources: &corev1.ResourceRequirements{Requests: quantities("200m", "200Mi")}}}}
	r := newVPA(vpa("app"))
	b.ReportAllocs()
	for b.Loop() {
		r.Pod(p)
	}
}

func TestVPAPod_SkipsPodLevelResources(t *testing.T) {
	p := pod("app")
	require.False(t, newVPA(vpa("app")).Pod(p).PodLevel)
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("1", "1Gi")}
	trimmed, err := client.Trim(p)
	require.NoError(t, err)
	v := newVPA(vpa("app"))
	got := v.Pod(trimmed.(*corev1.Pod))
	core := v.Core(false)
	require.Equal(t, reason.PodLevelResources, disruption.Assess(&core, &got, disruption.Config{}, noon.Time).Reason,
		"a resize would be refused, and so would the pod that comes after an eviction")
}

func TestAssess_NoRecommendation(t *testing.T) {
	v := vpa()
	v.Status.Recommendation = nil
	r := newVPA(v)
	core, p := r.Core(false), r.Pod(pod("app"))
	require.Equal(t, reason.NoRecommendation, disruption.Assess(&core, &p, disruption.Config{}, noon.Time).Reason)
}

func TestReader_FollowsChanges(t *testing.T) {
	r := newReader(t, targeting("v", "a", "apps/v1", "StatefulSet", "web"), controlled("a", "web-0", "apps/v1", "StatefulSet", "web"),
		&appsv1.StatefulSet{ObjectMeta: meta("a", "web"), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: new(int32(2))}})
	target := func() resources.Amount {
		s := read(t, r)
		require.Len(t, s.VPAs, 1)
		require.Len(t, s.VPAs[0].Pods, 1)
		return s.VPAs[0].Pods[0].Containers[0].Target.Requests.Value(resources.CPU)
	}
	require.EqualValues(t, 200, target())
	require.EqualValues(t, 200, target())
	v, err := r.VPAs.VerticalPodAutoscalers("a").Get("v")
	require.NoError(t, err)
	changed := v.DeepCopy()
	changed.Status.Recommendation.ContainerRecommendations[0].Target = quantities("300m", "200Mi")
	require.NoError(t, r.VPAs.(vpaStore).put(changed))
	require.EqualValues(t, 300, target())
	require.NoError(t, r.VPAs.(vpaStore).remove(changed))
	require.Empty(t, read(t, r).VPAs)
	require.NoError(t, r.VPAs.(vpaStore).put(changed))
	require.EqualValues(t, 300, target())
	limits := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, limits.Add(&corev1.LimitRange{ObjectMeta: meta("a", "least"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Min: quantities("400m", "1Mi"),
	}}}}))
	r.LimitRanges = corelisters.NewLimitRangeLister(limits)
	require.EqualValues(t, 400, target())
}
