package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
)

func TestRESTConfig_SetsLimitsAndUserAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":"http://127.0.0.1:1"}}]}`), 0o600))
	config, err := process.OS{}.RESTConfig(flags.Kube{Kubeconfig: file, QPS: 5, Burst: 7.9}, "loadline-test")
	require.NoError(t, err)
	require.EqualValues(t, 5, config.QPS)
	require.Equal(t, 7, config.Burst)
	require.Contains(t, config.UserAgent, "loadline-test ")
	_, err = New(config)
	require.NoError(t, err)
	config.Burst = 0
	_, err = New(config)
	require.ErrorContains(t, err, "--kube-api-burst=0")
}

func TestWaitForServer_TimesOut(t *testing.T) {
	clients, err := New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	err = clients.WaitForServer(t.Context(), time.Second)
	require.ErrorContains(t, err, "API server http://127.0.0.1:1 did not answer for 1s")
	require.ErrorContains(t, err, "connection refused")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, clients.WaitForServer(ctx, time.Minute), context.Canceled)
}

func TestThrottling_IsNotMistakenForResponse(t *testing.T) {
	clients, err := New(&rest.Config{Host: "http://127.0.0.1:1", QPS: 0.01, Burst: 1})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 90*time.Second) // the second token comes after 100 s
	defer stop()
	pods := clients.Kube.CoreV1().Pods("ns")
	require.NotErrorIs(t, pods.Delete(ctx, "first", metav1.DeleteOptions{}), ErrThrottled, "there is a token for it")
	require.ErrorIs(t, pods.Delete(ctx, "second", metav1.DeleteOptions{}), ErrThrottled)
}

// server serves discovery of one custom kind with a scale subresource.
func server(t *testing.T) *Clients {
	answers := map[string]string{
		"/version": `{"major":"1","minor":"36"}`,
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1":  `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`,
		"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}`,
		"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]},{"name":"things/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true,"verbs":["get"]},
			{"name":"machines","kind":"Machine","namespaced":true,"verbs":["get"]},{"name":"machines/status","kind":"Machine","namespaced":true,"verbs":["get"]},
			{"name":"zones","kind":"Zone","namespaced":false,"verbs":["get"]},{"name":"zones/scale","kind":"Scale","namespaced":false,"verbs":["get"]}]}`,
		"/apis/example.com/v1/namespaces/ns/things/one/scale": `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"one"},"spec":{"replicas":3},"status":{"selector":"app=x"}}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NotRegexp(t, "machines|zones", r.URL.Path, "discovery says that there is nothing to read")
		w.Header().Set("Content-Type", "application/json")
		text, found := answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	clients, err := New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	return clients
}

// Names come from references that any user can write. They must not lead to another path.
func TestScale_RejectsInvalidNames(t *testing.T) {
	scales := NewScales(server(t).Kube)
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	for _, name := range []string{"../../ns/things/one", "..", ".", "%2e%2e", "a/b", ""} {
		_, err := scales.Scale(t.Context(), "ns", thing, name)
		require.ErrorContains(t, err, "resource name", name)
	}
	_, err := scales.Scale(t.Context(), "x/../ns", thing, "one")
	require.ErrorContains(t, err, `invalid namespace "x/../ns"`)
}

func TestScale_UsesDiscovery(t *testing.T) {
	clients := server(t)
	require.NoError(t, clients.WaitForServer(t.Context(), time.Second))
	scales := NewScales(clients.Kube)
	scale, err := scales.Scale(t.Context(), "ns", schema.GroupKind{Group: "example.com", Kind: "Thing"}, "one")
	require.NoError(t, err)
	require.Equal(t, &autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{Kind: "Thing", APIVersion: "example.com/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
		Status:     autoscalingv1.ScaleStatus{Selector: "app=x"},
	}, scale)
	_, err = scales.Scale(t.Context(), "ns", schema.GroupKind{Group: "example.com", Kind: "Thing"}, "two")
	require.Error(t, err)
	_, err = scales.Scale(t.Context(), "ns", schema.GroupKind{Group: "example.com", Kind: "Nothing"}, "one")
	require.ErrorContains(t, err, "find the resource of kind Nothing.example.com")
	_, err = scales.Scale(t.Context(), "ns", schema.GroupKind{Group: "example.com", Kind: "Machine"}, "one")
	require.ErrorIs(t, err, ErrNoScale)
	require.EqualError(t, err, "kind Machine.example.com: the kind has no scale subresource")
	_, err = scales.Scale(t.Context(), "ns", schema.GroupKind{Group: "example.com", Kind: "Zone"}, "one")
	require.ErrorIs(t, err, ErrNoScale)
	require.ErrorContains(t, err, "kind Zone.example.com is cluster-scoped")
	require.NoError(t, scales.Check(schema.GroupKind{Group: "example.com", Kind: "Thing"}))
	require.ErrorIs(t, scales.Check(schema.GroupKind{Group: "example.com", Kind: "Machine"}), ErrNoScale)
	require.ErrorContains(t, scales.Check(schema.GroupKind{Group: "example.com", Kind: "Nothing"}), "no matches for kind")
	scales.Reset()
	_, err = scales.Scale(t.Context(), "ns", schema.GroupKind{Group: "example.com", Kind: "Thing"}, "one")
	require.NoError(t, err)
}

func TestFactory_TrimsPods(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"a": "b"},
			Annotations:   map[string]string{"vpaUpdates": "x", "loadline.dev/y": "z", "kubectl.kubernetes.io/last-applied-configuration": "long"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "v"}}, Containers: []corev1.Container{{
			Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "e"}},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "1.2.3.4", ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", ImageID: "long", ContainerID: "id", RestartCount: 2,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", Message: "long"}}}}},
	}
	f := Factory(fake.NewClientset(pod), "", time.Hour, "")
	lister := f.Core().V1().Pods().Lister()
	synced := map[string]cache.InformerSynced{"pods": f.Core().V1().Pods().Informer().HasSynced}
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	defer f.Shutdown()
	defer stop()
	require.NoError(t, Sync(ctx, synced))
	got, err := lister.Pods("ns").Get("p")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"vpaUpdates": "x", "loadline.dev/y": "z"}, got.Annotations)
	require.Equal(t, map[string]string{"a": "b"}, got.Labels)
	require.Nil(t, got.ManagedFields)
	require.Nil(t, got.Spec.Volumes)
	require.Equal(t, "n", got.Spec.NodeName)
	c := got.Spec.Containers[0]
	require.Empty(t, c.Image)
	require.Empty(t, c.Env)
	require.Equal(t, pod.Spec.Containers[0].Resources, c.Resources)
	require.Equal(t, pod.Spec.Containers[0].ResizePolicy, c.ResizePolicy)
	s := got.Status.ContainerStatuses[0]
	require.Empty(t, s.ImageID)
	require.Equal(t, "OOMKilled", s.LastTerminationState.Terminated.Reason)
	require.Empty(t, s.LastTerminationState.Terminated.Message)
	require.Equal(t, "long", pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message, "the original is untouched")
}

// The scopes of quotas must match a trimmed pod as the original.
func TestTrimPod_KeepsQuotaScopes(t *testing.T) {
	abroad := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"other"}}}}}
	for _, spec := range []corev1.PodSpec{
		{}, {ActiveDeadlineSeconds: new(int64)}, {PriorityClassName: "high"}, {Affinity: abroad}, {Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}},
	} {
		pod := &corev1.Pod{Spec: spec}
		got, err := Trim(pod)
		require.NoError(t, err)
		require.Equal(t, convert.Traits(pod), convert.Traits(got.(*corev1.Pod)))
		require.Equal(t, spec.Affinity == abroad, got.(*corev1.Pod).Spec.Affinity != nil, "an affinity is large")
	}
}

func TestTrimWorkload_KeepsSelectorsOwnersAndReplicas(t *testing.T) {
	yes, n := true, int32(4)
	meta := metav1.ObjectMeta{Name: "x", OwnerReferences: []metav1.OwnerReference{{Kind: "Y", Controller: &yes}}, ManagedFields: []metav1.ManagedFieldsEntry{{}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	trim := func(o any) any {
		got, err := Trim(o)
		require.NoError(t, err)
		return got
	}
	d := trim(&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Replicas: &n, Paused: true, Template: corev1.PodTemplateSpec{ObjectMeta: meta}}}).(*appsv1.Deployment)
	require.Equal(t, selector, d.Spec.Selector)
	require.Equal(t, &n, d.Spec.Replicas)
	require.Len(t, d.OwnerReferences, 1)
	require.Nil(t, d.ManagedFields)
	require.True(t, d.Spec.Paused, "a rollout that is paused is not under way")
	require.Nil(t, d.Spec.Template.Labels)
	require.Equal(t, selector, trim(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Selector: selector}}).(*appsv1.StatefulSet).Spec.Selector)
	require.EqualValues(t, 9, trim(&appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 9}}).(*appsv1.DaemonSet).Status.DesiredNumberScheduled)
	require.Equal(t, selector.MatchLabels, trim(&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels}}).(*corev1.ReplicationController).Spec.Selector)
	require.Equal(t, selector, trim(&batchv1.Job{Spec: batchv1.JobSpec{Selector: selector}}).(*batchv1.Job).Spec.Selector)
	cron := &batchv1.CronJob{}
	cron.Spec.JobTemplate.Spec.Template.Labels = selector.MatchLabels
	require.Equal(t, selector.MatchLabels, trim(cron).(*batchv1.CronJob).Spec.JobTemplate.Spec.Template.Labels)
	tombstone := cache.DeletedFinalStateUnknown{Key: "ns/p"}
	require.Equal(t, tombstone, trim(tombstone))
}

func TestTrimReplicaSet_KeepsNameOwnerAndReplicas(t *testing.T) {
	yes, no, none := true, false, int32(0)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	set := func(owners ...metav1.OwnerReference) *ReplicaSet {
		got, err := Trim(&appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", ResourceVersion: "7", OwnerReferences: owners},
			Spec:       appsv1.ReplicaSetSpec{Selector: selector, Replicas: &none}})
		require.NoError(t, err)
		again, err := Trim(got)
		require.NoError(t, err)
		require.Same(t, got, again, "an informer that fills its cache trims twice")
		return got.(*ReplicaSet)
	}
	of := func(version, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "web", UID: "u", Controller: &yes}
	}
	old := set(metav1.OwnerReference{Kind: "Friend", Name: "web", Controller: &no}, of("apps/v1", "Deployment"))
	require.Equal(t, "ns/web-1 7", old.GetNamespace()+"/"+old.GetName()+" "+old.GetResourceVersion())
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: &yes}}, old.GetOwnerReferences())
	require.Equal(t, &none, old.Replicas())
	require.Nil(t, old.Selector(), "a VPA must name the Deployment")
	require.Equal(t, selector, set().Selector())
	require.Nil(t, set().GetOwnerReferences())
	require.Equal(t, selector, set(of("example.com/v1", "Deployment")).Selector(), "a custom resource of that kind")
	require.Equal(t, selector, set(of("example.com/v1", "Thing")).Selector(), "if its owner has no scale subresource, a VPA may name the ReplicaSet")
	silent, err := Trim(&appsv1.ReplicaSet{})
	require.NoError(t, err)
	require.Nil(t, silent.(*ReplicaSet).Replicas(), "it says nothing")
}

func TestTrimVPA_KeepsMeaning(t *testing.T) {
	list := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Generation: 3, ManagedFields: []metav1.ManagedFieldsEntry{{}},
		Annotations: map[string]string{"any": "thing", corev1.LastAppliedConfigAnnotation: "{}"},
	}}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "same", Target: list("1"), LowerBound: list("1"), UncappedTarget: list("1000m")},
		{ContainerName: "capped", Target: list("1"), LowerBound: list("500m"), UncappedTarget: list("2")},
	}}
	original := vpa.DeepCopy()
	got, err := Trim(vpa)
	require.NoError(t, err)
	require.Equal(t, original, vpa, "the original is untouched")
	trimmed := got.(*vpav1.VerticalPodAutoscaler)
	require.True(t, apiequality.Semantic.DeepEqual(original.Status, trimmed.Status))
	require.True(t, apiequality.Semantic.DeepEqual(original.Spec, trimmed.Spec))
	require.Equal(t, map[string]string{"any": "thing"}, trimmed.Annotations)
	require.Nil(t, trimmed.ManagedFields)
	require.EqualValues(t, 3, trimmed.Generation)
}

func TestSync_TimeoutNamesMissingCaches(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	err := Sync(ctx, map[string]cache.InformerSynced{"pods": func() bool { return false }, "jobs": func() bool { return true }})
	require.ErrorContains(t, err, "wait for the caches of pods")
}
