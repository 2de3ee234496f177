package validate

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodefit"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/testkit"
)

func deployment(name string) func(*vpav1.VerticalPodAutoscaler) {
	return func(v *vpav1.VerticalPodAutoscaler) {
		v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	}
}

func TestAdvise_ReportsConflicts(t *testing.T) {
	view := ClusterView{
		SameTarget: []*vpav1.VerticalPodAutoscaler{testkit.VPA("older")},
		HPAs:       []ScalingHPA{{Name: "web-hpa", Resources: sizing.HPAResources{"": {resources.CPU: true}}}},
		Largest:    resources.NewList(4000, 16<<30),
	}
	const two = "spec.targetRef: VerticalPodAutoscaler older has the same target, Deployment web: only one of them can control its pods; delete one, or let it have another target"
	vpa := testkit.VPA("v", deployment("web"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c",
		MinAllowed: testkit.List("cpu=5"), MaxAllowed: testkit.List("cpu=8 memory=32Gi")}))
	require.Equal(t, []string{two,
		"spec.targetRef: HorizontalPodAutoscaler web-hpa scales Deployment web on cpu: the two can work against each other; leave cpu out of controlledResources, or scale on something else",
		"spec.resourcePolicy.containerPolicies[0].minAllowed[cpu]: no node can hold it: the largest has 4, so the pods would stay pending",
		"spec.resourcePolicy.containerPolicies[0].maxAllowed[memory]: no node can hold it: the largest has 16Gi, so pods that need more would stay pending",
	}, Advise(vpa, view))

	memory := []corev1.ResourceName{corev1.ResourceMemory}
	require.Equal(t, []string{two}, Advise(testkit.VPA("v", deployment("web"),
		testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "*", ControlledResources: &memory})), view), "the two share the work")
	require.Equal(t, []string{two}, Advise(testkit.VPA("v", deployment("web"), testkit.Mode(vpav1.UpdateModeOff)), view), "it changes nothing")
	require.Empty(t, Advise(testkit.VPA("v", deployment("web")), ClusterView{}))
	require.Equal(t, []string{"spec.targetRef: Deployment web wants 0 pods: there is nothing to recommend for until it has pods"},
		Advise(testkit.VPA("v", deployment("web")), ClusterView{PodlessReason: "Deployment web wants 0 pods"}))
}

func TestAdvise_BoundsNumberOfWarnings(t *testing.T) {
	view := ClusterView{Largest: resources.NewList(4000, 16<<30)}
	for range 1000 {
		view.SameTarget = append(view.SameTarget, testkit.VPA("older"))
		view.HPAs = append(view.HPAs, ScalingHPA{Name: "web-hpa", Resources: sizing.HPAResources{"": {true, true}}})
	}
	var changes []func(*vpav1.VerticalPodAutoscaler)
	for range 100 {
		changes = append(changes, testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", MinAllowed: testkit.List("cpu=5")}))
	}
	require.Len(t, Advise(testkit.VPA("v", append(changes, deployment("web"))...), view), maxAdvice)
	require.Len(t, Advise(testkit.VPA("v", deployment("web")), view), 3*maxNamed)
}

type described struct {
	kubernetes.Interface
	discovery discovery.DiscoveryInterfaces
}

func (d described) Discovery() discovery.DiscoveryInterfaces { return d.discovery }

// clusterOf returns a Cluster with some objects and an HPA on the CPU of the Deployment web.
func clusterOf(t *testing.T, vpas []*vpav1.VerticalPodAutoscaler, objects ...runtime.Object) *Cluster {
	return clusterWith(t, vpas, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api" || r.URL.Path == "/apis" { // detection of node autoscalers
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1"}`))
			return
		}
		require.Equal(t, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", r.URL.Path)
		require.Equal(t, "250", r.URL.Query().Get("limit"))
		hpa := autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web-hpa"}}
		hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}
		hpa.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}}}
		require.NoError(t, json.NewEncoder(w).Encode(autoscalingv2.HorizontalPodAutoscalerList{Items: []autoscalingv2.HorizontalPodAutoscaler{hpa}}))
	}, objects...)
}

func clusterWith(t *testing.T, vpas []*vpav1.VerticalPodAutoscaler, answer http.HandlerFunc, objects ...runtime.Object) *Cluster {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	discovery, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	objectsOnly := fake.NewClientset(objects...)
	kube := described{objectsOnly, discovery}
	f := client.Factory(objectsOnly, "", time.Hour, "")
	targets := target.New(f, nil)
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	t.Cleanup(func() { stop(); f.Shutdown() })
	require.NoError(t, client.Sync(ctx, targets.Synced()))
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, target.Indexers())
	for _, vpa := range vpas {
		require.NoError(t, indexer.Add(vpa))
	}
	return &Cluster{Kube: kube, VPAs: indexer, Targets: targets.CacheOnly(func(target.Key) {})}
}

func TestClusterAdvise_ReadsCluster(t *testing.T) {
	one, none := int32(1), int32(0)
	web := func(replicas *int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: appsv1.DeploymentSpec{Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	}
	node := func(name, has string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: testkit.List(has)}}
	}
	c := clusterOf(t, []*vpav1.VerticalPodAutoscaler{testkit.VPA("b", deployment("web")), testkit.VPA("a", deployment("web")), testkit.VPA("v", deployment("web")),
		testkit.VPA("elsewhere", deployment("shop"))}, web(&one), node("small", "cpu=2 memory=8Gi"), node("wide", "cpu=4 memory=4Gi"))
	require.NoError(t, c.readNodes(t.Context()))
	vpa := testkit.VPA("v", deployment("web"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", MinAllowed: testkit.List("cpu=5 memory=5Gi")}))
	got := c.Advise(t.Context(), vpa, nil)
	require.Len(t, got, 4)
	require.Contains(t, got[0], "VerticalPodAutoscaler a has the same target")
	require.Contains(t, got[1], "VerticalPodAutoscaler b has the same target")
	require.Contains(t, got[2], "HorizontalPodAutoscaler web-hpa scales Deployment web on cpu")
	require.Contains(t, got[3], "minAllowed[cpu]: no node can hold it: the largest has 4")
	require.Empty(t, c.Advise(t.Context(), vpa, vpa.DeepCopy()), "nothing of its spec changes")

	require.Contains(t, c.Advise(t.Context(), testkit.VPA("x", deployment("nobody")), nil)[0], "spec.targetRef: Deployment nobody does not exist in namespace default")
	custom := testkit.VPA("x", func(v *vpav1.VerticalPodAutoscaler) {
		v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web"}
	})
	require.Empty(t, c.Advise(t.Context(), custom, nil), "what has not been read yet is not known")
	c = clusterOf(t, nil, web(&none))
	require.Contains(t, c.Advise(t.Context(), testkit.VPA("x", deployment("web")), nil)[0], "spec.targetRef: Deployment web wants 0 pods")
}

// Reviews that wait for a missing target must not use up all answers of the server.
func TestClusterAdvise_BoundsConcurrentReviews(t *testing.T) {
	c := clusterWith(t, nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
	missing := testkit.VPA("v", deployment("missing"))
	require.NotEmpty(t, c.Advise(t.Context(), missing, nil))
	c.advising.Store(maxAdvised)
	require.Empty(t, c.Advise(t.Context(), missing, nil))
	c.advising.Store(maxAdvised - 1)
	require.NotEmpty(t, c.Advise(t.Context(), missing, nil))
}

func TestClusterScaled_RejectsInvalidNamespace(t *testing.T) {
	c := clusterOf(t, nil)
	for _, namespace := range []string{"x/../default", "..", ""} {
		vpa := testkit.VPA("v", deployment("web"))
		vpa.Namespace = namespace
		_, err := c.scaled(t.Context(), vpa)
		require.ErrorContains(t, err, "namespace", namespace)
	}
}

// The length of the list is up to users who create HPAs.
func TestClusterScaled_BoundsLengthOfHPAList(t *testing.T) {
	const most = 64 << 20
	sent := make(chan int, 1)
	c := clusterWith(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		n, item := 0, []byte(`{"metadata":{"name":"`+strings.Repeat("x", 1<<20)+`"}},`)
		_, err := w.Write([]byte(`{"items":[`))
		for ; err == nil && n < most; n += len(item) {
			_, err = w.Write(item)
		}
		sent <- n
	})
	_, err := c.scaled(t.Context(), testkit.VPA("v", deployment("web")))
	require.ErrorContains(t, err, "list of HorizontalPodAutoscalers is longer than 2097152 bytes")
	require.Less(t, <-sent, most, "the rest stays where it is")
}

func TestClusterScaled_BoundsConcurrentLists(t *testing.T) {
	var open, highest atomic.Int32
	c := clusterWith(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		now := open.Add(1)
		defer open.Add(-1)
		for before := highest.Load(); now > before && !highest.CompareAndSwap(before, now); before = highest.Load() {
			continue
		}
		time.Sleep(5 * time.Millisecond)
		_, _ = w.Write([]byte(`{}`))
	})
	var all sync.WaitGroup
	for range 5 * maxLists {
		all.Go(func() {
			_, err := c.scaled(t.Context(), testkit.VPA("v", deployment("web")))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	require.LessOrEqual(t, highest.Load(), int32(maxLists))

	for range maxLists {
		c.listSlots() <- struct{}{}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	_, err := c.scaled(ctx, testkit.VPA("v", deployment("web")))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Users often create a target together with its VPA, before the caches have seen the target.
func TestAdvise_ReadsNewTargetFromAPIServer(t *testing.T) {
	c := clusterOf(t, nil)
	c.Kube = described{fake.NewClientset(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"},
		Spec: appsv1.DeploymentSpec{Template: containers("app")}}), c.Kube.Discovery()}
	require.Empty(t, c.Advise(t.Context(), testkit.VPA("v", deployment("new")), nil))
	typo := testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "web"})
	require.Equal(t, []string{`spec.resourcePolicy.containerPolicies[0].containerName: "web" is no container of Deployment new, which has app: the policy has no effect, unless a webhook adds that container`},
		c.Advise(t.Context(), testkit.VPA("v", deployment("new"), typo), nil))
	began := time.Now()
	for range 10 {
		require.Contains(t, c.Advise(t.Context(), testkit.VPA("v", deployment("missing")), nil)[0], "Deployment missing does not exist in namespace default")
	}
	require.Less(t, time.Since(began), 10*adviseTimeout/2, "no review waits for news")
}

// A target that cannot be read may exist.
func TestAdvise_IgnoresForbiddenTarget(t *testing.T) {
	c := clusterOf(t, nil)
	kube := fake.NewClientset()
	kube.PrependReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", nil)
	})
	c.Kube = described{kube, c.Kube.Discovery()}
	require.Empty(t, c.Advise(t.Context(), testkit.VPA("v", deployment("missing")), nil))
}

func containers(names ...string) (template corev1.PodTemplateSpec) {
	for _, name := range names {
		template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: name})
	}
	return template
}

// The RBAC rules of the upstream VPA do not include quotas. Everything else works, and a permission
// granted later is noticed.
func TestCluster_QuotasAreOptional(t *testing.T) {
	kube := fake.NewClientset(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}})
	var allowed atomic.Bool
	var asked atomic.Int32
	kube.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		return !allowed.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "", nil)
	})
	c := &Cluster{Kube: kube, Retry: 10 * time.Millisecond}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	require.Eventually(t, func() bool { return asked.Load() > 1 }, time.Minute, time.Millisecond)
	require.Empty(t, c.Quotas("default"))
	for _, action := range kube.Actions() {
		require.NotEqual(t, "watch", action.GetVerb(), "what may not be listed is not watched")
	}
	allowed.Store(true)
	require.Eventually(t, func() bool { return len(c.Quotas("default")) == 1 }, time.Minute, time.Millisecond)
	require.Empty(t, c.Quotas("other"))
	stop()
	<-ended
}

func TestCluster_ReadsLargestNodeAtStart(t *testing.T) {
	c := &Cluster{Kube: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: testkit.List("cpu=4 memory=8Gi")}}), Retry: time.Minute}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	require.Eventually(t, func() bool { return c.largest.Load() != nil }, time.Minute, time.Millisecond)
	require.EqualValues(t, 4000, c.largest.Load().Value(resources.CPU))
	stop()
	<-ended
}

// A capped pod must fit on an empty node of the same kind.
func TestNodes_SubtractStaticPods(t *testing.T) {
	node := func(name string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Allocatable: testkit.List("cpu=8 memory=32Gi")}}
	}
	on := func(node, kind, name, memory string) *corev1.Pod {
		pod := testkit.Pod(name+"-"+node, testkit.Container("c", "memory="+memory, ""))
		pod.Spec.NodeName, pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind = node, "v1", kind
		return pod
	}
	control := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	kube := fake.NewClientset(node("a"), node("b"), node("c", control), on("a", "Node", "proxy", "2Gi"), on("b", "Node", "proxy", "2Gi"),
		on("a", "ReplicaSet", "web", "4Gi"), on("c", "Node", "etcd", "8Gi"))
	none := func(string, string) bool { return false }
	c := &Cluster{Kube: kube}
	for _, tc := range []struct {
		name      string
		placement nodefit.Placement
		forbidden bool
		want      int64
	}{
		{name: "beside static pods, not beside others", want: 30 << 30},
		{name: "node of another kind", placement: nodefit.Placement{NodeName: "c"}, want: 24 << 30},
		{name: "pods are not known", forbidden: true, want: 32 << 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.forbidden {
				kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
				})
			}
			require.NoError(t, c.readNodes(t.Context()))
			room, tooLarge := c.Nodes().Largest(resources.NewList(100, 80<<30), &tc.placement, none)
			require.True(t, tooLarge)
			require.EqualValues(t, tc.want, room.Value(resources.Memory))
		})
	}
}

// A kubelet may label its own node, so a single label of a virtual node does not make the nodes
// growable.
func TestReadNodes_IgnoresSingleVirtualNode(t *testing.T) {
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Allocatable: testkit.List("cpu=8 memory=32Gi")}}
	}
	virtual := map[string]string{"type": "virtual-kubelet"}
	for _, tc := range []struct {
		name  string
		nodes []runtime.Object
		known bool
	}{
		{name: "no virtual node", nodes: []runtime.Object{node("a", nil), node("b", nil)}, known: true},
		{name: "one of several", nodes: []runtime.Object{node("a", nil), node("b", nil), node("c", virtual)}, known: true},
		{name: "several", nodes: []runtime.Object{node("a", nil), node("b", nil), node("c", nil), node("d", virtual), node("e", virtual)}},
		{name: "all", nodes: []runtime.Object{node("a", virtual)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &Cluster{Kube: fake.NewClientset(tc.nodes...)}
			require.NoError(t, c.readNodes(t.Context()))
			require.Equal(t, tc.known, *c.largest.Load() != (resources.List{}))
		})
	}
}

// A tenant must not shrink the nodes for the pods of others.
func TestNodes_BoundDaemonSetsOfTenants(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: testkit.List("cpu=8 memory=32Gi")}}
	daemon := func(memory string, ready int32, change func(*corev1.PodSpec)) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "large"}, Spec: appsv1.DaemonSetSpec{Template: containers("large")}, Status: appsv1.DaemonSetStatus{NumberReady: ready}}
		d.Spec.Template.Spec.Containers[0].Resources.Requests = testkit.List("memory=" + memory)
		if change != nil {
			change(&d.Spec.Template.Spec)
		}
		return d
	}
	for _, tc := range []struct {
		name   string
		daemon *appsv1.DaemonSet
		want   int64
	}{
		{name: "pods that run", daemon: daemon("2Gi", 1, nil), want: 30 << 30},
		{name: "pods that never run", daemon: daemon("31Gi", 0, nil), want: 32 << 30},
		{name: "more than half of a node", daemon: daemon("31Gi", 1, nil), want: 16 << 30},
		{name: "placement of thousands of parts", want: 32 << 30, daemon: daemon("2Gi", 1, func(s *corev1.PodSpec) { s.Tolerations = make([]corev1.Toleration, 5000) })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &Cluster{Kube: fake.NewClientset(node, tc.daemon)}
			require.NoError(t, c.readNodes(t.Context()))
			room, tooLarge := c.Nodes().Largest(resources.NewList(100, 80<<30), &nodefit.Placement{}, func(string, string) bool { return false })
			require.True(t, tooLarge)
			require.EqualValues(t, tc.want, room.Value(resources.Memory))
		})
	}
}

func TestNodes_UnknownWithNodeAutoscaler(t *testing.T) {
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}, Status: corev1.NodeStatus{Allocatable: testkit.List("cpu=8 memory=32Gi")}}
	}
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "proxy"}, Spec: appsv1.DaemonSetSpec{Template: containers("proxy")}, Status: appsv1.DaemonSetStatus{NumberReady: 1}}
	daemons.Spec.Template.Spec.Containers[0].Resources.Requests = testkit.List("memory=2Gi")
	none := func(string, string) bool { return false }

	c := &Cluster{Kube: fake.NewClientset(node(nil), daemons)}
	require.Nil(t, c.Nodes(), "before they are read")
	require.NoError(t, c.readNodes(t.Context()))
	room, tooLarge := c.Nodes().Largest(resources.NewList(100, 80<<30), &nodefit.Placement{}, none)
	require.True(t, tooLarge)
	require.EqualValues(t, 30<<30, room.Value(resources.Memory), "beside what DaemonSets take")

	for _, label := range []string{"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup"} {
		c = &Cluster{Kube: fake.NewClientset(node(map[string]string{label: "p"}), daemons)}
		require.NoError(t, c.readNodes(t.Context()))
		require.Nil(t, c.Nodes(), "larger ones may be added")
	}

	hidden := fake.NewClientset(node(nil))
	hidden.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "cluster-autoscaler-status", nil)
	})
	c = &Cluster{Kube: hidden}
	require.NoError(t, c.readNodes(t.Context()))
	require.Nil(t, c.Nodes(), "a status that may not be read leaves it open")

	kube := fake.NewClientset(node(nil))
	kube.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
	})
	c = &Cluster{Kube: kube}
	require.Error(t, c.readNodes(t.Context()))
	require.Nil(t, c.Nodes(), "it is not known whether larger ones are added")
}
