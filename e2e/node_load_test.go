package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"loadline.dev/loadline/e2e/harness"
)

const overloadedTaint = "loadline.dev/overloaded"

// nodeLoads serves the one-minute load of nodes like a Prometheus that scrapes node_exporter.
type nodeLoads struct {
	mu sync.Mutex
	of map[string]float64
}

func (l *nodeLoads) set(node string, load float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[node] = load
}

func (l *nodeLoads) forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, node)
}

func (l *nodeLoads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) float64 {
		n, _ := strconv.ParseFloat(r.FormValue(name), 64)
		return n
	}
	start, end, step := number("start"), number("end"), number("step")
	if r.URL.Path != "/api/v1/query_range" || r.FormValue("query") != "min by (instance) (node_load1)" || step <= 0 {
		http.Error(w, "this server knows only the load of nodes", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	result := []any{}
	for node, load := range l.of {
		var values [][2]any
		for at := start; at <= end; at += step {
			values = append(values, [2]any{at, fmt.Sprint(load)})
		}
		result = append(result, map[string]any{"metric": map[string]string{"instance": node + ":9100"}, "values": values})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
}

func overloaded(t *testing.T) (names []string) {
	t.Helper()
	nodes, err := cluster.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, n := range nodes.Items {
		if slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == overloadedTaint }) {
			names = append(names, n.Name)
		}
	}
	return names
}

// awaitOverloaded waits until exactly these nodes have the taint, and requires that never more than
// one has it.
func awaitOverloaded(t *testing.T, names ...string) {
	t.Helper()
	awaitOverloadedWithin(t, longestWait, names...)
}

func awaitOverloadedWithin(t *testing.T, limit time.Duration, names ...string) {
	t.Helper()
	within(t, limit, fmt.Sprintf("the nodes with the taint are %v", names), func() error {
		now := overloaded(t)
		require.LessOrEqual(t, len(now), 1, "more than --node-load-max-tainted allows: %v", now)
		if !slices.Equal(now, names) {
			return fmt.Errorf("%v have it", now)
		}
		return nil
	})
}

// allowTaints applies deploy/node-load and waits until the permission is effective. It returns a
// client with the permissions of the updater.
func allowTaints(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	require.NoError(t, cluster.Kubectl(t.Context(), "apply", "--validate=strict", "-k", filepath.Join(cluster.Root, "deploy", "node-load")))
	eventually(t, "the API server knows that the updater may taint nodes", func() error {
		answer, err := cluster.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + harness.SystemNamespace + ":vpa-updater", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"},
		}}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("it may not")
		}
		return err
	})
	path, err := cluster.Credentials(t.Context(), "updater", "node-load-patches")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func createTolerating(t *testing.T, ns, name, node string) harness.Workload {
	t.Helper()
	w := newWorkload(t, ns, 1)
	w.Name, w.Node, w.Tolerate = name, node, ownTaint
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	return w
}

func serveAt(service *harness.Service, handler http.Handler) (gone func()) {
	server := httptest.NewServer(handler)
	address, _ := url.Parse(server.URL)
	service.Add(address.Host)
	return func() {
		service.Remove(address.Host)
		server.CloseClientConnections()
		server.Close()
	}
}

// New pods stay off the most overloaded node until its load falls or is unknown. At most one node
// of this cluster may have the taint.
func TestNodeLoad_TaintsMostOverloadedNode(t *testing.T) {
	parallelTest(t)
	ns := namespace(t, "node-load")
	for _, name := range []string{"load-a", "load-b", "load-c"} {
		ownNode(t, name, func(n *corev1.Node) { n.Spec.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule }) // ordinary pods are allowed
	}
	account := allowTaints(t)
	service, err := harness.NewService()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	known := &nodeLoads{of: map[string]float64{"load-a": 3, "load-b": 2, "load-c": 1}} // each node has one CPU
	gone := serveAt(service, known)
	args := []string{"--node-load-max-tainted=0.15", "--node-load-interval=5s", "--prometheus-address=http://" + service.Address()}

	rehearsing := ownUpdater(t, ns, "node-load-dry", append(args, "--node-load-taint=dry-run")...)
	awaitLoads(t, rehearsing)
	require.Empty(t, overloaded(t), "a dry run writes nothing")
	require.Equal(t, 1, logLines(t, rehearsing, 0, "Dry run: node is overloaded and would take no new pods"))
	rehearsing.Stop()

	working := ownUpdater(t, ns, "node-load", append(args, "--node-load-taint=on")...)
	awaitOverloaded(t, "load-a")
	awaitLoads(t, working)
	waits, runs := createTolerating(t, ns, "waits", "load-a"), createTolerating(t, ns, "runs", "load-b")
	awaitRunning(t, runs)
	eventually(t, "the new pod waits because of the taint", func() error {
		for _, pod := range pods(t, waits) {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "untolerated taint") {
					return nil
				}
			}
		}
		return errors.New("it does not")
	})

	known.set("load-a", 1)
	awaitOverloaded(t, "load-b")
	awaitRunning(t, waits)
	require.Len(t, awaitRunning(t, runs), 1, "who was there stays")

	known.forget("load-b")
	awaitOverloaded(t)
	known.set("load-b", 2)
	awaitOverloaded(t, "load-b")
	requireOnlyTaintAllowed(t, account, "load-c")

	gone() // Prometheus may be restarting, so the taint stays for a while
	awaitOverloadedWithin(t, 3*time.Minute+longestWait)
	t.Cleanup(serveAt(service, known))
	awaitOverloaded(t, "load-b")

	working.Stop()
	ownUpdater(t, ns, "node-load-off")
	awaitOverloaded(t)
}

func awaitLoads(t *testing.T, d *harness.Daemon) {
	t.Helper()
	eventually(t, "two overloaded nodes are counted", func() error {
		metrics, err := d.Metrics(t.Context())
		if err != nil {
			return err
		}
		for name, want := range map[string]float64{"overloaded_nodes": 2, "tainted_nodes": 1, "capped_nodes": 1} {
			if got, there := metrics["loadline_node_"+name]; got != want || !there {
				return fmt.Errorf("%s is %v", name, got)
			}
		}
		return nil
	})
}

// requireOnlyTaintAllowed requires that the updater's token can change nothing else of a node.
func requireOnlyTaintAllowed(t *testing.T, account *kubernetes.Clientset, node string) {
	t.Helper()
	patch := func(body string) error {
		_, err := account.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	tries := 0
	eventually(t, "a label of a node is refused", func() error {
		tries++ // patches without a change are allowed
		if err := patch(fmt.Sprintf(`{"metadata":{"labels":{"team":"%d"}}}`, tries)); !apierrors.IsForbidden(err) {
			return errors.Join(err, errors.New("it is not"))
		}
		return nil
	})
	for what, body := range map[string]string{
		"an annotation":             `{"metadata":{"annotations":{"team":"shop"}}}`,
		"a finalizer":               `{"metadata":{"finalizers":["example.com/keep"]}}`,
		"an identity":               `{"spec":{"providerID":"example://other"}}`,
		"addresses of pods":         `{"spec":{"podCIDR":"10.99.0.0/24","podCIDRs":["10.99.0.0/24"]}}`,
		"to cordon":                 `{"spec":{"unschedulable":true}}`,
		"to remove another's taint": `{"spec":{"taints":null}}`,
		"to evict all pods":         `{"spec":{"taints":[{"key":"` + ownTaint + `","effect":"PreferNoSchedule"},{"key":"` + overloadedTaint + `","effect":"NoExecute"}]}}`,
	} {
		require.True(t, apierrors.IsForbidden(patch(body)), what)
	}
	require.NoError(t, patch(`{"spec":{"taints":[{"key":"`+ownTaint+`","effect":"PreferNoSchedule"}]}}`), "what is there already")
}
