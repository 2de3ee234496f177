package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func TestAbsorbedHistoryIsAsIfItHadBeenSeen(t *testing.T) {
	for _, saver := range []bool{false, true} {
		past10 := func(feedTo ...*Model) {
			for i := range 10 { // an old generation, deleted
				for _, m := range feedTo {
					m.PutPod(aPod("old", hashed("1"), "a"), now())
					use(t, m.config.Store, "old", "a", now().Add(time.Duration(i)*time.Hour), resources.Amount(100*i+1), resources.Amount(1e8+3e7*float64(i)))
				}
			}
			for _, m := range feedTo {
				m.PutPod(aPod("p", hashed("2"), "a"), now())
				m.PutPod(aPod("stranger", labels.Set{"app": "z"}, "a"), now())
				use(t, m.config.Store, "p", "a", now().Add(12*time.Hour), 500, 2e9)
			}
		}
		live, _ := newModel(Config{MemorySaver: saver})
		history, _ := newModel(Config{})
		want, _ := newModel(Config{})
		live.SyncVPAs([]Observed{seen("v", "x", 1)}, now())
		want.SyncVPAs([]Observed{seen("v", "x", 1)}, now())
		past10(history, want)
		want.RemovePod("ns", "old")
		live.PutPod(aPod("p", hashed("2"), "a"), now())
		for _, m := range []*Model{live, want} {
			use(t, m.config.Store, "p", "a", now().Add(13*time.Hour), 700, 1e9)
		}
		revision := live.Find("ns", "v").Revision()
		live.Absorb(history, now())
		require.NotEqual(t, revision, live.Find("ns", "v").Revision())
		requireSame(t, past(want, "v", "a"), past(live, "v", "a"))
		p := past(live, "v", "a")
		live.config.Store.RemovePeaks(p, now().Add(13*time.Hour), live.Find("ns", "v").Series("a")...)
		q := past(want, "v", "a")
		want.config.Store.RemovePeaks(q, now().Add(13*time.Hour), want.Find("ns", "v").Series("a")...)
		require.InDelta(t, q.Memory.Image().Total, p.Memory.Image().Total, 1e-9)
		_, kept := live.config.Store.Find(usage.SeriesKey{Namespace: "ns", Container: "a", Labels: "app=z"})
		require.Equal(t, !saver, kept)
		_, found := live.config.Store.Find(usage.SeriesKey{Namespace: "ns", Container: "a", Labels: "app=x"})
		require.True(t, found, "the old generation is folded at once")
	}
}

func TestAbsorbedHistoryIsFoundBehindAPodWithoutAny(t *testing.T) {
	live, _ := newModel(Config{})
	history, _ := newModel(Config{})
	history.PutPod(aPod("empty", labels.Set{"app": "a"}), now())
	history.PutPod(aPod("p", labels.Set{"app": "x"}, "a"), now())
	use(t, history.config.Store, "p", "a", now(), 500, 2e9)
	live.Absorb(history, now())
	live.SyncVPAs([]Observed{seen("v", "x", 1)}, now())
	require.Len(t, live.Find("ns", "v").Series("a"), 1)
}

func BenchmarkAbsorb(b *testing.B) {
	const vpas = 2000
	history := newWorld(vpas)
	history.roll(b)
	for range b.N {
		b.StopTimer()
		live := newWorld(vpas)
		live.roll(b)
		b.StartTimer()
		live.model.Absorb(history.model, now())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/vpas/2, "ns/series")
}
