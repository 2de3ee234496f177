package updater

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/updater/actuate"
)

func restartsForMemory(p *corev1.Pod) {
	p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	has := *p.Spec.Containers[0].Resources.DeepCopy()
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &has}}
}

// allowUnready lets a PodDisruptionBudget allow a number of pods that are not ready. As in the API
// server, a dry run takes nothing from the budget. The test fails if a pod is evicted.
func (w *world) allowUnready(unready int) {
	w.kube.PrependReactor("create", "pods/eviction", func(a ktesting.Action) (bool, runtime.Object, error) {
		eviction := a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction)
		left := unready
		for i := range 5 {
			pod, err := w.kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "web-1-"+strconv.Itoa(i))
			if err != nil || !isReady(pod.(*corev1.Pod)) {
				left--
			}
		}
		if left <= 0 {
			return true, nil, apierrors.NewTooManyRequestsError("Cannot evict pod as it would violate the pod's disruption budget.")
		}
		if len(eviction.DeleteOptions.DryRun) == 0 {
			w.t.Error("a pod was evicted: " + eviction.Name)
		}
		return true, nil, nil
	})
}

func isReady(p *corev1.Pod) bool { return p.Status.Conditions[0].Status == corev1.ConditionTrue }

// updateStatus changes the status of a pod and waits for the informer cache.
func (w *world) updateStatus(name string, change func(*corev1.Pod)) {
	w.t.Helper()
	pod := w.pod(name)
	change(pod)
	_, err := w.kube.CoreV1().Pods("shop").Update(w.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.await("the change of the pod", func(p *corev1.Pod) bool {
		return p.Status.Conditions[0].Status == pod.Status.Conditions[0].Status && convert.RestartCount(p) == convert.RestartCount(pod)
	}, name)
}

func resized(p *corev1.Pod) bool {
	return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() == 200
}

func (w *world) resizes() (names []string) {
	for i := range 5 {
		if name := "web-1-" + strconv.Itoa(i); resized(w.pod(name)) {
			names = append(names, name)
		}
	}
	return names
}

// The check by a dry-run eviction takes nothing from the budget, so five pods would be allowed
// where the budget is for one.
func TestRestart_RespectsPodDisruptionBudget(t *testing.T) {
	config := Default()
	config.Disruption.Tolerance = 1
	w := newWorld(t, config, append(deployment(5, restartsForMemory), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.allowUnready(1)
	minute := 0
	pass := func(want ...string) {
		t.Helper()
		w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
		minute++
		require.Equal(t, want, w.resizes())
	}
	pass("web-1-0")
	require.Equal(t, []string{"create pods eviction", "patch pods resize", "patch pods "}, w.writes(), "asked right before, and marked")
	require.Equal(t, "2026-01-02T12:00:00Z after 0", w.pod("web-1-0").Annotations[convert.RestartAnnotation])
	require.EqualValues(t, 4, w.value("loadline_updater_skipped_pods", "reason", "RestartInProgress"))
	pass("web-1-0")
	w.await("the resize", resized, "web-1-0")
	pass("web-1-0")
	w.updateStatus("web-1-0", func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses[0].RestartCount = 1
		p.Status.ContainerStatuses[0].Resources = p.Spec.Containers[0].Resources.DeepCopy()
	})
	pass("web-1-0")
	w.loop.state = disruption.State{} // another process
	pass("web-1-0")
	w.updateStatus("web-1-0", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
	pass("web-1-0", "web-1-1")

	t.Run("so quick that it is never seen away", func(t *testing.T) {
		w.await("the resize", resized, "web-1-1")
		w.updateStatus("web-1-1", func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].RestartCount = 1
			p.Status.ContainerStatuses[0].Resources = p.Spec.Containers[0].Resources.DeepCopy()
		})
		pass("web-1-0", "web-1-1", "web-1-2")
	})
	t.Run("another pod is away for another reason", func(t *testing.T) {
		w.await("the resize", resized, "web-1-2")
		w.updateStatus("web-1-2", func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].RestartCount = 1
			p.Status.ContainerStatuses[0].Resources = p.Spec.Containers[0].Resources.DeepCopy()
		})
		w.updateStatus("web-1-4", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
		pass("web-1-0", "web-1-1", "web-1-2")
		require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "EvictionRefused"), "the API server counts it")
	})
}

func (w *world) addBudget(name string) {
	w.t.Helper()
	require.NoError(w.t, w.kube.Tracker().Add(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}))
	require.Eventually(w.t, func() bool {
		known, err := w.caches.constraints.Policy().V1().PodDisruptionBudgets().Lister().PodDisruptionBudgets("shop").Get(name)
		return err == nil && known != nil
	}, time.Minute, time.Millisecond)
}

// Iterations and the end of startup boosts restart pods concurrently, before the caches show each
// other's restarts.
func TestEviction_WaitsForRestartInSameBudget(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
	w.now = noon
	w.addBudget("web")
	leave, err := w.loop.planner.Budgets.Reserve(w.pod("web-1-3"), true, w.now)
	require.NoError(t, err)
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "RestartInProgress"))
	leave()
	w.runOnce(noon)
	require.Len(t, w.evictions(), 2)
}

// A resize that the node never applies holds the budget for an hour. Both the plan and the last
// check release it.
func TestRestart_OfPodWithoutVPAReleasesBudget(t *testing.T) {
	silent := deployment(1, restartsForMemory)[2].(*corev1.Pod)
	silent.Name, silent.UID, silent.OwnerReferences = "silent", "silent", nil
	silent.Spec.Containers[0].Resources.Requests = list("300m", "300Mi")
	w := newWorld(t, Default(), append(deployment(2, restartsForMemory), autoscaler(vpav1.UpdateModeInPlaceOrRecreate), silent)...)
	w.addBudget("web")
	w.refuse("create", "pods/eviction", nil)
	for minute := range 60 {
		w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
		require.Empty(t, w.writes(), minute)
	}
	require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "RestartInProgress"))
	w.runOnce(noon.Add(time.Hour))
	require.Contains(t, w.writes(), "patch pods resize")
}

// A refused restart holds no budget. An unanswered one does, because it may have happened.
func TestRestart_RefusalReleasesBudget(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		free bool
	}{
		{name: "refused", err: invalid("web-1-0"), free: true},
		{name: "timeout", err: apierrors.NewTimeoutError("slow", 1), free: false},
		{name: "connection lost", err: errors.New("connection reset"), free: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(2, restartsForMemory), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
			w.refuse("patch", "pods", tc.err)
			w.refuse("create", "pods/eviction", nil)
			w.runOnce(noon)
			_, err := w.loop.planner.Budgets.Reserve(w.pod("web-1-1"), true, w.now)
			require.Equal(t, tc.free, err == nil, err)
		})
	}
}

// One pod always uses all of its memory or panics.
func TestRestart_UnchangeablePodDoesNotBlockOthers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		restarts bool
		memory   func() (map[string]resources.Amount, error)
		reason   string
	}{
		{name: "memory in use, with a restart", restarts: true, memory: func() (map[string]resources.Amount, error) {
			return map[string]resources.Amount{"app": 2040 << 20}, nil
		}, reason: "MemoryInUse"},
		{name: "memory in use, without a restart", memory: func() (map[string]resources.Amount, error) {
			return map[string]resources.Amount{"app": 2040 << 20}, nil
		}, reason: "MemoryInUse"},
		{name: "panic", restarts: true, memory: func() (map[string]resources.Amount, error) { panic("unforeseen") },
			reason: "InternalError"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			large := func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
					Requests: list("200m", "1Gi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
				}
				if tc.restarts {
					restartsForMemory(p)
				}
			}
			w := newWorld(t, Default(), append(deployment(2, large), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
			w.refuse("create", "pods/eviction", nil)
			usage := func(_ context.Context, _, pod string) (map[string]resources.Amount, error) {
				if pod == "web-1-0" {
					return tc.memory()
				}
				return map[string]resources.Amount{"app": 1 << 20}, nil
			}
			w.loop.runner.Executor.(*actuate.Cluster).Usage = usageOf(usage)
			w.runOnce(noon)
			require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", tc.reason))
			require.Equal(t, "1Gi", w.pod("web-1-1").Spec.Containers[0].Resources.Requests.Memory().String())
			w.runOnce(noon.Add(time.Minute))
			require.Equal(t, "200Mi", w.pod("web-1-1").Spec.Containers[0].Resources.Requests.Memory().String())
		})
	}
}
