package checkpoints

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

func TestSave_FailedVPAIsNotUrgent(t *testing.T) {
	b := newFixture()
	tried := 0
	b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		tried++
		return true, nil, errors.New("refused")
	})
	bad := b.setContents("bad", map[string]checkpoint.Content{"x": content(1)})
	bad.Published.Uncapped = map[string]resources.List{"x": (resources.List{}).With(resources.CPU, 100)}
	for _, c := range []struct {
		scope Scope
		tries int
	}{{Urgent, 1}, {Urgent, 1}, {Due, 2}, {Urgent, 2}, {Due, 3}} {
		require.Zero(t, b.Save(t.Context(), []*model.VPA{bad}, c.scope, now(), time.Minute).Written)
		require.Equal(t, c.tries, tried)
	}
}

// The checkpoint is saved without the sketch.
func TestSave_ReportsOversizedSketch(t *testing.T) {
	b := newFixture()
	large := content(1)
	large.Sketch = make([]byte, 1<<20)
	v := b.setContents("web", map[string]checkpoint.Content{"x": large})
	for range 2 {
		r := b.Save(t.Context(), []*model.VPA{v}, All, now(), time.Minute)
		require.ErrorIs(t, r.Err, checkpoint.ErrSketch)
		require.ErrorContains(t, r.Err, "save checkpoint ns/web-x: ")
	}
	list, err := b.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
}

// Only a refused write defers a VPA and marks its target. After a timeout the VPA stays urgent.
func TestSecure_TimeoutIsNotRefusal(t *testing.T) {
	for _, over := range []bool{false, true} {
		b := newFixture()
		ctx, stop := context.WithCancel(t.Context())
		b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if over {
				stop()
			}
			return true, nil, errors.New("refused")
		})
		v := b.setContents("web", map[string]checkpoint.Content{"x": content(1)})
		v.Published.Uncapped = map[string]resources.List{"x": (resources.List{}).With(resources.CPU, 100)}
		require.Error(t, errors.Join(b.Secure(ctx, v, now()).problems...))
		require.Equal(t, !over, v.Saved.Unsaved)
		stop()
		b.client.ReactionChain = b.client.ReactionChain[1:]
		want := 0
		if over {
			want = 1
		}
		require.Equal(t, want, b.Save(t.Context(), []*model.VPA{v}, Urgent, now(), time.Minute).Written)
	}
}

func TestMaintainer_SavesRemainingScope(t *testing.T) {
	b := newFixture()
	u := Maintainer{Saver: b.Saver, Model: model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())}),
		Results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"result"})}
	var seen []model.Observed
	for i := range 5 {
		name := strconv.Itoa(i)
		seen = append(seen, model.Observed{Object: b.setContents(name, map[string]checkpoint.Content{"x": content(1)}).Object, Selector: labels.Nothing()})
	}
	u.Model.SyncVPAs(seen, now())
	b.Interval = 0
	u.Save(t.Context(), Due, now(), 0) // no time: one VPA per worker
	require.Equal(t, Due, u.RemainingScope())
	u.Save(t.Context(), u.RemainingScope(), now(), time.Minute)
	require.Equal(t, 5.0, testutil.ToFloat64(u.Results.WithLabelValues("written")))
	require.Equal(t, Urgent, u.RemainingScope())
}

// The share grows after two intervals.
func TestTimeShare_LimitsDeferrableSaves(t *testing.T) {
	s := NewSaver(Config{Interval: 10 * time.Minute})
	for _, tc := range []struct {
		name   string
		waited time.Duration
		scope  Scope
		want   time.Duration
	}{
		{name: "shortly after the last save", waited: time.Minute, scope: Due, want: 2250 * time.Millisecond},
		{name: "before two intervals", waited: 19 * time.Minute, scope: Due, want: 2250 * time.Millisecond},
		{name: "after two intervals", waited: 20 * time.Minute, scope: Due, want: 45 * time.Second},
		{name: "all checkpoints", waited: time.Minute, scope: All, want: 45 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := &model.VPA{Saved: model.Saved{LastTried: now().Add(-tc.waited)}}
			require.Equal(t, tc.want, s.timeShare(45*time.Second, vpa, tc.scope, now()))
		})
	}
}

func TestForeign_UntilCheckpointIsWritten(t *testing.T) {
	b := newFixture(object("web", "a", 500))
	owner := checkpoint.Owner{Namespace: "ns", VPA: "web"}
	vpa := b.setContents("web", map[string]checkpoint.Content{"a": content(3)})
	stored := b.stored(t, "web-a")
	require.False(t, b.Foreign(vpa, stored), "nothing is known of it")
	b.MarkLoaded(checkpoint.History{owner: {"a": {}}})
	require.False(t, b.Foreign(vpa, stored), "it was restored")
	b.MarkForeign(owner, []checkpoint.ForeignContainer{{Container: "a"}})
	require.True(t, b.Foreign(vpa, stored), "it was that of another target before the start")
	require.NoError(t, b.save(t, now(), vpa).Err, "however much it holds")
	require.False(t, b.Foreign(vpa, stored))

	b = newFixture(object("web", "a", 500))
	vpa = b.setContents("web", map[string]checkpoint.Content{"a": content(3)})
	vpa.Retargeted = true
	require.True(t, b.Foreign(vpa, stored), "it was that of another target since the start")
	require.NoError(t, b.save(t, now(), vpa).Err)
	require.False(t, b.Foreign(vpa, stored))
}

// Writes are spread over the VPAs.
func TestSave_WritesRestoredHistorySoonAfterStart(t *testing.T) {
	for interval, within := range map[time.Duration]int{10 * time.Minute: 4, time.Hour: 4, 3 * time.Minute: 3} {
		const vpas = 80
		b := newFixture()
		b.Interval = interval
		var list []*model.VPA
		for i := range vpas {
			v := b.setContents(strconv.Itoa(i), map[string]checkpoint.Content{"x": content(1)})
			p := usage.NewProfile(shape())
			v.Restored = map[string]*usage.Profile{"x": &p}
			list = append(list, v)
		}
		written := map[string]int{}
		for minute := range within + 1 {
			r := b.Save(t.Context(), list, Due, now().Add(time.Duration(minute)*time.Minute), time.Minute)
			require.LessOrEqual(t, r.Written, vpas*2/within, "they are spread")
			for _, a := range b.client.Actions() {
				if patch, ok := a.(clienttesting.PatchAction); ok {
					written[patch.GetName()] = 1
				}
			}
		}
		require.Len(t, written, vpas, interval)

		again := 0
		for minute := 1; minute <= int(interval/time.Minute); minute++ {
			for i := range vpas {
				b.setContents(strconv.Itoa(i), map[string]checkpoint.Content{"x": content(1 + minute)})
			}
			again += b.Save(t.Context(), list, Due, now().Add(time.Duration(within+minute)*time.Minute), time.Minute).Written
		}
		require.Equal(t, vpas, again, interval)
	}
}
