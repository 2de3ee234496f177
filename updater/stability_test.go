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
	for name, c := range map[string]struct {
		mode    vpav1.UpdateMode
		objects []runtime.Object
		room    string
		reason  reason.Reason
		acts    bool
	}{
		"room":                     {vpav1.UpdateModeInPlaceOrRecreate, []runtime.Object{node("n1", "900m"), other}, roomFree, "", true},
		"no room in place":         {vpav1.UpdateModeInPlaceOrRecreate, []runtime.Object{node("n1", "850m"), other}, roomFree, "", true},
		"no room anywhere":         {vpav1.UpdateModeRecreate, []runtime.Object{node("n1", "850m"), other}, roomFree, reason.NodeFull, false},
		"a node that can be added": {vpav1.UpdateModeRecreate, []runtime.Object{node("n1", "850m"), other}, roomSize, "", true},
		"not asked":                {vpav1.UpdateModeRecreate, []runtime.Object{node("n1", "850m"), other, quota}, roomOff, "", true},
		"another node":             {vpav1.UpdateModeRecreate, []runtime.Object{node("n1", "850m"), node("n2", "1"), other}, roomFree, "", true},
		"too small nodes":          {vpav1.UpdateModeRecreate, []runtime.Object{node("n1", "150m")}, roomSize, reason.TooLargeForNode, false},
		"quota beside the old pod": {vpav1.UpdateModeRecreate, []runtime.Object{node("n1", "4"), left150}, roomFree, reason.QuotaFull, false},
		"quota for more":           {vpav1.UpdateModeInPlaceOrRecreate, []runtime.Object{node("n1", "4"), left150}, roomFree, "", true},
		"quota of such pods":       {vpav1.UpdateModeInPlaceOrRecreate, []runtime.Object{node("n1", "4"), scoped(corev1.ResourceQuotaScopeNotTerminating)}, roomFree, reason.QuotaFull, false},
		"quota of other pods":      {vpav1.UpdateModeInPlaceOrRecreate, []runtime.Object{node("n1", "4"), scoped(corev1.ResourceQuotaScopeTerminating)}, roomFree, "", true},
		"quota":                    {vpav1.UpdateModeInPlaceOrRecreate, []runtime.Object{node("n1", "4"), quota}, roomFree, reason.QuotaFull, false},
	} {
		config := Default()
		config.EvictionRoom = c.room
		w := newWorld(t, config, append(web(c.mode, 2), c.objects...)...)
		w.caches.constraints.WaitForCacheSync(t.Context().Done())
		w.runOnce(noon)
		require.Equal(t, c.acts, len(w.writes()) > 0, name)
		if c.reason != "" {
			require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", c.reason.String()), name)
		}
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
	for name, c := range map[string]struct {
		mode   vpav1.UpdateMode
		node   *corev1.Node
		first  func(*corev1.Pod) // changes pod web-1-0
		writes []string
		alone  float64
	}{
		"nothing is known":       {vpav1.UpdateModeInPlace, node("n1", "8"), guaranteed, []string{"patch pods resize", "patch pods "}, 0},
		"a label":                {vpav1.UpdateModeInPlace, labelled, guaranteed, nil, 2},
		"a label, or recreate":   {vpav1.UpdateModeInPlaceOrRecreate, labelled, guaranteed, []string{"create pods eviction", "create pods eviction"}, 0},
		"a refusal":              {vpav1.UpdateModeInPlace, node("n1", "8"), refused, nil, 1},
		"a refusal, or recreate": {vpav1.UpdateModeInPlaceOrRecreate, node("n1", "8"), refused, []string{"create pods eviction", "create pods eviction"}, 0},
	} {
		config := Default()
		config.Gates.InPlace = true
		objects := append(deployment(2, guaranteed), autoscaler(c.mode), c.node)
		for _, o := range objects {
			if pod, ok := o.(*corev1.Pod); ok && pod.Name == "web-1-0" {
				c.first(pod)
			}
		}
		w := newWorld(t, config, objects...)
		w.caches.constraints.WaitForCacheSync(t.Context().Done())
		w.runOnce(noon)
		require.Equal(t, c.writes, w.writes(), name)
		require.EqualValues(t, c.alone, w.value("loadline_updater_skipped_pods", "reason", "StaticCPU"), name)
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
	for name, c := range map[string]struct {
		vpa   *vpav1.VerticalPodAutoscaler
		rose  string
		pods  func(*corev1.Pod)
		cause bool
	}{
		"its pod was killed":    {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "web-vpa", killed, true},
		"nothing was killed":    {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "web-vpa", nil, false},
		"another one rose":      {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "other", killed, false},
		"one that is gone":      {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "gone", killed, false},
		"one without a target":  {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "lost", killed, false},
		"one that never evicts": {autoscaler(vpav1.UpdateModeInPlace), "web-vpa", killed, true},
		"one without resizes":   {autoscaler(vpav1.UpdateModeRecreate), "web-vpa", killed, false},
		"one that is off":       {autoscaler(vpav1.UpdateModeOff), "web-vpa", killed, false},
		"ready again": {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "web-vpa", func(p *corev1.Pod) {
			killed(p)
			p.Status.ContainerStatuses[0].Ready = true
		}, true},
		"ready again for long": {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "web-vpa", func(p *corev1.Pod) {
			killed(p)
			p.Status.ContainerStatuses[0].Ready = true
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.NewTime(noon.Add(-time.Hour))
		}, false},
		"ended otherwise": {autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "web-vpa", func(p *corev1.Pod) {
			killed(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = "Error"
		}, false},
	} {
		w := newWorld(t, Default(), append(deployment(1, c.pods), c.vpa, other, lost, elsewhere)...)
		require.Equal(t, c.cause, w.loop.HasOOMKilled(t.Context(), []cache.ObjectName{cache.NewObjectName("shop", c.rose)}, noon), name)
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
	for name, c := range map[string]struct { // recommended: 200m and 200Mi, with a limit of 400Mi
		pod           func(*corev1.Pod)
		used          resources.Amount
		request, want int64 // memory in MiB, rounded, 0: skipped
	}{
		"enough is left":                         {pod("200m", "1Gi", "2Gi"), 350 << 20, 200, 400},
		"a smaller cut in place of none":         {pod("200m", "1Gi", "2Gi"), 720 << 20, 400, 800},
		"a smaller cut of little worth":          {pod("200m", "1Gi", "2Gi"), 1700 << 20, 0, 0},
		"nothing can be cut":                     {pod("200m", "1Gi", "2Gi"), 2040 << 20, 0, 0},
		"nothing can be cut, but there is CPU":   {pod("100m", "1Gi", "2Gi"), 2040 << 20, 1024, 2048},
		"the node gave more than it should have": {pod("200m", "1Gi", "2Gi"), 3000 << 20, 0, 0},
	} {
		w := newWorld(t, Default(), append(deployment(2, c.pod), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
		w.loop.runner.Executor.(*actuate.Cluster).Usage = usageOf(func(_ context.Context, namespace, pod string) (map[string]resources.Amount, error) {
			require.Equal(t, "shop", namespace)
			return map[string]resources.Amount{"app": c.used}, nil
		})
		w.runOnce(noon)
		if c.want == 0 {
			require.Empty(t, w.writes(), name)
			require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "MemoryInUse"), name)
			continue
		}
		require.Len(t, w.writes(), 2, name)
		got := w.pod("web-1-0").Spec.Containers[0].Resources
		require.Equal(t, c.request, (got.Requests.Memory().Value()+1<<19)>>20, name)
		require.Equal(t, c.want, (got.Limits.Memory().Value()+1<<19)>>20, name)
		require.Equal(t, "200m", got.Requests.Cpu().String(), name)
		require.Contains(t, strings.Join(w.drainEvents(), "\n"), report.EventResized, name)
	}
	w := newWorld(t, Default(), append(deployment(2, pod("200m", "1Gi", "2Gi")), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.loop.runner.Executor.(*actuate.Cluster).Usage = usageOf(func(context.Context, string, string) (map[string]resources.Amount, error) {
		return nil, errors.New("no metrics API")
	})
	w.runOnce(noon)
	require.Len(t, w.writes(), 2, "the node looks, too")
}
