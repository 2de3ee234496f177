package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func TestAbsorb_MatchesLiveHistory(t *testing.T) {
	for _, saver := range []bool{false, true} {
		past10 := func(feedTo ...*Model) {
			for i := range 10 { // an old generation, deleted
				for _, m := range feedTo {
					m.PutPod(aPod("old", withTemplateHash("1"), "a"), now())
					addSamples(t, m.config.Store, "old", "a", now().Add(time.Duration(i)*time.Hour), resources.Amount(100*i+1), resources.Amount(1e8+3e7*float64(i)))
				}
			}
			for _, m := range feedTo {
				m.PutPod(aPod("p", withTemplateHash("2"), "a"), now())
				m.PutPod(aPod("stranger", labels.Set{"app": "z"}, "a"), now())
				addSamples(t, m.config.Store, "p", "a", now().Add(12*time.Hour), 500, 2e9)
			}
		}
		live, _ := newModel(Config{MemorySaver: saver})
		history, _ := newModel(Config{})
		want, _ := newModel(Config{})
		live.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
		want.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
		past10(history, want)
		want.RemovePod("ns", "old")
		live.PutPod(aPod("p", withTemplateHash("2"), "a"), now())
		for _, m := range []*Model{live, want} {
			addSamples(t, m.config.Store, "p", "a", now().Add(13*time.Hour), 700, 1e9)
		}
		revision := live.Find("ns", "v").Revision()
		live.Absorb(history, now())
		require.NotEqual(t, revision, live.Find("ns", "v").Revision())
		requireSame(t, vpaProfile(want, "v", "a"), vpaProfile(live, "v", "a"))
		p := vpaProfile(live, "v", "a")
		live.config.Store.RemovePeaks(p, now().Add(13*time.Hour), live.Find("ns", "v").Series("a")...)
		q := vpaProfile(want, "v", "a")
		want.config.Store.RemovePeaks(q, now().Add(13*time.Hour), want.Find("ns", "v").Series("a")...)
		require.InDelta(t, q.Memory.Image().Total, p.Memory.Image().Total, 1e-9)
		_, kept := live.config.Store.Find(usage.SeriesKey{Namespace: "ns", Container: "a", Labels: "app=z"})
		require.Equal(t, !saver, kept)
		_, found := live.config.Store.Find(usage.SeriesKey{Namespace: "ns", Container: "a", Labels: "app=x"})
		require.True(t, found, "the old generation is folded at once")
	}
}

func TestAbsorb_SkipsPodsWithoutContainers(t *testing.T) {
	live, _ := newModel(Config{})
	history, _ := newModel(Config{})
	history.PutPod(aPod("empty", labels.Set{"app": "a"}), now())
	history.PutPod(aPod("p", labels.Set{"app": "x"}, "a"), now())
	addSamples(t, history.config.Store, "p", "a", now(), 500, 2e9)
	live.Absorb(history, now())
	live.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
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
