package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

const (
	cruiseKube          = "cruisekube"                          // the overlay, its policy, the test namespace and a node
	fullNode, spareNode = "cruisekube-full", "cruisekube-spare" // nodes
)

// cpuUsage is CPU usage in cores, now and at this hour of the previous day, and the current share
// of time waiting for CPU.
type cpuUsage struct{ now, peak, waiting float64 }

// cruiseKubeUsage is the CPU usage by workload. All workloads use 100 MB of memory now and used 200 MB at this hour of
// the previous day.
var cruiseKubeUsage = map[string]cpuUsage{
	"web": {now: 0.1, peak: 0.28, waiting: 0.2}, "excluded": {now: 0.01, peak: 0.05},
	"a": {now: 0.8, peak: 1.1}, "b": {now: 0.8, peak: 1.6}, "c": {now: 0.8, peak: 1}, "high": {now: 0.2, peak: 1.1},
}

// pastUsage serves the queries of Prometheus with a week of history.
type pastUsage struct{ start time.Time }

func (p *pastUsage) value(query, workload string, at time.Time) (value float64, found bool) {
	u, age := cruiseKubeUsage[workload], p.start.Sub(at)
	atPeak := age > 22*time.Hour && age < 26*time.Hour
	switch {
	case strings.Contains(query, "container_pressure_cpu_waiting_seconds_total"):
		if age > time.Hour {
			return 0, true
		}
		return u.waiting, true
	case strings.Contains(query, "container_cpu_usage_seconds_total"):
		if atPeak {
			return u.peak, true
		}
		return u.now, true
	case strings.Contains(query, "container_memory_working_set_bytes"):
		if atPeak {
			return 200e6, true
		}
		return 100e6, true
	case strings.Contains(query, "kube_pod_labels"):
		return 1, true
	}
	return 0, false
}

func (p *pastUsage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) float64 {
		n, _ := strconv.ParseFloat(strings.TrimSuffix(r.FormValue(name), "s"), 64)
		return n
	}
	query, kind, times := r.FormValue("query"), "vector", []float64{float64(time.Now().Unix())}
	if r.URL.Path == "/api/v1/query_range" {
		kind, times = "matrix", nil
		for at := number("start"); number("step") > 0 && at <= number("end"); at += number("step") {
			times = append(times, at)
		}
	}
	series := []any{}
	add := func(labels map[string]string, value func(at time.Time) (float64, bool)) {
		var values [][2]any
		for _, at := range times {
			if v, found := value(time.Unix(int64(at), 0)); found {
				values = append(values, [2]any{at, fmt.Sprint(v)})
			}
		}
		switch {
		case len(values) == 0:
		case kind == "matrix":
			series = append(series, map[string]any{"metric": labels, "values": values})
		default:
			series = append(series, map[string]any{"metric": labels, "value": values[0]})
		}
	}
	pods, _ := cluster.Kube.CoreV1().Pods(cruiseKube).List(r.Context(), metav1.ListOptions{})
	for _, pod := range pods.Items {
		labels := map[string]string{"namespace": cruiseKube, "pod": pod.Name, "container": "app", "label_app": pod.Labels["app"]}
		add(labels, func(at time.Time) (float64, bool) { return p.value(query, pod.Labels["app"], at) })
	}
	if strings.Contains(query, "node_load1") {
		add(map[string]string{"instance": "node-1:9100"}, func(time.Time) (float64, bool) { return 1000, true })
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": kind, "result": series}})
}

// startWithOverlay starts a program with the arguments of the overlay, the given Prometheus and extra arguments.
func startWithOverlay(t *testing.T, program, prometheus string, extra ...string) *harness.Daemon {
	t.Helper()
	out, err := cluster.KubectlOutput(t.Context(), "kustomize", filepath.Join(cluster.Root, "deploy", "overlays", cruiseKube))
	require.NoError(t, err)
	var args []string
	for document := range strings.SplitSeq(out, "\n---\n") {
		var d appsv1.Deployment
		if yaml.Unmarshal([]byte(document), &d) != nil || d.Kind != "Deployment" || d.Name != "vpa-"+program {
			continue
		}
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "--prometheus-address=") {
				arg = "--prometheus-address=" + prometheus
			}
			args = append(args, arg)
		}
	}
	require.Contains(t, args, "--foreign-annotations")
	d, err := cluster.Daemon(t.Context(), program, program+"-"+cruiseKube, append(args, extra...)...)
	require.NoError(t, err)
	require.NoError(t, d.Start(t.Context()))
	t.Cleanup(d.Stop)
	return d
}

// startCruiseKube starts the three programs, the updater last and with recommendations for all
// workloads. It replaces the shared updater, because it must see all pods of a node.
func startCruiseKube(t *testing.T, workloads []harness.Workload) *harness.Daemon {
	t.Helper()
	for _, shared := range []*harness.Daemon{updater, admission} {
		shared.Stop()
		t.Cleanup(func() { require.NoError(t, shared.Start(context.WithoutCancel(t.Context()))) })
	}
	server := httptest.NewServer(&pastUsage{start: time.Now()})
	t.Cleanup(server.Close)
	text, err := os.ReadFile(filepath.Join(cluster.Root, "deploy", "overlays", cruiseKube, "policy.yaml"))
	require.NoError(t, err)
	var policy loadlinev1alpha1.SizingPolicy
	require.NoError(t, yaml.UnmarshalStrict(text, &policy))
	policy.Spec.Namespaces.Names, policy.Spec.Recommender = []string{cruiseKube}, new(cruiseKube) // other tests have workloads, too
	_, err = cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), &policy, metav1.CreateOptions{})
	require.NoError(t, err)

	const young = "--sharing-min-age=1s" // the workloads of the test are younger than an hour
	reached, err := harness.ByURL()
	require.NoError(t, err)
	startWithOverlay(t, "admission-controller", server.URL, append(reached, young)...)
	startWithOverlay(t, "recommender", server.URL, "--leader-elect=false", "--recommender-name="+cruiseKube, "--recommender-interval=3s")
	for _, w := range workloads {
		generated := w
		generated.Name = "deployment-" + w.Name
		awaitGeneratedVPA(t, w.Namespace, generated.Name)
		eventually(t, "the peak of "+w.Name+" is recommended", func() error {
			vpa := getVPA(t, generated)
			if vpa.Status.Recommendation == nil || len(vpa.Status.Recommendation.ContainerRecommendations) != 1 {
				return errors.New("no recommendation")
			}
			cpu := vpa.Status.Recommendation.ContainerRecommendations[0].Target.Cpu()
			if cpu.MilliValue() < int64(1000*cruiseKubeUsage[w.Name].peak) {
				return fmt.Errorf("target is %s", cpu)
			}
			return nil
		})
	}
	namespaces, err := cluster.Kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var others []string
	for _, n := range namespaces.Items {
		if n.Name != cruiseKube {
			others = append(others, n.Name)
		}
	}
	return startWithOverlay(t, "updater", server.URL, "--leader-elect=false", "--updater-interval=3s", "--sharing-interval=6s", young,
		"--ignored-vpa-object-namespaces="+strings.Join(others, ","))
}

func awaitShare(t *testing.T, w harness.Workload, node string, count int, milliCPU, memory int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods of %s on %s have %dm and %d bytes", count, w.Name, node, milliCPU, memory), func() (err error) {
		found := 0
		for _, pod := range pods(t, w) {
			if pod.Spec.NodeName != node {
				continue
			}
			found++
			requests := pod.Spec.Containers[0].Resources.Requests
			if requests.Cpu().MilliValue() != milliCPU || requests.Memory().Value() != memory {
				err = errors.Join(err, fmt.Errorf("%s requests %dm and %d bytes", pod.Name, requests.Cpu().MilliValue(), requests.Memory().Value()))
			}
			if s := pod.Status.ContainerStatuses; len(s) != 1 || s[0].Resources == nil || s[0].Resources.Requests.Cpu().MilliValue() != milliCPU {
				err = errors.Join(err, fmt.Errorf("the kubelet has not resized %s", pod.Name))
			}
		}
		if found != count {
			err = errors.Join(err, fmt.Errorf("%d pods", found))
		}
		return err
	})
}

func memoryLimits(t *testing.T, w harness.Workload) (bytes []int64) {
	t.Helper()
	for _, pod := range pods(t, w) {
		bytes = append(bytes, pod.Spec.Containers[0].Resources.Limits.Memory().Value())
	}
	slices.Sort(bytes)
	return bytes
}

func newPodResources(t *testing.T, w harness.Workload) *corev1.ResourceRequirements {
	t.Helper()
	owner, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod, err := cluster.Kube.CoreV1().Pods(w.Namespace).Create(t.Context(), ownedPod(w, owner), dryRun)
	require.NoError(t, err)
	return &pod.Spec.Containers[0].Resources
}

// fillNode runs one pod of each of four workloads on a node of two cores, and a second pod of each on a node with room.
func fillNode(t *testing.T, pattern harness.Workload) (workloads []harness.Workload) {
	t.Helper()
	node := func(name, cores string) {
		ownNode(t, name, func(n *corev1.Node) {
			n.Labels[corev1.LabelHostname] = fullNode // both nodes match the node selector of the pods
			n.Status.NodeInfo.KubeletVersion = "v1.33.0"
			n.Status.Capacity[corev1.ResourceCPU] = *quantity(cores)
		})
	}
	node(fullNode, "2")
	for _, name := range []string{"a", "b", "c", "high"} {
		w := pattern
		w.Name, w.Replicas, w.Node = name, 1, fullNode
		w.Containers = []harness.Container{{Name: "app", CPU: "400m", Memory: "100Mi"}}
		if name == "high" {
			w.Annotations = harness.With(w.Annotations, "loadline.dev/eviction-ranking", "high")
		}
		startWorkload(t, w)
		w.Replicas = 2
		workloads = append(workloads, w)
	}
	require.NoError(t, cluster.Kubectl(t.Context(), "cordon", fullNode))
	node(spareNode, "16")
	for _, w := range workloads {
		scale(t, w)
		awaitRunning(t, w)
	}
	require.NoError(t, cluster.Kubectl(t.Context(), "uncordon", fullNode))
	return workloads
}

// TestCruiseKubeOverlay_FollowsPublishedAlgorithm runs the steps of the published algorithm with
// the arguments and the policy of the overlay. The expected values are computed with the published
// formulas.
func TestCruiseKubeOverlay_FollowsPublishedAlgorithm(t *testing.T) {
	exclusiveTest(t, processThird)
	web := newWorkload(t, cruiseKube, 3)
	web.Node, web.Tolerate = cruiseKube, ownTaint
	crowding := fillNode(t, web)
	web.Containers = []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi", CPULimit: "900m", MemoryLimit: "300Mi"}}
	excluded := web
	excluded.Name, excluded.Replicas = "excluded", 1
	excluded.Annotations = harness.With(web.Annotations, "cruisekube.truefoundry.com/excluded", "true")
	ownNode(t, cruiseKube, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.33.0" })
	before, excludedBefore := startWorkload(t, web), startWorkload(t, excluded)
	updaterWithOverlay := startCruiseKube(t, append(crowding, web))

	t.Run("pods of a node share the largest headroom", func(t *testing.T) {
		// CPU: base 0.1 × (1 + 0.2) = 0.12, headroom 0.28 − 0.12 = 0.16, of three: 0.12 + 0.16 / 3 cores.
		// Memory: base 100 MB, headroom 100 MB, of three: 100 + 100 / 3 MB. Limit: twice the maximum of a week.
		awaitShare(t, web, cruiseKube, 3, 173, 133_333_333)
		require.Equal(t, []int64{400e6, 400e6, 400e6}, memoryLimits(t, web))
		requireSamePods(t, web, before)
	})
	t.Run("pods leave a crowded node by rank and headroom", func(t *testing.T) {
		// The node has 2 cores. Bases: 0.8 × 3 + 0.2. Headrooms: 0.3, 0.8, 0.2 and 0.9. Without b, 1.8 + 0.9 do not fit.
		// Without a and b, 1.0 + 0.9 fit. The pod with the largest headroom has a high rank and stays.
		a, b, c, high := crowding[0], crowding[1], crowding[2], crowding[3]
		awaitShare(t, c, fullNode, 1, 963, 150e6)    // 0.8 + 0.9 × 0.2 / 1.1
		awaitShare(t, high, fullNode, 1, 936, 150e6) // 0.2 + 0.9 × 0.9 / 1.1
		for _, left := range []harness.Workload{a, b} {
			awaitRunning(t, left)
			require.True(t, slices.ContainsFunc(pods(t, left), func(pod corev1.Pod) bool { return pod.Spec.NodeName == spareNode }))
			require.False(t, slices.ContainsFunc(pods(t, left), func(pod corev1.Pod) bool { return pod.Spec.NodeName == fullNode }))
		}
		eventually(t, "one pod of a and one pod of b are evicted", func() error {
			if evicted := evictedWorkloads(t); !slices.Equal(evicted, []string{"a", "b"}) {
				return fmt.Errorf("pods of %q", evicted)
			}
			return nil
		})
		require.EqualValues(t, 1600, newPodResources(t, b).Requests.Cpu().MilliValue(), "the replacement gets the peak")
	})
	t.Run("a new pod begins at its peak", func(t *testing.T) {
		r := newPodResources(t, web)
		require.EqualValues(t, 280, r.Requests.Cpu().MilliValue())
		require.EqualValues(t, 200e6, r.Requests.Memory().Value())
		require.EqualValues(t, 512e6, r.Limits.Memory().Value(), "at least 512 MB")
		require.NotContains(t, r.Limits, corev1.ResourceCPU)
		web.Replicas++
		scale(t, web)
		awaitShare(t, web, cruiseKube, 4, 160, 125e6) // 0.12 + 0.16 / 4, 100 + 100 / 4
		require.Equal(t, []int64{400e6, 400e6, 400e6, 512e6}, memoryLimits(t, web), "limits do not fall")
	})
	t.Run("memory at a kill replaces base and peak", func(t *testing.T) {
		before := pods(t, web)
		oldest := slices.MinFunc(before, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		annotatePod(t, &oldest, "sim.loadline.dev/oom", "app")
		awaitShare(t, web, cruiseKube, 4, 160, 400e6) // the limit that was hit
		require.Equal(t, []int64{800e6, 800e6, 800e6, 800e6}, memoryLimits(t, web), "twice the memory at the kill")
		for _, pod := range pods(t, web) {
			require.True(t, slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == pod.UID }), "memory grows in place")
		}
		require.EqualValues(t, 400e6, newPodResources(t, web).Requests.Memory().Value())
	})
	requireSameSizes(t, excluded, excludedBefore)
	metrics, err := updaterWithOverlay.Metrics(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 1, metrics["loadline_node_tainted_nodes"], 0, "a load of 1000, dry run")
	require.Empty(t, overloaded(t))
	deletePolicy(t, cruiseKube)
}

func evictedWorkloads(t *testing.T) (names []string) {
	t.Helper()
	events, err := cluster.Kube.CoreV1().Events(cruiseKube).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=EvictedByVPA"})
	require.NoError(t, err)
	for _, e := range events.Items {
		require.Contains(t, e.Message, "NodeCrowded")
		name, _, _ := strings.Cut(e.InvolvedObject.Name, "-")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
