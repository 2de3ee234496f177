package updater

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/updater/actuate"
)

// steadyCluster is a cluster in which every pod has its target.
type steadyCluster struct {
	vpas, pods  int                              // pods per VPA
	inNamespace int                              // workloads per namespace, 0: 20
	policies    []*loadlinev1alpha1.SizingPolicy // that own all VPAs
	rounds      int                              // per SizingRecord, 0: no records
	nodes       int                              // to spread pods over, 0: one
}

func (q steadyCluster) node(workload, pod int) string {
	return fmt.Sprintf("n%d", 1+(workload*q.pods+pod)%max(q.nodes, 1))
}

func (q steadyCluster) namespaceOf(workload int) string {
	return fmt.Sprintf("ns-%d", workload/cmp.Or(q.inNamespace, 20))
}

// loop returns a loop over the cluster and a function that resets its caches of earlier iterations.
// The informers are filled directly, because the fake API server would take minutes.
func (q steadyCluster) loop(tb testing.TB) (loop *Loop, reset func()) {
	loop, reset, _ = q.filled(tb)
	return loop, reset
}

// filled returns the results of loop and the caches.
func (q steadyCluster) filled(tb testing.TB) (loop *Loop, reset func(), c *caches) {
	config := Default()
	p := q.program(tb, config)
	c = p.caches
	var trimmer client.Trimmer
	put := func(store cache.Store, o any) {
		trimmed, err := trimmer.Trim(o)
		require.NoError(tb, err)
		require.NoError(tb, store.Add(trimmed))
	}
	deployments, sets := c.controllers.Apps().V1().Deployments().Informer().GetStore(), c.controllers.Apps().V1().ReplicaSets().Informer().GetStore()
	pods, autoscalers := c.pods.Core().V1().Pods().Informer().GetStore(), c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().GetStore()
	for i := range q.vpas {
		namespace, name := q.namespaceOf(i), fmt.Sprintf("web-%d", i)
		put(autoscalers, q.vpa(namespace, name))
		for n, o := range deployment(q.pods, func(p *corev1.Pod) {
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
				pod.Spec.NodeName = q.node(i, n)
				pod.UID, pod.Labels, pod.OwnerReferences = types.UID(fmt.Sprintf("%d-%d", i, n)), labels, owner("ReplicaSet", name+"-1")
				put(pods, pod)
			}
		}
	}
	p.loop.setExecutor(&actuate.Cluster{Events: &record.FakeRecorder{}})
	p.loop.shareRounds.Conditions = nil
	return p.loop, func() { p.loop.reader, p.loop.shareRounds.Sharing = c.reader(config), c.sharing(config) }, c
}

func (q steadyCluster) vpa(namespace, name string) *vpav1.VerticalPodAutoscaler {
	vpa := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	vpa.Namespace, vpa.Name, vpa.Spec.TargetRef.Name = namespace, name, name
	if len(q.policies) > 0 {
		vpa.Name, vpa.Labels = fleet.GeneratedVPAName("Deployment", "apps", name), map[string]string{fleet.PolicyLabel: q.policies[0].Name}
		vpa.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeOff)
	}
	return vpa
}

// program returns a program that runs only the informers with few objects.
func (q steadyCluster) program(tb testing.TB, config *Config) *program {
	config.Heartbeat.Required = false
	var own []runtime.Object
	for _, p := range q.policies {
		own = append(own, p)
	}
	for i := range q.vpas {
		if q.rounds > 0 {
			own = append(own, q.record(i))
		}
	}
	var surroundings []runtime.Object
	for i := range max(q.nodes, 1) {
		surroundings = append(surroundings, kubelet(fmt.Sprintf("n%d", i+1), "1000", func(n *corev1.Node) { n.Status.Allocatable = list("1000", "10000Gi") }))
	}
	for i, last := 0, ""; i < q.vpas; i++ {
		if name := q.namespaceOf(i); name != last {
			surroundings, last = append(surroundings, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}), name
		}
	}
	d := dependencies{metrics: newMetrics(prometheus.NewRegistry()), clients: sameClients(fake.NewClientset(surroundings...), vpafake.NewSimpleClientset(own...))}
	p, err := newProgram(tb.Context(), config, d, overrides{events: &record.FakeRecorder{}})
	require.NoError(tb, err)
	c := p.caches
	go c.vpas.Loadline().V1alpha1().SizingPolicies().Informer().RunWithContext(tb.Context())
	go c.vpas.Loadline().V1alpha1().SizingRecords().Informer().RunWithContext(tb.Context())
	synced := map[string]cache.InformerSynced{"sizingpolicies": c.policies.Readable, "sizingrecords": c.recordsSynced}
	for name, informer := range map[string]cache.SharedIndexInformer{
		"namespaces":               c.controllers.Core().V1().Namespaces().Informer(),
		"nodes":                    c.constraints.Core().V1().Nodes().Informer(),
		"horizontalpodautoscalers": c.constraints.Autoscaling().V2().HorizontalPodAutoscalers().Informer(),
	} {
		go informer.RunWithContext(tb.Context())
		synced[name] = informer.HasSynced
	}
	require.NoError(tb, client.Sync(tb.Context(), synced))
	return p
}

// record returns the SizingRecord of a workload with successful rounds.
func (q steadyCluster) record(workload int) *loadlinev1alpha1.SizingRecord {
	settings := convert.RolloutSettings(q.policies[0])
	s := rollout.State{Mode: fleet.Auto, Hash: settings.Hash}
	for n := range q.rounds {
		at := noon.AddDate(0, 0, n-q.rounds-1)
		s.Rounds = append(s.Rounds, rollout.Round{Time: at, Last: at, Pods: q.pods, Outcome: rollout.Success,
			From: []policy.Container{{Name: "app", Requests: resources.List{}.With(resources.CPU, resources.Amount(200+n)).With(resources.Memory, 200<<20)}},
			To:   []policy.Container{{Name: "app", Requests: resources.List{}.With(resources.CPU, resources.Amount(201+n)).With(resources.Memory, 200<<20)}}})
	}
	slices.Reverse(s.Rounds)
	s.ProvenResources = s.Rounds[0].To
	s.EvidenceMissing = rollout.Condition{Reason: rollout.NoPrometheus, Since: noon}
	if !settings.Schedule.Open(noon) {
		s.ScheduleBlocked = rollout.Condition{Reason: string(reason.OutsideWindow), Since: noon}
	}
	name := fmt.Sprintf("web-%d", workload)
	return &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: q.namespaceOf(workload), Name: fleet.GeneratedVPAName("Deployment", "apps", name), ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: "uid-web"}}},
		Status: convert.RecordStatus(s),
	}
}

// BenchmarkPass measures an iteration over a cluster with nothing to change. Budget for 50,000
// pods: one second of one core, 90 MB and 250,000 allocations.
func BenchmarkPass(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	for _, vpas := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("%d_VPAs_%d_pods", vpas, 5*vpas), func(b *testing.B) {
			loop, _ := steadyCluster{vpas: vpas, pods: 5}.loop(b)
			loop.RunOnce(b.Context(), noon)
			b.ReportAllocs()
			begin, passes := testkit.CPUTime(b), 0
			for b.Loop() {
				loop.RunOnce(b.Context(), noon)
				passes++
			}
			b.ReportMetric(float64((testkit.CPUTime(b)-begin).Milliseconds())/float64(passes), "cpu-ms/op")
		})
		b.Run(fmt.Sprintf("%d_VPAs_%d_pods_all_new", vpas, 5*vpas), func(b *testing.B) {
			loop, reset := steadyCluster{vpas: vpas, pods: 5}.loop(b)
			b.ReportAllocs()
			for b.Loop() {
				reset()
				loop.RunOnce(b.Context(), noon)
			}
		})
	}
}

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }

// The limit is the allocation budget of BenchmarkPass.
func TestRunOnce_AllocatesLittleWithoutChanges(t *testing.T) {
	const vpas, each = 1_000, 5
	loop, _ := steadyCluster{vpas: vpas, pods: each}.loop(t)
	loop.RunOnce(t.Context(), noon)
	allocations := testing.AllocsPerRun(3, func() { loop.RunOnce(t.Context(), noon) })
	require.LessOrEqual(t, allocations, 5.0*vpas*each)
}
