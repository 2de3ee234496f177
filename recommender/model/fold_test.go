package model

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func addSamples(t testing.TB, s *usage.Store, pod, container string, at time.Time, cpu, memory resources.Amount) {
	t.Helper()
	key := usage.ContainerKey{Namespace: "ns", Pod: pod, Container: container}
	require.Equal(t, usage.Accepted, s.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: cpu}))
	require.Equal(t, usage.Accepted, s.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: memory}))
}

// elapse advances the sample clock in another namespace and expires histories.
func elapse(t testing.TB, m *Model, since time.Duration) {
	at := now().Add(since)
	clock := aPod("clock", nil, "a")
	clock.Namespace = "others"
	m.PutPod(clock, at)
	key := usage.ContainerKey{Namespace: "others", Pod: "clock", Container: "a"}
	require.Equal(t, usage.Accepted, m.config.Store.Observe(usage.Sample{Container: key, At: at, Amount: 1}))
	m.Expire(at)
}

func vpaProfile(m *Model, vpa, container string) *usage.Profile {
	p := usage.NewProfile(usage.DefaultConfig().Shape)
	m.config.Store.Profile(&p, m.Find("ns", vpa).Series(container)...)
	return &p
}

func requireSame(t testing.TB, want, got *usage.Profile) {
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

func withTemplateHash(hash string) labels.Set {
	return labels.Set{"app": "x", "pod-template-hash": hash}
}

func TestFold_RolloutsAndRollbackLeaveOneHistory(t *testing.T) {
	for _, saver := range []bool{false, true} {
		m, store := newModel(Config{MemorySaver: saver})
		m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
		at := now()
		for i := range 30 {
			hash := fmt.Sprint(i % 7) // comes back
			pod := fmt.Sprint("p", i)
			m.PutPod(aPod(pod, withTemplateHash(hash), "a", "b"), at)
			addSamples(t, store, pod, "a", at, resources.Amount(100*i+1), resources.Amount(1e8+3e7*float64(i)))
			if i > 0 {
				before, revision := vpaProfile(m, "v", "a"), m.Find("ns", "v").Revision()
				m.RemovePod("ns", fmt.Sprint("p", i-1))
				requireSame(t, before, vpaProfile(m, "v", "a"))
				require.NotEqual(t, revision, m.Find("ns", "v").Revision())
			}
			at = at.Add(5 * time.Hour)
			require.LessOrEqual(t, store.Len(), 4)
		}
		require.EqualValues(t, 30, vpaProfile(m, "v", "a").Samples())
		m.RemovePod("ns", "p29")
		require.Equal(t, 2, store.Len())
		require.Len(t, m.namespaces["ns"].sets, 1)
		require.Equal(t, []string{"a", "b"}, m.Find("ns", "v").Containers())
		_, found := store.Find(usage.SeriesKey{Namespace: "ns", Container: "a", Labels: "app=x"})
		require.True(t, found)
	}
}

// The memory window of a deleted pod is closed, and its peak counts once.
func TestFold_KeepsPeakOfDeletedPod(t *testing.T) {
	m, store := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", withTemplateHash("1"), "a"), now())
	m.PutPod(aPod("p2", withTemplateHash("2"), "a"), now())
	addSamples(t, store, "p1", "a", now(), 100, 5e9)
	addSamples(t, store, "p2", "a", now(), 100, 1e9)
	m.RemovePod("ns", "p1")
	p := vpaProfile(m, "v", "a")
	store.RemovePeaks(p, now(), m.Find("ns", "v").Series("a")...)
	require.Len(t, p.Image().Memory.Weights, 1, "only the peak of p2 is open")
	require.Greater(t, p.Memory.Quantile(1), 4.9e9)
	m.RemovePod("ns", "p2")
	require.Len(t, vpaProfile(m, "v", "a").Image().Memory.Weights, 2)
}

func TestFold_KeepsHistoryForGenerationSelectors(t *testing.T) {
	m, store := newModel(Config{})
	job := newObserved("job", "j", 1)
	job.Selector = labels.SelectorFromSet(labels.Set{"job-name": "j1"})
	not := newObserved("not", "n", 1)
	not.Selector, _ = labels.Parse("app=x,!pod-template-hash")
	m.SyncVPAs([]Observed{job, not, newObserved("v", "x", 1)}, now())
	m.PutPod(aPod("p1", labels.Set{"app": "y", "job-name": "j1"}, "a"), now())
	m.PutPod(aPod("p2", withTemplateHash("1"), "a"), now())
	addSamples(t, store, "p1", "a", now(), 100, 1e9)
	addSamples(t, store, "p2", "a", now(), 100, 1e9)
	m.RemovePod("ns", "p1")
	m.RemovePod("ns", "p2")
	require.EqualValues(t, 1, vpaProfile(m, "job", "a").Samples())
	require.EqualValues(t, 1, vpaProfile(m, "v", "a").Samples())
	require.Zero(t, vpaProfile(m, "not", "a").Samples(), "it has never selected such pods")
	require.Equal(t, 2, store.Len())
	elapse(t, m, 8*day)
	require.Equal(t, 1, store.Len())
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// world has Deployments of 5 pods with 2 containers, each with a VPA.
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
		list = append(list, newObserved(fmt.Sprint("v", i), fmt.Sprint("x", i), 1))
	}
	m.SyncVPAs(list, w.at)
	return w
}

func (w *world) roll(t testing.TB) {
	w.generation++
	w.at = w.at.Add(37 * time.Minute)
	for i := range w.deployments {
		set := labels.Set{"app": fmt.Sprint("x", i), "pod-template-hash": fmt.Sprint(w.generation)}
		for j := range 5 {
			pod := fmt.Sprint("p-", i, "-", w.generation, "-", j)
			w.model.PutPod(aPod(pod, set, "a", "b"), w.at)
			for _, container := range []string{"a", "b"} {
				addSamples(t, w.store, pod, container, w.at, resources.Amount(100+(i*7+w.generation%20*45)%900), resources.Amount(1e8*float64(1+(i+w.generation)%20)))
			}
			w.model.RemovePod("ns", fmt.Sprint("p-", i, "-", w.generation-1, "-", j))
		}
	}
	if w.generation%2 == 0 {
		w.model.Expire(w.at)
	}
}

func (w *world) runJobs(t testing.TB, from, to int) {
	for i := from; i < to; i++ {
		pod := fmt.Sprint("job-", i)
		w.model.PutPod(aPod(pod, labels.Set{"app": "nightly", "job-name": pod, "controller-uid": pod}, "a"), w.at)
		addSamples(t, w.store, pod, "a", w.at, 100, 1e8)
	}
	for i := from; i < to; i++ {
		w.model.RemovePod("ns", fmt.Sprint("job-", i))
	}
	w.model.Expire(w.at)
}

func measureGrowth(t testing.TB, deployments, rollouts, jobs, atOnce int) (before, rolled, worked float64) {
	w := newWorld(deployments)
	for range 20 { // until the histograms reach their full width
		w.roll(t)
	}
	before = heap()
	for range rollouts {
		w.roll(t)
	}
	rolled = heap()
	for i := 0; i < jobs; i += atOnce {
		w.runJobs(t, i, i+atOnce)
	}
	worked = heap()
	require.LessOrEqual(t, w.store.Len(), 4*deployments+1)
	runtime.KeepAlive(w)
	return before, rolled, worked
}

func TestFold_BoundsHeapAfterRolloutsAndJobs(t *testing.T) {
	before, rolled, worked := measureGrowth(t, 300, 40, 3000, 500)
	t.Logf("heap %.2f MiB, after rollouts %.2f, after Jobs %.2f", before/(1<<20), rolled/(1<<20), worked/(1<<20))
	require.Less(t, rolled, 1.1*before)
	require.Less(t, worked, 1.1*before)
}

func BenchmarkGrowth(b *testing.B) {
	b.Run("containers=10000", func(b *testing.B) {
		for range b.N {
			before, rolled, worked := measureGrowth(b, 1000, 200, 10000, 1000)
			b.ReportMetric(before/(1<<20), "MiB-before")
			b.ReportMetric(rolled/(1<<20), "MiB-after-200-rollouts")
			b.ReportMetric(worked/(1<<20), "MiB-after-10k-jobs")
		}
	})
}

// batchLabels returns pod labels of batch systems that are not known as volatile.
var batchLabels = map[string]func(run, task int) labels.Set{
	"argo": func(run, task int) labels.Set {
		return labels.Set{"team": "data", "workflows.argoproj.io/workflow": fmt.Sprint("nightly-", run), "workflows.argoproj.io/completed": "true"}
	},
	"tekton": func(run, task int) labels.Set {
		return labels.Set{
			"app.kubernetes.io/managed-by": "tekton-pipelines", "tekton.dev/pipeline": "build", "tekton.dev/pipelineRun": fmt.Sprint("build-", run),
			"tekton.dev/pipelineRunUID": fmt.Sprint("u", run), "tekton.dev/pipelineTask": fmt.Sprint("step-", task),
			"tekton.dev/taskRun": fmt.Sprint("build-", run, "-", task), "tekton.dev/taskRunUID": fmt.Sprint("t", run, "-", task),
		}
	},
	"spark": func(run, task int) labels.Set {
		return labels.Set{"spark-role": "executor", "spark-app-selector": fmt.Sprint("spark-", run), "spark-exec-id": fmt.Sprint(task)}
	},
	"spark with many executors": func(run, task int) labels.Set {
		i := 4*run + task
		return labels.Set{"spark-role": "executor", "spark-app-selector": fmt.Sprint("spark-", i/200), "spark-exec-id": fmt.Sprint(i % 200)}
	},
	"airflow": func(run, task int) labels.Set {
		return labels.Set{"dag_id": "etl", "task_id": fmt.Sprint("task-", task), "run_id": fmt.Sprint("scheduled-", run), "try_number": "1"}
	},
	"runners": func(run, task int) labels.Set {
		return labels.Set{"runner-deployment-name": "ci", "runner-name": fmt.Sprint("ci-", run, "-", task), "pod-template-hash": "7f"}
	},
}

func (w *world) runBatches(t testing.TB, of func(run, task int) labels.Set, n int) {
	const tasks, atOnce = 4, 25
	for from := 0; from < n; from += atOnce {
		w.at = w.at.Add(time.Minute)
		for i := from; i < from+atOnce; i++ {
			pod := fmt.Sprint("run-", i)
			w.model.PutPod(aPod(pod, of(i/tasks, i%tasks), "main"), w.at)
			addSamples(t, w.store, pod, "main", w.at, resources.Amount(100+i%700), resources.Amount(1e8+1e6*float64(i%900)))
		}
		for i := from; i < from+atOnce; i++ {
			w.model.RemovePod("ns", fmt.Sprint("run-", i))
		}
	}
}

func TestFold_BoundsHeapAfterBatchRuns(t *testing.T) {
	for name, of := range batchLabels {
		t.Run(name, func(t *testing.T) {
			w := newWorld(300)
			for range 20 {
				w.roll(t)
			}
			before, series := heap(), w.store.Len()
			w.runBatches(t, of, 5000)
			after := heap()
			t.Logf("heap %.2f MiB, after 5000 runs %.2f; %d series, then %d", before/(1<<20), after/(1<<20), series, w.store.Len())
			require.Less(t, after, 1.05*before)
			require.LessOrEqual(t, w.store.Len(), series+2*maxIdleSets)
			runtime.KeepAlive(w)
		})
	}
}

// The history of a VPA is the same before and after folding, and contains only pods that it
// selects.
func TestFold_KeepsHistoryPerVPA(t *testing.T) {
	selecting := func(name, selector string) Observed {
		o := newObserved(name, name, 1)
		o.Selector, _ = labels.Parse(selector)
		return o
	}
	m, store := newModel(Config{})
	list := []Observed{selecting("all", "team=data"), selecting("task", "team=data,task=task-1"), selecting("run", "run in (run-3,run-70)"), selecting("none", "team=data,!task")}
	m.SyncVPAs(list, now())
	want := map[string]*usage.Profile{}
	for _, o := range list {
		p := usage.NewProfile(usage.DefaultConfig().Shape)
		want[o.Object.Name] = &p
	}
	const runs = 100
	for i := range runs {
		set := labels.Set{"team": "data", "task": fmt.Sprint("task-", i%3), "run": fmt.Sprint("run-", i), "uid": fmt.Sprint("u", i), "host": fmt.Sprint("h", i)}
		at, pod := now().Add(time.Duration(i)*time.Minute), fmt.Sprint("p", i)
		m.PutPod(aPod(pod, set, "a"), at)
		cpu, memory := resources.Amount(50+i*37%900), resources.Amount(1e8+3e7*float64(i*7%50))
		addSamples(t, store, pod, "a", at, cpu, memory)
		for _, o := range list {
			if o.Selector.Matches(set) {
				want[o.Object.Name].AddCPU(float64(cpu)/1000, at)
				want[o.Object.Name].AddPeak(float64(memory), at.Add(day))
			}
		}
		m.RemovePod("ns", pod)
	}
	for _, o := range list {
		require.Equal(t, want[o.Object.Name].Samples(), vpaProfile(m, o.Object.Name, "a").Samples(), o.Object.Name)
		if want[o.Object.Name].Samples() > 0 {
			requireSame(t, want[o.Object.Name], vpaProfile(m, o.Object.Name, "a"))
		}
	}
	require.Equal(t, runs, store.Len(), "a VPA selects single runs")

	m.SyncVPAs(slices.DeleteFunc(list, func(o Observed) bool { return o.Object.Name == "run" }), now())
	for i := range 2 * runs { // same work, other run names
		set := labels.Set{"team": "data", "task": fmt.Sprint("task-", i%3), "run": fmt.Sprint("again-", i), "uid": fmt.Sprint("u", i), "host": fmt.Sprint("h", i)}
		at, pod := now().Add(time.Duration(runs+i)*time.Minute), fmt.Sprint("q", i)
		m.PutPod(aPod(pod, set, "a"), at)
		addSamples(t, store, pod, "a", at, 100, 1e8)
		m.RemovePod("ns", pod)
	}
	require.EqualValues(t, 3*runs, vpaProfile(m, "all", "a").Samples())
	require.EqualValues(t, runs, vpaProfile(m, "task", "a").Samples(), "the label is one that a VPA mentions")
	require.Zero(t, vpaProfile(m, "none", "a").Samples())
	require.LessOrEqual(t, store.Len(), 3+maxIdleSets)
}

func TestFold_KeepsHistoryOfRunningWorkloads(t *testing.T) {
	m, store := newModel(Config{})
	const workloads = 4 * maxIdleSets
	roll := func(generation, from int) {
		put := func(generation, i int) string { return fmt.Sprint("p", generation, "-", i) }
		for i := from; i < workloads; i++ {
			pod := put(generation, i)
			m.PutPod(aPod(pod, labels.Set{"app": fmt.Sprint("x", i), "pod-template-hash": fmt.Sprint(generation)}, "a"), now())
			addSamples(t, store, pod, "a", now().Add(time.Duration(generation)*time.Minute), 100, 1e8)
		}
		for i := range workloads {
			m.RemovePod("ns", put(generation-1, i))
		}
	}
	for generation := range 3 {
		roll(generation, 0)
	}
	require.Equal(t, 2*workloads, store.Len())
	roll(3, workloads-10) // the others end
	require.LessOrEqual(t, store.Len(), 2*10+maxIdleSets, "what they used is folded")
	roll(4, workloads-10)
	app := fmt.Sprint("x", workloads-1)
	m.SyncVPAs([]Observed{newObserved("v", app, 1)}, now())
	require.EqualValues(t, 5, vpaProfile(m, "v", "a").Samples(), "it comes after the rollouts")
}

type mentionsApp struct{}

func (mentionsApp) Contains(namespace, key string) bool { return namespace == "ns" && key == "app" }

// Deployments without pods look like finished runs, but their pods come back.
func TestFold_KeepsHistoryOfWorkloadsWithoutPods(t *testing.T) {
	m, store := newModel(Config{Keys: mentionsApp{}})
	const workloads = 4 * maxIdleSets
	for i := range workloads {
		set := labels.Set{"tier": "web", "app": fmt.Sprint("x", i), "pod-template-hash": fmt.Sprint(i), "run": fmt.Sprint(i % 3)}
		pod := fmt.Sprint("p", i)
		m.PutPod(aPod(pod, set, "a"), now())
		addSamples(t, store, pod, "a", now(), 100, 1e8)
		m.RemovePod("ns", pod)
	}
	m.SyncVPAs([]Observed{newObserved("v", "x7", 1)}, now())
	require.EqualValues(t, 1, vpaProfile(m, "v", "a").Samples())
	require.Equal(t, workloads, store.Len())
}

// A VPA with an unreadable target may select a single run.
func TestFold_WaitsForUnknownSelector(t *testing.T) {
	m, store := newModel(Config{})
	v := newObserved("v", "x", 1)
	v.Selector = labels.SelectorFromSet(labels.Set{"run": "7"})
	lost := v
	lost.Err = errors.New("forbidden")
	m.SyncVPAs([]Observed{lost}, now())
	m.SyncVPAs([]Observed{lost}, now().Add(2*Grace))
	for i := range 2 * maxIdleSets {
		pod := fmt.Sprint("p", i)
		m.PutPod(aPod(pod, labels.Set{"team": "data", "run": fmt.Sprint(i)}, "a"), now())
		addSamples(t, store, pod, "a", now(), 100, 1e8)
		m.RemovePod("ns", pod)
	}
	m.SyncVPAs([]Observed{v}, now().Add(3*Grace))
	require.EqualValues(t, 1, vpaProfile(m, "v", "a").Samples())
}

// A VPA may be created after the pods that it selects, so unused label sets stay for an hour.
func TestExpire_DropsUnusedLabelSetsAfterAnHour(t *testing.T) {
	m, store := newModel(Config{})
	troubled := newObserved("troubled", "t", 1)
	troubled.Object.Namespace, troubled.Selector, troubled.Err = "broken", nil, errors.New("forbidden")
	m.SyncVPAs([]Observed{newObserved("v", "x", 1), troubled}, now())
	put := func(namespace, name string, set labels.Set) {
		pod := aPod(name, set, "a", "b")
		pod.Namespace = namespace
		m.PutPod(pod, now())
		for _, container := range []string{"a", "b"} {
			key := usage.ContainerKey{Namespace: namespace, Pod: name, Container: container}
			require.Equal(t, usage.Accepted, store.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: now(), Amount: 1}))
		}
	}
	sets := func(namespace, prefix string) (n int) {
		for _, key := range store.All() {
			if key.Namespace == namespace && strings.HasPrefix(key.Labels, prefix) {
				n++
			}
		}
		return n
	}
	run := func(from, to int) {
		for i := from; i < to; i++ { // distinct keys prevent folding
			for _, namespace := range []string{"ns", "broken"} {
				put(namespace, "once", labels.Set{fmt.Sprint("once-", i): ""})
				m.RemovePod(namespace, "once")
			}
		}
	}
	put("ns", "selected", labels.Set{"app": "x"})
	put("ns", "rolled-1", labels.Set{"app": "z", "pod-template-hash": "1"})
	put("ns", "rolled-2", labels.Set{"app": "z", "pod-template-hash": "2"})
	put("ns", "back", labels.Set{"app": "back"})
	for _, pod := range []string{"selected", "rolled-1", "back"} {
		m.RemovePod("ns", pod)
	}
	elapse(t, m, 0)
	run(0, maxIdleSets)
	elapse(t, m, 5*time.Minute)
	run(maxIdleSets, 3*maxIdleSets)
	put("ns", "back", labels.Set{"app": "back"})
	elapse(t, m, time.Hour)
	require.Equal(t, 2*3*maxIdleSets, sets("ns", "once-"), "it is no hour yet")
	m.RemovePod("ns", "back")
	elapse(t, m, 2*time.Hour)
	require.Equal(t, 2*maxIdleSets, sets("ns", "once-"), "the latest stay")
	require.Zero(t, sets("ns", "once-0"))
	require.Equal(t, 2*3*maxIdleSets, sets("broken", "once-"), "a VPA may select them")
	for _, prefix := range []string{"app=x", "app=z,pod-template-hash=2", "app=back"} {
		require.Equal(t, 2, sets("ns", prefix), prefix)
	}
	require.Equal(t, 4, sets("ns", "app=z"), "a rollout will need it")
	require.Len(t, m.namespaces["ns"].sets, maxIdleSets+4)
	elapse(t, m, 3*time.Hour)
	require.Equal(t, 2, sets("ns", "app=back"), "it is one of the latest")
	require.Empty(t, m.namespaces["ns"].keyGroups, "none of them was used lately")
	elapse(t, m, 8*day)
	require.Equal(t, 2, sets("ns", ""), "those of the pod that runs")
}
