package actuate

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/updater/snapshot"
)

func change(pod *corev1.Pod, fitted ...policy.ContainerTarget) Change {
	return Change{
		Action:     disruption.Action{Containers: fitted},
		Object:     pod,
		Autoscaler: snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, &convert.LimitRanges{}),
	}
}

func twoContainers() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "side", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}},
			{Name: "app"},
		}},
	}
}

func TestResizePatch_CreatesMissingFields(t *testing.T) {
	cpu := resources.List{}.With(resources.CPU, 250)
	patch, err := ResizePatch(change(twoContainers(),
		policy.ContainerTarget{Name: "app", Requests: cpu}, policy.ContainerTarget{Name: "side", Requests: cpu, Limits: cpu.With(resources.CPU, 500)}))
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"op":"test","path":"/metadata/uid","value":"u"},
		{"op":"test","path":"/spec/containers/0/name","value":"side"},
		{"op":"test","path":"/spec/containers/0/resources/requests","value":null},
		{"op":"test","path":"/spec/containers/0/resources/limits/cpu","value":"1"},
		{"op":"add","path":"/spec/containers/0/resources/requests","value":{}},
		{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":"250m"},
		{"op":"add","path":"/spec/containers/0/resources/limits/cpu","value":"500m"},
		{"op":"test","path":"/spec/containers/1/name","value":"app"},
		{"op":"test","path":"/spec/containers/1/resources/requests","value":null},
		{"op":"add","path":"/spec/containers/1/resources","value":{}},
		{"op":"add","path":"/spec/containers/1/resources/requests","value":{}},
		{"op":"add","path":"/spec/containers/1/resources/requests/cpu","value":"250m"}
	]`, string(patch))
}

func TestResizePatch_RejectsEmptyChange(t *testing.T) {
	for _, fitted := range [][]policy.ContainerTarget{nil, {{Name: "app"}}, {{Name: "gone", Requests: resources.NewList(1, 1)}}} {
		_, err := ResizePatch(change(twoContainers(), fitted...))
		require.ErrorIs(t, err, errNoChange)
	}
}

func TestResizePatch_KeepsDeviceClaims(t *testing.T) {
	pod := twoContainers()
	pod.Spec.Containers[1].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	patch, err := ResizePatch(change(pod, policy.ContainerTarget{Name: "app", Requests: resources.NewList(1, 1)}))
	require.NoError(t, err)
	require.NotContains(t, string(patch), `"path":"/spec/containers/1/resources","value":{}`)
}

// The informer cache may lag behind annotations of other controllers.
func TestMarkPatch_KeepsUncachedAnnotations(t *testing.T) {
	cached := twoContainers()
	patch, err := MarkPatch(cached, disruption.Restart{})
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"uid":"u","annotations":{"vpaInPlaceUpdated":"true"}}}`, string(patch), "the UID cannot be changed, so another pod refuses it")
	now := cached.DeepCopy()
	now.Annotations = map[string]string{"cni.example.com/ip": "10.0.0.1"}
	stored, err := json.Marshal(now)
	require.NoError(t, err)
	marked, err := jsonpatch.MergePatch(stored, patch)
	require.NoError(t, err)
	var after corev1.Pod
	require.NoError(t, json.Unmarshal(marked, &after))
	require.Equal(t, map[string]string{"cni.example.com/ip": "10.0.0.1", "vpaInPlaceUpdated": "true"}, after.Annotations)
}

// The pause annotation records an earlier change without effect.
func TestMarkPatch_RemovesPauseAnnotation(t *testing.T) {
	pod := twoContainers()
	pod.Annotations = map[string]string{convert.BackoffAnnotation: "2 until 2026-01-02T12:00:00Z"}
	patch, err := MarkPatch(pod, disruption.Restart{At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Count: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"uid":"u","annotations":{"vpaInPlaceUpdated":"true","loadline.dev/without-effect":null,"loadline.dev/restart":"2026-01-02T12:00:00Z after 1"}}}`, string(patch))
}

func TestDescribeChange_ListsChangedResources(t *testing.T) {
	require.Equal(t, "side cpu none -> 250m, side limit cpu 1 -> 500m, app memory none -> 1Gi", DescribeChange(change(twoContainers(),
		policy.ContainerTarget{Name: "side", Requests: resources.List{}.With(resources.CPU, 250), Limits: resources.List{}.With(resources.CPU, 500)},
		policy.ContainerTarget{Name: "app", Requests: resources.List{}.With(resources.Memory, 1<<30)})))
	require.Empty(t, DescribeChange(change(twoContainers(), policy.ContainerTarget{Name: "side", Limits: resources.List{}.With(resources.CPU, 1000)})))
}

func TestNoCapacity_RequiresNodeCapacityCause(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	full := apierrors.NewForbidden(pods, "p", errors.New("full"))
	require.False(t, NoCapacity(full))
	full.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NodeCapacity"}}
	require.True(t, NoCapacity(full))
	require.False(t, NoCapacity(nil))
}

func TestNewLimiter_NegativeRateIsUnlimited(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	require.True(t, NewLimiter(-1, 0).AllowN(now, 1000), "no limit, whatever the burst")
	limited := NewLimiter(0.001, 2)
	require.True(t, limited.AllowN(now, 2))
	require.False(t, limited.AllowN(now, 1))
}

// A plan from a stale cache must not overwrite newer resources.
func TestResizePatch_AppliesOnlyToPlannedResources(t *testing.T) {
	planned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", ResourceVersion: "5"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("0.5Gi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}, {Name: "side"}}}}
	gets := []policy.ContainerTarget{{Name: "app", Requests: resources.NewList(200, 600<<20), Limits: resources.List{}.With(resources.Memory, 1200<<20)}, {Name: "side", Requests: resources.NewList(10, 10<<20)}}
	resize, err := ResizePatch(change(planned, gets...))
	require.NoError(t, err)
	back, err := revertPatch(planned, gets)
	require.NoError(t, err)
	for _, tc := range []struct {
		name    string
		changed func(*corev1.Pod)
		applies bool
	}{
		{name: "unchanged", changed: func(*corev1.Pod) {}, applies: true},
		{name: "status and metadata", changed: func(p *corev1.Pod) {
			p.ResourceVersion, p.Labels = "9", map[string]string{"a": "b"}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 3}}
		}, applies: true},
		{name: "an amount of another kind", changed: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
		}, applies: true},
		{name: "memory request", changed: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
		}},
		{name: "memory limit", changed: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("2Gi")
		}},
		{name: "CPU request", changed: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("150m")
		}},
		{name: "first request of a container", changed: func(p *corev1.Pod) {
			p.Spec.Containers[1].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		}},
		{name: "another pod", changed: func(p *corev1.Pod) { p.UID = "v" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			live := planned.DeepCopy()
			tc.changed(live)
			document, err := json.Marshal(live)
			require.NoError(t, err)
			for _, raw := range [][]byte{resize, back} {
				patch, err := jsonpatch.DecodePatch(raw)
				require.NoError(t, err)
				_, err = patch.Apply(document)
				require.Equal(t, tc.applies, err == nil, "%v", err)
			}
		})
	}
}
