package nodeload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

func cpus(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

// cluster has nodes, and a Prometheus with their load.
type cluster struct {
	*testing.T
	kube        *fake.Clientset
	store       cache.Indexer // nodes in the informer cache
	loads       map[string]string
	unavailable bool // Prometheus is unavailable
	now         time.Time
	log         *bytes.Buffer
	counts      Counts
	failed      []string
	synced      bool

	watcher *Watcher
}

func (c *cluster) NodeLoad(counts Counts)       { c.counts = counts }
func (c *cluster) NodeLoadFailed(source string) { c.failed = append(c.failed, source) }

// newCluster has ten ready nodes of 4 CPUs without load, n0 to n9, and a watcher in a mode. Three
// of ten nodes may have the taint.
func newCluster(t *testing.T, mode string, change ...func(n *corev1.Node)) *cluster {
	t.Helper()
	c := &cluster{T: t, kube: fake.NewClientset(), loads: map[string]string{}, synced: true, now: noon, log: &bytes.Buffer{}}
	for i := range 10 {
		n := object(fmt.Sprintf("n%d", i), change...)
		c.loads[n.Name] = "1"
		require.NoError(t, c.kube.Tracker().Add(n))
	}
	c.kube.PrependReactor("patch", "nodes", c.patched)
	server := httptest.NewServer(testkit.StrictPrometheus(t, c.answer))
	t.Cleanup(server.Close)
	config := DefaultConfig()
	config.Mode = mode
	c.begin(config, server.URL)
	return c
}

func (c *cluster) begin(config Config, address string) {
	c.store = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c.watcher = &Watcher{Config: config, Source: newSourceFor(c.T, address, config), Kube: c.kube,
		Nodes: corelisters.NewNodeLister(c.store), Informer: syncedWhen(func() bool { return c.synced }), Metrics: c}
}

func (c *cluster) answer(w http.ResponseWriter, _ *http.Request) {
	if c.unavailable {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var all []string
	for node, load := range c.loads {
		all = append(all, seriesBefore(c.now, node+":9100", strings.Repeat(load+" ", samples)))
	}
	slices.Sort(all)
	fmt.Fprint(w, matrix(all...))
}

// patched applies a merge patch like the API server, which refuses one for another version of the
// node.
func (c *cluster) patched(a ktesting.Action) (bool, runtime.Object, error) {
	patch := a.(ktesting.PatchAction)
	var asked struct {
		Metadata struct{ ResourceVersion, UID string }
		Spec     struct{ Taints []corev1.Taint }
	}
	if err := json.Unmarshal(patch.GetPatch(), &asked); err != nil {
		return true, nil, err
	}
	node, err := c.kube.Tracker().Get(a.GetResource(), "", patch.GetName())
	if err != nil {
		return true, nil, err
	}
	n := node.(*corev1.Node).DeepCopy()
	if asked.Metadata.ResourceVersion != n.ResourceVersion || asked.Metadata.UID != string(n.UID) {
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, n.Name, errors.New("it has been modified"))
	}
	n.Spec.Taints = asked.Spec.Taints
	c.put(n)
	return true, n, nil
}

func (c *cluster) put(n *corev1.Node) {
	version, _ := strconv.Atoi(n.ResourceVersion)
	n.ResourceVersion = strconv.Itoa(version + 1)
	require.NoError(c, c.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""))
}

func (c *cluster) node(name string) *corev1.Node {
	n, err := c.kube.CoreV1().Nodes().Get(c.Context(), name, metav1.GetOptions{})
	require.NoError(c, err)
	return n.DeepCopy()
}

func (c *cluster) change(name string, change func(*corev1.Node)) {
	n := c.node(name)
	change(n)
	c.put(n)
}

func (c *cluster) syncNodes() {
	list, err := c.kube.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	var seen []any
	for i := range list.Items {
		n, err := Trim(client.Trim)(&list.Items[i])
		require.NoError(c, err)
		n, err = Trim(client.Trim)(n)
		require.NoError(c, err, "informers ask twice")
		seen = append(seen, n)
	}
	require.NoError(c, c.store.Replace(seen, ""))
}

// round runs one round with current nodes. c.log has its log and c.failed its failed sources.
func (c *cluster) round() {
	c.syncNodes()
	c.runOnce()
}

func (c *cluster) runOnce() {
	c.log.Reset()
	c.failed = nil
	c.watcher.RunOnce(klog.NewContext(c.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(c.log)))), c.now)
}

func (c *cluster) tainted() (names []string) {
	list, err := c.kube.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	for i := range list.Items {
		if Tainted(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func (c *cluster) patches() (n int) {
	for _, a := range c.kube.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			n++
		}
	}
	return n
}

func TestWatcher_TaintsAndUntaintsOverloadedNode(t *testing.T) {
	c := newCluster(t, On)
	c.loads["n3"], c.loads["n5"] = "4.1", "4"
	c.round()
	require.Equal(t, []string{"n3"}, c.tainted())
	require.Equal(t, []corev1.Taint{{Key: "loadline.dev/overloaded", Value: "true", Effect: corev1.TaintEffectNoSchedule}}, c.node("n3").Spec.Taints)
	require.Equal(t, Counts{Overloaded: 1, Tainted: 1}, c.counts)
	require.Contains(t, c.log.String(), `"Node is overloaded and takes no new pods" node="n3" load="1.02" taint="loadline.dev/overloaded=true:NoSchedule"`)
	c.round()
	require.Equal(t, 1, c.patches(), "nothing has changed")
	require.Empty(t, c.log.String())
	c.loads["n3"] = "4"
	c.round()
	require.Empty(t, c.tainted())
	require.Empty(t, c.node("n3").Spec.Taints)
	require.Contains(t, c.log.String(), `"Node takes new pods again" node="n3" reason="NotOverloaded" load="1.00"`)
	require.Equal(t, Counts{}, c.counts)
}

func TestWatcher_LimitsTaintedNodes(t *testing.T) {
	c := newCluster(t, On)
	for i, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
		c.loads[name] = fmt.Sprint(5 + i)
	}
	c.round()
	require.Equal(t, []string{"n3", "n4", "n5"}, c.tainted())
	require.Equal(t, Counts{Overloaded: 5, Tainted: 3, Capped: 2}, c.counts)
	require.Contains(t, c.log.String(), `"Overloaded nodes without taint: --node-load-max-tainted=0.3 allows the taint on 3 of 10 nodes that take new pods" count=2 nodes="n2, n1"`)
	c.loads["n1"] = "99"
	c.round()
	require.Equal(t, []string{"n3", "n4", "n5"}, c.tainted(), "the taint does not wander")
	require.Empty(t, c.log.String(), "it has been said")
	c.loads["n4"] = "1"
	c.round()
	require.Equal(t, []string{"n1", "n3", "n5"}, c.tainted())
	c.change("n9", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.round()
	require.Equal(t, []string{"n1", "n5"}, c.tainted(), "of nine nodes two may, and the most overloaded of those that have it stay")
}

func TestWatcher_FailedUntaintCountsAgainstLimit(t *testing.T) {
	c := newCluster(t, On)
	for _, name := range []string{"n1", "n2", "n3"} {
		c.loads[name] = "8"
	}
	c.round()
	require.Equal(t, []string{"n1", "n2", "n3"}, c.tainted())
	c.loads["n1"], c.loads["n4"] = "1", "8"
	stuck := true
	c.kube.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
		return stuck && a.(ktesting.PatchAction).GetName() == "n1", nil, apierrors.NewInternalError(errors.New("no"))
	})
	c.round()
	require.Equal(t, []string{"n1", "n2", "n3"}, c.tainted())
	require.Equal(t, []string{SourceAPIServer}, c.failed)
	require.Contains(t, c.log.String(), "Failed to write taints of nodes, retrying in the next round")
	require.Contains(t, c.log.String(), "taints of node n1: ")
	stuck = false
	c.round()
	require.Equal(t, []string{"n2", "n3", "n4"}, c.tainted())
	require.Empty(t, c.failed)
	require.Contains(t, c.log.String(), "Nodes can be written again")

	c.loads["n2"], c.loads["n3"] = "1", "1"
	c.round()
	stuck, c.loads["n4"], c.loads["n1"] = true, "1", "8"
	c.change("n1", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint} })
	c.loads["n1"], c.loads["n5"], c.loads["n6"] = "1", "8", "8"
	c.round()
	require.Equal(t, []string{"n1", "n5", "n6"}, c.tainted(), "a place that is left is taken all the same")
}

// This includes taints written after the node was read.
func TestWatcher_KeepsOtherTaints(t *testing.T) {
	gpu := corev1.Taint{Key: "gpu", Value: "a", Effect: corev1.TaintEffectPreferNoSchedule}
	drain := corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectPreferNoSchedule, TimeAdded: &metav1.Time{Time: noon}}
	evicts := corev1.Taint{Key: TaintKey, Value: "true", Effect: corev1.TaintEffectPreferNoSchedule} // not written by the updater
	c := newCluster(t, On, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu, evicts} })
	c.loads["n3"] = "8"
	c.syncNodes()
	c.change("n3", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, drain) })
	c.runOnce()
	require.Equal(t, []corev1.Taint{gpu, evicts, drain}, c.node("n3").Spec.Taints, "it is not written as it was read")
	require.Empty(t, c.failed, "that is nobody's fault")
	require.Empty(t, c.log.String())
	c.round()
	require.Len(t, c.node("n3").Spec.Taints, 4)
	require.Equal(t, []string{"n3"}, c.tainted())
	c.loads["n3"] = "1"
	c.syncNodes()
	c.change("n3", func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "gpu" })
	})
	c.runOnce()
	require.Equal(t, []string{"n3"}, c.tainted())
	c.round()
	require.Len(t, c.node("n3").Spec.Taints, 2)
	require.Equal(t, []string{TaintKey, "maintenance"}, []string{c.node("n3").Spec.Taints[0].Key, c.node("n3").Spec.Taints[1].Key})
	require.True(t, noon.Equal(c.node("n3").Spec.Taints[1].TimeAdded.Time))
}

func TestWatcher_UntaintsNodesWithoutData(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(c *cluster)
		failed  []string
		unknown int
		logged  string
	}{
		"none of the nodes": {func(c *cluster) { delete(c.loads, "n3"); delete(c.loads, "n4") }, nil, 2, `"Node takes new pods again" node="n3" reason="LoadUnknown" load="unknown"`},
		"no capacity": {func(c *cluster) {
			for _, name := range []string{"n3", "n4"} {
				c.change(name, func(n *corev1.Node) { n.Status.Capacity = nil })
			}
		}, nil, 2, `reason="LoadUnknown"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, On)
			w.loads["n3"], w.loads["n4"] = "8", "8"
			w.round()
			require.Equal(t, []string{"n3", "n4"}, w.tainted())
			c.happens(w)
			w.round()
			require.Empty(t, w.tainted())
			require.Equal(t, c.failed, w.failed)
			require.Equal(t, Counts{Unknown: c.unknown}, w.counts)
			require.Contains(t, w.log.String(), c.logged)
		})
	}
}

// A single bad answer must not free all nodes, and missing answers must not keep them tainted
// forever.
func TestWatcher_UntaintsAllThreeMinutesAfterLastLoad(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(c *cluster)
		logged  string
	}{
		"Prometheus is gone": {func(c *cluster) { c.unavailable = true }, "Failed to query the load of some or all nodes: nodes with unknown load lose the taint, but if all loads are unknown only after 3m0s"},
		"no series at all":   {func(c *cluster) { clear(c.loads) }, "--node-load-metric=node_load1: no series in Prometheus"},
	} {
		for _, mode := range []string{On, DryRun} {
			t.Run(name+", "+mode, func(t *testing.T) {
				w := newCluster(t, mode)
				w.loads["n3"], w.loads["n4"] = "8", "8"
				w.round()
				before := w.tainted()
				c.happens(w)
				w.round()
				require.Contains(t, w.log.String(), c.logged)
				for _, after := range []time.Duration{0, time.Minute, 3*time.Minute - time.Second} {
					w.now = noon.Add(after)
					w.round()
					require.Equal(t, before, w.tainted(), after)
					require.NotContains(t, w.log.String(), "new pods again")
					require.Equal(t, Counts{Tainted: 2, Unknown: 10}, w.counts)
					require.Equal(t, []string{SourcePrometheus}, w.failed)
				}
				w.now = noon.Add(3 * time.Minute)
				w.round()
				require.Empty(t, w.tainted())
				require.Equal(t, Counts{Unknown: 10}, w.counts)
			})
		}
	}
}

func TestWatcher_AnswerResetsUnknownLoadTimeout(t *testing.T) {
	c := newCluster(t, On)
	c.loads["n3"] = "8"
	for minute, away := range []bool{false, true, true, false, true, true, true} {
		c.now, c.unavailable = noon.Add(time.Duration(minute)*time.Minute), away
		c.round()
		require.Equal(t, []string{"n3"}, c.tainted(), minute)
	}
	c.now = noon.Add(7 * time.Minute)
	c.round()
	require.Empty(t, c.tainted())
}

func TestWatcher_LogsPrometheusFailureOnce(t *testing.T) {
	c := newCluster(t, On)
	c.unavailable = true
	c.round()
	require.Contains(t, c.log.String(), "503")
	c.round()
	require.Empty(t, c.log.String(), "once")
	require.Equal(t, []string{SourcePrometheus}, c.failed, "counted each time")
	c.unavailable = false
	c.round()
	require.Contains(t, c.log.String(), "Prometheus returns the load of nodes again")
}

func TestWatcher_NewLeaderKeepsTaints(t *testing.T) {
	c := newCluster(t, On)
	for _, name := range []string{"n1", "n2", "n3"} {
		c.loads[name] = "5"
	}
	c.round()
	c.loads["n8"] = "99"
	other := newCluster(t, On)
	other.kube, other.loads = c.kube, c.loads
	other.watcher.Kube = c.kube
	other.round()
	require.Equal(t, []string{"n1", "n2", "n3"}, other.tainted(), "that n8 is more overloaded does not move the taint")
	c.loads["n1"] = "1"
	other.round()
	require.Equal(t, []string{"n2", "n3", "n8"}, other.tainted())
}

func TestWatcher_ExcludesUnavailableNodes(t *testing.T) {
	c := newCluster(t, On)
	for i := range 10 {
		c.loads[fmt.Sprintf("n%d", i)] = "1"
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		c.loads[name] = "8"
	}
	c.change("n1", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	})
	c.change("n2", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.change("n3", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	c.round()
	require.Empty(t, c.tainted())
	require.Equal(t, Counts{Overloaded: 2}, c.counts, "the control plane is left out of everything")
	c.change("n1", func(n *corev1.Node) { n.Spec.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule })
	c.round()
	require.Equal(t, []string{"n1"}, c.tainted(), "ordinary pods may come to a node of the control plane")
	c.change("n1", func(n *corev1.Node) { n.Status.Conditions = nil })
	c.round()
	require.Equal(t, []string{"n1"}, c.tainted(), "it stays while the node is not ready")
}

// Dedicated nodes are no place for ordinary pods, with or without the updater's taint.
func TestWatcher_DedicatedNodesAreClosed(t *testing.T) {
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		c := newCluster(t, On)
		for i := range 7 {
			c.change(fmt.Sprintf("n%d", i), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: effect}} })
		}
		c.loads["n0"], c.loads["n9"] = "8", "8"
		c.round()
		require.Empty(t, c.tainted(), "n0 is closed, and 0.3 of the three open nodes is none")
		require.Equal(t, Counts{Overloaded: 2, Capped: 1}, c.counts)
		c.change("n1", func(n *corev1.Node) { n.Spec.Taints = nil })
		c.round()
		require.Equal(t, []string{"n9"}, c.tainted())
		c.change("n9", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Effect: effect}) })
		c.change("n2", func(n *corev1.Node) { n.Spec.Taints = nil })
		c.loads["n1"] = "8"
		c.round()
		require.Equal(t, []string{"n9"}, c.tainted(), "it keeps the taint, and the only place")
		require.Contains(t, c.log.String(), "allows the taint on 1 of 4 nodes that take new pods; closed nodes that keep it: 1")
		c.loads["n9"] = "1"
		c.round()
		require.Equal(t, []string{"n1"}, c.tainted())
		require.Equal(t, []corev1.Taint{{Key: "gpu", Effect: effect}}, c.node("n9").Spec.Taints)
	}
}

func TestWatcher_DryRunCountsWithoutWrites(t *testing.T) {
	live, dry := newCluster(t, On), newCluster(t, DryRun)
	both := func(change func(c *cluster)) {
		for _, c := range []*cluster{live, dry} {
			change(c)
			c.round()
		}
		require.Equal(t, live.counts, dry.counts)
		require.Equal(t, live.failed, dry.failed)
		require.Zero(t, dry.patches())
	}
	both(func(c *cluster) { c.loads["n1"], c.loads["n2"], c.loads["n3"], c.loads["n4"] = "8", "7", "6", "5" })
	require.Equal(t, Counts{Overloaded: 4, Tainted: 3, Capped: 1}, dry.counts)
	require.Equal(t, 3, strings.Count(dry.log.String(), "Dry run: node is overloaded and would take no new pods"))
	require.Contains(t, dry.log.String(), `node="n1" load="2.00"`)
	both(func(*cluster) {})
	require.Empty(t, dry.log.String(), "a line for each node that would change")
	both(func(c *cluster) { c.loads["n4"] = "99" })
	require.Empty(t, dry.log.String(), "nor would the taint wander")
	both(func(c *cluster) { c.loads["n2"] = "1" })
	require.Contains(t, dry.log.String(), `"Dry run: node would take new pods again" node="n2" reason="NotOverloaded" load="0.25"`)
	require.Contains(t, dry.log.String(), `"Dry run: node is overloaded and would take no new pods" node="n4"`)
	require.Equal(t, []string{"n1", "n3", "n4"}, live.tainted())
	both(func(c *cluster) { c.unavailable = true })
	both(func(c *cluster) { c.now = noon.Add(unknownLoadTimeout) })
	require.Equal(t, 3, strings.Count(dry.log.String(), "Dry run: node would take new pods again"))
}

func TestWatcher_LogsMissingPermission(t *testing.T) {
	c := newCluster(t, On)
	c.loads["n3"], c.loads["n4"] = "8", "8"
	c.kube.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, a.(ktesting.PatchAction).GetName(), errors.New("no"))
	})
	c.round()
	require.Contains(t, c.log.String(), "apply deploy/node-load for the permission, and 1 others")
	require.Equal(t, []string{SourceAPIServer}, c.failed)
}

func TestWatcher_WaitsForNodeCache(t *testing.T) {
	c := newCluster(t, On)
	c.loads["n3"] = "8"
	c.synced = false
	c.round()
	require.Zero(t, c.patches())
	require.Equal(t, []string{SourceAPIServer}, c.failed)
	require.Contains(t, c.log.String(), "Failed to read nodes: no taint is added or removed")
}

func TestWatcher_IgnoresDeletedNode(t *testing.T) {
	c := newCluster(t, On)
	c.loads["n3"] = "8"
	c.syncNodes()
	require.NoError(t, c.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n3"))
	c.runOnce()
	require.Empty(t, c.failed)
}

// A process that ends leaves the taints to the next one, even though its queries fail.
func TestWatcher_ShutdownKeepsTaints(t *testing.T) {
	c := newCluster(t, On)
	c.loads["n3"] = "8"
	c.round()
	c.syncNodes()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.watcher.RunOnce(ctx, noon)
	require.Equal(t, []string{"n3"}, c.tainted())
	c.watcher.Run(ctx)
	require.Equal(t, []string{"n3"}, c.tainted())
}

func TestRunRounds_StartsImmediatelyAndRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var rounds []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 75*time.Second)
		defer cancel()
		runRounds(ctx, 30*time.Second, func(ctx context.Context, now time.Time) {
			rounds = append(rounds, now.Sub(begin))
			deadline, bounded := ctx.Deadline()
			require.True(t, bounded)
			require.LessOrEqual(t, deadline.Sub(now), 30*time.Second)
		})
		require.Equal(t, []time.Duration{0, 30 * time.Second, time.Minute}, rounds)
	})
}

func TestTrimNode_KeepsUsedFields(t *testing.T) {
	n := object("a", addressed("10.0.0.1"))
	n.Spec.Taints = []corev1.Taint{taint}
	n.Status.Capacity[corev1.ResourceMemory] = resource.MustParse("1Gi")
	got, err := Trim(client.Trim)(n)
	require.NoError(t, err)
	kept := got.(*corev1.Node)
	require.Equal(t, n.Spec.Taints, kept.Spec.Taints)
	require.Equal(t, n.Status.Addresses, kept.Status.Addresses)
	require.Equal(t, cpus("4"), kept.Status.Capacity, "no more than the CPUs")
	tombstone := cache.DeletedFinalStateUnknown{Key: "a"}
	got, err = Trim(client.Trim)(tombstone)
	require.NoError(t, err)
	require.Equal(t, tombstone, got)
}

type syncedWhen func() bool

func (f syncedWhen) HasSynced() bool { return f() }
