package model

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func aPod(name string, set labels.Set, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: set}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

// newObserved returns a VPA that selects the label app, created age minutes ago.
func newObserved(name, app string, age int) Observed {
	return Observed{
		Object: &vpav1.VerticalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(now().Add(-time.Duration(age) * time.Minute))},
			Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: app}},
		},
		Selector: labels.SelectorFromSet(labels.Set{"app": app}),
	}
}

func newModel(c Config) (*Model, *usage.Store) {
	c.Store = usage.NewStore(usage.DefaultConfig())
	return NewModel(c), c.Store
}

func TestPutPod_SharesHistoryOfEqualLabels(t *testing.T) {
	m, store := newModel(Config{})
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a", "b"), now())
	m.PutPod(aPod("p2", labels.Set{"app": "x"}, "a", "b"), now())
	m.PutPod(aPod("p3", labels.Set{"app": "x", "v": "2"}, "a"), now())
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	v := m.Find("ns", "v")
	require.Equal(t, 3, v.Pods())
	require.Equal(t, 3, store.Len())
	require.Equal(t, []string{"a", "b"}, v.Containers())
	require.Len(t, v.Series("a"), 2)
	require.Len(t, v.Series("b"), 1)
}

func TestPutPod_LinksExistingVPA(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1), newObserved("other", "y", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	require.Equal(t, 1, m.Find("ns", "v").Pods())
	require.Len(t, m.Find("ns", "v").Series("a"), 1)
	require.Zero(t, m.Find("ns", "other").Pods())
}

func TestPutPod_MovesRelabeledPod(t *testing.T) {
	m, store := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1), newObserved("w", "y", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.PutPod(aPod("p1", labels.Set{"app": "y"}, "a"), now())
	require.Zero(t, m.Find("ns", "v").Pods())
	require.Equal(t, 1, m.Find("ns", "w").Pods())
	require.Len(t, m.Find("ns", "v").Series("a"), 1, "the history stays where it was made")
	require.Equal(t, 1, store.Containers())
}

func TestRemovePod_KeepsHistory(t *testing.T) {
	m, store := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.RemovePod("ns", "p1")
	m.RemovePod("ns", "never seen")
	m.RemovePod("nowhere", "p1")
	require.Zero(t, m.Find("ns", "v").Pods())
	require.Zero(t, store.Containers())
	require.Len(t, m.Find("ns", "v").Series("a"), 1)
}

func TestMemorySaver_TracksOnlySelectedPods(t *testing.T) {
	m, store := newModel(Config{MemorySaver: true})
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.PutPod(aPod("p2", labels.Set{"app": "y"}, "a"), now())
	require.Zero(t, store.Containers())
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	require.Equal(t, 1, store.Containers())
	require.Len(t, m.Find("ns", "v").Series("a"), 1)
}

func TestSyncVPAs_TargetErrorKeepsPodsForGrace(t *testing.T) {
	m, _ := newModel(Config{})
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	fresh := m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	require.Len(t, fresh, 1)
	restored := map[string]*usage.Profile{}
	fresh[0].Restored = restored

	broken := newObserved("v", "x", 1)
	broken.Selector, broken.Err = nil, errors.New("the target is gone")
	require.Empty(t, m.SyncVPAs([]Observed{broken}, now()))
	require.Equal(t, 1, m.Find("ns", "v").Pods())
	require.ErrorIs(t, m.Find("ns", "v").TargetError, broken.Err)
	m.SyncVPAs([]Observed{broken}, now().Add(Grace))
	require.Zero(t, m.Find("ns", "v").Pods())

	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now().Add(2*Grace))
	require.Equal(t, 1, m.Find("ns", "v").Pods())
	require.NoError(t, m.Find("ns", "v").TargetError)
	require.NotNil(t, m.Find("ns", "v").Restored)
}

// The grace period of a failing target starts with its first read.
func TestSyncVPAs_GraceStartsAfterFirstRead(t *testing.T) {
	m, _ := newModel(Config{})
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	broken := newObserved("v", "x", 1)
	broken.Selector, broken.Err = nil, fmt.Errorf("read it: %w", target.ErrNotRead)
	m.SyncVPAs([]Observed{broken}, now())
	m.SyncVPAs([]Observed{broken}, now().Add(2*Grace))
	require.Equal(t, 1, m.Find("ns", "v").Pods())
	broken.Err = errors.New("the server is away")
	m.SyncVPAs([]Observed{broken}, now().Add(3*Grace))
	m.SyncVPAs([]Observed{broken}, now().Add(4*Grace-1))
	require.Equal(t, 1, m.Find("ns", "v").Pods())
	m.SyncVPAs([]Observed{broken}, now().Add(4*Grace))
	require.Zero(t, m.Find("ns", "v").Pods())
}

func TestSyncVPAs_NewTargetResetsVPA(t *testing.T) {
	m, _ := newModel(Config{})
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.PutPod(aPod("p2", labels.Set{"app": "y"}, "a"), now())
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.Find("ns", "v").Restored = map[string]*usage.Profile{}
	require.Len(t, m.SyncVPAs([]Observed{newObserved("v", "y", 1)}, now()), 1)
	require.Nil(t, m.Find("ns", "v").Restored)
	require.Equal(t, 1, m.Find("ns", "v").Pods())
}

func TestController_PrefersOlderVPA(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("a", "x", 1), newObserved("b", "x", 9)}, now())
	require.Nil(t, m.Find("ns", "a").Controller(), "without pods there is nothing to control")
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "c"), now())
	require.Equal(t, m.Find("ns", "b"), m.Find("ns", "a").Controller())
	require.Nil(t, m.Find("ns", "b").Controller())
	require.Equal(t, m.Find("ns", "b"), m.Controlling(usage.ContainerKey{Namespace: "ns", Pod: "p1", Container: "c"}))

	off := newObserved("b", "x", 9)
	mode := vpav1.UpdateModeOff
	off.Object.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: &mode}
	m.SyncVPAs([]Observed{newObserved("a", "x", 1), off}, now())
	require.Equal(t, m.Find("ns", "a"), m.Find("ns", "b").Controller(), "one that is off steps back, as in updater and webhook")

	m.SyncVPAs([]Observed{off}, now())
	require.Nil(t, m.Find("ns", "b").Controller())
}

func TestSyncVPAs_AppliesAndRemovesOverrides(t *testing.T) {
	m, store := newModel(Config{PerVPA: true})
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	with := newObserved("v", "x", 1)
	ratio := resource.MustParse("3")
	with.Object.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "a", OOMBumpUpRatio: &ratio}}}
	key := usage.ContainerKey{Namespace: "ns", Pod: "p1", Container: "a"}
	kill := func(memory, want resources.Amount) {
		require.Equal(t, usage.Accepted, store.ObserveOOM(usage.OOM{Container: key, At: now(), Memory: memory}))
		peak, _, _ := store.Peak(key)
		require.Equal(t, want, peak)
	}
	const gib = resources.Amount(1 << 30)
	m.SyncVPAs([]Observed{with}, now())
	kill(gib, 3*gib)
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	kill(10*gib, 12*gib)
}

func TestExpire_RemovesFinishedJobs(t *testing.T) {
	m, store := newModel(Config{})
	for i := range 100 {
		name := fmt.Sprint("job-", i)
		m.PutPod(aPod(name, labels.Set{"job": name}, "a"), now())
		m.RemovePod("ns", name)
	}
	m.Expire(now())
	require.Zero(t, store.Len())
	require.Empty(t, m.namespaces)
}

func TestExpire_RemovesOldHistory(t *testing.T) {
	m, store := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	store.Observe(usage.Sample{Container: usage.ContainerKey{Namespace: "ns", Pod: "p1", Container: "a"}, At: now(), Amount: 100})
	m.RemovePod("ns", "p1")
	elapse(t, m, 7*24*time.Hour)
	require.Len(t, m.Find("ns", "v").Series("a"), 1)
	elapse(t, m, 8*24*time.Hour)
	require.Empty(t, m.Find("ns", "v").Series("a"))
	require.Empty(t, m.Find("ns", "v").Containers())
	// The store may reuse the handle for another series.
	m.PutPod(aPod("p2", labels.Set{"app": "other"}, "z"), now())
	require.Empty(t, m.Find("ns", "v").Containers())
}
