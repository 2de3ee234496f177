package model

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func runBriefly(t testing.TB, m *Model, name string, set labels.Set, at time.Time, containers ...string) {
	m.PutPod(aPod(name, set, containers...), at)
	for _, container := range containers {
		addSamples(t, m.config.Store, name, container, at, 100, 1e8)
	}
	m.RemovePod("ns", name)
}

func captureLogs(t testing.TB) *bytes.Buffer {
	log := &bytes.Buffer{}
	t.Cleanup(klog.CaptureState().Restore)
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
	return log
}

// Any user who may create pods can give each pod unique labels. A VPA with a missing target, or one
// that selects such a label, prevents folding.
func TestLimitEnded_BoundsHistoriesOfDeletedPods(t *testing.T) {
	log := captureLogs(t)
	m, store := newModel(Config{})
	lost, run := newObserved("lost", "lost", 1), newObserved("run", "run", 1)
	run.Selector, _ = labels.Parse("run")
	list := []Observed{newObserved("v", "x", 1), lost, run}
	m.SyncVPAs(list, now())
	runBriefly(t, m, "own", labels.Set{"app": "x"}, now(), "a")
	runBriefly(t, m, "lost", labels.Set{"app": "lost"}, now(), "a")
	list[1].Err, list[1].Selector = errors.New("it does not exist"), nil
	m.SyncVPAs(list, now())
	m.SyncVPAs(list, now().Add(Grace))
	for i := range 2 * maxEndedHistories {
		at := now().Add(time.Duration(i+1) * time.Second)
		runBriefly(t, m, fmt.Sprint("p", i), labels.Set{"stray": fmt.Sprint(i)}, at, "a")
		require.LessOrEqual(t, store.Len(), maxEndedHistories)
	}
	for _, recent := range []int{0, maxEndedHistories / 2} {
		_, kept := m.namespaces["ns"].sets[fmt.Sprint("stray=", 2*maxEndedHistories-1-recent)]
		require.True(t, kept, "the oldest go first")
	}
	require.EqualValues(t, 1, vpaProfile(m, "v", "a").Samples(), "those that no VPA selects go first")
	for i := range 2 * maxEndedHistories {
		at := now().Add(time.Duration(2*maxEndedHistories+i+1) * time.Second)
		runBriefly(t, m, fmt.Sprint("q", i), labels.Set{"run": fmt.Sprint(i)}, at, "a")
		require.LessOrEqual(t, store.Len(), maxEndedHistories)
	}
	require.EqualValues(t, 1, vpaProfile(m, "v", "a").Samples(), "a VPA with many loses some before others")
	require.Len(t, m.Find("ns", "run").Series("a"), len(m.Find("ns", "run").sets))
	require.Equal(t, 1, strings.Count(log.String(), "has too many histories"), log.String())

	list[1] = lost
	m.SyncVPAs(list, now().Add(time.Hour))
	require.EqualValues(t, 1, vpaProfile(m, "lost", "a").Samples(), "and before one whose target was missing")
}

func TestLimitEnded_KeepsMissingTargetOverUnclaimed(t *testing.T) {
	m, store := newModel(Config{})
	lost := newObserved("lost", "lost", 1)
	list := []Observed{lost}
	m.SyncVPAs(list, now())
	runBriefly(t, m, "lost", withAppAndHash("lost", "1"), now(), "a")
	list[0].Err, list[0].Selector = errors.New("it does not exist"), nil
	m.SyncVPAs(list, now())
	m.SyncVPAs(list, now().Add(Grace))
	m.PutPod(aPod("rolled", withAppAndHash("z", "2"), "a"), now())
	runBriefly(t, m, "before", withAppAndHash("z", "1"), now(), "a")
	for i := range 2 * maxEndedHistories {
		runBriefly(t, m, fmt.Sprint("p", i), labels.Set{"stray": fmt.Sprint(i)}, now().Add(time.Second), "a")
	}
	require.LessOrEqual(t, store.Len(), maxEndedHistories)
	m.SyncVPAs([]Observed{lost, newObserved("z", "z", 1)}, now().Add(time.Hour))
	require.EqualValues(t, 1, vpaProfile(m, "lost", "a").Samples())
	require.EqualValues(t, 1, vpaProfile(m, "z", "a").Samples(), "a rollout goes on")
}

func withAppAndHash(app, hash string) labels.Set {
	return labels.Set{"app": app, "pod-template-hash": hash}
}

// Labels may belong to a running pod, and may be as long as the API server accepts.
func TestLimitEnded_BoundsContainersOfRunningPods(t *testing.T) {
	m, store := newModel(Config{})
	set := labels.Set{"app": "x"}
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("stays", set, "main"), now())
	addSamples(t, store, "stays", "main", now(), 100, 1e8)
	for i := range 3 * maxEndedHistories / 10 {
		var containers []string
		for j := range 10 {
			containers = append(containers, fmt.Sprint("c-", i, "-", j))
		}
		m.PutPod(aPod("comes", set, containers...), now())
		m.RemovePod("ns", "comes")
		require.LessOrEqual(t, store.Len(), maxEndedHistories+1)
	}
	require.EqualValues(t, 1, vpaProfile(m, "v", "main").Samples(), "it runs")

	m, store = newModel(Config{})
	for i := range maxEndedHistories / 10 {
		runBriefly(t, m, "long", labels.Set{"run": fmt.Sprint(i), "x": strings.Repeat("x", 49*labelUnit)}, now(), "a")
	}
	require.LessOrEqual(t, store.Len(), maxEndedHistories/50)
	for i := range maxEndedHistories / 10 {
		runBriefly(t, m, "key", labels.Set{fmt.Sprint(i) + strings.Repeat("x", 10<<10): ""}, now(), "a")
		require.LessOrEqual(t, m.namespaces["ns"].keyGroupBytes, maxBatchBytes)
	}
}

// The limit scales with the running pods, so rollouts of any size keep their history.
func TestLimitEnded_KeepsRolloutHistories(t *testing.T) {
	m, store := newModel(Config{})
	const deployments = maxEndedHistories * 6 / 10
	for generation := range 3 {
		for i := range deployments {
			m.PutPod(aPod(fmt.Sprint("p-", generation, "-", i), withAppAndHash(fmt.Sprint(i), fmt.Sprint(generation)), "a", "b"), now())
		}
		for i := range deployments {
			m.RemovePod("ns", fmt.Sprint("p-", generation-1, "-", i))
		}
	}
	require.Equal(t, 2*2*deployments, store.Len())
}

func TestLimitEnded_AppliesToAbsorbedHistories(t *testing.T) {
	live, store := newModel(Config{})
	history, _ := newModel(Config{})
	for i := range 2 * maxEndedHistories {
		history.PutPod(aPod(fmt.Sprint("p", i), labels.Set{fmt.Sprint("stray-", i): ""}, "a"), now())
	}
	live.Absorb(history, now())
	require.LessOrEqual(t, store.Len(), maxEndedHistories)
}
