package updater

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/report"
)

func TestRateLimit_SpreadsMassEvictions(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 100)...)
	w.loop.runner.Limiter = disruption.NewRateLimiter(Default().Pace, noon)
	w.runOnce(noon)
	require.Len(t, w.evictions(), 10, "slow start")
	require.EqualValues(t, 40, w.value("loadline_updater_skipped_pods", "reason", "DisruptionRateLimited"))
	w.loop.runner.Limiter = disruption.NewRateLimiter(disruption.RateLimits{Cluster: 60, Namespace: 20}, noon)
	w.runOnce(noon)
	require.Len(t, w.evictions(), 30, "the namespace")

	w = newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 10)...)
	w.loop.runner.Limiter = disruption.NewRateLimiter(Default().Pace, noon)
	w.runOnce(noon)
	require.Len(t, w.evictions(), 5, "ten replicas are not slowed down: half of them may be away")
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "DisruptionRateLimited"))
}

func TestRateLimit_IgnoresRefusedEvictions(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 8)...)
	w.loop.runner.Limiter = disruption.NewRateLimiter(disruption.RateLimits{Cluster: 1}, noon)
	w.refuse("create", "pods/eviction", apierrors.NewTooManyRequestsError("budget"))
	w.runOnce(noon)
	require.EqualValues(t, 4, w.value("loadline_updater_skipped_pods", "reason", "EvictionRefused"))
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "DisruptionRateLimited"))
}

func TestRateLimit_IgnoresInPlaceResizes(t *testing.T) {
	config := Default()
	config.Disruption.FreeResizes = true
	w := newWorld(t, config, web(vpav1.UpdateModeInPlaceOrRecreate, 8)...)
	w.loop.runner.Limiter = disruption.NewRateLimiter(disruption.RateLimits{Cluster: 1, Namespace: 1}, noon)
	w.runOnce(noon)
	require.EqualValues(t, 8, w.value("vpa_updater_in_place_updated_pods_total", "vpa_name", "web-vpa"))
}

func TestEviction_WaitsForWorkloadRollout(t *testing.T) {
	objects := web(vpav1.UpdateModeRecreate, 4)
	objects[0].(*appsv1.Deployment).Status = appsv1.DeploymentStatus{Replicas: 5, UpdatedReplicas: 1}
	w := newWorld(t, Default(), objects...)
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.EqualValues(t, 4, w.value("loadline_updater_skipped_pods", "reason", "RolloutInProgress"))
}

func node(name, cpu string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: list(cpu, "8Gi")}}
}

func TestCapacity_CheckedBeforeChanges(t *testing.T) {
	// Two pods on n1 request 100m each, and another pod requests 600m.
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x", UID: "x"},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("600m", "1Gi")}}}}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}, Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("250m")}, Used: corev1.ResourceList{"requests.cpu": resource.MustParse("200m")}}}
	left150 := quota.DeepCopy() // room for 100m more, but not for a new pod of 200m next to the old one
	left150.Status.Hard = corev1.ResourceList{"requests.cpu": resource.MustParse("350m")}
	scoped := func(s corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		q := quota.DeepCopy()
		q.Spec.Scopes = []corev1.ResourceQuotaScope{s}
		return q
	}
	restarts := func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer},
		}
	}
	for _, tc := range []struct {
		name    string
		mode    vpav1.UpdateMode
		pod     func(*corev1.Pod) // nil: unchanged
		objects []runtime.Object
		room    string
		reason  reason.Reason
		acts    bool
	}{
		{name: "resize without room, which the kubelet delays", mode: vpav1.UpdateModeInPlaceOrRecreate,
			objects: []runtime.Object{node("n1", "850m"), other}, room: roomFree, acts: true},
		{name: "resize on a node too small", mode: vpav1.UpdateModeInPlace, objects: []runtime.Object{node("n1", "150m")},
			room: roomFree, reason: reason.TooLargeForNode, acts: false},
		{name: "restarting resize with room on the node", mode: vpav1.UpdateModeInPlaceOrRecreate, pod: restarts,
			objects: []runtime.Object{node("n1", "900m"), other}, room: roomFree, acts: true},
		{name: "restarting resize without room on the node", mode: vpav1.UpdateModeInPlaceOrRecreate, pod: restarts,
			objects: []runtime.Object{node("n1", "850m"), other}, room: roomFree, reason: reason.NodeFull, acts: false},
		{name: "eviction without room on any node", mode: vpav1.UpdateModeRecreate, objects: []runtime.Object{node("n1", "850m"), other},
			room: roomFree, reason: reason.NodeFull, acts: false},
		{name: "eviction while a node can be added", mode: vpav1.UpdateModeRecreate, objects: []runtime.Object{node("n1", "850m"), other},
			room: roomSize, acts: true},
		{name: "eviction without a check", mode: vpav1.UpdateModeRecreate, objects: []runtime.Object{node("n1", "850m"), other, quota},
			room: roomOff, acts: true},
		{name: "eviction with room on another node", mode: vpav1.UpdateModeRecreate,
			objects: []runtime.Object{node("n1", "850m"), node("n2", "1"), other}, room: roomFree, acts: true},
		{name: "eviction with nodes too small", mode: vpav1.UpdateModeRecreate, objects: []runtime.Object{node("n1", "150m")},
			room: roomSize, reason: reason.TooLargeForNode, acts: false},
		{name: "quota without room for a second pod", mode: vpav1.UpdateModeRecreate, objects: []runtime.Object{node("n1", "4"), left150},
			room: roomFree, reason: reason.QuotaFull, acts: false},
		{name: "quota with room for a resize", mode: vpav1.UpdateModeInPlaceOrRecreate, objects: []runtime.Object{node("n1", "4"), left150},
			room: roomFree, acts: true},
		{name: "quota of such pods", mode: vpav1.UpdateModeInPlaceOrRecreate,
			objects: []runtime.Object{node("n1", "4"), scoped(corev1.ResourceQuotaScopeNotTerminating)}, room: roomFree,
			reason: reason.QuotaFull, acts: false},
		{name: "quota of other pods", mode: vpav1.UpdateModeInPlaceOrRecreate,
			objects: []runtime.Object{node("n1", "4"), scoped(corev1.ResourceQuotaScopeTerminating)}, room: roomFree, acts: true},
		{name: "full quota", mode: vpav1.UpdateModeInPlaceOrRecreate, objects: []runtime.Object{node("n1", "4"), quota}, room: roomFree,
			reason: reason.QuotaFull, acts: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := Default()
			config.EvictionRoom, config.Gates.InPlace = tc.room, true
			w := newWorld(t, config, append(append(deployment(2, tc.pod), autoscaler(tc.mode)), tc.objects...)...)
			w.caches.constraints.WaitForCacheSync(t.Context().Done())
			w.runOnce(noon)
			require.Equal(t, tc.acts, len(w.writes()) > 0)
			require.Equal(t, tc.acts && tc.mode == vpav1.UpdateModeRecreate, len(w.evictions()) > 0)
			if tc.reason != "" {
				require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", tc.reason.String()))
			}
		})
	}
}

func TestStaticCPU_AvoidsRefusedResizes(t *testing.T) {
	guaranteed := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("1", "100Mi"), Limits: list("1", "100Mi")}
	}
	refused := func(p *corev1.Pod) {
		guaranteed(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: p.Spec.Containers[0].Resources.DeepCopy()}}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("200m", "200Mi"), Limits: list("200m", "200Mi")}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonInfeasible, Message: `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`})
	}
	labelled := node("n1", "8")
	labelled.Labels = map[string]string{"cpumanager": "true", "other": "label"}
	for _, tc := range []struct {
		name   string
		mode   vpav1.UpdateMode
		node   *corev1.Node
		first  func(*corev1.Pod) // changes pod web-1-0
		writes []string
		alone  float64
	}{
		{name: "no sign of static CPUs", mode: vpav1.UpdateModeInPlace, node: node("n1", "8"), first: guaranteed,
			writes: []string{"patch pods resize", "patch pods "}, alone: 0},
		{name: "node label", mode: vpav1.UpdateModeInPlace, node: labelled, first: guaranteed, alone: 2},
		{name: "node label with eviction", mode: vpav1.UpdateModeInPlaceOrRecreate, node: labelled, first: guaranteed,
			writes: []string{"create pods eviction", "create pods eviction"}, alone: 0},
		{name: "earlier refusal", mode: vpav1.UpdateModeInPlace, node: node("n1", "8"), first: refused, alone: 1},
		{name: "earlier refusal with eviction", mode: vpav1.UpdateModeInPlaceOrRecreate, node: node("n1", "8"), first: refused,
			writes: []string{"create pods eviction", "create pods eviction"}, alone: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := Default()
			config.Gates.InPlace = true
			objects := append(deployment(2, guaranteed), autoscaler(tc.mode), tc.node)
			for _, o := range objects {
				if pod, ok := o.(*corev1.Pod); ok && pod.Name == "web-1-0" {
					tc.first(pod)
				}
			}
			w := newWorld(t, config, objects...)
			w.caches.constraints.WaitForCacheSync(t.Context().Done())
			w.runOnce(noon)
			require.Equal(t, tc.writes, w.writes())
			require.EqualValues(t, tc.alone, w.value("loadline_updater_skipped_pods", "reason", "StaticCPU"))
		})
	}
}

func TestSkips_LastingReasonEmitsEvent(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 1)...)
	for minute := range 30 {
		w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
	}
	require.Equal(t, []string{"Normal BelowMinReplicas Skipped pods: 1, such as web-1-0: fewer live pods than the minimum"}, w.drainEvents())
}

func TestBackoff_EndsEvictionsWithoutEffect(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	require.Equal(t, 4, w.runForAnHour(func(*corev1.Pod) {}), "after 0, 6, 17 and 38 minutes; 60 without back-off")
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "BackingOff"))
	require.Contains(t, strings.Join(w.hourEvents, "\n"), "BackingOff")
}

// The webhook cuts pods to the remaining quota, a different amount each time.
func TestBackoff_EndsEvictionsWithLittleEffect(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	left := []string{"110m", "140m"}
	require.Equal(t, 4, w.runForAnHour(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = list(left[0], "200Mi")
		left[0], left[1] = left[1], left[0]
	}), "60 without back-off")
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "BackingOff"))
}

// The backoff is stored on the pods, so that it survives a restart or a leader change.
func TestBackoff_SurvivesRestart(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	lister := w.caches.pods.Core().V1().Pods().Lister()
	w.afterEach = func(minute int) {
		if minute%10 != 9 {
			return
		}
		w.await("the pause", func(p *corev1.Pod) bool { return p.Annotations[convert.BackoffAnnotation] != "" }, fmt.Sprintf("new-%d", len(w.evictions())))
		w.loop.state = disruption.State{}
	}
	require.Equal(t, 4, w.runForAnHour(func(*corev1.Pod) {}), "as without restarts")
	pods, err := lister.List(labels.Everything())
	require.NoError(t, err)
	require.Contains(t, pauses(pods), "4 until 2026-01-02T13:19:00Z")
}

func pauses(pods []*corev1.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Annotations[convert.BackoffAnnotation])
	}
	return all
}

// runForAnHour runs an iteration each minute, recreates evicted pods with made, and returns the
// number of evictions.
func (w *world) runForAnHour(made func(*corev1.Pod)) (evictions int) {
	w.t.Helper()
	lister := w.caches.pods.Core().V1().Pods().Lister().Pods("shop")
	for minute := range 60 {
		now := noon.Add(time.Duration(minute) * time.Minute)
		w.runOnce(now)
		w.hourEvents = append(w.hourEvents, w.drainEvents()...)
		if w.afterEach != nil {
			w.afterEach(minute)
		}
		names := w.evictions()
		if len(names) == evictions {
			continue
		}
		evictions = len(names)
		gone := w.pod(names[len(names)-1])
		fresh := gone.DeepCopy()
		fresh.Name = fmt.Sprintf("new-%d", evictions)
		fresh.UID, fresh.Annotations = types.UID(fresh.Name), nil
		fresh.CreationTimestamp, fresh.ResourceVersion = metav1.NewTime(now.Add(time.Second)), ""
		made(fresh)
		pods := w.kube.CoreV1().Pods("shop")
		require.NoError(w.t, pods.Delete(w.t.Context(), gone.Name, metav1.DeleteOptions{}))
		_, err := pods.Create(w.t.Context(), fresh, metav1.CreateOptions{})
		require.NoError(w.t, err)
		w.await("the new pod", func(*corev1.Pod) bool { return true }, fresh.Name)
		require.Eventually(w.t, func() bool {
			_, err := lister.Get(gone.Name)
			return apierrors.IsNotFound(err)
		}, time.Minute, time.Millisecond)
	}
	return evictions
}

func killed(p *corev1.Pod) {
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", StartedAt: metav1.NewTime(noon.Add(-time.Hour)), FinishedAt: metav1.NewTime(noon)}}}}
}

// raisedVPAs are the VPAs with a raised recommendation.
var raisedVPAs = []cache.ObjectName{cache.NewObjectName("shop", "web-vpa")}

func TestOOMResize_NeedsNoBudgetOrAdmissionController(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(1, killed), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.loop.alive = func(context.Context, time.Time) (bool, error) { return false, nil }
	w.runOnce(noon)
	require.Empty(t, w.writes())
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.Equal(t, []string{"patch pods resize", "patch pods "}, w.writes())
	require.Equal(t, "200Mi", w.pod("web-1-0").Spec.Containers[0].Resources.Requests.Memory().String())

	w = newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 4)...)
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.Empty(t, w.writes(), "nobody suffers")
	w = newWorld(t, Default(), append(deployment(1, killed), autoscaler(vpav1.UpdateModeRecreate))...)
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.Empty(t, w.writes(), "a cure evicts nobody")
}

// Both replicas are killed at about the same time. The first one to be ready again must neither
// delay the other nor wait for it.
func TestOOMResize_NeedsNoBudgetForReadyPods(t *testing.T) {
	again := func(p *corev1.Pod) {
		killed(p)
		if p.Name == "web-1-0" {
			p.Status.Conditions[0].Status, p.Status.ContainerStatuses[0].Ready = corev1.ConditionTrue, true
		}
	}
	for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace} {
		t.Run(string(mode), func(t *testing.T) {
			config := Default()
			config.Gates.InPlace = true
			w := newWorld(t, config, append(deployment(2, again), autoscaler(mode))...)
			w.refuse("create", "pods/eviction", apierrors.NewTooManyRequestsError("budget"))
			w.loop.RunOOM(t.Context(), noon, raisedVPAs)
			for _, name := range []string{"web-1-0", "web-1-1"} {
				require.Equal(t, "200Mi", w.pod(name).Spec.Containers[0].Resources.Requests.Memory().String(), name)
			}
			require.Empty(t, w.evictions())
		})
	}
}

func TestRateLimit_RestartThenEvictionCountsOnce(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(2, func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.loop.runner.Limiter = disruption.NewRateLimiter(disruption.RateLimits{Cluster: 1}, noon)
	w.refuse("patch", "pods", invalid("web-1-0"))
	w.runOnce(noon)
	require.Equal(t, []string{"web-1-0"}, w.evictions())
	require.NotEmpty(t, w.evicted[0].DeleteOptions.DryRun, "the question whether it may restart")
	require.Empty(t, w.evicted[len(w.evicted)-1].DeleteOptions.DryRun)
}

func TestRateLimit_AppliesToInPlaceRestarts(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(4, func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.loop.runner.Limiter = disruption.NewRateLimiter(disruption.RateLimits{Cluster: 1}, noon)
	require.True(t, w.loop.runner.Limiter.Take("other", noon))
	w.runOnce(noon)
	require.Empty(t, w.writes(), "a pod of another namespace was disturbed within the minute")
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "DisruptionRateLimited"))
	w.runOnce(noon.Add(time.Minute))
	require.Equal(t, []string{"create pods eviction", "patch pods resize", "patch pods "}, w.writes())
}

func TestResize_BacksOffAfterRefusal(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 2)...)
	w.refuse("patch", "pods", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1-0", errors.New("a quota")))
	for minute := range 60 {
		w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
	}
	require.InDelta(t, 14, len(w.writes()), 4, "two pods, each after 0, 1, 2, 4, 8, 16 and 30 minutes; 60 without a pause")
}

// The early run has not checked the admission controller.
func TestOOMResize_RefusalDoesNotEvict(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(2, killed), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.refuse("patch", "pods", apierrors.NewBadRequest("not this one"))
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.NotEmpty(t, w.writes())
	require.Empty(t, w.evictions())
}

// The resize after an OOM kill reads all pods of the cluster, so unrelated kills must not trigger
// it.
func TestHasOOMKilled_OnlyPodsOfRaisedVPAs(t *testing.T) {
	other := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	other.Name, other.Spec.TargetRef.Name = "other", "other"
	elsewhere := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}}}
	lost := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	lost.Name, lost.Spec.TargetRef = "lost", nil
	for _, tc := range []struct {
		name   string
		vpa    *vpav1.VerticalPodAutoscaler
		raised string
		pods   func(*corev1.Pod)
		cause  bool
	}{
		{name: "killed pod", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "web-vpa", pods: killed, cause: true},
		{name: "no killed pod", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "web-vpa", cause: false},
		{name: "another VPA raised", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "other", pods: killed, cause: false},
		{name: "deleted VPA raised", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "gone", pods: killed, cause: false},
		{name: "VPA without a target raised", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "lost", pods: killed,
			cause: false},
		{name: "mode InPlace", vpa: autoscaler(vpav1.UpdateModeInPlace), raised: "web-vpa", pods: killed, cause: true},
		{name: "mode Recreate", vpa: autoscaler(vpav1.UpdateModeRecreate), raised: "web-vpa", pods: killed, cause: false},
		{name: "mode Off", vpa: autoscaler(vpav1.UpdateModeOff), raised: "web-vpa", pods: killed, cause: false},
		{name: "ready again", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "web-vpa", pods: func(p *corev1.Pod) {
			killed(p)
			p.Status.ContainerStatuses[0].Ready = true
		}, cause: true},
		{name: "ready again for an hour", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "web-vpa",
			pods: func(p *corev1.Pod) {
				killed(p)
				p.Status.ContainerStatuses[0].Ready = true
				p.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.NewTime(noon.Add(-time.Hour))
			}, cause: false},
		{name: "ended with an error", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), raised: "web-vpa", pods: func(p *corev1.Pod) {
			killed(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = "Error"
		}, cause: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(1, tc.pods), tc.vpa, other, lost, elsewhere)...)
			require.Equal(t, tc.cause, w.loop.HasOOMKilled(t.Context(), []cache.ObjectName{cache.NewObjectName("shop", tc.raised)}, noon))
		})
	}
	config := Default()
	config.Kube.IgnoredNamespaces = "shop"
	w := newWorld(t, config, append(deployment(1, killed), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	require.False(t, w.loop.HasOOMKilled(t.Context(), raisedVPAs, noon))
}

// A restart does not disrupt a container that keeps being killed.
func TestOOMResize_RestartNeedsNoDisruptionBudget(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(2, func(p *corev1.Pod) {
		killed(p)
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.refuse("create", "pods/eviction", apierrors.NewTooManyRequestsError("budget"))
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.Equal(t, []string{"patch pods resize", "patch pods ", "patch pods resize", "patch pods "}, w.writes())
}

func TestMemoryIncreases_WakeOnRaisedMemory(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(1, killed), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	rises := w.memoryIncreases
	vpas := w.vpa.AutoscalingV1().VerticalPodAutoscalers("shop")
	vpa := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	vpa.Status.Recommendation.ContainerRecommendations[0].Target = list("300m", "200Mi")
	_, err := vpas.Update(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	select {
	case <-rises.Wake():
		t.Fatal("only CPU grew")
	case <-time.After(50 * time.Millisecond):
	}
	vpa.Status.Recommendation.ContainerRecommendations[0].Target = list("300m", "201Mi")
	_, err = vpas.Update(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	select {
	case <-rises.Wake():
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was said")
	}
	require.Equal(t, raisedVPAs, rises.Drain())
	require.Empty(t, rises.Drain())
}

// The recommendation rises with the kill of the first replica only.
func TestMemoryIncreases_LaterKillWakesWithoutIncrease(t *testing.T) {
	for _, tc := range []struct {
		name, requests string
		wakes          bool
	}{
		{name: "less than recommended", requests: "100Mi", wakes: true},
		{name: "as recommended", requests: "200Mi"},
		{name: "more than recommended", requests: "300Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(2, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = list("100m", tc.requests)
			}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
			rises := w.memoryIncreases
			for _, name := range []string{"web-1-0", "web-1-1"} {
				pod := w.pod(name).DeepCopy()
				killed(pod)
				pod.ResourceVersion = "2"
				_, err := w.kube.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
				require.NoError(t, err)
				select {
				case <-rises.Wake():
					require.True(t, tc.wakes, "nothing to gain")
					require.Equal(t, raisedVPAs, rises.Drain())
				case <-time.After(map[bool]time.Duration{true: 10 * time.Second, false: 50 * time.Millisecond}[tc.wakes]):
					require.False(t, tc.wakes, "%s was killed", name)
				}
			}
		})
	}
}

func TestMemoryIncreases_KillWakesOnlyForVPAOfPod(t *testing.T) {
	other := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	other.Name, other.Spec.TargetRef.Name = "other", "other"
	w := newWorld(t, Default(), append(deployment(1, nil), autoscaler(vpav1.UpdateModeInPlaceOrRecreate), other)...)
	rises := w.memoryIncreases
	pod := w.pod("web-1-0").DeepCopy()
	killed(pod)
	pod.ResourceVersion = "2"
	_, err := w.kube.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	select {
	case <-rises.Wake():
	case <-time.After(10 * time.Second):
		t.Fatal("the kill wakes nothing")
	}
	require.Equal(t, raisedVPAs, rises.Drain(), "5,000 VPAs with a container of the same name would all be looked at")
}

func TestResize_KeepsUsedMemory(t *testing.T) {
	pod := func(cpu, request, limit string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(cpu, request), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}}
		}
	}
	for _, tc := range []struct { // recommended: 200m and 200Mi, with a limit of 400Mi
		name          string
		pod           func(*corev1.Pod)
		used          resources.Amount
		request, want int64 // memory in MiB, rounded, 0: skipped
	}{
		{name: "enough memory is free", pod: pod("200m", "1Gi", "2Gi"), used: 350 << 20, request: 200, want: 400},
		{name: "smaller cut", pod: pod("200m", "1Gi", "2Gi"), used: 720 << 20, request: 400, want: 800},
		{name: "cut too small", pod: pod("200m", "1Gi", "2Gi"), used: 1700 << 20, request: 0, want: 0},
		{name: "no cut possible", pod: pod("200m", "1Gi", "2Gi"), used: 2040 << 20, request: 0, want: 0},
		{name: "no cut possible, CPU grows", pod: pod("100m", "1Gi", "2Gi"), used: 2040 << 20, request: 1024, want: 2048},
		{name: "usage above the limit", pod: pod("200m", "1Gi", "2Gi"), used: 3000 << 20, request: 0, want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(2, tc.pod), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
			usage := func(_ context.Context, namespace, pod string) (map[string]resources.Amount, error) {
				require.Equal(t, "shop", namespace)
				return map[string]resources.Amount{"app": tc.used}, nil
			}
			w.loop.runner.Executor.(*actuate.Cluster).Usage = usageOf(usage)
			w.runOnce(noon)
			if tc.want == 0 {
				require.Empty(t, w.writes())
				require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "MemoryInUse"))
				return
			}
			require.Len(t, w.writes(), 2)
			got := w.pod("web-1-0").Spec.Containers[0].Resources
			require.Equal(t, tc.request, (got.Requests.Memory().Value()+1<<19)>>20)
			require.Equal(t, tc.want, (got.Limits.Memory().Value()+1<<19)>>20)
			require.Equal(t, "200m", got.Requests.Cpu().String())
			require.Contains(t, strings.Join(w.drainEvents(), "\n"), report.EventResized)
		})
	}
	w := newWorld(t, Default(), append(deployment(2, pod("200m", "1Gi", "2Gi")), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.loop.runner.Executor.(*actuate.Cluster).Usage = usageOf(func(context.Context, string, string) (map[string]resources.Amount, error) {
		return nil, errors.New("no metrics API")
	})
	w.runOnce(noon)
	require.Len(t, w.writes(), 2, "the node looks, too")
}
