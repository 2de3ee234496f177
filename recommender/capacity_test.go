package recommender

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

func aNode(name, cpu, memory string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return n
}

func onNode(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

// A dropped sample does not affect later targets.
func TestIngester_DropsSamplesAboveNodeCapacity(t *testing.T) {
	small, large := aNode("small", "8", "32Gi"), aNode("large", "64", "256Gi")
	for _, tc := range []struct {
		name     string
		nodes    []runtime.Object
		node     string
		cpu, mib resources.Amount
		dropped  float64
	}{
		{name: "memory", nodes: []runtime.Object{small, large}, node: "small", cpu: 63, mib: 16 << 20, dropped: 1},
		{name: "a little memory", nodes: []runtime.Object{small, large}, node: "small", cpu: 63, mib: 33 << 10, dropped: 1},
		{name: "CPU", nodes: []runtime.Object{small, large}, node: "small", cpu: 100_000_000, mib: 200, dropped: 1},
		{name: "some CPU", nodes: []runtime.Object{small, large}, node: "small", cpu: 10_000, mib: 200, dropped: 1},
		{name: "an unknown node", nodes: []runtime.Object{small, large}, node: "other", cpu: 65_000 * 2, mib: 257 << 10, dropped: 2},
		{name: "no nodes", cpu: 100_000_000, mib: 16 << 20, dropped: 2},
	} {
		for _, name := range recipe.Names() {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				recommended := func(wrong bool) any {
					w := newWorld(t, append(tc.nodes, deployment("web"), onNode(aPod("web-1", "web", "a"), tc.node), webVPA(name))...).start()
					w.config.Output.Tolerance = 0
					for m := range 12 {
						w.setUsage("web-1", "a", 63, 200)
						if wrong && m == 2 {
							w.setUsage("web-1", "a", tc.cpu, tc.mib)
						}
						w.iterate(1)
					}
					if wrong {
						require.Equal(t, tc.dropped, testutil.ToFloat64(w.metrics.samples.WithLabelValues("above_capacity")))
					}
					list := w.recommendations("web")
					for i := range list {
						list[i].LowerBound, list[i].UpperBound = nil, nil // one sample less changes the bounds
					}
					return list
				}
				require.Equal(t, recommended(false), recommended(true))
			})
		}
	}
}

// A rate may appear slightly above the capacity.
func TestIngester_AcceptsSamplesUpToNodeCapacity(t *testing.T) {
	w := newWorld(t, aNode("n", "8", "32Gi"), deployment("web"), onNode(aPod("web-1", "web", "a"), "n"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 8_400, 32<<10)
	w.iterate(1)
	require.Equal(t, 2.0, testutil.ToFloat64(w.metrics.samples.WithLabelValues("accepted")))
	require.Zero(t, testutil.ToFloat64(w.metrics.samples.WithLabelValues("above_capacity")))
}

func TestIngester_UpdatesNodeCapacity(t *testing.T) {
	w := newWorld(t, aNode("n", "1", "1Gi"), deployment("web"), onNode(aPod("web-1", "web", "a"), "n"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 100, 2048)
	w.iterate(1)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.samples.WithLabelValues("above_capacity")))
	_, err := w.kube.CoreV1().Nodes().Update(t.Context(), aNode("n", "4", "4Gi"), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return w.loop.Store.Ceiling(containerKey("web-1", "a"), resources.Memory) == 4<<30
	}, time.Minute, time.Millisecond)
}

// Past nodes may have been larger, for example with a node pool that is scaled down at night. No
// machine has 16 TiB.
func TestBackfill_DropsImpossibleSamples(t *testing.T) {
	good := prometheusWithHistory(t, "p1", nil)
	with := func(memory string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.NoError(t, r.ParseForm())
			answer, err := http.PostForm(good+r.URL.Path, r.Form)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer answer.Body.Close()
			body, _ := io.ReadAll(answer.Body)
			fmt.Fprint(w, strings.Replace(string(body), `"1048576000"`, fmt.Sprintf("%q", memory), 1))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	for _, tc := range []struct {
		name, address string
		dropped       bool
	}{
		{name: "as recorded", address: good},
		{name: "60Gi on a node of 32Gi", address: with("64424509440")},
		{name: "16Ti", address: with("17592186044416"), dropped: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := withPrometheus(t, newWorld(t, aNode("n", "8", "32Gi"), deployment("x"), onNode(aPod("p1", "x", "a"), "n"), aVPA("v", "x", time.Hour)), tc.address).start()
			w.iterate(1)
			require.Equal(t, tc.dropped, testutil.ToFloat64(w.metrics.historySamples.WithLabelValues("above_capacity")) > 0)
			larger := w.recommendations("v")[0].Target.Memory().Value() > 10<<30
			require.Equal(t, tc.name == "60Gi on a node of 32Gi", larger)
		})
	}
}

func TestEvictionEvent_CappedByNodeMemory(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status corev1.PodStatus
		most   int64
	}{
		{name: "running pod", status: corev1.PodStatus{Phase: corev1.PodRunning}, most: 300 << 20},
		{name: "evicted pod", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, most: 64 << 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := onNode(aPod("web-1", "web", "a"), "n")
			w := newWorld(t, aNode("n", "8", "32Gi"), deployment("web"), pod, aVPA("web", "web", time.Hour)).start()
			w.setUsage("web-1", "a", 100, 100)
			w.iterate(3)
			event := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", UID: "e", CreationTimestamp: metav1.NewTime(w.now), Annotations: map[string]string{
					"offending_containers": "a", "offending_containers_usage": "1Ti", "starved_resource": "memory"}},
				Reason: "Evicted", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-1", UID: types.UID("web-1")},
			}
			_, err := w.kube.CoreV1().Events("ns").Create(t.Context(), event, metav1.CreateOptions{})
			require.NoError(t, err)
			changed := pod.DeepCopy()
			changed.ResourceVersion, changed.Status.Phase, changed.Status.Reason = "2", tc.status.Phase, tc.status.Reason
			_, err = w.kube.CoreV1().Pods("ns").UpdateStatus(t.Context(), changed, metav1.UpdateOptions{})
			require.NoError(t, err)
			if tc.status.Reason != "" {
				w.oomsPending()
			}
			w.iterate(1)
			require.LessOrEqual(t, w.memory("web"), tc.most)
			if tc.status.Reason != "" {
				require.Greater(t, w.memory("web"), int64(32<<30))
			}
		})
	}
}
