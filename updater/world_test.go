package updater

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/updater/actuate"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// world is a cluster with a Deployment "web" in namespace "shop", which the updater watches through
// real informers.
type world struct {
	t        *testing.T
	kube     *fake.Clientset
	vpa      *vpafake.Clientset
	fleets   testkit.Fleets
	registry *prometheus.Registry
	events   *record.FakeRecorder
	*program
	out        strings.Builder  // output of dry runs
	now        time.Time        // of the last iteration
	hourEvents []string         // events of runForAnHour
	afterEach  func(minute int) // called after each iteration of runForAnHour, may be nil

	writesEvents bool // to the API server, instead of the recorder

	steps int // changes of pods, see change

	mu       sync.Mutex
	evicted  []policyv1.Eviction
	replaced []*corev1.Pod           // created in dry runs
	admit    func(*corev1.Pod) error // admission of new pods, nil: accepts all
}

// newWorld starts caches on the objects. The pods of the Deployment request 100m and 100Mi, and the
// VPA recommends 200m and 200Mi.
func newWorld(t *testing.T, config *Config, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t}
	var core, vpas []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *vpav1.VerticalPodAutoscaler, *loadlinev1alpha1.SizingPolicy, *loadlinev1alpha1.SizingRecord:
			vpas = append(vpas, o)
		default:
			core = append(core, o)
		}
	}
	w.kube, w.vpa = fake.NewClientset(core...), vpafake.NewSimpleClientset(vpas...)
	w.kube.PrependReactor("create", "pods/eviction", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.evicted = append(w.evicted, *a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction))
		return true, nil, nil
	})
	w.kube.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		create, is := a.(ktesting.CreateActionImpl)
		if !is || a.GetSubresource() != "" || len(create.CreateOptions.DryRun) == 0 {
			return false, nil, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		pod := create.Object.(*corev1.Pod).DeepCopy()
		w.replaced = append(w.replaced, pod)
		if w.admit != nil {
			if err := w.admit(pod); err != nil {
				return true, nil, err
			}
		}
		return true, pod, nil
	})
	w.start(config)
	w.kube.ClearActions()
	return w
}

// start starts an updater process without earlier state.
func (w *world) start(config *Config) {
	w.t.Helper()
	w.registry, w.events = prometheus.NewPedanticRegistry(), record.NewFakeRecorder(100)
	without := *config
	without.Heartbeat.Required, without.Pace = false, disruption.RateLimits{}
	d := dependencies{env: printing{out: &w.out}, metrics: newMetrics(w.registry), clients: sameClients(w.fleets.In(w.kube), w.vpa)}
	replaced := overrides{clock: worldClock{w}, events: w.events}
	if w.writesEvents {
		replaced.events = nil
	}
	w.program = startProgram(w.t, &without, d, replaced)
	if c, is := w.loop.runner.Executor.(*actuate.Cluster); is {
		c.Usage = nil // fake clients have no REST client
	}
	require.Eventually(w.t, func() bool {
		return testkit.Watched(w.kube, "pods") && testkit.Watched(w.vpa, "verticalpodautoscalers")
	}, time.Minute, time.Millisecond)
	if reader := w.loop.rollouts.Facts; reader.Nodes != nil { // a start does not wait for nodes, which may be forbidden
		_ = wait.PollUntilContextTimeout(w.t.Context(), time.Millisecond, 2*time.Second, true, func(context.Context) (bool, error) { return reader.NodeInformer.HasSynced(), nil })
	}
}

func (l *Loop) setExecutor(e actuate.Executor) { l.runner.Executor, l.announcer.Recorder = e, e }

type worldClock struct{ *world }

func (c worldClock) Now() time.Time { return c.now }

type usageOf func(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error)

func (f usageOf) Memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error) {
	return f(ctx, namespace, pod)
}

type staleWhen func() error

func (f staleWhen) Stale() error { return f() }

func startProgram(t *testing.T, config *Config, d dependencies, replaced overrides) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := newProgram(ctx, config, d, replaced)
	require.NoError(t, err)
	t.Cleanup(p.shutdown)
	t.Cleanup(cancel)
	require.NoError(t, p.start(ctx))
	return p
}

// sameClients returns clients that share one fake API server.
func sameClients(kube kubernetes.Interface, vpas versioned.Interface) clients {
	return clients{Clients: &client.Clients{Kube: kube, VPA: vpas}, events: kube, reverts: kube, nodes: kube, evictionChecks: kube, noteRemovals: kube}
}

type printing struct {
	process.OS
	out io.Writer
}

func (p printing) Stdout() io.Writer { return p.out }

func (w *world) runOnce(now time.Time) {
	w.now = now
	w.loop.RunOnce(w.t.Context(), now)
}

// refuse makes a call on pods fail from now on.
func (w *world) refuse(verb, resource string, err error) {
	w.kube.PrependReactor(verb, resource, func(a ktesting.Action) (bool, runtime.Object, error) {
		if resource == "pods/eviction" || a.GetSubresource() == "resize" {
			return true, nil, err
		}
		return false, nil, nil
	})
}

func (w *world) evictions() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.evicted {
		if len(e.DeleteOptions.DryRun) > 0 {
			continue
		}
		names = append(names, e.Name)
	}
	return names
}

// writes lists all write requests, including dry runs of evictions but not of pod creations.
func (w *world) writes() (calls []string) {
	for _, a := range w.kube.Actions() {
		if create, is := a.(ktesting.CreateActionImpl); is && a.GetSubresource() == "" && len(create.CreateOptions.DryRun) > 0 {
			continue
		}
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			calls = append(calls, a.GetVerb()+" "+a.GetResource().Resource+" "+a.GetSubresource())
		}
	}
	return calls
}

func (w *world) pod(name string) *corev1.Pod {
	pod, err := w.kube.CoreV1().Pods("shop").Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pod
}

// change changes a pod and waits for the informer cache.
func (w *world) change(name string, change func(*corev1.Pod)) {
	w.t.Helper()
	pod := w.pod(name)
	change(pod)
	w.steps++
	step := strconv.Itoa(w.steps)
	pod.Labels["step"] = step
	_, err := w.kube.CoreV1().Pods("shop").Update(w.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.await("the change", func(p *corev1.Pod) bool { return p.Labels["step"] == step }, name)
}

func (w *world) drainEvents() (lines []string) {
	for {
		select {
		case e := <-w.events.Events:
			lines = append(lines, e)
		default:
			return lines
		}
	}
}

// value returns a metric. Labels are pairs.
func (w *world) value(name string, labels ...string) float64 {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			all := true
			for i := 0; i < len(labels); i += 2 {
				all = all && has[labels[i]] == labels[i+1]
			}
			if all {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func owner(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
}

func deployment(pods int, change func(*corev1.Pod)) []runtime.Object {
	labels := map[string]string{"app": "web"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	replicas := int32(pods)
	objects := []runtime.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", Generation: 1}, Spec: appsv1.DeploymentSpec{Selector: selector, Replicas: &replicas},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: owner("Deployment", "web")},
			Spec: appsv1.ReplicaSetSpec{Selector: selector, Replicas: &replicas}},
	}
	for i := range pods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-1-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)),
				Labels: labels, OwnerReferences: owner("ReplicaSet", "web-1")},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
				Requests: list("100m", "100Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi")}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: noon.Add(-24 * time.Hour)},
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		if change != nil {
			change(pod)
		}
		objects = append(objects, pod)
	}
	return objects
}

func autoscaler(mode vpav1.UpdateMode) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-vpa", UID: "uid-vpa"},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &mode},
		},
		Status: vpav1.VerticalPodAutoscalerStatus{Recommendation: &vpav1.RecommendedPodResources{
			ContainerRecommendations: []vpav1.RecommendedContainerResources{{ContainerName: "app",
				LowerBound: list("150m", "150Mi"), Target: list("200m", "200Mi"), UpperBound: list("400m", "400Mi")}},
		}},
	}
}

func web(mode vpav1.UpdateMode, pods int) []runtime.Object {
	return append(deployment(pods, nil), autoscaler(mode))
}

// await waits until the cached pod meets a condition.
func (w *world) await(what string, holds func(*corev1.Pod) bool, name string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		pod, err := w.caches.pods.Core().V1().Pods().Lister().Pods("shop").Get(name)
		return err == nil && holds(pod)
	}, time.Minute, 5*time.Millisecond, what)
}

func describe(registry *prometheus.Registry, t *testing.T) []string {
	lines, err := testkit.DescribeMetrics(registry)
	require.NoError(t, err)
	return lines
}
