package plan

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func infeasible(message string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: message},
	}}}
}

func TestStaticCPURefusal_MatchesKubeletMessages(t *testing.T) {
	for _, tc := range []struct {
		name    string
		message string
		want    bool
	}{
		{name: "Kubernetes 1.33", message: "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy", want: true},
		{name: "Kubernetes 1.34", message: `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`, want: true},
		{name: "memory manager of 1.33", message: "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"},
		{name: "memory manager of 1.34", message: `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`},
		{name: "no capacity", message: "Node didn't have enough capacity: cpu, requested: 9000, capacity: 4000"},
		{name: "swap", message: "In-place resize of containers with swap is not supported."},
		{name: "empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, isStaticCPURefusal(infeasible(tc.message)))
		})
	}
	message := `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	deferred := infeasible(message)
	deferred.Status.Conditions[1].Reason = corev1.PodReasonDeferred
	require.False(t, isStaticCPURefusal(deferred))
	over := infeasible(message)
	over.Status.Conditions[1].Status = corev1.ConditionFalse
	require.False(t, isStaticCPURefusal(over))
	require.False(t, isStaticCPURefusal(nil))
}

func TestTrimNode_KeepsSelectedLabels(t *testing.T) {
	selector, err := labels.Parse("cpumanager=true,zone!=b")
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"cpumanager": "true", "zone": "c", "other": "x"}}}
	got, err := TrimNode(selector)(node)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"cpumanager": "true", "zone": "c"}, got.(*corev1.Node).Labels)
	require.True(t, selector.Matches(labels.Set(got.(*corev1.Node).Labels)))
	require.Len(t, node.Labels, 3, "the original is untouched")
	got, err = TrimNode(labels.Nothing())(node)
	require.NoError(t, err)
	require.Empty(t, got.(*corev1.Node).Labels)
	tombstone := cache.DeletedFinalStateUnknown{Key: "a"}
	got, err = TrimNode(selector)(tombstone)
	require.NoError(t, err)
	require.Equal(t, tombstone, got)
}

// cluster has one pod on each of its nodes. refuse sets the message of a refused resize.
type cluster struct {
	nodes cache.Indexer
	view  disruption.View
	pods  map[string]*corev1.Pod
}

func newCluster(nodes ...string) *cluster {
	c := &cluster{nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), pods: map[string]*corev1.Pod{}}
	c.view.VPAs = make([]disruption.VPA, len(nodes)) // one per pod
	for i, name := range nodes {
		c.view.VPAs[i].Pods = []disruption.Pod{{UID: "pod-on-" + name, Node: name}}
	}
	return c
}

func (c *cluster) put(t *testing.T, name string, uid types.UID, labels map[string]string) {
	require.NoError(t, c.nodes.Update(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: labels}}))
}

func (c *cluster) refuse(node, message string) {
	for i := range c.view.VPAs {
		if p := &c.view.VPAs[i].Pods[0]; p.Node == node {
			p.Resize = disruption.NotResizing
			if message != "" {
				p.Resize = disruption.ResizeInfeasible
			}
			c.pods[p.UID] = infeasible(message)
		}
	}
}

func (c *cluster) staticNodes(t *testing.T, n *StaticCPUNodes, now time.Time) (names []string) {
	t.Helper()
	for i := range c.view.VPAs {
		c.view.VPAs[i].Pods[0].StaticCPU = false // views are rebuilt in each iteration
	}
	require.NoError(t, n.MarkStaticCPU(&c.view, func(s disruption.Subject) *corev1.Pod { return c.pods[s.UID] }, now))
	for i := range c.view.VPAs {
		if p := &c.view.VPAs[i].Pods[0]; p.StaticCPU {
			names = append(names, p.Node)
		}
	}
	return names
}

const staticRefusal = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`

var midday = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestStaticCPUNodes_FoundByLabelOrRefusal(t *testing.T) {
	c := newCluster("labelled", "refusing", "plain", "small")
	c.put(t, "labelled", "1", map[string]string{"cpumanager": "true"})
	for _, name := range []string{"refusing", "plain", "small"} {
		c.put(t, name, "1", map[string]string{"cpumanager": "false"})
	}
	synced := false
	n := &StaticCPUNodes{Selector: labels.SelectorFromSet(labels.Set{"cpumanager": "true"}), Lister: corelisters.NewNodeLister(c.nodes), Informer: syncedWhen(func() bool { return synced })}
	require.Empty(t, c.staticNodes(t, n, midday), "nodes are not seen yet")
	synced = true
	require.Equal(t, []string{"labelled"}, c.staticNodes(t, n, midday))

	c.refuse("refusing", staticRefusal)
	c.refuse("small", "Node didn't have enough capacity: cpu, requested: 9000, capacity: 4000")
	require.Equal(t, []string{"labelled", "refusing"}, c.staticNodes(t, n, midday))
	c.refuse("refusing", "")
	require.Equal(t, []string{"labelled", "refusing"}, c.staticNodes(t, n, midday.Add(23*time.Hour)), "the pod is gone, and the next one is not asked for")
	require.Equal(t, []string{"labelled"}, c.staticNodes(t, n, midday.Add(24*time.Hour)), "its kubelet may have another policy by now")
}

func TestParseStaticCPUNodes_EmptySelectorMatchesNothing(t *testing.T) {
	for _, text := range []string{"", " ", ","} {
		selector, err := ParseStaticCPUNodes(text)
		if err == nil {
			require.False(t, selector.Matches(labels.Set{"a": "b"}), "%q", text)
		}
	}
	_, err := ParseStaticCPUNodes("a=(")
	require.Error(t, err)
}

func TestStaticCPUNodes_ForgetsDeletedNodes(t *testing.T) {
	c := newCluster("a", "b")
	n := &StaticCPUNodes{Lister: corelisters.NewNodeLister(c.nodes), Informer: syncedWhen(func() bool { return true })}
	c.put(t, "a", "1", nil)
	c.put(t, "b", "1", nil)
	c.refuse("a", staticRefusal)
	c.refuse("b", staticRefusal)
	require.Equal(t, []string{"a", "b"}, c.staticNodes(t, n, midday))
	c.refuse("a", "")
	c.refuse("b", "")
	c.put(t, "a", "2", nil)
	require.NoError(t, c.nodes.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}))
	require.Empty(t, c.staticNodes(t, n, midday.Add(time.Minute)), "one was made anew, the other is gone")
	require.Empty(t, n.refused)

	synced := false
	n.Informer = syncedWhen(func() bool { return synced })
	c.refuse("b", staticRefusal)
	require.Equal(t, []string{"b"}, c.staticNodes(t, n, midday), "nodes are not seen yet")
	c.refuse("b", "")
	synced = true
	require.Empty(t, c.staticNodes(t, n, midday.Add(time.Minute)))
}

func TestStaticCPUNodes_WithoutInformerExpireAfterOneDay(t *testing.T) {
	c := newCluster("a")
	n := &StaticCPUNodes{}
	c.refuse("a", staticRefusal)
	require.Equal(t, []string{"a"}, c.staticNodes(t, n, midday))
	c.refuse("a", "")
	require.Equal(t, []string{"a"}, c.staticNodes(t, n, midday.Add(time.Hour)))
	require.Empty(t, c.staticNodes(t, n, midday.Add(24*time.Hour)))
	require.Empty(t, n.refused)
}

func TestStaticCPUNodes_FindsNewNodeBetweenIterations(t *testing.T) {
	c := newCluster("a")
	n := &StaticCPUNodes{Selector: labels.SelectorFromSet(labels.Set{"cpumanager": "true"}), Lister: corelisters.NewNodeLister(c.nodes), Informer: syncedWhen(func() bool { return true })}
	c.staticNodes(t, n, midday)
	require.NoError(t, c.nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "1", Labels: map[string]string{"cpumanager": "true"}}}))
	require.True(t, n.Static("new"))
	require.False(t, n.Static("a"))
	require.False(t, n.Static("gone"))
}

// A boost kept because of a refusal would be removed once the refusal expires, and refused again.
func TestStaticCPUNodes_RefusalLastsWhileBoosted(t *testing.T) {
	c := newCluster("a")
	n := &StaticCPUNodes{}
	c.refuse("a", staticRefusal)
	require.Equal(t, []string{"a"}, c.staticNodes(t, n, midday))
	c.refuse("a", "")
	p := &c.view.VPAs[0].Pods[0]
	has := policy.Container{Name: "c", Requests: resources.NewList(2000, 100), Limits: resources.NewList(2000, 100)}
	fitted := policy.ContainerTarget{Name: "c", Requests: resources.NewList(1000, 100), Limits: resources.NewList(1000, 100)}
	p.Boosted, p.Containers = true, []disruption.Container{{Observed: true, Spec: has, Actual: has, Target: fitted}}
	for hour := range 48 {
		require.Equal(t, []string{"a"}, c.staticNodes(t, n, midday.Add(time.Duration(hour)*time.Hour)), hour)
	}
}

func TestStaticCPUNodesAwait_TimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		(&StaticCPUNodes{}).Await(t.Context())
		require.Zero(t, time.Since(begin))
		(&StaticCPUNodes{Informer: syncedWhen(func() bool { return time.Since(begin) > 3*time.Second })}).Await(t.Context())
		require.InDelta(t, 3, time.Since(begin).Seconds(), 0.5)
		begin = time.Now()
		(&StaticCPUNodes{Informer: syncedWhen(func() bool { return false })}).Await(t.Context())
		require.Equal(t, awaitTimeout, time.Since(begin))
	})
}

type syncedWhen func() bool

func (f syncedWhen) HasSynced() bool { return f() }
