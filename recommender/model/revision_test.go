package model

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func TestRevision_ChangesWithInputs(t *testing.T) {
	m, store := newModel(Config{})
	object := newObserved("v", "x", 1)
	seenRevisions := map[uint64]string{}
	changes := func(what string, changes bool) {
		t.Helper()
		revision := m.Find("ns", "v").Revision()
		before, known := seenRevisions[revision]
		require.Equal(t, !changes, known, "%s: as after %q", what, before)
		if !known {
			seenRevisions[revision] = what
		}
	}
	a := usage.ContainerKey{Namespace: "ns", Pod: "p1", Container: "a"}
	m.SyncVPAs([]Observed{object}, now())
	changes("a new VPA", true)
	m.SyncVPAs([]Observed{object}, now())
	changes("nothing", false)
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	changes("a pod with new labels", true)
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	changes("the same pod", false)
	m.PutPod(aPod("p2", labels.Set{"app": "y"}, "a"), now())
	changes("a pod of others", false)
	for i := range 5 {
		store.Observe(usage.Sample{Container: a, Kind: resources.CPU, At: now().Add(time.Duration(i) * time.Second), Amount: 100})
		changes("a sample", true)
	}
	store.Observe(usage.Sample{Container: a, Kind: resources.Memory, At: now(), Amount: 100})
	changes("a peak", true)
	store.ObserveOOM(usage.OOM{Container: a, At: now(), Memory: 0, ID: "1"})
	changes("a kill", true)
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a", "b"), now())
	changes("another container", true)
	m.PutPod(aPod("p1", labels.Set{"app": "x", "b": "c"}, "a", "b"), now())
	changes("other labels", true)
	m.RemovePod("ns", "p1")
	changes("a pod went without a peak", false)
	m.Find("ns", "v").Restored = map[string]*usage.Profile{}
	m.Find("ns", "v").Invalidate()
	changes("something restored", true)
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	changes("another version of the VPA", true)
	elapse(t, m, 100*day)
	changes("expiry", true)
	m.SyncVPAs(nil, now())
	m.SyncVPAs([]Observed{object}, now())
	changes("a namesake", true)
}

const day = 24 * time.Hour

func TestRevision_DoesNotAllocate(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a", "b"), now())
	v := m.Find("ns", "v")
	v.Revision()
	require.Zero(t, testing.AllocsPerRun(100, func() { v.Revision() }))
}

func BenchmarkRevision(b *testing.B) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a", "b"), now())
	v := m.Find("ns", "v")
	b.ReportAllocs()
	for range b.N {
		v.Revision()
	}
}

func withUID(o Observed, uid string) Observed {
	o.Object.UID = types.UID(uid)
	return o
}

func TestSyncVPAs_RestoresRecentlyDeletedVPA(t *testing.T) {
	restored := map[string]*usage.Profile{"a": {}}
	for _, tc := range []struct {
		name string
		uid  string
		app  string
		gone time.Duration
		kept bool
	}{
		{name: "within the grace", uid: "u1", app: "x", gone: Grace - 1, kept: true},
		{name: "after the grace", uid: "u1", app: "x", gone: Grace},
		{name: "created again", uid: "u2", app: "x", gone: time.Minute, kept: true},
		{name: "retargeted", uid: "u1", app: "y", gone: time.Minute},
		{name: "created again with another target", uid: "u2", app: "y", gone: time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, _ := newModel(Config{})
			m.PutPod(aPod("p1", labels.Set{"app": tc.app}, "a"), now())
			m.SyncVPAs([]Observed{withUID(newObserved("v", "x", 1), "u1")}, now())
			m.Find("ns", "v").Restored, m.Find("ns", "v").Published.Recommended = restored, true
			m.SyncVPAs(nil, now())
			require.Nil(t, m.Find("ns", "v"))
			fresh := m.SyncVPAs([]Observed{withUID(newObserved("v", tc.app, 1), tc.uid)}, now().Add(tc.gone))
			v := m.Find("ns", "v")
			require.Equal(t, tc.kept, v.Restored != nil)
			require.Equal(t, tc.kept && tc.uid == "u1", v.Published.Recommended, "a new object has no recommendation yet")
			require.Equal(t, tc.kept, len(fresh) == 0)
			require.Equal(t, tc.app != "x", v.Retargeted, "a checkpoint of the name is about other containers")
			require.Equal(t, 1, v.Pods())
		})
	}
}

// Models kubectl replace --force, observed as one change.
func TestSyncVPAs_ReplacedVPAKeepsHistory(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{withUID(newObserved("v", "x", 1), "u1")}, now())
	former := m.Find("ns", "v")
	former.Restored = map[string]*usage.Profile{"a": {}}
	former.Published.Recommended, former.Saved.Unsaved, former.Published.MissingLoggedAt = true, true, now().Add(-day)
	former.Published.Uncapped, former.Trust.ObservedWhileHeld = map[string]resources.List{"a": {}}, map[string]time.Duration{"a": 1}
	former.Trust.Untrusted = map[string][resources.Kinds]bool{"a": {true}}
	former.Trust.HeldKinds = former.Trust.Untrusted
	object := withUID(newObserved("v", "x", 1), "u2")
	require.Empty(t, m.SyncVPAs([]Observed{object}, now()))
	v := m.Find("ns", "v")
	require.Same(t, object.Object, v.Object)
	require.Len(t, v.Restored, 1)
	require.False(t, v.Published.Recommended)
	require.False(t, v.Saved.Unsaved)
	require.Empty(t, v.Published.Uncapped)
	require.Empty(t, v.Trust.Untrusted)
	require.Empty(t, v.Trust.ObservedWhileHeld)
	require.Empty(t, v.Trust.HeldKinds)
	require.Equal(t, now(), v.Published.MissingLoggedAt)

	require.Len(t, m.SyncVPAs([]Observed{withUID(newObserved("v", "y", 1), "u3")}, now()), 1)
	require.Nil(t, m.Find("ns", "v").Restored, "what another target used is of no use")
	require.Len(t, m.SyncVPAs([]Observed{withUID(newObserved("v", "z", 1), "u3")}, now()), 1)
	require.True(t, m.Find("ns", "v").Retargeted)
}

func TestDeletedSince_ExpiresAfterGrace(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{withUID(newObserved("v", "x", 1), "u1")}, now())
	m.SyncVPAs(nil, now())
	require.Len(t, m.recentlyDeleted, 1)
	since, remembered := m.DeletedSince("ns", "v")
	require.True(t, remembered)
	require.Equal(t, now(), since)
	_, remembered = m.DeletedSince("ns", "w")
	require.False(t, remembered)
	m.SyncVPAs(nil, now().Add(Grace))
	require.Empty(t, m.recentlyDeleted)
	_, remembered = m.DeletedSince("ns", "v")
	require.False(t, remembered)
	require.Empty(t, m.namespaces)
}

func TestSelectors_MatchPodsAcrossChanges(t *testing.T) {
	m, _ := newModel(Config{})
	selectors := []string{"a=1", "a in (1,2)", "a=1,b=1", "a,b!=2", "!b", "a=3", "a notin (1)", "b in (1,2),a=1"}
	var list []Observed
	for _, text := range selectors {
		o := newObserved(text, "x", 1)
		var err error
		o.Selector, err = labels.Parse(text)
		require.NoError(t, err)
		list = append(list, o)
	}
	sets := []labels.Set{{}, {"a": "1"}, {"a": "1", "b": "1"}, {"a": "2", "b": "2"}, {"a": "3"}, {"b": "1"}}
	check := func() {
		t.Helper()
		for _, o := range list {
			want := 0
			for _, set := range sets {
				if o.Selector.Matches(set) {
					want++
				}
			}
			require.Equal(t, want, m.Find("ns", o.Object.Name).Pods(), o.Object.Name)
		}
	}
	for i, set := range sets[:3] {
		m.PutPod(aPod(string(rune('a'+i)), set, "c"), now())
	}
	m.SyncVPAs(list, now())
	for i, set := range sets[3:] {
		m.PutPod(aPod(string(rune('x'+i)), set, "c"), now())
	}
	check()
	for range 2 { // rotate the selectors
		for i := range list {
			list[i].Selector = list[(i+1)%len(list)].Selector
		}
		m.SyncVPAs(list, now())
		check()
	}
	for i := range list {
		list[i].Selector, list[i].Err = nil, errors.New("gone")
	}
	m.SyncVPAs(list, now())
	m.SyncVPAs(list, now().Add(Grace))
	require.Empty(t, m.namespaces["ns"].selectors.byLabel)
	require.Empty(t, m.namespaces["ns"].selectors.unindexed)
	for _, v := range m.VPAs() {
		require.Zero(t, v.Pods())
	}
}

func TestMemorySaver_MovesRelabeledPods(t *testing.T) {
	m, store := newModel(Config{MemorySaver: true})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.PutPod(aPod("p1", labels.Set{"app": "z"}, "a"), now())
	series, tracked := store.SeriesOf(usage.ContainerKey{Namespace: "ns", Pod: "p1", Container: "a"})
	require.True(t, tracked)
	require.Equal(t, "app=z", store.Key(series).Labels, "it no longer feeds the VPA's history")
}

func TestStatusOfOther_DetectsOtherTarget(t *testing.T) {
	at := func(target string, generation, observed int64) []Observed {
		o := withUID(newObserved("v", target, 1), "u1")
		o.Object.Generation, o.Object.Status.ObservedGeneration = generation, observed
		return []Observed{o}
	}
	for _, tc := range []struct {
		name   string
		passes [][]Observed
		other  bool
	}{
		{name: "first observation", passes: [][]Observed{at("x", 3, 3)}},
		{name: "first observation is behind", passes: [][]Observed{at("x", 3, 2)}, other: true},
		{name: "first observation without an observed generation", passes: [][]Observed{at("x", 3, 0)}},
		{name: "edited VPA", passes: [][]Observed{at("x", 3, 3), at("x", 4, 3)}},
		{name: "another target", passes: [][]Observed{at("x", 3, 3), at("y", 4, 3)}, other: true},
		{name: "another target without an observed generation", passes: [][]Observed{at("x", 3, 0), at("y", 4, 0)}, other: true},
		{name: "another target after publishing", passes: [][]Observed{at("x", 3, 3), at("y", 4, 3), at("y", 4, 4)}},
		{
			name:   "another target after publishing and an edit",
			passes: [][]Observed{at("x", 3, 3), at("y", 4, 3), at("y", 4, 4), at("y", 5, 4)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, _ := newModel(Config{})
			for _, list := range tc.passes {
				m.SyncVPAs(list, now())
			}
			require.Equal(t, tc.other, m.Find("ns", "v").StatusOfOther())
		})
	}
}
