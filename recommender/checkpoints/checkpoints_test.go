package checkpoints

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/recommender/model"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func shape() usage.ProfileShape { return usage.NewProfileShape(24*time.Hour, 24*time.Hour) }

func image(n int) usage.ProfileImage {
	p := usage.NewProfile(shape())
	for i := range n {
		p.AddCPU(0.3, now().Add(time.Duration(i)*time.Minute))
	}
	p.AddPeak(5e8, now())
	return p.Image()
}

func object(vpa, container string, samples int) *vpav1.VerticalPodAutoscalerCheckpoint {
	return &vpav1.VerticalPodAutoscalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: vpa + "-" + container},
		Spec:       vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: vpa, ContainerName: container},
		Status:     checkpoint.Status(image(samples), now()),
	}
}

type fixture struct {
	*Saver
	client   *fake.Clientset
	cache    cache.Indexer
	vpas     map[string]*model.VPA
	contents fakeAdvisor
}

type fakeAdvisor map[string]map[string]checkpoint.Content

func (k fakeAdvisor) Contents(v *model.VPA, _ time.Time) map[string]checkpoint.Content {
	return k[v.Object.Name]
}

func newFixture(objects ...*vpav1.VerticalPodAutoscalerCheckpoint) fixture {
	client := fake.NewSimpleClientset()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, o := range objects {
		_ = client.Tracker().Add(o)
		_ = indexer.Add(o)
	}
	refuseInvalidPatches(client)
	b := fixture{client: client, cache: indexer, vpas: map[string]*model.VPA{}, contents: fakeAdvisor{}}
	b.Saver = NewSaver(Config{Client: client, Lister: listers.NewVerticalPodAutoscalerCheckpointLister(indexer), Workers: 2,
		Expiry: 8 * 24 * time.Hour, Timeout: time.Minute,
		Advisor: b.contents})
	return b
}

func refuseInvalidPatches(client *fake.Clientset) {
	patch := clienttesting.ObjectReaction(client.Tracker())
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, object, err := patch(a)
		if err != nil && !apierrors.IsNotFound(err) {
			err = apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return true, object, err
	})
}

func (b fixture) setContents(vpa string, contents map[string]checkpoint.Content) *model.VPA {
	b.contents[vpa] = contents
	if b.vpas[vpa] == nil {
		b.vpas[vpa] = &model.VPA{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: vpa}}}
	}
	b.vpas[vpa].Invalidate()
	return b.vpas[vpa]
}

func content(samples int) checkpoint.Content { return checkpoint.Content{Image: image(samples)} }

func (b fixture) save(t *testing.T, at time.Time, vpas ...*model.VPA) Result {
	return b.Save(t.Context(), vpas, All, at, time.Minute)
}

func (b fixture) stored(t *testing.T, name string) *vpav1.VerticalPodAutoscalerCheckpoint {
	c, err := b.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return c
}

func TestSave_CreatesPatchesAndSkipsUnchanged(t *testing.T) {
	b := newFixture()
	vpa := func(n int) *model.VPA { return b.setContents("web", map[string]checkpoint.Content{"a": content(n)}) }
	r := b.save(t, now(), vpa(10))
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Written)
	require.Equal(t, 10, b.stored(t, "web-a").Status.TotalSamplesCount)
	require.NoError(t, b.cache.Add(b.stored(t, "web-a")))

	r = b.save(t, now(), vpa(20))
	require.NoError(t, r.Err)
	require.Equal(t, 20, b.stored(t, "web-a").Status.TotalSamplesCount)

	b.client.ClearActions()
	r = b.save(t, now().Add(time.Hour), vpa(20))
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Unchanged, "it was touched only")
	r = b.save(t, now().Add(time.Hour), b.vpas["web"])
	require.Zero(t, r.Unchanged)
	require.Empty(t, b.client.Actions(), "nothing changed, so there is no call")
}

func TestSave_ReportsNameClash(t *testing.T) {
	b := newFixture(object("a", "b-c", 500))
	r := b.save(t, now(), b.setContents("a-b", map[string]checkpoint.Content{"c": content(3), "d": content(3)}))
	require.ErrorIs(t, r.Err, ErrClash)
	require.ErrorContains(t, r.Err, "ns/a-b-c")
	require.Equal(t, 1, r.Written, "the other container is saved")
	require.Equal(t, 500, b.stored(t, "a-b-c").Status.TotalSamplesCount)
}

func TestSave_ReportsNameClashWithStaleCache(t *testing.T) {
	b := newFixture()
	require.NoError(t, b.client.Tracker().Add(object("a", "b-c", 500)))
	r := b.save(t, now(), b.setContents("a-b", map[string]checkpoint.Content{"c": content(3)}))
	require.Error(t, r.Err)
	require.Equal(t, 500, b.stored(t, "a-b-c").Status.TotalSamplesCount)
}

func TestSave_RefusesPoorerHistory(t *testing.T) {
	save := func(b fixture, at time.Time) Result {
		return b.save(t, at, b.setContents("web", map[string]checkpoint.Content{"a": content(3)}))
	}
	b := newFixture(object("web", "a", 500))
	require.ErrorIs(t, save(b, now()).Err, ErrPoorer)
	require.Equal(t, 500, b.stored(t, "web-a").Status.TotalSamplesCount)
	require.NoError(t, save(b, now().Add(9*24*time.Hour)).Err, "an old one no longer counts")

	b = newFixture(object("web", "a", 500))
	b.MarkLoaded(checkpoint.History{checkpoint.Owner{Namespace: "ns", VPA: "web"}: {"a": {}}})
	require.NoError(t, save(b, now()).Err, "what was loaded is part of what is saved")
}

// The timeout leaves a busy machine enough time to start, and responses arrive after it.
const saveTimeout, slowResponse = 200 * time.Millisecond, 250 * time.Millisecond

func TestSave_ResumesAfterDeadline(t *testing.T) {
	b := newFixture()
	b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(slowResponse)
		return false, nil, nil
	})
	var vpas []*model.VPA
	for name := range strings.FieldsSeq("a b c d e f g h") {
		vpas = append(vpas, b.setContents(name, map[string]checkpoint.Content{"x": content(3)}))
	}
	b.Timeout = saveTimeout
	r := b.save(t, now(), vpas...)
	require.Equal(t, 2, r.Written, "one for each worker")
	require.Equal(t, 6, r.Late)
	b.Timeout = time.Minute
	r = b.save(t, now().Add(time.Minute), vpas...)
	require.Equal(t, 6, r.Written, "those that were late")
	list, err := b.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 8)
}

func TestSave_ContinuesAfterError(t *testing.T) {
	b := newFixture()
	b.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.PatchAction).GetName() == "bad-x", nil, errors.New("refused")
	})
	r := b.save(t, now(), b.setContents("bad", map[string]checkpoint.Content{"x": content(1)}), b.setContents("good", map[string]checkpoint.Content{"x": content(1)}))
	require.ErrorContains(t, r.Err, "save checkpoint ns/bad-x: refused")
	require.Equal(t, 1, r.Written)
}

func TestCollect_ContinuesAfterError(t *testing.T) {
	b := newFixture(object("a", "x", 1), object("b", "x", 1), object("c", "x", 1))
	b.client.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.DeleteAction).GetName() == "a-x", nil, errors.New("refused")
	})
	n, err := b.Collect(t.Context(), func(c *vpav1.VerticalPodAutoscalerCheckpoint) Disposition {
		if c.Spec.VPAObjectName == "c" {
			return Keep
		}
		return Orphan
	})
	require.ErrorContains(t, err, "delete checkpoint ns/a-x: refused")
	require.Equal(t, 1, n)
	require.Equal(t, 1, b.stored(t, "c-x").Status.TotalSamplesCount)
}

// A hanging API server must not delay an iteration for each orphan.
func TestCollect_ResumesAfterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(object("a", "x", 1), object("b", "x", 1), object("c", "x", 1))
		b.client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(slowResponse)
			return false, nil, nil
		})
		orphans := func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return Orphan }
		b.Timeout = saveTimeout
		n, err := b.Collect(t.Context(), orphans)
		require.ErrorContains(t, err, "leave 2 checkpoints for the next iteration")
		require.Equal(t, 1, n)
		b.Timeout = time.Minute
		_, err = b.Collect(t.Context(), orphans)
		require.NoError(t, err)
		list, err := b.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, list.Items)
	})
}

func TestCollect_DropsStateOfDeletedCheckpoints(t *testing.T) {
	b := newFixture()
	require.NoError(t, b.save(t, now(), b.setContents("web", map[string]checkpoint.Content{"a": content(3)})).Err)
	b.MarkLoaded(checkpoint.History{checkpoint.Owner{Namespace: "ns", VPA: "web"}: {"b": {}}})
	require.NoError(t, b.cache.Add(b.stored(t, "web-a")))
	keep := func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return Keep }
	_, err := b.Collect(t.Context(), keep)
	require.NoError(t, err)
	require.Len(t, b.written, 1)
	require.Empty(t, b.loaded, "there is no web-b")

	require.NoError(t, b.cache.Delete(b.stored(t, "web-a"))) // with its namespace
	_, err = b.Collect(t.Context(), keep)
	require.NoError(t, err)
	require.Empty(t, b.written)
}

func TestSave_KeepsForeignAnnotations(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cached bool
	}{
		{name: "cached checkpoint", cached: true},
		{name: "checkpoint not in the cache"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stored := object("web", "a", 1)
			stored.Annotations = map[string]string{"foreign": "stays"}
			b := newFixture()
			require.NoError(t, b.client.Tracker().Add(stored))
			if tc.cached {
				trimmed, err := checkpoint.Trim(stored)
				require.NoError(t, err)
				require.NoError(t, b.cache.Add(trimmed))
			}
			require.NoError(t, b.save(t, now(), b.setContents("web", map[string]checkpoint.Content{"a": content(9)})).Err)
			got := b.stored(t, "web-a")
			require.Equal(t, "stays", got.Annotations["foreign"])
			require.Contains(t, got.Annotations, checkpoint.OpenWindows)
			require.Equal(t, 9, got.Status.TotalSamplesCount)
		})
	}
}

func (b fixture) load(t *testing.T) checkpoint.History {
	history, problems, err := (&checkpoint.Loader{Client: b.client, Shape: shape()}).Load(t.Context(), func(checkpoint.Owner) bool { return true }, now())
	require.NoError(t, err)
	require.Empty(t, problems)
	return history
}

func TestSave_AddsOpenWindowsAnnotation(t *testing.T) {
	b := newFixture(object("web", "a", 1)) // as the reference recommender writes it
	windows := map[string]usage.Window{"web-1": {End: now().Add(time.Hour), Usage: 5, OOM: -1}}
	vpa := b.setContents("web", map[string]checkpoint.Content{"a": {Image: image(9), Windows: windows}})
	require.NoError(t, b.save(t, now().Add(123*time.Millisecond), vpa).Err)
	past := b.load(t)[checkpoint.Owner{Namespace: "ns", VPA: "web"}]["a"]
	require.Equal(t, windows, past.Windows)
	b.setContents("web", map[string]checkpoint.Content{"a": {Image: image(9)}})
	require.Equal(t, 1, b.save(t, now().Add(time.Minute), vpa).Written, "windows count as a change")
	require.Empty(t, b.load(t)[checkpoint.Owner{Namespace: "ns", VPA: "web"}]["a"].Windows)
}

func TestSave_JoinsErrorsOnce(t *testing.T) {
	b := newFixture()
	b.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
	var vpas []*model.VPA
	for i := range 300 {
		vpas = append(vpas, b.setContents(strconv.Itoa(i), map[string]checkpoint.Content{"x": content(1)}))
	}
	joined, ok := b.save(t, now(), vpas...).Err.(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 300)
}

func TestSave_RejectsLongNamesWithoutRequest(t *testing.T) {
	b := newFixture()
	vpa, container := strings.Repeat("v", 190), strings.Repeat("c", 62)
	r := b.save(t, now(), b.setContents(vpa, map[string]checkpoint.Content{container: content(1), container + "c": content(1)}))
	require.ErrorIs(t, r.Err, ErrTooLong)
	require.ErrorContains(t, r.Err, "exceeds the limit of 253 characters")
	require.Equal(t, 1, r.Written, "253 characters are allowed")
	require.Len(t, b.client.Actions(), 2, "a patch that finds nothing, and a creation")
}

func TestSave_RecreatedVPAKeepsRicherCheckpoint(t *testing.T) {
	rich := map[string]checkpoint.Content{"a": content(500)}
	poor := map[string]checkpoint.Content{"a": content(3)}
	b := newFixture(object("web", "a", 400))
	b.MarkLoaded(checkpoint.History{checkpoint.Owner{Namespace: "ns", VPA: "web"}: {"a": {}}})
	require.NoError(t, b.save(t, now(), b.setContents("web", rich)).Err)
	require.NoError(t, b.cache.Update(b.stored(t, "web-a")))

	delete(b.vpas, "web") // recreated, or served elsewhere for a while
	require.ErrorIs(t, b.save(t, now().Add(time.Hour), b.setContents("web", poor)).Err, ErrPoorer)
	require.Equal(t, 500, b.stored(t, "web-a").Status.TotalSamplesCount)

	delete(b.vpas, "web")
	b.setContents("web", poor).Retargeted = true
	require.NoError(t, b.save(t, now().Add(time.Hour), b.vpas["web"]).Err, "what another target used is of no use")
	require.Equal(t, 3, b.stored(t, "web-a").Status.TotalSamplesCount)
}

func pendingKill() *model.KillQueue {
	ooms := &model.KillQueue{}
	ooms.Add(usage.OOM{})
	return ooms
}

func TestSave_CompletesWithPendingKills(t *testing.T) {
	b := newFixture()
	b.OOMs = pendingKill()
	var vpas []*model.VPA
	for i := range 50 {
		vpas = append(vpas, b.setContents(strconv.Itoa(i), map[string]checkpoint.Content{"x": content(1)}))
	}
	require.Equal(t, 50, b.save(t, now(), vpas...).Written)
}

type slowAdvisor struct{}

func (slowAdvisor) Contents(*model.VPA, time.Time) map[string]checkpoint.Content {
	time.Sleep(time.Second)
	return map[string]checkpoint.Content{"x": content(1)}
}

// Deferrable saves end a few seconds after a kill arrives. Without kills they use all the time.
func TestSave_DefersForPendingKills(t *testing.T) {
	for name, c := range map[string]struct {
		ooms    *model.KillQueue
		written int
	}{
		"a kill waits":      {pendingKill(), 10},
		"nothing waits":     {&model.KillQueue{}, 50},
		"nothing ever does": {nil, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFixture()
				b.Advisor = slowAdvisor{}
				b.OOMs = c.ooms
				var vpas []*model.VPA
				for i := range 50 {
					vpas = append(vpas, b.setContents(strconv.Itoa(i), nil))
				}
				r := b.save(t, now(), vpas...)
				require.NoError(t, r.Err)
				require.InDelta(t, c.written, r.Written, 2)
				require.Equal(t, 50, r.Written+r.Late)
			})
		})
	}
}

func TestSave_AlternatesNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture()
		b.Workers = 1
		var written []string
		b.client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			written = append(written, a.GetNamespace())
			return false, nil, nil
		})
		var vpas []*model.VPA
		for i := range 60 {
			v := b.setContents("v"+strconv.Itoa(i), map[string]checkpoint.Content{"a": content(10)})
			v.Object.Namespace = "hog"
			vpas = append(vpas, v)
		}
		vpas[len(vpas)-1].Object.Namespace = "quiet"
		b.Timeout = 20 * time.Second
		r := b.save(t, time.Now(), vpas...)
		require.Contains(t, written[:3], "quiet")
		require.GreaterOrEqual(t, r.Written, 20, "the time that others leave is used")
		require.Equal(t, 60, r.Written+r.Late)
	})
}

func TestSave_ResumesVPAWithManyContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture()
		var written []string
		fails := ""
		b.client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			name := a.(clienttesting.CreateAction).GetObject().(*vpav1.VerticalPodAutoscalerCheckpoint).Name
			written = append(written, name)
			if name == fails {
				return true, nil, errors.New("refused")
			}
			return false, nil, nil
		})
		contents := map[string]checkpoint.Content{}
		for _, container := range []string{"a", "b", "c", "d", "e"} {
			contents[container] = content(10)
		}
		v := b.setContents("web", contents)
		for pass, late := range []int{1, 1, 0} {
			began := time.Now()
			r := b.save(t, time.Now(), v)
			require.Equal(t, late, r.Late, "pass %d", pass)
			require.LessOrEqual(t, time.Since(began), 2*time.Second)
			require.Equal(t, late == 0, v.Saved.Written)
			b.setContents("web", contents) // it has changed since
		}
		require.Equal(t, []string{"web-a", "web-b", "web-c", "web-d", "web-e"}, written)
		require.NotEqual(t, v.Revision(), v.Saved.Revision, "what changed meanwhile is not saved")

		written, fails = nil, "other-a"
		other := b.setContents("other", contents)
		for range 3 {
			b.save(t, time.Now(), other)
		}
		require.Len(t, written, 5)
		require.True(t, other.Saved.Failed)
		require.False(t, other.Saved.Written)

		rising := b.setContents("rising", contents)
		rising.Published.Uncapped = map[string]resources.List{"e": (resources.List{}).With(resources.CPU, 1000)}
		require.Equal(t, 1, b.Secure(t.Context(), rising, time.Now()).Late)
		require.True(t, rising.Saved.Unsaved, "a crash would lower the target of the last container")
	})
}
