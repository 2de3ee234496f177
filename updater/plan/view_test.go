package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// panickingRanges lists LimitRanges and panics for namespace "cursed".
type panickingRanges struct{ corelisters.LimitRangeLister }

func (r panickingRanges) LimitRanges(namespace string) corelisters.LimitRangeNamespaceLister {
	if namespace == "cursed" {
		panic("a bug")
	}
	return r.LimitRangeLister.LimitRanges(namespace)
}

type vpaStore struct {
	vpalisters.VerticalPodAutoscalerLister
	store cache.Indexer
}

func (s vpaStore) put(v *vpav1.VerticalPodAutoscaler) error    { return s.store.Update(v) }
func (s vpaStore) remove(v *vpav1.VerticalPodAutoscaler) error { return s.store.Delete(v) }

// newReader fills caches with the objects. The custom workload "Room/blue" has four replicas.
func newReader(t *testing.T, objects ...runtime.Object) *snapshot.Reader {
	t.Helper()
	vpas := cache.NewIndexer(cache.MetaNamespaceKeyFunc, target.Indexers())
	var core []runtime.Object
	for _, o := range objects {
		if v, ok := o.(*vpav1.VerticalPodAutoscaler); ok {
			require.NoError(t, vpas.Add(v))
		} else {
			core = append(core, o)
		}
	}
	factory := client.Factory(fake.NewClientset(core...), "", time.Hour, "")
	scale := func(_ context.Context, _ string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
		if kind.Kind != "Room" || name != "blue" {
			return nil, errors.New("no such scale")
		}
		return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 4}, Status: autoscalingv1.ScaleStatus{Selector: "app=web"}}, nil
	}
	r := &snapshot.Reader{
		VPAs: vpaStore{vpalisters.NewVerticalPodAutoscalerLister(vpas), vpas}, VPAIndex: vpas, Pods: factory.Core().V1().Pods().Lister(),
		LimitRanges: panickingRanges{factory.Core().V1().LimitRanges().Lister()}, Targets: target.New(factory, scale), Namespaces: flags.Namespaces{IgnoredNamespaces: "ignored"},
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	factory.WaitForCacheSync(ctx.Done())
	return r
}

func controlled(namespace, name, apiVersion, kind, owner string) *corev1.Pod {
	p := pod("app")
	p.Namespace, p.Name, p.UID, p.Labels = namespace, name, types.UID(namespace+name), map[string]string{"app": "web"}
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "not-a-controller"}, // no controller field
		{APIVersion: apiVersion, Kind: kind, Name: owner, Controller: new(true)},
	}
	return p
}

func targeting(name, namespace, apiVersion, kind, target string) *vpav1.VerticalPodAutoscaler {
	v := vpa("app")
	v.Name, v.Namespace = name, namespace
	v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: target}
	return v
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

type result struct {
	snapshot.View

	vpas []snapshot.VPA
	pods snapshot.Pods
}

func views(ctx context.Context, r *snapshot.Reader) (s result, err error) {
	if s.vpas, err = r.ReadVPAs(ctx); err != nil {
		return s, err
	}
	resolver := &policies.Resolver{VPAs: r.VPAs}
	effective := resolver.Resolve(ctx, s.vpas, time.Now())
	if s.pods, err = r.ReadPods(ctx, s.vpas, resolver.Scopes(s.vpas, effective)); err != nil {
		return s, err
	}
	s.View = NewView(ctx, s.vpas, effective, &s.pods, r.PerVPAConfig)
	s.Skipped = append(s.pods.Skipped, s.Skipped...)
	return s, nil
}

func read(t *testing.T, r *snapshot.Reader) result {
	t.Helper()
	s, err := views(t.Context(), r)
	require.NoError(t, err)
	return s
}

func TestReader_SharesEqualContainers(t *testing.T) {
	objects := []runtime.Object{
		&appsv1.ReplicaSet{ObjectMeta: meta("a", "web"), Spec: appsv1.ReplicaSetSpec{Selector: selector()}},
		targeting("v", "a", "apps/v1", "ReplicaSet", "web"),
	}
	for i, change := range []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(*corev1.Pod) {},
		func(p *corev1.Pod) { p.Annotations = map[string]string{convert.ObservedAnnotation: "other"} },
		func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("7")
		},
		func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.Unix(100, 0)}
		},
		func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init"}} },
	} {
		p := controlled("a", fmt.Sprint("pod-", i), "apps/v1", "ReplicaSet", "web")
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Ready: true}}
		change(p)
		objects = append(objects, p)
	}
	pods := read(t, newReader(t, objects...)).VPAs[0].Pods
	require.Len(t, pods, 6)
	require.Same(t, &pods[0].Containers[0], &pods[1].Containers[0])
	require.True(t, pods[1].Containers[0].Observed)
	require.False(t, pods[2].Containers[0].Observed)
	require.Equal(t, resources.Amount(7000), pods[3].Containers[0].Spec.Requests.Value(resources.CPU))
	require.Equal(t, int64(100), pods[4].Containers[0].OOM.Ended.Unix())
	require.Zero(t, pods[3].Containers[0].OOM)
	require.Len(t, pods[5].FixedContainers, 1)
	require.Empty(t, pods[4].FixedContainers)
}

func TestReader_ReadsReplicasOfOwners(t *testing.T) {
	replicas := int32(5)
	r := newReader(t,
		&appsv1.ReplicaSet{ObjectMeta: meta("a", "web"), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector()}},
		controlled("a", "rs", "apps/v1", "ReplicaSet", "web"), targeting("v", "a", "apps/v1", "ReplicaSet", "web"),
		&appsv1.DaemonSet{ObjectMeta: meta("b", "web"), Spec: appsv1.DaemonSetSpec{Selector: selector()}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 7, NumberReady: 1}},
		controlled("b", "ds", "apps/v1", "DaemonSet", "web"), targeting("v", "b", "apps/v1", "DaemonSet", "web"),
		&batchv1.Job{ObjectMeta: meta("c", "web"), Spec: batchv1.JobSpec{Selector: selector()}},
		controlled("c", "job", "batch/v1", "Job", "web"), targeting("v", "c", "batch/v1", "Job", "web"),
		controlled("d", "room", "example.com/v1", "Room", "blue"), targeting("v", "d", "example.com/v1", "Room", "blue"),
		&appsv1.StatefulSet{ObjectMeta: meta("e", "web"), Spec: appsv1.StatefulSetSpec{Selector: selector()}},
		controlled("e", "sts", "apps/v1", "StatefulSet", "web"), targeting("v", "e", "apps/v1", "StatefulSet", "web"),
	)
	var got []disruption.Group
	for _, v := range read(t, r).VPAs {
		require.Len(t, v.Pods, 1, v.Namespace)
		got = append(got, v.Groups...)
	}
	require.Equal(t, []disruption.Group{
		{Replicas: 5, Key: "a/ReplicaSet web"}, {Replicas: 7, Key: "b/DaemonSet web"}, {Replicas: disruption.Unknown, Key: "c/Job web"},
		{Replicas: 4, Key: "d/Room.example.com blue"}, {Replicas: 0, Key: "e/StatefulSet web"},
	}, got)
}

// The scale of a custom workload is cached from a time with 4 pods.
func TestReader_StaleScaleKeepsLivePodCount(t *testing.T) {
	objects := []runtime.Object{targeting("v", "d", "example.com/v1", "Room", "blue")}
	for i := range 10 {
		objects = append(objects, controlled("d", fmt.Sprintf("room-%d", i), "example.com/v1", "Room", "blue"))
	}
	require.Equal(t, []disruption.Group{{Replicas: 10, Key: "d/Room.example.com blue"}}, read(t, newReader(t, objects...)).VPAs[0].Groups)
}

func TestReader_ExcludesUncontrolledPods(t *testing.T) {
	off := targeting("off", "a", "apps/v1", "StatefulSet", "web")
	off.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) // older, but without effect
	off.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	going := controlled("a", "going", "apps/v1", "StatefulSet", "web")
	going.DeletionTimestamp, going.Finalizers = &noon, []string{"example.com/f"}
	alone := controlled("a", "alone", "apps/v1", "StatefulSet", "web")
	alone.OwnerReferences = alone.OwnerReferences[:1]
	other := controlled("a", "other", "apps/v1", "StatefulSet", "web")
	other.Labels = nil
	objects := []runtime.Object{off, going, alone, other,
		targeting("on", "a", "apps/v1", "StatefulSet", "web"), targeting("lost", "a", "apps/v1", "StatefulSet", "gone"),
		&vpav1.VerticalPodAutoscaler{ObjectMeta: meta("a", "without-target")}}
	for _, namespace := range []string{"a", "ignored", "cursed"} {
		objects = append(objects, controlled(namespace, "web-0", "apps/v1", "StatefulSet", "web"),
			&appsv1.StatefulSet{ObjectMeta: meta(namespace, "web"), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: new(int32(2))}})
		if namespace != "a" {
			objects = append(objects, targeting("on", namespace, "apps/v1", "StatefulSet", "web"))
		}
	}
	s := read(t, newReader(t, objects...))
	require.Len(t, s.VPAs, 1, "the VPA of the cursed namespace does not stop the others")
	require.Equal(t, "on", s.VPAs[0].Name)
	require.Len(t, s.VPAs[0].Pods, 1)
	require.Equal(t, "on", s.vpas[s.Index[0]].Object.Name)
	require.Equal(t, "web-0", s.States[0][0].Name)
	require.True(t, slices.ContainsFunc(s.vpas, func(v snapshot.VPA) bool { return v.Object.Name == "off" }))
}

// Pods outside all plans have a skip reason. Pods that no VPA changes are only counted.
func TestReader_ReportsSkippedPods(t *testing.T) {
	unknown := targeting("unknown", "a", "apps/v1", "StatefulSet", "unknown")
	torn := targeting("torn", "b", "apps/v1", "StatefulSet", "torn")
	torn.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec.resourcePolicy: quantity"}
	off := targeting("off", "b", "apps/v1", "StatefulSet", "off")
	off.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInitial)}
	lonely := controlled("b", "lonely", "apps/v1", "StatefulSet", "web")
	lonely.OwnerReferences = nil
	going := controlled("b", "going", "apps/v1", "StatefulSet", "other")
	going.DeletionTimestamp, going.Finalizers = &noon, []string{"example.com/f"}
	objects := []runtime.Object{unknown, targeting("second", "a", "apps/v1", "StatefulSet", "unknown"), torn, off, lonely, going,
		&appsv1.StatefulSet{ObjectMeta: meta("a", "unknown")},
		controlled("a", "unknown-0", "apps/v1", "StatefulSet", "unknown"),
		controlled("a", "orphan", "apps/v1", "ReplicaSet", "gone"),
		controlled("b", "torn-0", "apps/v1", "StatefulSet", "torn"),
		controlled("b", "off-0", "apps/v1", "StatefulSet", "off"),
		controlled("b", "other-0", "apps/v1", "StatefulSet", "other"),
		controlled("c", "unserved", "apps/v1", "StatefulSet", "web"),
	}
	for _, name := range []string{"torn", "off", "other"} {
		objects = append(objects, &appsv1.StatefulSet{ObjectMeta: meta("b", name), Spec: appsv1.StatefulSetSpec{Selector: selector()}})
	}
	r := newReader(t, objects...)
	for pass := range 2 {
		s := read(t, r)
		require.Equal(t, []disruption.Skip{
			{Subject: disruption.Subject{Namespace: "a", Pod: "orphan", UID: "aorphan"}, Reason: reason.OwnerUnreadable},
			{Subject: disruption.Subject{Namespace: "a", VPA: "second", Pod: "unknown-0", UID: "aunknown-0"}, Reason: reason.TargetUnreadable},
			{Subject: disruption.Subject{Namespace: "b", VPA: "torn", Pod: "torn-0", UID: "btorn-0"}, Reason: reason.VPAUnreadable},
		}, s.Skipped, pass)
		require.Equal(t, 4, s.pods.NoVPA, "%d: lonely, off, other and unserved", pass)
		require.Empty(t, s.VPAs, pass)
	}
	require.NoError(t, r.VPAs.(vpaStore).remove(torn))
	s := read(t, r)
	require.Equal(t, 5, s.pods.NoVPA, "no VPA is left in this namespace that changes pods")
}

// Pods may have any label, so even a selector for an absent label does not match them.
func TestRead_LogsWorkloadsOfPodsWithTooManyLabels(t *testing.T) {
	large := controlled("a", "web-0", "apps/v1", "StatefulSet", "web")
	for i := range 100 {
		large.Labels[fmt.Sprint("label-", i)] = "x"
	}
	second := large.DeepCopy()
	second.Name, second.UID = "web-1", "aweb-1"
	absent := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "label-1", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	r := newReader(t, targeting("on", "a", "apps/v1", "StatefulSet", "web"), large, second,
		&appsv1.StatefulSet{ObjectMeta: meta("a", "web"), Spec: appsv1.StatefulSetSpec{Selector: absent}})
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	for range 2 {
		s, err := views(ctx, r)
		require.NoError(t, err)
		require.Equal(t, 2, s.pods.NoVPA)
		require.Empty(t, s.VPAs)
	}
	require.Equal(t, 1, strings.Count(log.String(), "Skipping pods of a workload"))
}

type failingPodLister struct{ corelisters.PodLister }

func (failingPodLister) List(labels.Selector) ([]*corev1.Pod, error) {
	return nil, errors.New("no cache")
}

func TestReader_WrapsListErrors(t *testing.T) {
	r := newReader(t, targeting("v", "d", "example.com/v1", "Room", "blue"))
	r.Pods = failingPodLister{}
	_, err := views(t.Context(), r)
	require.EqualError(t, err, "list pods: no cache")
}
