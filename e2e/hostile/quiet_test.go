package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, await(ctx, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		return err == nil, err
	}), what)
}

func iterations(t *testing.T, count float64, check func()) {
	t.Helper()
	passes := func() float64 {
		all, err := programs[2].Metrics(t.Context())
		if err != nil {
			return 0 // the port is under attack
		}
		return all[`vpa_updater_execution_latency_seconds_count{step="total"}`]
	}
	var first float64
	eventually(t, "metrics of the updater", func(context.Context) error {
		if first = passes(); first == 0 {
			return errors.New("no iteration yet")
		}
		return nil
	})
	eventually(t, "iterations of the updater", func(context.Context) error {
		check()
		if done := passes() - first; done < count {
			return fmt.Errorf("%v of %v", done, count)
		}
		return nil
	})
}

// ownNode adds a node with the given CPU capacity and a taint named like the node.
func ownNode(t *testing.T, name, cpu string) {
	t.Helper()
	nodes := cluster.Kube.CoreV1().Nodes()
	pattern, err := nodes.Get(t.Context(), "node-2", metav1.GetOptions{})
	require.NoError(t, err)
	size := pattern.Status.Capacity.DeepCopy()
	size[corev1.ResourceCPU] = resource.MustParse(cpu)
	info := pattern.Status.NodeInfo
	info.KubeletVersion = "v1.33.0"
	_, err = nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}, Annotations: map[string]string{
			"kwok.x-k8s.io/node": "fake", "metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + name + "/metrics/resource",
		}},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: name, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: size, Allocatable: size, NodeInfo: info},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func onNode(node, namespace, name string, replicas int32, cpu string) harness.Workload {
	return harness.Workload{Namespace: namespace, Name: name, Replicas: replicas, Node: node, Tolerate: node,
		Containers: []harness.Container{{Name: "app", CPU: cpu, Memory: "100Mi"}}, Annotations: harness.Uses("app", "150m", "80Mi")}
}

func running(t *testing.T, w harness.Workload) (pods []corev1.Pod) {
	t.Helper()
	eventually(t, w.Name+" runs", func(ctx context.Context) (err error) {
		if pods, err = cluster.Pods(ctx, w); err != nil {
			return err
		}
		for i := range pods {
			if pods[i].Status.Phase != corev1.PodRunning {
				return errors.New("a pod does not run")
			}
		}
		if len(pods) != int(w.Replicas) {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	return pods
}

func requireSame(t *testing.T, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	after, err := cluster.Pods(t.Context(), w)
	if err != nil {
		return // the API server is under attack, the caller retries
	}
	uids := func(pods []corev1.Pod) (all []string) {
		for i := range pods {
			all = append(all, string(pods[i].UID))
		}
		slices.Sort(all)
		return all
	}
	require.Equal(t, uids(before), uids(after), "pods of %s/%s were replaced", w.Namespace, w.Name)
}

// sharedNode is a node with sharing pods of a user, and later of the tenant.
type sharedNode struct {
	user   harness.Workload
	before []corev1.Pod
}

func startSharing(t *testing.T) *sharedNode {
	t.Helper()
	ownNode(t, "shared", "4")
	require.NoError(t, cluster.CreateNamespace(t.Context(), "sharing"))
	s := &sharedNode{user: onNode("shared", "sharing", "shared", 3, "300m")}
	require.NoError(t, cluster.CreateWorkload(t.Context(), s.user))
	s.before = running(t, s.user)
	method := loadlinev1alpha1.RolloutMethod("InPlaceOrRecreate")
	mode, sharing := loadlinev1alpha1.RolloutModeAuto, loadlinev1alpha1.SharingOn
	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "sharing"},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Priority:   new(int32(200)),
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"sharing", tenantNamespace}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment", Name: "shared"}},
			Recipe:     new("cruisekube"),
			Rollout:    &loadlinev1alpha1.Rollout{Mode: &mode, Method: &method, MinHistory: &metav1.Duration{}},
			Sharing:    &loadlinev1alpha1.Sharing{Mode: &sharing, Evict: new(true)},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return s
}

func (s *sharedNode) share(t *testing.T) {
	t.Helper()
	eventually(t, "the pods of the user share", func(ctx context.Context) error {
		pods, err := cluster.Pods(ctx, s.user)
		for i := range pods {
			if pods[i].Annotations["loadline.dev/shared"] == "" {
				return errors.New("a pod does not share")
			}
		}
		return err
	})
}

// floor requests two cores for each of two idle pods of the tenant on the shared node, and protects
// them from eviction.
func (s *sharedNode) floor(t *testing.T, n *tenant) {
	w := onNode("shared", tenantNamespace, "shared", 2, "10m")
	w.Annotations = harness.Merge(harness.Uses("app", "1m", "1Mi"), map[string]string{"loadline.dev/eviction-ranking": "no-eviction"})
	require.NoError(t, n.autoscaled(t.Context(), w, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Annotations = map[string]string{"loadline.dev/recipe": "cruisekube:pod-min-cpu=2000"}
	}))
	eventually(t, "a recommendation with the floor", func(ctx context.Context) error {
		vpa, err := n.vpa.AutoscalingV1().VerticalPodAutoscalers(tenantNamespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if r := vpa.Status.Recommendation; r == nil || len(r.ContainerRecommendations) == 0 || r.ContainerRecommendations[0].Target.Cpu().Cmp(resource.MustParse("2")) < 0 {
			return errors.New("there is none")
		}
		return nil
	})
	iterations(t, 4, func() { requireSame(t, s.user, s.before) })
}

// forgedLabel requires that one node with the label of a node autoscaler does not affect other
// nodes: pods share headroom, and evictions wait for room.
func (s *sharedNode) forgedLabel(t *testing.T) {
	eventually(t, "sharing is on", func(ctx context.Context) error {
		p, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(ctx, "sharing", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, "Sharing"); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition Sharing is %+v", c)
		}
		return nil
	})
	// Every node of 8 cores runs other pods, so 7950m fit on none.
	require.NoError(t, cluster.CreateNamespace(t.Context(), "full"))
	w := harness.Workload{Namespace: "full", Name: "waiting", Replicas: 2, Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}}}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := running(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "victim"}}
	}))
	require.NoError(t, recommend(t.Context(), w, "7950m"))
	eventually(t, "the pods wait for room", func(ctx context.Context) error {
		reasons, err := skipped(ctx, before[0].UID)
		if err == nil && !slices.Contains(reasons["NodeFull"], string(before[0].UID)) {
			err = fmt.Errorf("reasons are %v", reasons)
		}
		return err
	})
	iterations(t, 2, func() { requireSame(t, w, before) })
}

func skipped(ctx context.Context, uid types.UID) (map[string][]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+programs[2].Address+"/explain/skips?uid="+string(uid), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var answer struct{ Reasons map[string][]string }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return answer.Reasons, nil
}

func everything(t *testing.T) {
	const namespaces, workloads, allowed = 4, 10, 10
	ctx := t.Context()
	for i := range namespaces {
		require.NoError(t, cluster.CreateNamespace(ctx, numbered("fleet", i)))
	}
	require.NoError(t, each(ctx, 0, namespaces*workloads, func(ctx context.Context, i int) error {
		return cluster.CreateWorkload(ctx, harness.Workload{Namespace: numbered("fleet", i%namespaces), Name: numbered("app", i), Replicas: 2,
			Containers: []harness.Container{{Name: "app", CPU: "5m", Memory: "10Mi"}}, Annotations: harness.Uses("app", "200m", "100Mi")})
	}))
	mode := loadlinev1alpha1.RolloutModeAuto
	policies := cluster.VPA.LoadlineV1alpha1().SizingPolicies()
	_, err := policies.Create(ctx, &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"*"}, Exclude: []string{victimNamespace, evictedNamespace, tenantNamespace, "full", "printed"}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: &mode, MinHistory: &metav1.Duration{}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	changed := func(ctx context.Context) (int, error) {
		found := map[string]bool{}
		for i := range namespaces {
			pods, err := cluster.Kube.CoreV1().Pods(numbered("fleet", i)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			for _, pod := range pods.Items {
				if pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 5 {
					found[pod.Labels["app"]] = true
				}
			}
		}
		return len(found), nil
	}
	eventually(t, "some workloads are changed", func(ctx context.Context) error {
		n, err := changed(ctx)
		if err == nil && n < allowed {
			err = fmt.Errorf("%d are", n)
		}
		return err
	})
	iterations(t, 4, func() {
		n, err := changed(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, n, allowed, "workloads that a new policy has changed")
	})
	require.NoError(t, policies.Delete(ctx, "everything", metav1.DeleteOptions{}))
	for i := range namespaces {
		require.NoError(t, cluster.Kube.CoreV1().Namespaces().Delete(ctx, numbered("fleet", i), metav1.DeleteOptions{}))
	}
}

func recommend(ctx context.Context, w harness.Workload, cpu string) error {
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	vpa, err := vpas.Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	target := harness.Container{CPU: cpu, Memory: "100Mi"}.Requests()
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: target, Target: target, UpperBound: target}}}
	_, err = vpas.UpdateStatus(ctx, vpa, metav1.UpdateOptions{})
	return err
}

// printed requires that the plugin prints object fields without control characters, and no formulas
// in CSV.
func printed(t *testing.T) {
	const hostile = "=cmd|' /C calc'!A0\x1b[2J\x1b]0;owned\x07\u202e\r\n@x"
	ctx := t.Context()
	require.NoError(t, cluster.CreateNamespace(ctx, "printed"))
	w := harness.Workload{Namespace: "printed", Name: "web", Replicas: 1, Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}},
		Annotations: map[string]string{"loadline.dev/skip": hostile, "loadline.dev/recipe": hostile}}
	require.NoError(t, cluster.CreateWorkload(ctx, w))
	running(t, w)
	require.NoError(t, cluster.CreateVPA(ctx, w, vpav1.UpdateModeInPlaceOrRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Annotations = map[string]string{"loadline.dev/skip": hostile, "loadline.dev/eviction-ranking": hostile} // the webhook rejects an invalid recipe
		vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: hostile}}
	}))
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	vpa, err := vpas.Get(ctx, w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{
		{Type: vpav1.ConfigUnsupported, Status: corev1.ConditionTrue, Reason: hostile, Message: hostile},
		{Type: hostile, Status: corev1.ConditionTrue, Reason: hostile, Message: hostile},
	}
	_, err = vpas.UpdateStatus(ctx, vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = cluster.Kube.CoreV1().Events(w.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "hostile", Namespace: w.Namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "VerticalPodAutoscaler", APIVersion: "autoscaling.k8s.io/v1", Namespace: w.Namespace, Name: w.Name, UID: vpa.UID},
		Reason:         "EvictedByVPA", Message: hostile, Type: corev1.EventTypeWarning, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
		Source: corev1.EventSource{Component: "vpa-updater"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	shown := false
	for _, command := range [][]string{
		{"status"}, {"status", "-o", "wide"}, {"status", "-o", "json"}, {"status", "-o", "yaml"}, {"status", "-o", "csv"}, {"status", "-o", "md"},
		{"recommend"}, {"recommend", "-o", "csv"}, {"diff", "-o", "csv"}, {"history", "-o", "csv"}, {"savings", "-o", "csv"},
		{"doctor"}, {"doctor", "-o", "csv"}, {"migrate", "check", "-o", "csv"}, {"explain", "web"}, {"export", "deployment/web"},
	} {
		out, errs := askPlugin(ctx, append(command, "-n", w.Namespace)...)
		requirePrintable(t, command, out+errs)
		shown = shown || strings.Contains(out+errs, `\x1b[2J`)
		if slices.Contains(command, "csv") {
			requireNoFormula(t, out)
		}
	}
	require.True(t, shown, "no command shows a hostile field")
}
