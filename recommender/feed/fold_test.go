package feed

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/core/usage"
)

func use(t testing.TB, s *usage.Store, pod, container string, at time.Time, cpu, memory amount.Amount) {
	t.Helper()
	key := usage.ContainerKey{Namespace: "ns", Pod: pod, Container: container}
	require.Equal(t, usage.Accepted, s.Observe(usage.Sample{Container: key, Kind: amount.CPU, At: at, Amount: cpu}))
	require.Equal(t, usage.Accepted, s.Observe(usage.Sample{Container: key, Kind: amount.Memory, At: at, Amount: memory}))
}

// past is all that is known of a container of a VPA.
func past(m *Model, vpa, container string) *profile.Profile {
	p := profile.New(usage.DefaultConfig().Shape)
	m.config.Store.Profile(&p, m.Find("ns", vpa).Series(container)...)
	return &p
}

func requireSame(t testing.TB, want, got *profile.Profile) {
	t.Helper()
	require.Equal(t, want.Samples(), got.Samples())
	require.Equal(t, want.First(), got.First())
	require.Equal(t, want.Last(), got.Last())
	require.InEpsilon(t, want.Image().CPU.Total, got.Image().CPU.Total, 1e-12)
	require.InEpsilon(t, want.Image().Memory.Total, got.Image().Memory.Total, 1e-12)
	require.Equal(t, want.Image().CPU.Weights, got.Image().CPU.Weights)
	require.Equal(t, want.Image().Memory.Weights, got.Image().Memory.Weights)
	for _, q := range []float64{.5, .9, .95} {
		require.Equal(t, want.CPU.Quantile(q), got.CPU.Quantile(q))
		require.Equal(t, want.Memory.Quantile(q), got.Memory.Quantile(q))
	}
}

func hashed(hash string) labels.Set { return labels.Set{"app": "x", "pod-template-hash": hash} }

func TestRolloutsAndARollbackLeaveOneHistory(t *testing.T) {
	for _, saver := range []bool{false, true} {
		m, store := newModel(Config{MemorySaver: saver})
		m.SyncVPAs([]Observed{seen("v", "x", 1)}, now())
		at := now()
		for i := range 30 {
			hash := fmt.Sprint(i % 7) // comes back
			pod := fmt.Sprint("p", i)
			m.PutPod(aPod(pod, hashed(hash), "a", "b"), at)
			use(t, store, pod, "a", at, amount.Amount(100*i+1), amount.Amount(1e8+3e7*float64(i)))
			if i > 0 {
				before, revision := past(m, "v", "a"), m.Find("ns", "v").Revision()
				m.RemovePod("ns", fmt.Sprint("p", i-1))
				requireSame(t, before, past(m, "v", "a"))
				require.NotEqual(t, revision, m.Find("ns", "v").Revision())
			}
			at = at.Add(5 * time.Hour)
			require.LessOrEqual(t, store.Len(), 4)
		}
		require.EqualValues(t, 30, past(m, "v", "a").Samples())
		m.RemovePod("ns", "p29")
		require.Equal(t, 2, store.Len())
		require.Len(t, m.spaces["ns"].sets, 1)
		require.Equal(t, []string{"a", "b"}, m.Find("ns", "v").Containers())
		_, found := store.Find(usage.SeriesKey{Namespace: "ns", Container: "a", Labels: "app=x"})
		require.True(t, found)
	}
}

// The window of a pod that goes is over: its peak stays, once.
func TestPeaksOfFoldedPodsAreFinal(t *testing.T) {
	m, store := newModel(Config{})
	m.SyncVPAs([]Observed{seen("v", "x", 1)}, now())
	m.PutPod(aPod("p1", hashed("1"), "a"), now())
	m.PutPod(aPod("p2", hashed("2"), "a"), now())
	use(t, store, "p1", "a", now(), 100, 5e9)
	use(t, store, "p2", "a", now(), 100, 1e9)
	m.RemovePod("ns", "p1")
	p := past(m, "v", "a")
	store.RemovePeaks(p, now(), m.Find("ns", "v").Series("a")...)
	require.Len(t, p.Image().Memory.Weights, 1, "only the peak of p2 is open")
	require.Greater(t, p.Memory.Quantile(1), 4.9e9)
	m.RemovePod("ns", "p2")
	require.Len(t, past(m, "v", "a").Image().Memory.Weights, 2)
}

func TestAVPAThatSelectsAGenerationKeepsItsHistory(t *testing.T) {
	m, store := newModel(Config{})
	job := seen("job", "j", 1)
	job.Selector = labels.SelectorFromSet(labels.Set{"job-name": "j1"})
	not := seen("not", "n", 1)
	not.Selector, _ = labels.Parse("app=x,!pod-template-hash")
	m.SyncVPAs([]Observed{job, not, seen("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "y", "job-name": "j1"}, "a"), now())
	m.PutPod(aPod("p2", hashed("1"), "a"), now())
	use(t, store, "p1", "a", now(), 100, 1e9)
	use(t, store, "p2", "a", now(), 100, 1e9)
	m.RemovePod("ns", "p1")
	m.RemovePod("ns", "p2")
	require.EqualValues(t, 1, past(m, "job", "a").Samples())
	require.EqualValues(t, 1, past(m, "v", "a").Samples())
	require.Zero(t, past(m, "not", "a").Samples(), "it has never selected such pods")
	require.Equal(t, 2, store.Len())
	m.Expire(now().Add(8 * day))
	require.Zero(t, store.Len())
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// world has deployments of 5 pods with 2 containers, each under a VPA.
type world struct {
	model       *Model
	store       *usage.Store
	deployments int
	at          time.Time
	generation  int
}

func newWorld(deployments int) *world {
	m, store := newModel(Config{})
	w := &world{model: m, store: store, deployments: deployments, at: now(), generation: -1}
	var list []Observed
	for i := range deployments {
		list = append(list, seen(fmt.Sprint("v", i), fmt.Sprint("x", i), 1))
	}
	m.SyncVPAs(list, w.at)
	return w
}

// roll replaces all pods, one by one, and samples them.
func (w *world) roll(t testing.TB) {
	w.generation++
	w.at = w.at.Add(37 * time.Minute)
	for i := range w.deployments {
		set := labels.Set{"app": fmt.Sprint("x", i), "pod-template-hash": fmt.Sprint(w.generation)}
		for j := range 5 {
			pod := fmt.Sprint("p-", i, "-", w.generation, "-", j)
			w.model.PutPod(aPod(pod, set, "a", "b"), w.at)
			for _, container := range []string{"a", "b"} {
				use(t, w.store, pod, container, w.at, amount.Amount(100+(i*7+w.generation%20*45)%900), amount.Amount(1e8*float64(1+(i+w.generation)%20)))
			}
			w.model.RemovePod("ns", fmt.Sprint("p-", i, "-", w.generation-1, "-", j))
		}
	}
	if w.generation%2 == 0 {
		w.model.Expire(w.at)
	}
}

// jobs lets Jobs run, all at once, and go.
func (w *world) jobs(t testing.TB, from, to int) {
	for i := from; i < to; i++ {
		pod := fmt.Sprint("job-", i)
		w.model.PutPod(aPod(pod, labels.Set{"app": "nightly", "job-name": pod, "controller-uid": pod}, "a"), w.at)
		use(t, w.store, pod, "a", w.at, 100, 1e8)
	}
	for i := from; i < to; i++ {
		w.model.RemovePod("ns", fmt.Sprint("job-", i))
	}
	w.model.Expire(w.at)
}

func growth(t testing.TB, deployments, rollouts, jobs, atOnce int) (before, rolled, worked float64) {
	w := newWorld(deployments)
	for range 20 { // until the histograms are as wide as they get
		w.roll(t)
	}
	before = heap()
	for range rollouts {
		w.roll(t)
	}
	rolled = heap()
	for i := 0; i < jobs; i += atOnce {
		w.jobs(t, i, i+atOnce)
	}
	worked = heap()
	require.LessOrEqual(t, w.store.Len(), 4*deployments+1)
	runtime.KeepAlive(w)
	return before, rolled, worked
}

func TestOldPodsLeaveNothing(t *testing.T) {
	before, rolled, worked := growth(t, 300, 40, 3000, 500)
	t.Logf("heap %.2f MiB, after rollouts %.2f, after Jobs %.2f", before/(1<<20), rolled/(1<<20), worked/(1<<20))
	require.Less(t, rolled, 1.1*before)
	require.Less(t, worked, 1.1*before)
}

func BenchmarkGrowth(b *testing.B) {
	b.Run("containers=10000", func(b *testing.B) {
		for range b.N {
			before, rolled, worked := growth(b, 1000, 200, 10000, 1000)
			b.ReportMetric(before/(1<<20), "MiB-before")
			b.ReportMetric(rolled/(1<<20), "MiB-after-200-rollouts")
			b.ReportMetric(worked/(1<<20), "MiB-after-10k-jobs")
		}
	})
}
