package updater

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/actuate"
)

// boostedPod gives a pod 400m of CPU, 300m of them as a boost, and an hour of readiness.
func boostedPod(p *corev1.Pod) {
	p.Annotations = map[string]string{"vpaCpuStartupBoost/app": `{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{"memory":"200Mi"}}`, "vpaObservedContainers": "app"}
	p.Spec.Containers[0].Resources.Requests = list("400m", "100Mi")
	p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
}

func (w *world) runBoosts() {
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.boosts.Run(ctx) }()
	w.t.Cleanup(func() { stop(); <-ended })
}

func (w *world) cpu(name string) string {
	return w.pod(name).Spec.Containers[0].Resources.Requests.Cpu().String()
}

func (w *world) awaitBoostRemoved(name string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.pod(name).Annotations["vpaCpuStartupBoost/app"] == "" }, time.Minute, 5*time.Millisecond)
}

func TestBoost_RemovalNeedsNoEvictionBudget(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(1, boostedPod), autoscaler(vpav1.UpdateModeInitial))...)
	w.runBoosts()
	w.awaitBoostRemoved("web-1-0")
	require.Equal(t, "200m", w.cpu("web-1-0"), "one replica, below the minimum, in mode Initial")
	require.Equal(t, "true", w.pod("web-1-0").Annotations["vpaInPlaceUpdated"])
	require.Equal(t, "app", w.pod("web-1-0").Annotations["vpaObservedContainers"])
	require.Eventually(t, func() bool {
		return w.value("vpa_updater_in_place_updated_pods_total", "vpa_name", "web-vpa") == 1
	}, time.Minute, time.Millisecond)
}

// The end of a boost must not override a policy that holds running pods or keeps resources after
// harm.
func TestBoost_RemovalFollowsPolicy(t *testing.T) {
	policy := sizingPolicy(loadlinev1alpha1.RolloutModeAuto)
	harmed := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web", Controller: new(false), BlockOwnerDeletion: new(false)}}},
		Status: loadlinev1alpha1.SizingRecordStatus{Mode: "Auto", PolicyHash: convert.RolloutSettings(policy).Hash,
			Kept:     []loadlinev1alpha1.ContainerSizes{{Name: "app", Requests: loadlinev1alpha1.Sizes(list("100m", "100Mi"))}},
			Reverted: []loadlinev1alpha1.RevertedSizes{{ContainerSizes: loadlinev1alpha1.ContainerSizes{Name: "app", Requests: loadlinev1alpha1.Sizes(list("50m", "50Mi"))}, Time: metav1.Now()}},
		}}
	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		mode    vpav1.UpdateMode
		want    string
	}{
		{name: "no policy", objects: deployment(2, boostedPod), mode: vpav1.UpdateModeInPlaceOrRecreate, want: "50m 50Mi"},
		{name: "less did harm", objects: append(deployment(2, boostedPod), policy, harmed), mode: vpav1.UpdateModeInPlaceOrRecreate, want: "100m 100Mi"},
		{name: "opted out", objects: append(annotated(deployment(2, boostedPod), fleet.SkipAnnotation, "true"), policy), mode: vpav1.UpdateModeInPlaceOrRecreate, want: "100m 100Mi"},
		{name: "opted out, new pods only", objects: append(annotated(deployment(2, boostedPod), fleet.SkipAnnotation, "true"), policy), mode: vpav1.UpdateModeInitial, want: "100m 100Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := roll(t, Default(), append(tc.objects, lowering(autoscaler(tc.mode)), healthy("n1"))...)
			r.runBoosts()
			r.awaitBoostRemoved("web-1-0")
			require.Equal(t, tc.want, r.requests("web-1-0"))
		})
	}
}

// Users may create a VPA with a new name for each boost and delete it before the next iteration.
func TestBoost_RemovesCountersOfDeletedVPAs(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(1, boostedPod), autoscaler(vpav1.UpdateModeInitial))...)
	count := func(vpa string) float64 {
		return w.value("vpa_updater_in_place_updated_pods_total", "vpa_name", vpa) +
			w.value("vpa_updater_failed_in_place_update_attempts_total", "vpa_name", vpa) +
			w.value("loadline_updater_reverts_total", "vpa_name", vpa)
	}
	for i, vpa := range []string{"web-vpa", "deleted-vpa"} {
		name := cache.NewObjectName("shop", vpa)
		w.loop.metrics.BoostRemoved(name, nil)
		w.loop.metrics.BoostRemoved(name, errors.New("refused"))
		w.loop.metrics.Reverted(name, rollout.OOMKill)
		require.EqualValues(t, 3, count(vpa))
		w.runOnce(noon.Add(time.Duration(i) * time.Minute))
	}
	require.EqualValues(t, 3, count("web-vpa"))
	require.Zero(t, count("deleted-vpa"))
}

// Another replica of the webhook may have admitted the VPA just before the pod.
func TestBoost_AddsBoostMissedByWebhook(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod, *vpav1.VerticalPodAutoscaler)
		admit  func(*corev1.Pod) error // nil: adds the boost
		want   string
	}{
		{name: "new pod", want: "300m"},
		{name: "seen by the webhook", want: "100m", change: func(p *corev1.Pod, _ *vpav1.VerticalPodAutoscaler) {
			p.Annotations = map[string]string{"vpaObservedContainers": "app"}
		}},
		{name: "older than its VPA", want: "100m", change: func(_ *corev1.Pod, vpa *vpav1.VerticalPodAutoscaler) {
			vpa.CreationTimestamp = metav1.NewTime(time.Now().Add(5 * time.Second))
		}},
		{name: "no longer young", want: "100m", change: func(p *corev1.Pod, _ *vpav1.VerticalPodAutoscaler) {
			p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
		}},
		{name: "no boost", want: "100m", change: func(_ *corev1.Pod, vpa *vpav1.VerticalPodAutoscaler) { vpa.Spec.StartupBoost = nil }},
		{name: "the webhook does not answer", want: "100m", admit: func(*corev1.Pod) error { return nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			vpa := autoscaler(vpav1.UpdateModeInitial)
			vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3)), DurationSeconds: new(int32(3600))}}
			objects := deployment(1, func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.Now()
				p.Status.Conditions[0].LastTransitionTime = metav1.Now() // or the boost would be over
				if tc.change != nil {
					tc.change(p, vpa)
				}
			})
			w := newWorld(t, Default(), append(objects, vpa)...)
			w.admit = func(p *corev1.Pod) error {
				p.Annotations = map[string]string{"vpaObservedContainers": "app", "vpaCpuStartupBoost/app": `{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{"memory":"200Mi"}}`}
				p.Spec.Containers[0].Resources.Requests = list("300m", "200Mi")
				return nil
			}
			if tc.admit != nil {
				w.admit = tc.admit
			}
			w.runBoosts()
			if tc.want == "100m" {
				time.Sleep(1500 * time.Millisecond)
				require.Empty(t, w.writes())
				return
			}
			require.Eventually(t, func() bool { return w.cpu("web-1-0") == tc.want }, time.Minute, 5*time.Millisecond)
			pod := w.pod("web-1-0")
			require.Equal(t, "100Mi", pod.Spec.Containers[0].Resources.Requests.Memory().String(), "the boost is of CPU alone")
			require.Contains(t, pod.Annotations, "vpaCpuStartupBoost/app", "it is taken back when it is over")
			require.Equal(t, "app", pod.Annotations["vpaObservedContainers"])
			told := ""
			require.Eventually(t, func() bool {
				told += strings.Join(w.drainEvents(), "\n")
				return strings.Contains(told, "Startup boost added: cpu up")
			}, time.Minute, 5*time.Millisecond)
			time.Sleep(1500 * time.Millisecond)
			require.Len(t, w.replaced, 1, "given once")
		})
	}
}

func TestBoost_RemovedWithoutVPA(t *testing.T) {
	config := Default()
	w := newWorld(t, config, deployment(1, boostedPod)...)
	w.runBoosts()
	w.awaitBoostRemoved("web-1-0")
	require.Equal(t, "100m", w.cpu("web-1-0"), "what was written")
}

// Five searches take 3.1 s. The pod may still have a VPA, so its original resources must not be
// restored.
func TestBoost_KeptWhileOwnerIsUnknown(t *testing.T) {
	config := Default()
	objects := append(deployment(1, boostedPod), autoscaler(vpav1.UpdateModeInitial))
	replicaSet := objects[1].(*appsv1.ReplicaSet)
	w := newWorld(t, config, slices.Delete(objects, 1, 2)...)
	w.runBoosts()
	time.Sleep(3500 * time.Millisecond)
	require.Empty(t, w.writes())
	_, err := w.kube.AppsV1().ReplicaSets("shop").Create(t.Context(), replicaSet, metav1.CreateOptions{})
	require.NoError(t, err)
	w.awaitBoostRemoved("web-1-0")
	require.Equal(t, "200m", w.cpu("web-1-0"), "what is recommended")
}

func TestBoost_KeptWhileStatusIsOutdated(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(1, boostedPod), withTarget(autoscaler(vpav1.UpdateModeInitial), "web", 2, 1))...)
	w.runBoosts()
	time.Sleep(300 * time.Millisecond)
	require.Empty(t, w.writes())
}

func TestBoost_RemovedAfterDuration(t *testing.T) {
	config := Default()
	vpa := autoscaler(vpav1.UpdateModeRecreate)
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(2)), DurationSeconds: new(int32(3602))}}
	w := newWorld(t, config, append(deployment(1, boostedPod), vpa)...)
	w.runBoosts()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, w.writes())
	w.awaitBoostRemoved("web-1-0")
}

type stalePodLister struct {
	corelisters.PodLister
	corelisters.PodNamespaceLister
	pod *corev1.Pod
}

func (b stalePodLister) List(labels.Selector) ([]*corev1.Pod, error) {
	return []*corev1.Pod{b.pod}, nil
}
func (b stalePodLister) Pods(string) corelisters.PodNamespaceLister { return b }
func (b stalePodLister) Get(string) (*corev1.Pod, error)            { return b.pod, nil }

func TestBoost_RemovedOnceWithStaleCache(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(1, boostedPod), autoscaler(vpav1.UpdateModeInitial))...)
	w.boosts.Pods = stalePodLister{pod: w.pod("web-1-0")}
	w.runBoosts()
	w.awaitBoostRemoved("web-1-0")
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, []string{"patch pods resize", "patch pods "}, w.writes())
}

func TestBoost_PostponesUpdates(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(2, func(p *corev1.Pod) {
		boostedPod(p)
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.runOnce(noon)
	require.Empty(t, w.writes())
	require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "Boosted"))
}

func TestBoost_RetriesFailedRemoval(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(1, boostedPod), autoscaler(vpav1.UpdateModeInitial))...)
	w.refuse("patch", "pods", apierrors.NewInternalError(errors.New("etcd is away")))
	w.runBoosts()
	failed := func() float64 {
		return w.value("vpa_updater_failed_in_place_update_attempts_total", "reason", "UnboostError")
	}
	require.Eventually(t, func() bool { return failed() >= 2 }, time.Minute, time.Millisecond)
}

func TestBoost_RemovalWithRestartNeedsBudget(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(4, func(p *corev1.Pod) {
		boostedPod(p)
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	}), autoscaler(vpav1.UpdateModeInitial))...)
	w.runBoosts()
	unboosted := func() (n int) {
		for i := range 4 {
			if w.pod(fmt.Sprintf("web-1-%d", i)).Annotations["vpaCpuStartupBoost/app"] == "" {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return unboosted() == 1 }, time.Minute, time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, 1, unboosted())
	for _, e := range w.evicted {
		require.Equal(t, []string{metav1.DryRunAll}, e.DeleteOptions.DryRun)
	}

	t.Run("a disruption budget forbids it", func(t *testing.T) {
		w := newWorld(t, config, append(deployment(4, func(p *corev1.Pod) {
			boostedPod(p)
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		}), autoscaler(vpav1.UpdateModeInitial))...)
		w.refuse("create", "pods/eviction", apierrors.NewTooManyRequestsError("budget"))
		w.runBoosts()
		require.Eventually(t, func() bool {
			return w.value("vpa_updater_failed_in_place_update_attempts_total", "reason", "UnboostError") > 0
		}, time.Minute, time.Millisecond)
		require.Equal(t, "400m", w.cpu("web-1-0"))
	})
}

// The recommendation may move while a pod starts. A memory change must neither block the end of the
// boost nor restart the pod, so it waits for an iteration.
func TestBoost_RemovalPostponesMemory(t *testing.T) {
	config := Default()
	large := func(p *corev1.Pod) {
		boostedPod(p)
		p.Spec.Containers[0].Resources.Requests = list("400m", "210Mi")
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("420Mi")}
	}
	memory := func(w *world) string { return w.pod("web-1-0").Spec.Containers[0].Resources.Limits.Memory().String() }
	t.Run("in use", func(t *testing.T) {
		w := newWorld(t, config, append(deployment(1, large), autoscaler(vpav1.UpdateModeInitial))...)
		w.loop.runner.Executor.(*actuate.Cluster).Usage = usageOf(func(context.Context, string, string) (map[string]resources.Amount, error) {
			return map[string]resources.Amount{"app": 390 << 20}, nil
		})
		w.runBoosts()
		w.awaitBoostRemoved("web-1-0")
		require.Equal(t, "200m", w.cpu("web-1-0"))
		require.Equal(t, "420Mi", memory(w))
	})
	t.Run("it would restart", func(t *testing.T) {
		w := newWorld(t, config, append(deployment(1, func(p *corev1.Pod) {
			large(p)
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}), autoscaler(vpav1.UpdateModeInitial))...)
		w.runBoosts()
		w.awaitBoostRemoved("web-1-0")
		require.Equal(t, []string{"patch pods resize", "patch pods "}, w.writes(), "no budget, and no restart")
		require.Equal(t, "200m", w.cpu("web-1-0"))
		require.Equal(t, "420Mi", memory(w))
	})
}

func TestDryRun_KeepsBoost(t *testing.T) {
	config := Default()
	w := newWorld(t, config, append(deployment(1, boostedPod), autoscaler(vpav1.UpdateModeInitial))...)
	out := &lines{said: make(chan string, 10)}
	w.boosts.Executor = &actuate.DryRun{Out: out}
	w.runBoosts()
	select {
	case text := <-out.said:
		require.Equal(t, "would remove the startup boost of pod shop/web-1-0 (VPA web-vpa, BoostOver): app cpu 400m -> 200m, app memory 100Mi -> 200Mi, app limit memory 200Mi -> 400Mi\n", text)
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was printed")
	}
	require.Empty(t, w.writes())
}

type lines struct{ said chan string }

func (l *lines) Write(text []byte) (int, error) {
	l.said <- string(text)
	return len(text), nil
}

// The static CPU manager policy takes no CPU back from Guaranteed pods. Such a pod would be
// refused, evicted and boosted again forever.
func TestBoost_KeptUnderStaticCPUPolicy(t *testing.T) {
	config := Default()
	static := node("n1", "8")
	static.Labels = map[string]string{"cpumanager": "true"}
	guaranteed := func(p *corev1.Pod) {
		boostedPod(p)
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("400m", "100Mi"), Limits: list("400m", "100Mi")}
	}
	w := newWorld(t, config, append(deployment(4, guaranteed), autoscaler(vpav1.UpdateModeInPlaceOrRecreate), static)...)
	w.caches.constraints.WaitForCacheSync(t.Context().Done())
	w.runOnce(noon)
	w.runBoosts()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, w.writes())
	require.EqualValues(t, 4, w.value("loadline_updater_skipped_pods", "reason", "StaticCPU"))

	w = newWorld(t, config, append(deployment(1, guaranteed), autoscaler(vpav1.UpdateModeInPlaceOrRecreate), node("n1", "8"))...)
	w.runBoosts()
	w.awaitBoostRemoved("web-1-0")
}
