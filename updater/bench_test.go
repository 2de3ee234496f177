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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/view"
)

// inNamespace is how many workloads of a cluster at rest share a namespace.
const inNamespace = 20

func namespaceOf(workload int) string { return fmt.Sprintf("ns-%d", workload/inNamespace) }

// atRest is a cluster in which every pod has what is recommended. With policies, all VPAs
// are made for them. The caches are filled directly: the fake API server would take minutes.
func atRest(tb testing.TB, vpas, podsOfEach int, policies ...*loadlinev1alpha1.SizingPolicy) (loop *Loop, fresh func() *view.Reader) {
	config := Default()
	var known []runtime.Object
	for _, p := range policies {
		known = append(known, p)
	}
	surroundings := []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: list("1000", "10000Gi")}}}
	for i := 0; i < vpas; i += inNamespace {
		surroundings = append(surroundings, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}})
	}
	c := newCaches(config, &client.Clients{Kube: fake.NewClientset(surroundings...), VPA: vpafake.NewSimpleClientset(known...)})
	require.NoError(tb, c.targets.Remember())
	require.NoError(tb, c.watchPolicies())
	require.NoError(tb, c.surround())
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
		go c.vpas.Loadline().V1alpha1().SizingRecords().Informer().RunWithContext(tb.Context())
		synced := map[string]cache.InformerSynced{"sizingpolicies": c.policies.Readable, "sizingrecords": c.recordsKnown}
		for name, informer := range map[string]cache.SharedIndexInformer{
			"namespaces":               c.controllers.Core().V1().Namespaces().Informer(),
			"nodes":                    c.surroundings.Core().V1().Nodes().Informer(),
			"horizontalpodautoscalers": c.surroundings.Autoscaling().V2().HorizontalPodAutoscalers().Informer(),
		} {
			go informer.RunWithContext(tb.Context())
			synced[name] = informer.HasSynced
		}
		require.NoError(tb, client.Sync(tb.Context(), synced))
	}
	for i := range vpas {
		namespace, name := namespaceOf(i), fmt.Sprintf("web-%d", i)
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
	loop.executor, loop.capacity, loop.records = &actuate.Cluster{Events: &record.FakeRecorder{}}, c.capacity(config), c.records
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
			recommend := everywhere(func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
			})
			loop, _ := atRest(b, vpas, 5, recommend)
			loop.RunOnce(b.Context(), noon)
			b.ReportAllocs()
			for b.Loop() {
				loop.RunOnce(b.Context(), noon)
			}
		})
	}
}

// everywhere is a policy in mode Auto for all Deployments.
func everywhere(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return auto(append(changes, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{"*"} })...)
}

// closed is a policy whose schedule is not open at noon.
func closed(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
}

// due makes all VPAs of a cluster at rest recommend something else than the pods have.
func due(tb testing.TB, loop *Loop) {
	all, err := loop.reader.VPAs.List(labels.Everything())
	require.NoError(tb, err)
	for _, vpa := range all {
		one := &vpa.Status.Recommendation.ContainerRecommendations[0]
		one.LowerBound, one.Target, one.UpperBound = list("40m", "40Mi"), list("50m", "50Mi"), list("60m", "60Mi")
	}
}

// BenchmarkPassUnderAPolicy is a pass over 10,000 VPAs that one policy in mode Auto made, beside
// one over as many that people wrote.
func BenchmarkPassUnderAPolicy(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	const vpas, each = 10_000, 5
	for name, c := range map[string]struct {
		policies []*loadlinev1alpha1.SizingPolicy
		due      bool
	}{
		"no_policy_at_rest": {nil, false},
		"Auto_at_rest":      {[]*loadlinev1alpha1.SizingPolicy{everywhere()}, false},
		"Auto_held":         {[]*loadlinev1alpha1.SizingPolicy{everywhere(closed)}, true},
		"Recommend_held": {[]*loadlinev1alpha1.SizingPolicy{everywhere(func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
		})}, true},
	} {
		b.Run(name, func(b *testing.B) {
			loop, _ := atRest(b, vpas, each, c.policies...)
			if c.due {
				due(b, loop)
			}
			loop.RunOnce(b.Context(), noon)
			b.ReportAllocs()
			begin, passes := cpuTime(b), 0
			for b.Loop() {
				loop.RunOnce(b.Context(), noon)
				passes++
			}
			b.ReportMetric(float64((cpuTime(b)-begin).Milliseconds())/float64(passes), "cpu-ms/op")
		})
	}
}

// Where all pods of a policy are held, all of them are.
func TestAPassUnderAPolicyHoldsAll(t *testing.T) {
	const vpas, each = 20, 5
	loop, _ := atRest(t, vpas, each, everywhere(closed))
	due(t, loop)
	s, plan, err := loop.look(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	require.Len(t, s.rollouts, vpas)
	require.Empty(t, plan.Actions)
	require.Len(t, plan.Skipped, vpas*each)
	for _, skip := range plan.Skipped {
		require.Equal(t, "OutsideWindow", skip.Reason.String())
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
