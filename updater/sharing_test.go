package updater

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	logtesting "k8s.io/klog/v2/ktesting"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

// sharingPolicy returns a policy in mode Recommend with a sharing recipe and spec.sharing in a
// mode.
func sharingPolicy(mode loadlinev1alpha1.SharingMode, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, append([]func(*loadlinev1alpha1.SizingPolicySpec){func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Recipe, s.Sharing = new("cruisekube"), &loadlinev1alpha1.Sharing{Mode: &mode}
	}}, changes...)...)
}

func evicting(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.Evict, s.Rollout.Method = new(true), new(loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
}

func automatic(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeAuto)
}

// peakingVPA returns a generated VPA with a base of 0.5 cores and a peak of 1.4 cores.
func peakingVPA() *vpav1.VerticalPodAutoscaler {
	vpa := generatedVPA()
	c := &vpa.Status.Recommendation.ContainerRecommendations[0]
	c.LowerBound, c.Target, c.UpperBound = list("500m", "100Mi"), list("1400m", "200Mi"), list("2", "200Mi")
	return vpa
}

// kubelet returns a node that can resize pods in place.
func kubelet(name, cpu string, changes ...func(*corev1.Node)) *corev1.Node {
	n := node(name, cpu)
	n.Status.NodeInfo.KubeletVersion = "v1.33.2"
	for _, change := range changes {
		change(n)
	}
	return n
}

// peakingPods returns the Deployment with pods that request 1.4 cores.
func peakingPods(pods int, change func(*corev1.Pod)) []runtime.Object {
	return deployment(pods, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = list("1400m", "200Mi")
		if change != nil {
			change(p)
		}
	})
}

func (w *world) shares(now time.Time) *shares.Round {
	w.t.Helper()
	it, err := w.loop.read(w.t.Context(), now, func(string) {})
	require.NoError(w.t, err)
	found, err := w.loop.shareRounds.Sharing.RunRound(w.t.Context(), it.input(), now, shares.SharingStates{})
	require.NoError(w.t, err)
	return found
}

func (w *world) runSharing(ctx context.Context, now time.Time) {
	w.t.Helper()
	it, err := w.loop.read(w.t.Context(), now, func(string) {})
	require.NoError(w.t, err)
	w.loop.shareRounds.Run(ctx, it.input(), now)
}

// sharingMetrics formats the sharing metrics: pods, headroom and saved cores, saved bytes,
// evictions.
func (w *world) sharingMetrics() string {
	value := func(name string) float64 { return w.value("loadline_sharing_"+name, "mode", "DryRun") }
	return fmt.Sprintf("%g pods, headroom %.3f, saved %.3f, %g bytes, %g evictions", value("pods"), value("headroom_cores"), value("saved_cores"), value("saved_bytes"), value("evictions_total"))
}

// Three equal pods with a base of 0.5 and a peak of 1.4 cores would get 0.8 cores each instead of
// 1.4.
func TestSharingDryRun_SetsMetricsWithoutWrites(t *testing.T) {
	for name, mode := range map[string]func(*loadlinev1alpha1.SizingPolicySpec){"that only recommends": func(*loadlinev1alpha1.SizingPolicySpec) {}, "that changes pods": automatic} {
		t.Run("under a policy "+name, func(t *testing.T) {
			w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun, mode), kubelet("n1", "8"))...)
			w.vpa.ClearActions()
			w.runOnce(noon)
			require.Equal(t, "3 pods, headroom 0.900, saved 1.800, 0 bytes, 0 evictions", w.sharingMetrics())
			require.Empty(t, w.writes())
			for _, a := range w.vpa.Actions() {
				require.Contains(t, []string{"get", "list", "watch"}, a.GetVerb())
			}
			require.Empty(t, w.drainEvents())
		})
	}
}

func TestSharingRound_LogsChangedNodes(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"), kubelet("n2", "8"))...)
	require.Equal(t, []string{
		"Sharing, dry run[node n1 pods 3 shrink 3 grow 0 cpu available 8.000 cores, bases 1.500 cores, headroom 0.900 cores, requested 4.200 cores, saved 1.800 cores]",
		"Sharing, dry run: a policy[policy fleet pods 3]",
	}, w.sharingLogs(noon))
	require.Equal(t, []string{"Sharing, dry run: a policy[policy fleet pods 3]"}, w.sharingLogs(noon.Add(5*time.Minute)), "nothing else is to be said of the node")
	n := kubelet("n1", "9")
	_, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.shares(noon).Nodes[0].Available[resources.CPU] == 9000 }, time.Minute, 10*time.Millisecond)
	require.Contains(t, w.sharingLogs(noon.Add(10 * time.Minute))[0], "available 9.000 cores")
}

func (w *world) sharingLogs(now time.Time) (lines []string) {
	logger := logtesting.NewLogger(w.t, logtesting.NewConfig(logtesting.BufferLogs(true)))
	underlier, _ := logger.GetSink().(logtesting.Underlier)
	w.loop.RunOnce(klog.NewContext(w.t.Context(), logger), now)
	for _, e := range underlier.GetBuffer().Data() {
		if strings.HasPrefix(e.Message, "Sharing") {
			lines = append(lines, fmt.Sprint(e.Message, e.ParameterKVList))
		}
	}
	return lines
}

func TestSharingRound_RetriedByNextIteration(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))...)
	known := false
	w.loop.shareRounds.Sharing.NodeInformer = syncedWhen(func() bool { return known })
	w.runOnce(noon)
	require.NotContains(t, strings.Join(describe(w.registry, t), "\n"), "loadline_sharing_pods")
	known = true
	ended, end := context.WithCancel(t.Context())
	end()
	w.runSharing(ended, noon.Add(time.Minute))
	require.NotContains(t, strings.Join(describe(w.registry, t), "\n"), "loadline_sharing_pods", "there was no time left")
	w.runOnce(noon.Add(2 * time.Minute))
	require.Contains(t, w.sharingMetrics(), "3 pods")
}

func TestSharingRound_EveryFiveMinutes(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))...)
	w.runOnce(noon.Add(3 * time.Minute))
	require.NoError(t, w.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-1-2", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := w.caches.pods.Core().V1().Pods().Lister().Pods("shop").Get("web-1-2")
		return err != nil
	}, time.Minute, time.Millisecond)
	w.runOnce(noon.Add(4 * time.Minute))
	require.Contains(t, w.sharingMetrics(), "3 pods", "what is shown stays for five minutes")
	w.runOnce(noon.Add(5 * time.Minute))
	require.Equal(t, "2 pods, headroom 0.900, saved 0.900, 0 bytes, 0 evictions", w.sharingMetrics())
}

func TestSharingRound_ExclusionReasons(t *testing.T) {
	gpu := func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1") }
	created := func(at time.Time) func([]runtime.Object) {
		return func(objects []runtime.Object) {
			objects[0].(*appsv1.Deployment).CreationTimestamp = metav1.NewTime(at)
		}
	}
	template := func(key, value string) func([]runtime.Object) {
		return func(objects []runtime.Object) {
			objects[0].(*appsv1.Deployment).Spec.Template.Annotations = map[string]string{key: value}
		}
	}
	onPods := func(change func(*corev1.Pod)) func([]runtime.Object) {
		return func(objects []runtime.Object) {
			for _, o := range objects {
				if pod, ok := o.(*corev1.Pod); ok {
					change(pod)
				}
			}
		}
	}
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		node   *corev1.Node
		more   runtime.Object
		change func([]runtime.Object)
		want   map[string]int
	}{
		{name: "policy with mode Off", policy: sharingPolicy(loadlinev1alpha1.SharingOff)},
		{name: "another recipe", policy: sharingPolicy(loadlinev1alpha1.SharingDryRun, func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Recipe = new("loadline")
		}), want: map[string]int{"NoRecommendation": 2}},
		{name: "recommender's recipe", policy: sharingPolicy(loadlinev1alpha1.SharingDryRun, func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Recipe = nil
		}), want: map[string]int{"NoRecommendation": 2}},
		{name: "paused policy", policy: sharingPolicy(loadlinev1alpha1.SharingDryRun, pausedPolicy), want: map[string]int{"Excluded": 2}},
		{name: "sharing opted out", change: template("loadline.dev/sharing", "off"), want: map[string]int{"SharingOff": 2}},
		{name: "workload opted out", change: template("loadline.dev/skip", "true"), want: map[string]int{"Excluded": 2}},
		{name: "GPU node", node: kubelet("n1", "8", gpu), want: map[string]int{"GPUNode": 2}},
		{name: "new workload", change: created(noon.Add(-59 * time.Minute)), want: map[string]int{"NewWorkload": 2}},
		{name: "HPA on CPU", more: hpa(), want: map[string]int{"ManagedByHPA": 2}},
		{name: "Guaranteed", change: onPods(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }),
			want: map[string]int{"Guaranteed": 2}},
		{name: "pending pods", change: onPods(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
			want: map[string]int{"NotRunning": 2}},
		{name: "terminating pods", change: onPods(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/wait"}
		}), want: map[string]int{"Terminating": 2}},
		{name: "boosted pods", change: onPods(func(p *corev1.Pod) { p.Annotations = map[string]string{"vpaCpuStartupBoost/app": "{}"} }),
			want: map[string]int{"Boosted": 2}},
		{name: "pod-level resources",
			change: onPods(func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("2", "1Gi")} }),
			want:   map[string]int{"PodLevelResources": 2}},
		{name: "resize in progress", change: onPods(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: list("1", "200Mi")}}}
		}), want: map[string]int{"Resizing": 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.policy == nil {
				tc.policy = sharingPolicy(loadlinev1alpha1.SharingDryRun)
			}
			if tc.node == nil {
				tc.node = kubelet("n1", "8")
			}
			objects := append(peakingPods(2, nil), peakingVPA(), tc.policy, tc.node)
			if tc.change != nil {
				tc.change(objects)
			}
			if tc.more != nil {
				objects = append(objects, tc.more)
			}
			found := newWorld(t, Default(), objects...).shares(noon)
			if tc.want == nil {
				require.Nil(t, found)
				return
			}
			apart := map[string]int{}
			for why, pods := range found.Apart {
				apart[string(why)] = pods
			}
			require.Equal(t, tc.want, apart)
			require.Empty(t, found.Nodes)
		})
	}
}

func TestSharingRound_EvaluatesDifferingPods(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		pods   int
		bases  float64
	}{
		{name: "equal pods", change: func(*corev1.Pod) {}, pods: 4, bases: 2000},
		{name: "pod that no VPA selects", change: func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }, pods: 3,
			bases: 1500},
		{name: "overhead", change: func(p *corev1.Pod) { p.Spec.Overhead = list("100m", "10Mi") }, pods: 4, bases: 2100},
		{name: "boosted pod", change: func(p *corev1.Pod) { p.Annotations = map[string]string{"vpaCpuStartupBoost/app": "{}"} }, pods: 3,
			bases: 1500},
		{name: "another request", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("1", "200Mi") }, pods: 4,
			bases: 2000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			odd := 0
			w := newWorld(t, Default(), append(peakingPods(4, func(p *corev1.Pod) {
				if odd++; odd == 3 {
					tc.change(p)
				}
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &p.Spec.Containers[0].Resources}}
			}), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))...)
			n := w.shares(noon).Nodes[0]
			require.Equal(t, tc.pods, n.Pods)
			require.InDelta(t, tc.bases, n.Bases[resources.CPU], 1e-6)
		})
	}
}

// The pod itself does not change.
func TestSharingRound_IncludesWorkloadAfterMinAge(t *testing.T) {
	objects := append(peakingPods(2, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))
	objects[0].(*appsv1.Deployment).CreationTimestamp = metav1.NewTime(noon)
	w := newWorld(t, Default(), objects...)
	require.Empty(t, w.shares(noon.Add(59*time.Minute)).Nodes)
	require.Equal(t, 2, w.shares(noon.Add(time.Hour)).Nodes[0].Pods)
}

func TestSharingRound_SumsOfNode(t *testing.T) {
	other := func(name, node, cpu string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list(cpu, "1Gi")}}}}, Status: corev1.PodStatus{Phase: phase}}
	}
	going := other("going", "n1", "250m", corev1.PodRunning)
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/wait"}
	w := newWorld(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("100m", "10Mi")}}}
	}), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"),
		other("a", "n1", "500m", corev1.PodRunning), other("b", "n2", "500m", corev1.PodRunning), going)...)
	n := w.shares(noon).Nodes[0]
	require.InDelta(t, 7250, n.Available[resources.CPU], 1e-6, "what a pod that goes away requests is not free yet")
	require.InDelta(t, 1200, n.Bases[resources.CPU], 1e-6, "sidecars request what they always do")
	require.InDelta(t, 900, n.Headroom[resources.CPU], 1e-6)
	require.InDelta(t, 3000, n.Requested[resources.CPU], 1e-6)
	require.InDelta(t, 900, n.Saved[resources.CPU], 1e-6)
}

// minAllowed, maxAllowed and LimitRanges count in all sums, up to the current requests.
func TestSharingRound_LimitsCountInSums(t *testing.T) {
	vpa := peakingVPA()
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list("1", "0"), MaxAllowed: list("1200m", "1Gi")}}}
	least := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "least"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}
	above := peakingVPA() // minAllowed exceeds the peak
	above.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list("2", "0")}}}
	for _, tc := range []struct {
		name                   string
		limit                  []runtime.Object
		bases, headroom, saved float64
	}{
		{name: "limits of the VPA", limit: []runtime.Object{vpa}, bases: 3000, headroom: 200, saved: 400},
		{name: "limits of the namespace", limit: []runtime.Object{peakingVPA(), least}, bases: 3000, headroom: 400, saved: 800},
		{name: "minAllowed above the peak", limit: []runtime.Object{above}, bases: 4200, headroom: 0, saved: 0}, // bases: requests
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := append(peakingPods(3, nil), tc.limit...)
			objects = append(objects, sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))
			w := newWorld(t, Default(), objects...)
			n := w.shares(noon).Nodes[0]
			require.InDelta(t, tc.bases, n.Bases[resources.CPU], 1e-6)
			require.InDelta(t, tc.headroom, n.Headroom[resources.CPU], 1e-6)
			require.InDelta(t, tc.saved, n.Saved[resources.CPU], 1e-6)
		})
	}
}

func TestSharingRound_NodeProblems(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Node)
		problem reason.Reason
		saved   float64
	}{
		{name: "usual node", change: func(*corev1.Node) {}, saved: 900},
		{name: "kubelet of a 1.33 release", change: func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.33.0-gke.17" },
			saved: 900},
		{name: "old kubelet", change: func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.9" }, problem: reason.KubeletTooOld,
			saved: 900},
		{name: "unknown kubelet", change: func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "" }, problem: reason.KubeletTooOld,
			saved: 900},
		{name: "no allocatable resources", change: func(n *corev1.Node) { n.Status.Allocatable = nil }, problem: reason.AllocatableUnknown,
			saved: 0},
		{name: "no allocatable memory", change: func(n *corev1.Node) { delete(n.Status.Allocatable, corev1.ResourceMemory) },
			problem: reason.AllocatableUnknown, saved: 0},
		{name: "cordoned node", change: func(n *corev1.Node) { n.Spec.Unschedulable = true }, saved: 0},
		{name: "zero GPUs", change: func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0") }, saved: 900},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := append(peakingPods(2, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun))
			w := newWorld(t, Default(), append(objects, kubelet("n1", "8", tc.change))...)
			n := w.shares(noon).Nodes[0]
			require.Equal(t, tc.problem, n.Problem)
			require.Equal(t, 2, n.Pods)
			require.InDelta(t, tc.saved, n.Saved[resources.CPU], 1e-6)
			require.Equal(t, tc.problem == reason.AllocatableUnknown, n.Headroom[resources.CPU] == 0)
		})
	}
}

// The more conservative rule applies, and a resource that a pod does not share counts in full.
func TestSharingRound_TwoPoliciesOnOneNode(t *testing.T) {
	other := func(o metav1.Object) {
		o.SetNamespace("pay")
		o.SetUID(types.UID("pay-" + string(o.GetUID())))
	}
	memory := sharingPolicy(loadlinev1alpha1.SharingDryRun, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Namespaces.Names, s.Sharing.Resources, s.Recipe = []string{"pay"}, []corev1.ResourceName{"memory"}, new("loadline:cpu=shared,memory=following")
	})
	memory.Name = "pay"
	objects := append(peakingPods(2, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), memory, kubelet("n1", "8"))
	vpa := peakingVPA()
	vpa.Labels["loadline.dev/policy"] = "pay"
	for _, o := range append(peakingPods(2, nil), vpa) {
		other(o.(metav1.Object))
		objects = append(objects, o)
	}
	found := newWorld(t, Default(), objects...).shares(noon)
	n := found.Nodes[0]
	require.Equal(t, 4, n.Pods)
	require.Equal(t, 2, found.Policies["pay"].Pods)
	require.InDelta(t, 2*500+2*1400, n.Bases[resources.CPU], 1e-6, "two do not share CPU")
	require.InDelta(t, 900*1.4142135623730951, n.Headroom[resources.CPU], 1e-6, "pooled by the root: one of the recipes does")
	require.InDelta(t, float64((2*100+2*200)<<20), n.Bases[resources.Memory], 1, "two do not share memory")
	require.InDelta(t, 100*1.4142135623730951*(1<<20), n.Headroom[resources.Memory], 1)
}

func TestSharingRound_CountsEvictionsOnce(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(4, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun, evicting), kubelet("n1", "2"))...)
	w.runOnce(noon)
	require.Equal(t, "4 pods, headroom 0.900, saved 0.900, 0 bytes, 2 evictions", w.sharingMetrics())
	w.runOnce(noon.Add(5 * time.Minute))
	require.Contains(t, w.sharingMetrics(), " 2 evictions")
	require.Empty(t, w.evictions())

	w = newWorld(t, Default(), append(peakingPods(4, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "2"))...)
	w.runOnce(noon)
	require.Equal(t, "4 pods, headroom 0.000, saved 3.600, 0 bytes, 0 evictions", w.sharingMetrics(), "nobody leaves without evict, and there is no headroom")
	require.False(t, w.shares(noon).Nodes[0].Overcommitted[resources.CPU], "the bases fit exactly")
	w = newWorld(t, Default(), append(peakingPods(5, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "2"))...)
	require.True(t, w.shares(noon).Nodes[0].Overcommitted[resources.CPU])
}

// The minimum difference is a twentieth of the request.
func TestSharingRound_CountsMovesAboveThreshold(t *testing.T) {
	for cpu, want := range map[string][2]int{"1400m": {3, 0}, "843m": {3, 0}, "841m": {0, 0}, "800m": {0, 0}, "763m": {0, 0}, "761m": {0, 3}, "100m": {0, 3}} {
		w := newWorld(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list(cpu, "200Mi")
		}), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))...)
		n := w.shares(noon).Nodes[0]
		require.Equal(t, want, [2]int{n.Shrink, n.Grow}, cpu)
	}
}

func TestSharingRound_RespectsEvictionRanking(t *testing.T) {
	ranked := func(rank string) []runtime.Object {
		objects := append(peakingPods(4, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun, evicting), kubelet("n1", "2"))
		objects[0].(*appsv1.Deployment).Spec.Template.Annotations = map[string]string{"loadline.dev/eviction-ranking": rank}
		return objects
	}
	require.Len(t, newWorld(t, Default(), ranked("high")...).shares(noon).Nodes[0].Leaves, 2)
	require.Empty(t, newWorld(t, Default(), ranked("no-eviction")...).shares(noon).Nodes[0].Leaves)
	require.Empty(t, newWorld(t, Default(), ranked("never")...).shares(noon).Nodes[0].Leaves, "it cannot be read, so it is the most cautious one")
}

func TestSharingRound_ForgetsDeletedNode(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))...)
	require.Len(t, w.shares(noon).Nodes, 1)
	require.NoError(t, w.kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return len(w.shares(noon).Nodes) == 0 }, time.Minute, 10*time.Millisecond)
	_, err := w.kube.CoreV1().Nodes().Create(t.Context(), kubelet("n1", "8"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(w.shares(noon).Nodes) == 1 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, 3, w.shares(noon).Nodes[0].Pods, "its pods come back with it")
}

func TestSharingMetrics_RemovedWithPolicy(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun), kubelet("n1", "8"))...)
	w.runOnce(noon)
	require.Contains(t, w.sharingMetrics(), "3 pods")
	require.NoError(t, w.vpa.LoadlineV1alpha1().SizingPolicies().Delete(t.Context(), "fleet", metav1.DeleteOptions{}))
	w.awaitSkipReason(peakingVPA(), "PolicyUnknown")
	w.runOnce(noon.Add(5 * time.Minute))
	require.NotContains(t, strings.Join(describe(w.registry, t), "\n"), "loadline_sharing_pods")
}

// sharingCondition runs an iteration and returns the reason and message of the policy's Sharing
// condition.
func (w *world) sharingCondition(after time.Duration) string {
	w.t.Helper()
	w.runOnce(noon.Add(after))
	policy, err := w.vpa.LoadlineV1alpha1().SizingPolicies().Get(w.t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(w.t, err)
	c := meta.FindStatusCondition(policy.Status.Conditions, "Sharing")
	if c == nil {
		return ""
	}
	shares := c.Reason == "Shares" || c.Reason == "NodeOvercommitted"
	require.Equal(w.t, shares, c.Status == metav1.ConditionTrue)
	return c.Reason + ": " + c.Message
}

func TestSharingCondition_ReportsBlockers(t *testing.T) {
	scaled := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("other-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: noon.Add(-5 * time.Second)}}}
	expired := held.DeepCopy()
	expired.Spec.RenewTime.Time = noon.Add(-15 * time.Second)
	karpenter := kubelet("n1", "8", func(n *corev1.Node) { n.Labels = map[string]string{"karpenter.sh/nodepool": "default"} })
	accepts := func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Sharing.NodeAutoscaler = new(loadlinev1alpha1.SharingNodeAutoscalerAccept)
	}
	calm := func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("loadline") }
	const on, dryRun = loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingDryRun
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		more   []runtime.Object
		want   string
	}{
		{name: "dry run", policy: sharingPolicy(dryRun, automatic), more: []runtime.Object{scaled}},
		{name: "mode too cautious", policy: sharingPolicy(on),
			want: "ModeTooConservative: acts as DryRun for workloads with running pods that must not change"},
		{name: "recipe without sharing", policy: sharingPolicy(on, automatic, calm),
			want: "RecipeDoesNotShare: some workloads have a recipe that does not support sharing"},
		{name: "another updater", policy: sharingPolicy(on, automatic), more: []runtime.Object{held},
			want: "AnotherUpdater: acts as DryRun: another updater holds the Lease: other-1"},
		{name: "expired Lease of another updater", policy: sharingPolicy(on, automatic), more: []runtime.Object{expired},
			want: "Shares: pods that share: 3"},
		{name: "cluster-autoscaler", policy: sharingPolicy(on, automatic), more: []runtime.Object{scaled},
			want: "NodeAutoscaler: acts as DryRun: detected a node autoscaler, which would offset the savings of sharing: " +
				"ConfigMap kube-system/cluster-autoscaler-status"},
		{name: "Karpenter", policy: sharingPolicy(on, automatic), more: []runtime.Object{karpenter},
			want: "NodeAutoscaler: acts as DryRun: detected a node autoscaler, which would offset the savings of sharing: " +
				"label karpenter.sh/nodepool of most nodes"},
		{name: "accepted node autoscaler", policy: sharingPolicy(on, automatic, accepts), more: []runtime.Object{scaled},
			want: "Shares: pods that share: 3"},
		{name: "no blocker", policy: sharingPolicy(on, automatic), want: "Shares: pods that share: 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !slices.ContainsFunc(tc.more, func(o runtime.Object) bool { _, is := o.(*corev1.Node); return is }) {
				tc.more = append(tc.more, kubelet("n1", "8"))
			}
			w := newWorld(t, Default(), append(append(peakingPods(3, nil), peakingVPA(), tc.policy), tc.more...)...)
			got := w.sharingCondition(0)
			require.True(t, strings.HasPrefix(got, tc.want) && (tc.want != "" || got == ""), got)
		})
	}
}

func TestSharing_LeaderHoldsLease(t *testing.T) {
	config := Default()
	config.Election.Enabled = true
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("me"), RenewTime: &metav1.MicroTime{Time: noon}}}
	w := newWorld(t, config, append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingOn, automatic), kubelet("n1", "8"), held)...)
	require.Contains(t, w.sharingCondition(0), "Shares")
}

// An updater limited to one namespace does not know the free capacity of nodes.
func TestSharing_RequiresAllNamespaces(t *testing.T) {
	config := Default()
	config.Kube.Namespace = "shop"
	w := newWorld(t, config, append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingOn, automatic), kubelet("n1", "8"))...)
	require.Contains(t, w.sharingCondition(0), "NodesUnknown: nodes cannot be read: the updater must watch all namespaces")
	require.NotContains(t, strings.Join(describe(w.registry, t), "\n"), "loadline_sharing_pods")
}

// The condition is left to the updater that watches all namespaces.
func TestSharingCondition_KeptByUpdaterOfOneNamespace(t *testing.T) {
	config := Default()
	config.Kube.Namespace = "shop"
	for _, mode := range []loadlinev1alpha1.SharingMode{loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingDryRun} {
		policy := sharingPolicy(mode, automatic)
		policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionFalse, Reason: "ModeTooConservative", Message: "as it is"}}
		w := newWorld(t, config, append(peakingPods(3, nil), peakingVPA(), policy, kubelet("n1", "8"))...)
		require.Equal(t, "ModeTooConservative: as it is", w.sharingCondition(0), mode)
	}
}

func TestSharingCondition_WrittenOnceAndRemoved(t *testing.T) {
	policy := sharingPolicy(loadlinev1alpha1.SharingOn)
	policy.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"}}
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), policy, kubelet("n1", "8"))...)
	w.vpa.ClearActions()
	require.Contains(t, w.sharingCondition(0), "ModeTooConservative")
	seen := func(has bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return meta.IsStatusConditionFalse(w.caches.policies.Snapshot().Object("fleet").Status.Conditions, "Sharing") == has
		}, time.Minute, time.Millisecond)
	}
	seen(true)
	w.sharingCondition(5 * time.Minute)
	patches := func() (n int) {
		for _, a := range w.vpa.Actions() {
			if a.GetVerb() == "patch" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, patches())

	policies := w.vpa.LoadlineV1alpha1().SizingPolicies()
	now, err := policies.Get(t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, "Ready"))
	now.Spec.Sharing.Mode = new(loadlinev1alpha1.SharingDryRun)
	_, err = policies.Update(t.Context(), now, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return *w.caches.policies.Snapshot().Object("fleet").Spec.Sharing.Mode == loadlinev1alpha1.SharingDryRun
	}, time.Minute, time.Millisecond)
	require.Empty(t, w.sharingCondition(10*time.Minute))
	require.Equal(t, 2, patches())
	seen(false)
	require.Empty(t, w.sharingCondition(15*time.Minute))
	require.Equal(t, 2, patches())
}

func TestSharingCondition_NotWrittenInDryRun(t *testing.T) {
	config := Default()
	config.DryRun = true
	w := newWorld(t, config, append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingOn), kubelet("n1", "8"))...)
	require.Empty(t, w.sharingCondition(0))
	require.Contains(t, w.sharingMetrics(), "3 pods")
}

type panickingNodes struct{ corelisters.NodeLister }

func (panickingNodes) List(labels.Selector) ([]*corev1.Node, error) { panic("a bug") }

// After a panic the pods are excluded, count with their requests, and are read again in the next
// round.
func TestSharingRound_RecoversFromPanic(t *testing.T) {
	w := newWorld(t, Default(), append(peakingPods(3, nil), peakingVPA(), sharingPolicy(loadlinev1alpha1.SharingDryRun, evicting), kubelet("n1", "8"))...)
	round := func(spoil func(s *shares.Sharing, in *shares.Input)) (*shares.Round, error) {
		it, err := w.loop.read(t.Context(), noon, func(string) {})
		require.NoError(t, err)
		in, targets, hpas, nodes := it.input(), w.loop.reader.Targets, w.loop.shareRounds.Sharing.HPAs, w.loop.shareRounds.Sharing.Nodes
		spoil(w.loop.shareRounds.Sharing, &in)
		found, err := w.loop.shareRounds.Sharing.RunRound(t.Context(), in, noon, shares.SharingStates{})
		w.loop.reader.Targets, w.loop.shareRounds.Sharing.HPAs, w.loop.shareRounds.Sharing.Nodes = targets, hpas, nodes
		return found, err
	}
	found, err := round(func(_ *shares.Sharing, in *shares.Input) {
		pods, err := w.loop.reader.ReadPods(t.Context(), in.VPAs, []snapshot.Scope{snapshot.Count})
		require.NoError(t, err)
		in.Pods, w.loop.reader.Targets = &pods, nil // which has the replicas of each pod's owner
	})
	require.NoError(t, err)
	require.Equal(t, map[reason.Reason]int{reason.InternalError: 3}, found.Apart)
	require.Empty(t, found.Nodes)
	require.Equal(t, 3, w.shares(noon).Nodes[0].Pods)

	found, err = round(func(s *shares.Sharing, _ *shares.Input) { s.HPAs = new(sizing.HorizontalPodAutoscalers) }) // read for each VPA
	require.NoError(t, err)
	require.Empty(t, found.Apart)
	require.Empty(t, found.Nodes)
	require.Equal(t, 3, w.shares(noon).Nodes[0].Pods)

	_, err = round(func(s *shares.Sharing, _ *shares.Input) { s.Nodes = panickingNodes{} })
	require.ErrorContains(t, err, "panic: a bug")
	require.Equal(t, 3, w.shares(noon).Nodes[0].Pods)

	w.loop.shareRounds.Sharing.Nodes = panickingNodes{}
	w.runOnce(noon)
	require.NotContains(t, strings.Join(describe(w.registry, t), "\n"), "loadline_sharing_pods")
}

func TestSharingRound_BoundsPodToNode(t *testing.T) {
	objects := func(change func(*vpav1.VerticalPodAutoscaler)) []runtime.Object {
		vpa := peakingVPA()
		change(vpa)
		return append(peakingPods(2, nil), vpa, sharingPolicy(loadlinev1alpha1.SharingDryRun, evicting), kubelet("n1", "8"))
	}
	found := newWorld(t, Default(), objects(func(v *vpav1.VerticalPodAutoscaler) {
		c := &v.Status.Recommendation.ContainerRecommendations[0]
		c.LowerBound, c.Target, c.UpperBound = list("1000", "100Mi"), list("1000", "200Mi"), list("1000", "200Mi")
	})...).shares(noon)
	require.Equal(t, map[reason.Reason]int{reason.TooLarge: 2}, found.Apart)
	require.Empty(t, found.Nodes)
	require.Zero(t, found.Policies["fleet"].Pods)

	n := newWorld(t, Default(), objects(func(v *vpav1.VerticalPodAutoscaler) {
		v.Status.Recommendation.ContainerRecommendations[0].Target = list("9000P", "200Mi")
		v.Status.Recommendation.ContainerRecommendations[0].UpperBound = list("9000P", "200Mi")
	})...).shares(noon).Nodes[0]
	require.LessOrEqual(t, n.Headroom[resources.CPU], 7500.0)
	require.LessOrEqual(t, n.Saved[resources.CPU], 8000.0)
}

type syncedWhen func() bool

func (f syncedWhen) HasSynced() bool { return f() }
