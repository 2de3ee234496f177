package checkpoints

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender/model"
)

// Usage may be incomplete while the target cannot be read.
func TestSave_SkipsVPAWithUnreadTarget(t *testing.T) {
	b := newFixture()
	v := b.setContents("web", map[string]checkpoint.Content{"a": content(3)})
	v.TargetError = errors.New("the Deployment cannot be read")
	for _, scope := range []Scope{Urgent, Due, All} {
		require.Zero(t, b.Save(t.Context(), []*model.VPA{v}, scope, now(), time.Minute).Written)
	}
	require.Zero(t, b.Secure(t.Context(), v, now()).Written)
	require.Empty(t, b.client.Actions())
	v.TargetError = nil
	v.Object.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.FetchingHistory, Status: corev1.ConditionTrue}}
	require.Zero(t, b.save(t, now(), v).Written, "somebody else still fills in the history")
	v.Object.Status.Conditions = nil
	require.Equal(t, 1, b.save(t, now(), v).Written)
}

// Histories expire and containers disappear, so a VPA may overwrite its own checkpoint with less.
func TestSave_OverwritesOwnCheckpointWithPoorer(t *testing.T) {
	b := newFixture()
	require.NoError(t, b.save(t, now(), b.setContents("web", map[string]checkpoint.Content{"a": content(500)})).Err)
	require.NoError(t, b.cache.Add(b.stored(t, "web-a")))
	r := b.save(t, now().Add(time.Hour), b.setContents("web", map[string]checkpoint.Content{"a": content(3)}))
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Written)
	require.Equal(t, 3, b.stored(t, "web-a").Status.TotalSamplesCount)
}

// maintainerFixture serves the VPA web with one pod and container a. The VPA other belongs to
// another recommender.
type maintainerFixture struct {
	fixture
	maintainer *Maintainer
	vpas       cache.Indexer
	observed   model.Observed
}

const historyExpiry = 8 * 24 * time.Hour // expiry of histories

func newMaintainerFixture(objects ...*vpav1.VerticalPodAutoscalerCheckpoint) *maintainerFixture {
	k := &maintainerFixture{fixture: newFixture(objects...), vpas: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	vpa := func(name string) *vpav1.VerticalPodAutoscaler {
		v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		_ = k.vpas.Add(v)
		return v
	}
	vpa("other").Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "another"}}
	k.observed = model.Observed{Object: vpa("web"), Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}
	store := usage.NewStore(usage.DefaultConfig())
	k.maintainer = &Maintainer{
		Saver: k.Saver, Model: model.NewModel(model.Config{Store: store}), Store: store, CollectInterval: 10 * time.Minute,
		Roster: &model.Roster{
			Name: model.DefaultRecommender, Namespaces: flags.Namespaces{IgnoredNamespaces: "ignored"}, VPAs: listers.NewVerticalPodAutoscalerLister(k.vpas),
		},
		Results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"result"}),
	}
	k.sync(now())
	k.maintainer.Model.PutPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", Labels: labels.Set{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}},
	}, now())
	return k
}

func (k *maintainerFixture) sync(at time.Time) {
	k.maintainer.Model.SyncVPAs([]model.Observed{k.observed}, at)
}

// clean runs Clean and reports whether the checkpoint still exists.
func (k *maintainerFixture) clean(t *testing.T, at time.Time, name string) bool {
	t.Helper()
	k.maintainer.Clean(t.Context(), at)
	_, err := k.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Get(t.Context(), name, metav1.GetOptions{})
	require.True(t, err == nil || apierrors.IsNotFound(err))
	return err == nil
}

func TestClean_DeletesExpiredAndOrphaned(t *testing.T) {
	old := func(vpa, container string) *vpav1.VerticalPodAutoscalerCheckpoint {
		c := object(vpa, container, 5)
		c.Status.LastSampleStart = metav1.NewTime(now().Add(-historyExpiry))
		return c
	}
	for name, c := range map[string]struct {
		stored *vpav1.VerticalPodAutoscalerCheckpoint
		change func(*maintainerFixture)
		stays  bool
	}{
		"of a container that has gone for too long":       {stored: old("web", "gone")},
		"of one that has gone a while ago":                {stored: object("web", "gone", 5), stays: true},
		"without samples, and new":                        {stored: object("web", "gone", 0), stays: true},
		"of a container that is there":                    {stored: old("web", "a"), stays: true},
		"of one of which something was restored":          {stored: old("web", "b"), stays: true, change: func(k *maintainerFixture) { k.restore("b") }},
		"of a VPA that is gone":                           {stored: object("gone", "a", 5)},
		"of a VPA of another recommender":                 {stored: old("other", "a"), stays: true},
		"of a VPA that this recommender does not yet see": {stored: old("web", "gone"), stays: true, change: func(k *maintainerFixture) { k.maintainer.Model.SyncVPAs(nil, now()) }},
		"of a target that cannot be read": {stored: old("web", "gone"), stays: true, change: func(k *maintainerFixture) {
			k.observed.Err = errors.New("forbidden")
			k.sync(now())
		}},
		"when the time is not known": {stored: old("web", "gone"), stays: true, change: func(k *maintainerFixture) {
			newest := usage.Sample{Container: usage.ContainerKey{Namespace: "ns", Pod: "web-1", Container: "a"}, Kind: resources.CPU, At: now().Add(-2 * time.Hour), Amount: 1}
			require.Equal(t, usage.Accepted, k.maintainer.Store.Observe(newest))
		}},
		"of a former target": {stored: object("web", "gone", 5), change: func(k *maintainerFixture) { k.maintainer.Model.Find("ns", "web").Retargeted = true }},
	} {
		t.Run(name, func(t *testing.T) {
			k := newMaintainerFixture(c.stored)
			if c.change != nil {
				c.change(k)
			}
			require.Equal(t, c.stays, k.clean(t, now(), c.stored.Name))
			deleted := 1.0
			if c.stays {
				deleted = 0
			}
			require.Equal(t, deleted, testutil.ToFloat64(k.maintainer.Results.WithLabelValues("deleted")))
		})
	}
}

func (k *maintainerFixture) restore(container string) {
	v, p := k.maintainer.Model.Find("ns", "web"), usage.NewProfile(shape())
	v.Restored = map[string]*usage.Profile{container: &p}
	v.Invalidate()
}

func TestClean_SkipsIgnoredNamespaces(t *testing.T) {
	orphan := object("gone", "a", 5)
	orphan.Namespace = "ignored"
	k := newMaintainerFixture(orphan)
	k.maintainer.Clean(t.Context(), now())
	require.Zero(t, testutil.ToFloat64(k.maintainer.Results.WithLabelValues("deleted")))
}

// A VPA may be recreated shortly after its deletion.
func TestClean_KeepsCheckpointOfRecentlyDeletedVPA(t *testing.T) {
	k := newMaintainerFixture(object("web", "a", 5))
	require.NoError(t, k.vpas.Delete(k.observed.Object))
	require.True(t, k.clean(t, now(), "web-a"), "it went during the pass")
	k.maintainer.Model.SyncVPAs(nil, now().Add(time.Minute))
	require.True(t, k.clean(t, now().Add(10*time.Minute+time.Second), "web-a"))
	require.False(t, k.clean(t, now().Add(21*time.Minute), "web-a"))
}

func TestClean_RespectsCollectInterval(t *testing.T) {
	k := newMaintainerFixture()
	add := func() {
		c := object("gone", "a", 5)
		require.NoError(t, k.client.Tracker().Add(c))
		require.NoError(t, k.cache.Add(c))
	}
	add()
	require.False(t, k.clean(t, now(), "gone-a"), "the first one is at once")
	add()
	require.True(t, k.clean(t, now().Add(10*time.Minute), "gone-a"))
	require.False(t, k.clean(t, now().Add(10*time.Minute+time.Second), "gone-a"))
	add()
	require.False(t, k.clean(t, now(), "gone-a"), "the clock was set back")
	add()
	k.maintainer.Disabled = true
	require.True(t, k.clean(t, now().Add(time.Hour), "gone-a"))
	k.maintainer.Save(t.Context(), All, now(), time.Minute)
	k.maintainer.Secure(t.Context(), k.maintainer.Model.Find("ns", "web"), now())
	require.Zero(t, testutil.ToFloat64(k.maintainer.Results.WithLabelValues("written")))
}

func TestSave_PoorerMeansLessThanHalf(t *testing.T) {
	for stored, refused := range map[int]bool{6: false, 7: true} {
		b := newFixture(object("web", "a", stored))
		r := b.save(t, now(), b.setContents("web", map[string]checkpoint.Content{"a": content(3)}))
		require.Equal(t, refused, errors.Is(r.Err, ErrPoorer), stored)
	}
}

func TestCollect_KeepsStateIfDeletionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orphans := func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return Orphan }
		b := newFixture(object("a", "x", 1), object("b", "x", 1), object("c", "x", 1))
		for _, vpa := range []string{"a", "b", "c"} {
			b.MarkLoaded(checkpoint.History{checkpoint.Owner{Namespace: "ns", VPA: vpa}: {"x": {}}})
		}
		b.client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(20 * time.Millisecond)
			return true, nil, errors.New("refused")
		})
		b.Timeout = time.Millisecond
		n, err := b.Collect(t.Context(), orphans)
		require.ErrorContains(t, err, "refused")
		require.ErrorContains(t, err, "leave 2 checkpoints for the next iteration")
		require.Zero(t, n)
		require.Len(t, b.loaded, 3)
	})
}

func TestMaintainer_RateLimitsRepeatedErrors(t *testing.T) {
	var text bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text))))
	u := Maintainer{Results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"result"})}
	note := func(after time.Duration, err error) int {
		before := testutil.ToFloat64(u.Results.WithLabelValues("error"))
		u.report(ctx, &u.unsaved, err, "error", "x", now().Add(after))
		return int(testutil.ToFloat64(u.Results.WithLabelValues("error")) - before)
	}
	many := func(n int) (err error) {
		for i := range n {
			err = errors.Join(err, fmt.Errorf("problem %02d", i))
		}
		return err
	}
	for i, step := range []struct {
		after    time.Duration
		err      error
		problems int
		said     int
	}{
		{after: 0, err: many(3), problems: 3, said: 1},
		{after: time.Minute, err: many(3), problems: 3, said: 1},
		{
			after: 2 * time.Minute, problems: 3, said: 1,
			err: errors.Join(errors.New("problem 02"), errors.New("problem 00"), errors.New("problem 01")),
		},
		{after: 3 * time.Minute, err: many(4), problems: 4, said: 2},
		{after: 13*time.Minute - time.Second, err: many(4), problems: 4, said: 2},
		{after: 13 * time.Minute, err: many(4), problems: 4, said: 3},
		{after: 14 * time.Minute, err: nil, problems: 0, said: 3},
		{after: 15 * time.Minute, err: many(4), problems: 4, said: 4},
		{after: 16 * time.Minute, err: many(10), problems: 10, said: 5},
		{after: 17 * time.Minute, err: many(11), problems: 11, said: 5}, // only ten are printed
	} {
		require.Equal(t, step.problems, note(step.after, step.err), i)
		require.Equal(t, step.said, strings.Count(text.String(), "\n"), i)
	}
}

// Workers bound concurrent requests. Without any time left, each worker still writes one VPA.
func TestSave_LimitsConcurrentWrites(t *testing.T) {
	b := newFixture()
	var mu sync.Mutex
	busy, most := 0, 0
	b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		busy++
		most = max(most, busy)
		mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		mu.Lock()
		busy--
		mu.Unlock()
		return false, nil, nil
	})
	var vpas []*model.VPA
	for i := range 20 {
		vpas = append(vpas, b.setContents(strconv.Itoa(i), map[string]checkpoint.Content{"x": content(1)}))
	}
	b.Interval = 0
	r := b.Save(t.Context(), vpas, Due, now(), 0)
	require.Equal(t, 2, r.Written)
	require.Equal(t, 18, r.Late)
	require.Equal(t, 18, b.save(t, now(), vpas...).Written)
	require.LessOrEqual(t, most, 2)
}

func TestSave_UpdatesHealthAfterEachVPA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture()
		const write = 2 * time.Second
		b.Health, b.Workers, b.Interval = serving.NewHealth(write), 1, 0
		b.Health.Activate()
		b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			require.NoError(t, b.Health.Check())
			time.Sleep(write)
			return false, nil, nil
		})
		var vpas []*model.VPA
		for i := range 5 {
			vpas = append(vpas, b.setContents(strconv.Itoa(i), map[string]checkpoint.Content{"x": content(1)}))
		}
		require.Equal(t, 5, b.Save(t.Context(), vpas, Due, now(), time.Hour).Written)
	})
}

func TestSecure_SavesOnlyRaisedTargets(t *testing.T) {
	b := newFixture()
	v := b.setContents("web", map[string]checkpoint.Content{"x": content(1)})
	cpu := func(a resources.Amount) map[string]resources.List {
		return map[string]resources.List{"x": (resources.List{}).With(resources.CPU, a)}
	}
	require.Zero(t, b.Secure(t.Context(), v, now()).Written, "no target is published")
	refused := true
	b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refused, nil, errors.New("refused")
	})
	v.Published.Uncapped = cpu(1000)
	require.Zero(t, b.Secure(t.Context(), v, now()).Written)
	require.True(t, v.Saved.Unsaved)
	require.Zero(t, b.Secure(t.Context(), v, now()).Written, "its turn is in the next Save")
	v.Published.Uncapped = nil
	b.Secure(t.Context(), v, now())
	require.False(t, v.Saved.Unsaved, "nothing would fall any more")
	refused = false
	require.Equal(t, 1, b.save(t, now(), v).Written)

	v.Published.Uncapped = cpu(1000)
	v.Invalidate()
	secured := func() bool { r := b.Secure(t.Context(), v, now()); return r.Written+r.Unchanged == 1 }
	require.True(t, secured())
	require.False(t, secured(), "once is enough")
	v.Published.Uncapped = cpu(1079)
	v.Invalidate()
	require.False(t, secured(), "a CPU target wavers by a bucket")
	v.Published.Uncapped = cpu(1081)
	require.True(t, secured())
}

// A crash loses at most a quarter of a short history.
func TestSave_SavesYoungHistoriesMoreOften(t *testing.T) {
	b := newFixture()
	b.Interval = time.Hour
	last := now()
	writes := func(from, to int, young bool) (n int) {
		for minute := from; minute < to; minute++ {
			at := now().Add(time.Duration(minute) * time.Minute)
			v := b.setContents("web", map[string]checkpoint.Content{"x": content(minute + 1)})
			if b.Save(t.Context(), []*model.VPA{v}, Due, at, time.Minute).Written == 1 {
				last = at
				n++
			}
			if young {
				require.LessOrEqual(t, at.Sub(last), at.Sub(now())/4, at)
			}
		}
		return n
	}
	require.InDelta(t, 20, writes(0, 4*60, true), 3)
	require.Equal(t, 4, writes(4*60, 8*60, false), "once per interval")
}

func TestSecure_IgnoresSmallMemoryRises(t *testing.T) {
	b := newFixture()
	v := b.setContents("web", map[string]checkpoint.Content{"x": content(1)})
	secured := func(memory resources.Amount) bool {
		v.Published.Uncapped = map[string]resources.List{"x": (resources.List{}).With(resources.Memory, memory)}
		v.Invalidate()
		r := b.Secure(t.Context(), v, now())
		return r.Written+r.Unchanged == 1
	}
	require.True(t, secured(1000))
	require.False(t, secured(1000))
	require.True(t, secured(1001))
	v.Sketches = map[string]*sketch.Sketch{}
	require.False(t, secured(1021))
	require.True(t, secured(1022))
}

// A held target does not come from the history, so saving the history does not secure it.
func TestSecure_SavesAgainAfterHoldEnds(t *testing.T) {
	b := newFixture()
	v := b.setContents("web", map[string]checkpoint.Content{"x": content(1)})
	v.Published.Uncapped = map[string]resources.List{"x": resources.NewList(1000, 1000)}
	v.Trust.HeldKinds = map[string][resources.Kinds]bool{"x": {resources.CPU: true}}
	secured := func() bool {
		v.Invalidate()
		r := b.Secure(t.Context(), v, now())
		return r.Written+r.Unchanged == 1
	}
	require.True(t, secured(), "for its memory")
	require.False(t, secured())
	v.Trust.HeldKinds = nil
	require.True(t, secured())
	require.False(t, secured())
}

func TestSave_IgnoresDeletedVPAs(t *testing.T) {
	b := newFixture()
	web, other := b.setContents("web", map[string]checkpoint.Content{"x": content(1)}), b.setContents("other", map[string]checkpoint.Content{"x": content(1)})
	require.Equal(t, 2, b.save(t, now(), web, other).Written)
	b.client.ClearActions()
	for range 2 {
		b.save(t, now(), web)
	}
	require.Empty(t, b.client.Actions())
}

func TestMaintainer_CountsUnchangedCheckpoints(t *testing.T) {
	k := newMaintainerFixture()
	k.contents["web"] = map[string]checkpoint.Content{"a": content(1)}
	count := func(what string) float64 { return testutil.ToFloat64(k.maintainer.Results.WithLabelValues(what)) }
	k.maintainer.Save(t.Context(), All, now(), time.Minute)
	require.NoError(t, k.cache.Add(k.stored(t, "web-a")))
	v := k.maintainer.Model.Find("ns", "web")
	v.Invalidate()
	k.maintainer.Save(t.Context(), All, now(), time.Minute)
	require.Equal(t, 1.0, count("unchanged"))
	v.Published.Uncapped = map[string]resources.List{"a": resources.NewList(1000, 1000)}
	v.Invalidate()
	k.maintainer.Secure(t.Context(), v, now())
	require.Equal(t, 2.0, count("unchanged"))
	k.contents["web"] = map[string]checkpoint.Content{"a": content(2)}
	v.Published.Uncapped = map[string]resources.List{"a": resources.NewList(2000, 2000)}
	v.Invalidate()
	k.maintainer.Secure(t.Context(), v, now())
	require.Equal(t, 2.0, count("unchanged"))
	require.Equal(t, 2.0, count("written"))
}

// A crash must not lower a protected memory limit, even while the request stays.
func TestSecure_SavesProtectedMemory(t *testing.T) {
	b := newFixture()
	v := b.setContents("web", map[string]checkpoint.Content{"x": content(1)})
	v.Published.Uncapped = map[string]resources.List{"x": resources.NewList(1000, 1000)}
	v.Published.Protected = map[string]resources.Amount{"x": 2000}
	secured := func() bool { r := b.Secure(t.Context(), v, now()); return r.Written+r.Unchanged == 1 }
	require.True(t, secured())
	v.Invalidate()
	require.False(t, secured(), "once is enough")
	v.Published.Protected = map[string]resources.Amount{"x": 3000}
	require.True(t, secured())
	v.Invalidate()
	v.Published.Protected, v.Published.Uncapped = nil, map[string]resources.List{"x": resources.NewList(1000, 3000)}
	require.False(t, secured(), "what was protected is requested")
}

func TestSecure_SkipsRestoredProtectedMemory(t *testing.T) {
	b := newFixture()
	v := b.setContents("web", map[string]checkpoint.Content{"x": content(1)})
	v.Restored = map[string]*usage.Profile{"x": nil}
	list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1000")}
	v.Object.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: convert.SeparateMemoryLimit, Status: corev1.ConditionTrue}}
	v.Object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "x", Target: list, UpperBound: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2000")}}}}
	v.Published.Uncapped = map[string]resources.List{"x": (resources.List{}).With(resources.Memory, 1000)}
	v.Published.Protected = map[string]resources.Amount{"x": 2000}
	require.Zero(t, b.Secure(t.Context(), v, now()).Written)
	require.False(t, v.Saved.Unsaved)
	require.Equal(t, resources.Amount(2000), v.Saved.Targets["x"].Value(resources.Memory))
}
