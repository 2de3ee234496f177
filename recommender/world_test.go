package recommender

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/pkg/testkit"
)

// start returns the time before the first iteration.
func start() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

// world runs a recommender on fake API servers.
type world struct {
	t       *testing.T
	kube    *kubefake.Clientset
	vpas    *vpafake.Clientset
	config  *Config
	metrics *metrics
	loop    *Loop
	now     time.Time

	usage       map[usage.ContainerKey][resources.Kinds]resources.Amount
	throttled   map[usage.ContainerKey]float64 // throttled share of time, nil: unknown
	sourceErr   error
	usageSource usageSource      // samples come from w.samples
	clock       func() time.Time // clock outside iterations, nil: now
	stop        func()
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{t: t, config: Default(), now: start(), usage: map[usage.ContainerKey][resources.Kinds]resources.Amount{}}
	var kube, vpas []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *vpav1.VerticalPodAutoscaler, *vpav1.VerticalPodAutoscalerCheckpoint, *loadlinev1alpha1.SizingPolicy, *loadlinev1alpha1.SizingRecord:
			vpas = append(vpas, o)
		default:
			kube = append(kube, o)
		}
	}
	w.kube, w.vpas = kubefake.NewClientset(kube...), vpafake.NewSimpleClientset(vpas...)
	// As in the API server, an invalid patch returns 422.
	patch := clienttesting.ObjectReaction(w.vpas.Tracker())
	w.vpas.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, object, err := patch(a)
		if err != nil && !apierrors.IsNotFound(err) {
			err = apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return true, object, err
	})
	return w
}

// start starts or restarts the program. Only API objects survive.
func (w *world) start() *world {
	w.t.Helper()
	if w.stop != nil {
		w.stop()
	}
	a := newAssembly(w.t.Context(), w.config, w.parts())
	w.stop = a.stop
	w.t.Cleanup(a.stop)
	loop, err := a.start()
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		return testkit.Watched(w.kube, "pods") && testkit.Watched(w.vpas, "verticalpodautoscalers")
	}, time.Minute, time.Millisecond)
	w.loop = loop
	return w
}

func (w *world) parts() dependencies {
	w.metrics = newMetrics(prometheus.NewRegistry())
	from := w.usageSource
	from.sampleSource = samplesFunc(w.samples)
	return dependencies{
		clients: &client.Clients{Kube: w.kube, VPA: w.vpas}, policies: w.vpas, usageSource: from, scale: client.NewScales(w.kube),
		metrics: w.metrics, health: serving.NewHealth(time.Hour), explanations: explanation.NewHandler(),
		now: func() time.Time {
			if w.clock != nil {
				return w.clock()
			}
			return w.now
		}}
}

type samplesFunc func(context.Context, func(usage.Sample)) error

func (f samplesFunc) Samples(ctx context.Context, yield func(usage.Sample)) error {
	return f(ctx, yield)
}

func (w *world) samples(_ context.Context, yield func(usage.Sample)) error {
	if w.sourceErr != nil {
		return w.sourceErr
	}
	now := w.now
	if w.clock != nil {
		now = w.clock()
	}
	for key, use := range w.usage {
		for k := range resources.Kind(resources.Kinds) {
			s := usage.Sample{Container: key, Kind: k, At: now, Amount: use[k]}
			if k == resources.CPU {
				s.Throttled = w.throttled[key]
			}
			yield(s)
		}
	}
	return nil
}

// setUsage sets the usage of a container in millicores and MiB.
func (w *world) setUsage(pod, container string, cpu, mib resources.Amount) {
	w.usage[containerKey(pod, container)] = [resources.Kinds]resources.Amount{cpu, mib << 20}
}

func (w *world) iterate(n int) {
	w.t.Helper()
	for range n {
		w.now = w.now.Add(time.Minute)
		w.loop.RunOnce(w.t.Context(), w.now)
		w.syncCaches()
	}
}

func (w *world) syncCaches() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		list, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("").List(w.t.Context(), metav1.ListOptions{})
		require.NoError(w.t, err)
		for i := range list.Items {
			cached, err := w.loop.Roster.VPAs.VerticalPodAutoscalers(list.Items[i].Namespace).Get(list.Items[i].Name)
			if err != nil || !sameStatus(cached, &list.Items[i]) {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond)
}

func sameStatus(a, b *vpav1.VerticalPodAutoscaler) bool {
	return equality.Semantic.DeepEqual(a.Status, b.Status) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func (w *world) vpa(name string) *vpav1.VerticalPodAutoscaler {
	w.t.Helper()
	v, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return v
}

func (w *world) recommendations(name string) []vpav1.RecommendedContainerResources {
	w.t.Helper()
	r := w.vpa(name).Status.Recommendation
	if r == nil {
		return nil
	}
	return r.ContainerRecommendations
}

// condition requires that conditions are sorted by type before and after RecommendationProvided.
func (w *world) condition(name string, t vpav1.VerticalPodAutoscalerConditionType) (corev1.ConditionStatus, string) {
	w.t.Helper()
	conditions := w.vpa(name).Status.Conditions
	byType := func(a, b vpav1.VerticalPodAutoscalerCondition) int { return cmp.Compare(a.Type, b.Type) }
	provided := slices.IndexFunc(conditions, func(c vpav1.VerticalPodAutoscalerCondition) bool {
		return c.Type == vpav1.RecommendationProvided
	})
	require.True(w.t, slices.IsSortedFunc(conditions[:max(provided, 0)], byType))
	require.True(w.t, slices.IsSortedFunc(conditions[provided+1:], byType))
	for _, c := range conditions {
		if c.Type == t {
			return c.Status, c.Message
		}
	}
	return "", ""
}

func (w *world) create(o runtime.Object) {
	w.t.Helper()
	var err error
	switch o := o.(type) {
	case *vpav1.VerticalPodAutoscaler:
		_, err = w.vpas.AutoscalingV1().VerticalPodAutoscalers(o.Namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = w.kube.CoreV1().Pods(o.Namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
	case *appsv1.Deployment:
		_, err = w.kube.AppsV1().Deployments(o.Namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
	default:
		err = errors.New("unknown kind")
	}
	require.NoError(w.t, err)
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
}

func aPod(name, app string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"app": app}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	return p
}

// aVPA returns a VPA created the given time before the start.
func aVPA(name, target string, age time.Duration) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 7, CreationTimestamp: metav1.NewTime(start().Add(-age))},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target}},
	}
}

func containerKey(pod, container string) usage.ContainerKey {
	return usage.ContainerKey{Namespace: "ns", Pod: pod, Container: container}
}
