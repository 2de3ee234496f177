package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/view"
)

// atRest is a cluster in which every pod has what is recommended. With policies, all VPAs
// are made for them. The caches are filled directly: the fake API server would take minutes.
func atRest(tb testing.TB, vpas, podsOfEach int, policies ...*loadlinev1alpha1.SizingPolicy) (loop *Loop, fresh func() *view.Reader) {
	config := Default()
	var known []runtime.Object
	for _, p := range policies {
		known = append(known, p)
	}
	c := newCaches(config, &client.Clients{Kube: fake.NewClientset(), VPA: vpafake.NewSimpleClientset(known...)})
	require.NoError(tb, c.targets.Remember())
	require.NoError(tb, c.watchPolicies())
	var trimmer client.Trimmer
	put := func(store interface{ Add(any) error }, o any) {
		trimmed, err := trimmer.Trim(o)
		require.NoError(tb, err)
		require.NoError(tb, store.Add(trimmed))
	}
	deployments, sets := c.controllers.Apps().V1().Deployments().Informer().GetStore(), c.controllers.Apps().V1().ReplicaSets().Informer().GetStore()
	pods, autoscalers := c.pods.Core().V1().Pods().Informer().GetStore(), c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().GetStore()
	if len(policies) > 0 {
		go c.vpas.Loadline().V1alpha1().SizingPolicies().Informer().RunWithContext(tb.Context())
		require.NoError(tb, client.Sync(tb.Context(), map[string]cache.InformerSynced{"sizingpolicies": c.policies.Readable}))
	}
	for i := range vpas {
		namespace, name := fmt.Sprintf("ns-%d", i/20), fmt.Sprintf("web-%d", i)
		vpa := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
		vpa.Namespace, vpa.Name, vpa.Spec.TargetRef.Name = namespace, name, name
		if len(policies) > 0 {
			vpa.Name, vpa.Labels = fleet.MadeName("Deployment", "apps", name), map[string]string{fleet.PolicyLabel: policies[0].Name}
			vpa.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeOff)
		}
		put(autoscalers, vpa)
		for n, o := range deployment(podsOfEach, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
			p.Annotations = map[string]string{"vpaObservedContainers": "app"}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, Resources: &p.Spec.Containers[0].Resources}}
		}) {
			m := o.(metav1.Object)
			labels := map[string]string{"app": name}
			m.SetNamespace(namespace)
			m.SetName(fmt.Sprintf("%s-%d", name, n))
			switch o := o.(type) {
			case *appsv1.Deployment:
				o.Name, o.Spec.Selector = name, &metav1.LabelSelector{MatchLabels: labels}
				put(deployments, o)
			case *appsv1.ReplicaSet:
				o.Name, o.OwnerReferences, o.Spec.Selector = name+"-1", owner("Deployment", name), &metav1.LabelSelector{MatchLabels: labels}
				put(sets, o)
			case runtime.Object:
				pod := o.(*corev1.Pod)
				pod.ResourceVersion = "1"
				pod.UID, pod.Labels, pod.OwnerReferences = types.UID(fmt.Sprintf("%d-%d", i, n)), labels, owner("ReplicaSet", name+"-1")
				put(pods, pod)
			}
		}
	}
	loop = newLoop(config.planning(), c.reader(config), newMetrics(prometheus.NewRegistry()))
	loop.executor, loop.capacity = &actuate.Cluster{}, c.capacity(config)
	return loop, func() *view.Reader { return c.reader(config) }
}

// A pass over a cluster in which nothing is to be done, as nearly always: at most
// one second on one core and one allocation for each pod, 50,000 of them.
func BenchmarkPass(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	for _, vpas := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("%d_VPAs_%d_pods", vpas, 5*vpas), func(b *testing.B) {
			loop, _ := atRest(b, vpas, 5)
			loop.RunOnce(b.Context(), noon)
			b.ReportAllocs()
			begin, passes := cpuTime(b), 0
			for b.Loop() {
				loop.RunOnce(b.Context(), noon)
				passes++
			}
			b.ReportMetric(float64((cpuTime(b)-begin).Milliseconds())/float64(passes), "cpu-ms/op")
		})
		b.Run(fmt.Sprintf("%d_VPAs_%d_pods_all_new", vpas, 5*vpas), func(b *testing.B) {
			loop, fresh := atRest(b, vpas, 5)
			b.ReportAllocs()
			for b.Loop() {
				loop.reader = fresh()
				loop.RunOnce(b.Context(), noon)
			}
		})
		b.Run(fmt.Sprintf("%d_VPAs_%d_pods_held", vpas, 5*vpas), func(b *testing.B) {
			everywhere := sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{"*"} })
			loop, _ := atRest(b, vpas, 5, everywhere)
			loop.RunOnce(b.Context(), noon)
			b.ReportAllocs()
			for b.Loop() {
				loop.RunOnce(b.Context(), noon)
			}
		})
	}
}

// cpuTime is what the process has used, which other programs on the machine do
// not lengthen.
func cpuTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }

// TestAPassWithoutChangesAllocatesLittle guards the benchmark's promise.
func TestAPassWithoutChangesAllocatesLittle(t *testing.T) {
	const vpas, each = 1_000, 5
	loop, _ := atRest(t, vpas, each)
	loop.RunOnce(t.Context(), noon)
	allocations := testing.AllocsPerRun(3, func() { loop.RunOnce(t.Context(), noon) })
	require.LessOrEqual(t, allocations, float64(vpas*each), "at most one for each pod")
}
