package recommender

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/model"
)

// archive serves a Prometheus in which containers used 1 core and 1000 MiB until the start.
type archive struct {
	series    []usage.ContainerKey
	queries   atomic.Int32 // range queries
	lastQuery atomic.Value // the last range query
}

func newArchive(t *testing.T, series ...usage.ContainerKey) (*archive, string) {
	a := &archive{series: series}
	server := httptest.NewServer(testkit.StrictPrometheus(t, a.ServeHTTP))
	t.Cleanup(server.Close)
	return a, server.URL
}

func (a *archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.FormValue("query")
	if !strings.HasSuffix(r.URL.Path, "/query_range") {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		return
	}
	a.queries.Add(1)
	a.lastQuery.Store(query)
	value := `"1"`
	if strings.Contains(query, "memory") {
		value = `"1048576000"`
	}
	var values []string
	from, _ := strconv.ParseInt(r.FormValue("start"), 10, 64)
	till, _ := strconv.ParseInt(r.FormValue("end"), 10, 64)
	for at := from; at <= min(till, start().Unix()); at += 3600 {
		values = append(values, fmt.Sprintf("[%d,%s]", at, value))
	}
	var results []string
	for _, key := range a.series {
		if len(values) > 0 && (!strings.Contains(query, "namespace=~") || strings.Contains(query, key.Namespace)) {
			results = append(results, fmt.Sprintf(`{"metric":{"namespace":%q,"pod_name":%q,"name":%q},"values":[%s]}`,
				key.Namespace, key.Pod, key.Container, strings.Join(values, ",")))
		}
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(results, ","))
}

func (w *world) add(objects ...runtime.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.create(o)
	}
	w.syncCaches()
	w.await(objects...)
}

func (w *world) await(objects ...runtime.Object) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.iterate(1)
		for _, o := range objects {
			switch o := o.(type) {
			case *vpav1.VerticalPodAutoscaler:
				if w.loop.Model.Find(o.Namespace, o.Name) == nil {
					return false
				}
			case *corev1.Pod:
				key := usage.ContainerKey{Namespace: o.Namespace, Pod: o.Name, Container: o.Spec.Containers[0].Name}
				if _, known := w.loop.Store.SeriesOf(key); !known {
					return false
				}
			}
		}
		return true
	}, time.Minute, 5*time.Millisecond)
}

func webIn(namespace string) []runtime.Object {
	return []runtime.Object{
		inNamespace(namespace, deployment("web")), inNamespace(namespace, aVPA("web", "web", 0)), inNamespace(namespace, aPod("web-0", "web", "a")),
	}
}

func inNamespace[T metav1.Object](namespace string, o T) T {
	o.SetNamespace(namespace)
	return o
}

func (w *world) setSelector(app string) {
	w.t.Helper()
	d := deployment("web")
	d.Spec.Selector.MatchLabels["app"] = app
	_, err := w.kube.AppsV1().Deployments("ns").Update(w.t.Context(), d, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		w.iterate(1)
		v := w.loop.Model.Find("ns", "web")
		return v.Selector() == "app="+app
	}, time.Minute, 5*time.Millisecond)
}

func (w *world) samplesOf(v *model.VPA, container string) (samples int64) {
	for _, series := range v.Series(container) {
		_, _, n := w.loop.Store.Span(series)
		samples += n
	}
	return samples
}

func TestLateLoader_LoadsHistoryOfNewContainers(t *testing.T) {
	hashed := func(name string) *corev1.Pod {
		p := aPod(name, "web", "a")
		p.Labels["pod-template-hash"] = "6f5d8"
		return p
	}
	cases := []struct {
		name    string
		objects func() []runtime.Object // at start, except the VPA
		history usage.ContainerKey
		later   func(w *world, v *vpav1.VerticalPodAutoscaler)
		vpa     func(*vpav1.VerticalPodAutoscaler) // nil: the VPA exists at start
	}{
		{
			name:    "recreated under its name",
			objects: func() []runtime.Object { return []runtime.Object{deployment("web")} },
			history: containerKey("web-0", "a"),
			later:   func(w *world, _ *vpav1.VerticalPodAutoscaler) { w.add(aPod("web-0", "web", "a")) },
		},
		{
			name:    "scaled up from zero",
			objects: func() []runtime.Object { return []runtime.Object{deployment("web")} },
			history: containerKey("web-6f5d8-qq2xz", "a"),
			later:   func(w *world, _ *vpav1.VerticalPodAutoscaler) { w.add(hashed("web-6f5d8-bb7vw")) },
		},
		{
			name:    "workload after its VPA",
			objects: func() []runtime.Object { return nil },
			history: containerKey("web-6f5d8-qq2xz", "a"),
			later: func(w *world, _ *vpav1.VerticalPodAutoscaler) {
				w.add(deployment("web"))
				w.add(hashed("web-6f5d8-bb7vw"))
			},
		},
		{
			name:    "VPA after the start, workload after the VPA",
			objects: func() []runtime.Object { return nil },
			history: containerKey("web-6f5d8-qq2xz", "a"),
			later: func(w *world, v *vpav1.VerticalPodAutoscaler) {
				w.add(v)
				w.add(deployment("web"))
				w.iterate(2)
				w.add(hashed("web-6f5d8-bb7vw"))
			},
			vpa: func(*vpav1.VerticalPodAutoscaler) {},
		},
		{
			name:    "workload after the start, VPA after the workload",
			objects: func() []runtime.Object { return nil },
			history: containerKey("web-6f5d8-qq2xz", "a"),
			later: func(w *world, v *vpav1.VerticalPodAutoscaler) {
				w.add(deployment("web"))
				w.create(hashed("web-6f5d8-bb7vw"))
				w.iterate(10)
				w.add(v)
				w.await(hashed("web-6f5d8-bb7vw")) // the caches may lag
			},
			vpa: func(*vpav1.VerticalPodAutoscaler) {},
		},
		{
			name:    "namespace after the start",
			objects: func() []runtime.Object { return nil },
			history: usage.ContainerKey{Namespace: "other", Pod: "web-0", Container: "a"},
			later: func(w *world, v *vpav1.VerticalPodAutoscaler) {
				w.add(inNamespace("other", deployment("web")), v, inNamespace("other", aPod("web-0", "web", "a")))
			},
			vpa: func(v *vpav1.VerticalPodAutoscaler) { v.Namespace = "other" },
		},
		{
			name: "release brings a container back",
			objects: func() []runtime.Object {
				return []runtime.Object{deployment("web"), aPod("web-1", "web", "old")}
			},
			history: containerKey("formerly-0", "a"),
			later:   func(w *world, _ *vpav1.VerticalPodAutoscaler) { w.add(aPod("formerly-0", "web", "a")) },
		},
		{
			name: "selector changes",
			objects: func() []runtime.Object {
				return []runtime.Object{deployment("web"), aPod("web-1", "web", "old"), aPod("green-1", "green", "a")}
			},
			history: containerKey("green-1", "a"),
			later:   func(w *world, _ *vpav1.VerticalPodAutoscaler) { w.iterate(10); w.setSelector("green") },
		},
	}
	for _, tc := range cases {
		for _, name := range recipe.Names() {
			for _, saver := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/saver=%v", tc.name, name, saver), func(t *testing.T) {
					t.Parallel()
					v := aVPA("web", "web", time.Hour)
					v.Annotations = map[string]string{recipe.Annotation: name}
					w := newWorld(t, tc.objects()...)
					if tc.vpa == nil {
						w.create(v)
					} else {
						tc.vpa(v)
					}
					w.config.MemorySaver = saver
					_, address := newArchive(t, tc.history, containerKey("web-1", "old"))
					w = withPrometheus(t, w, address).start()
					w.iterate(5)
					tc.later(w, v)
					w.awaitHistory()
					tracked := w.loop.Model.Find(v.Namespace, "web")
					w.requireHistoryOnce(w.samplesOf(tracked, "a"))
					require.LessOrEqual(t, w.samplesOf(tracked, "old"), int64(193), "what was loaded at the start is not loaded again")
					if tracked.Recipe.Needs.Any() {
						covered, _ := tracked.Sketches["a"].Coverage(0)
						require.Greater(t, covered, 7*24*time.Hour)
					}
				})
			}
		}
	}
}

func TestLateLoader_DoesNotRepeatQueries(t *testing.T) {
	v := aVPA("web", "web", time.Hour)
	v.Annotations = map[string]string{recipe.Annotation: "crane"}
	w := newWorld(t, deployment("web"), v)
	a, address := newArchive(t, containerKey("another-1", "a"))
	w = withPrometheus(t, w, address).start()
	w.iterate(5)
	first := a.queries.Load()
	w.add(aPod("web-0", "web", "a"))
	w.awaitHistory()
	require.LessOrEqual(t, a.queries.Load(), 2*first+2, "one load")
	require.Greater(t, a.queries.Load(), first)
	once := a.queries.Load()
	for i := range 20 {
		p := aPod(fmt.Sprintf("web-%d-x", i+1), "web", "a")
		p.Labels["pod-template-hash"] = strconv.Itoa(i)
		w.add(p)
		require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
		w.iterate(1)
	}
	w.iterate(60)
	require.Equal(t, once, a.queries.Load())
}

func TestLateLoader_IsFairBetweenNamespaces(t *testing.T) {
	w := newWorld(t, deployment("web"))
	a, address := newArchive(t, containerKey("web-0", "a"), usage.ContainerKey{Namespace: "other", Pod: "web-0", Container: "a"})
	w = withPrometheus(t, w, address).start()
	w.iterate(1)
	first := a.queries.Load()
	create := func(i int) {
		v := aVPA(fmt.Sprintf("web-%d", i), "web", 0)
		v.UID = types.UID(v.Name)
		w.add(v, aPod(fmt.Sprintf("web-%d", i), "web", fmt.Sprintf("c%d", i)))
	}
	for i := range 60 {
		create(i)
		time.Sleep(2 * time.Millisecond)
	}
	require.LessOrEqual(t, a.queries.Load()-first, 7*(first+2), "at most seven loads in an hour")
	w.add(webIn("other")...)
	require.Eventually(t, func() bool {
		create(int(w.now.Unix()))
		v := w.loop.Model.Find("other", "web")
		_, missing := v.MissingHistory("a")
		return v.Backfill.Covered && !missing
	}, time.Minute, 5*time.Millisecond)
	w.iterate(200)
	w.awaitHistory()
}

func TestLateLoader_SplitsLargeLoads(t *testing.T) {
	for _, saver := range []bool{false, true} {
		t.Run(fmt.Sprintf("saver=%v", saver), func(t *testing.T) {
			w := newWorld(t)
			w.config.MemorySaver = saver
			large := usage.ContainerKey{Namespace: "large", Pod: "web-0", Container: "a"}
			small := usage.ContainerKey{Namespace: "small", Pod: "web-0", Container: "a"}
			a, _ := newArchive(t, large, small)
			server := httptest.NewServer(testkit.StrictPrometheus(t, func(rw http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.FormValue("query"), "large") {
					http.Error(rw, "too many samples", http.StatusUnprocessableEntity)
					return
				}
				a.ServeHTTP(rw, r)
			}))
			t.Cleanup(server.Close)
			w = withPrometheus(t, w, server.URL).start()
			w.iterate(1)
			var objects []runtime.Object
			for _, namespace := range []string{"large", "small"} {
				objects = append(objects, webIn(namespace)...)
			}
			w.add(objects...)
			require.Eventually(t, func() bool {
				w.iterate(1)
				return w.samplesOf(w.loop.Model.Find("small", "web"), "a") > 100
			}, time.Minute, 5*time.Millisecond)
			require.True(t, w.loop.Model.Find("large", "web").Backfill.Pending())
		})
	}
}

// The errors of the failing namespace do not depend on the query size.
func TestLateLoader_SplitsFailingLoads(t *testing.T) {
	a := &archive{series: []usage.ContainerKey{{Namespace: "broken", Pod: "web-0", Container: "a"}, {Namespace: "sound", Pod: "web-0", Container: "a"}}}
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "close")
		if strings.Contains(r.FormValue("query"), "broken") {
			http.Error(rw, "boom", http.StatusInternalServerError)
			return
		}
		a.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	synctest.Test(t, func(t *testing.T) {
		w := withPrometheus(t, newWorld(t), server.URL).start()
		w.iterate(1)
		for _, o := range append(webIn("broken"), webIn("sound")...) {
			w.create(o)
		}
		synctest.Wait() // one load covers both namespaces
		require.Eventually(t, func() bool {
			w.iterate(1)
			v := w.loop.Model.Find("sound", "web")
			return v != nil && w.samplesOf(v, "a") > 100
		}, 10*time.Minute, time.Second)
		require.True(t, w.loop.Model.Find("broken", "web").Backfill.Pending())
		w.stop()
		w.stop = nil
	})
}

// requireHistoryOnce requires that each hour of eight days counts once. A later load covers fewer
// hours.
func (w *world) requireHistoryOnce(samples int64) {
	w.t.Helper()
	later := int64(w.now.Sub(start()) / time.Hour)
	require.LessOrEqual(w.t, samples, int64(195), "no sample counts twice")
	require.GreaterOrEqual(w.t, samples, 191-later)
}

func (w *world) sampleCount() (samples int64) {
	if v := w.loop.Model.Find("ns", "web"); v != nil {
		samples = w.samplesOf(v, "a")
	}
	return samples
}

func TestLateLoader_HoldsTargetsUntilHistoryIsLoaded(t *testing.T) {
	cases := []struct {
		name       string
		away, back func(w *world)
	}{
		{name: "nothing is away", away: func(*world) {}, back: func(*world) {}},
		{
			name: "target",
			away: func(w *world) {
				require.NoError(w.t, w.kube.AppsV1().Deployments("ns").Delete(w.t.Context(), "web", metav1.DeleteOptions{}))
				require.Eventually(w.t, func() bool { w.iterate(1); return w.loop.Model.Find("ns", "web").TargetError != nil }, time.Minute, 5*time.Millisecond)
			},
			back: func(w *world) { w.create(deployment("web")) },
		},
		{
			name: "VPA",
			away: func(w *world) {
				require.NoError(w.t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(w.t.Context(), "web", metav1.DeleteOptions{}))
				require.Eventually(w.t, func() bool { w.iterate(1); return w.loop.Model.Find("ns", "web") == nil }, time.Minute, 5*time.Millisecond)
			},
			back: func(w *world) { w.create(publishedWeb()) },
		},
	}
	for _, tc := range cases {
		for _, saver := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/saver=%v", tc.name, saver), func(t *testing.T) {
				t.Parallel()
				a, _ := newArchive(t, containerKey("web-0", "a"))
				var block atomic.Bool
				arrived, release := make(chan struct{}, 10), make(chan struct{})
				server := httptest.NewServer(testkit.StrictPrometheus(t, func(rw http.ResponseWriter, r *http.Request) {
					if block.Load() && !strings.HasSuffix(r.URL.Path, "/query_range") {
						arrived <- struct{}{}
						<-release
					}
					a.ServeHTTP(rw, r)
				}))
				t.Cleanup(server.Close)
				w := newWorld(t, deployment("web"))
				w.config.MemorySaver = saver
				w = withPrometheus(t, w, server.URL).start()
				w.create(aPod("web-0", "web", "a"))
				w.setUsage("web-0", "a", 100, 100)
				w.iterate(10)
				block.Store(true)
				w.add(publishedWeb())
				require.Eventually(t, func() bool { w.iterate(1); return len(arrived) > 0 }, 20*time.Second, 5*time.Millisecond, "a late load")
				tc.away(w)
				block.Store(false)
				queries := a.queries.Load()
				close(release)
				require.Eventually(t, func() bool { w.iterate(1); return a.queries.Load() > queries }, 20*time.Second, 20*time.Millisecond)
				time.Sleep(100 * time.Millisecond)
				w.iterate(1)
				tc.back(w)
				w.syncCaches()
				require.Eventually(t, func() bool {
					w.iterate(1)
					target := w.recommendations("web")[0].Target
					assert.GreaterOrEqual(t, target.Cpu().MilliValue(), int64(1100))
					assert.Greater(t, target.Memory().Value(), int64(1000<<20))
					return w.sampleCount() > 193
				}, 20*time.Second, 5*time.Millisecond)
				w.iterate(5)
				passes := int64(w.now.Sub(start()) / time.Minute) // one live sample each
				require.LessOrEqual(t, w.sampleCount(), 195+passes, "no sample counts twice")
				require.False(t, w.loop.Model.Find("ns", "web").Backfill.Pending())
				require.GreaterOrEqual(t, w.recommendations("web")[0].Target.Cpu().MilliValue(), int64(1100))
			})
		}
	}
}

func TestLateLoader_HoldsTargetsUntilPodsAppear(t *testing.T) {
	cases := []struct {
		name   string
		atOnce []runtime.Object // at start
		later  func(w *world)   // before the pod
	}{
		{name: "VPA before its pod", later: func(w *world) { w.add(publishedWeb()) }},
		{name: "scaled to zero at the start", atOnce: []runtime.Object{publishedWeb()}, later: func(*world) {}},
		{
			name:   "another container first",
			atOnce: []runtime.Object{aPod("web-1", "web", "old")},
			later:  func(w *world) { w.add(publishedWeb()) },
		},
		{
			name:   "VPA recreated",
			atOnce: []runtime.Object{aVPA("web", "web", time.Hour)},
			later: func(w *world) {
				require.NoError(w.t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(w.t.Context(), "web", metav1.DeleteOptions{}))
				require.Eventually(w.t, func() bool { w.iterate(1); return w.loop.Model.Find("ns", "web") == nil }, time.Minute, 5*time.Millisecond)
				v := publishedWeb()
				v.UID = "another"
				w.add(v)
			},
		},
	}
	for _, tc := range cases {
		for _, name := range recipe.Names() {
			for _, saver := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/saver=%v", tc.name, name, saver), func(t *testing.T) {
					t.Parallel()
					a, _ := newArchive(t, containerKey("web-0", "a"))
					blocked, release := context.WithCancel(t.Context())
					var late atomic.Bool
					server := httptest.NewServer(testkit.StrictPrometheus(t, func(rw http.ResponseWriter, r *http.Request) {
						if late.Load() {
							<-blocked.Done()
						}
						a.ServeHTTP(rw, r)
					}))
					t.Cleanup(server.Close)
					t.Cleanup(release) // lets the server close after a failure
					w := newWorld(t, append(objects(tc.atOnce), deployment("web"))...)
					w.config.MemorySaver, w.config.Recipe = saver, name
					w = withPrometheus(t, w, server.URL).start()
					w.iterate(2)
					late.Store(true)
					tc.later(w)
					for range 5 {
						w.iterate(1)
						w.requireHeld()
					}
					w.create(aPod("web-0", "web", "a"))
					w.setUsage("web-0", "a", 100, 100)
					require.Eventually(t, func() bool {
						w.iterate(1)
						w.requireHeld()
						return w.sampleCount() > 3
					}, 20*time.Second, 5*time.Millisecond)
					release()
					require.Eventually(t, func() bool { w.iterate(1); return w.sampleCount() > 180 }, 20*time.Second, 5*time.Millisecond)
				})
			}
		}
	}
}

func objects(list []runtime.Object) (copies []runtime.Object) {
	for _, o := range list {
		copies = append(copies, o.DeepCopyObject())
	}
	return copies
}

func (w *world) requireHeld() {
	w.t.Helper()
	for _, c := range w.recommendations("web") {
		if c.ContainerName == "a" {
			require.GreaterOrEqual(w.t, c.Target.Cpu().MilliValue(), int64(1100))
			require.Greater(w.t, c.Target.Memory().Value(), int64(1000<<20))
			return
		}
	}
	require.Fail(w.t, "the recommendation is withdrawn")
}

func publishedWeb() *vpav1.VerticalPodAutoscaler {
	v := aVPA("web", "web", time.Hour)
	v.Status = *publishedStatus("a", "1200m", "1200Mi")
	return v
}

func TestLateLoader_LoadsHistoryOnceAfterFailure(t *testing.T) {
	a := &archive{series: []usage.ContainerKey{containerKey("web-0", "a")}}
	var fail atomic.Int32
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "close")
		if strings.Contains(r.FormValue("query"), "memory") && fail.Add(-1) >= 0 {
			http.Error(rw, "boom", http.StatusInternalServerError)
			return
		}
		a.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	synctest.Test(t, func(t *testing.T) {
		w := withPrometheus(t, newWorld(t, deployment("web"), aVPA("web", "web", time.Hour)), server.URL).start()
		w.iterate(5)
		fail.Store(1)
		queries := a.queries.Load()
		w.add(aPod("web-0", "web", "a"))
		require.Eventually(t, func() bool { w.iterate(1); return a.queries.Load() > queries+4 && fail.Load() < 0 }, 20*time.Second, 10*time.Millisecond)
		time.Sleep(time.Second)
		w.iterate(1)
		require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool { w.iterate(1); return w.loop.Model.Find("ns", "web") == nil }, 20*time.Second, 10*time.Millisecond)
		time.Sleep(2 * time.Minute) // retry interval
		w.iterate(2)
		again := aVPA("web", "web", time.Hour)
		again.UID = "again"
		w.create(again)
		require.Eventually(t, func() bool { w.iterate(1); return w.loop.Model.Find("ns", "web") != nil }, 20*time.Second, 10*time.Millisecond)
		w.awaitHistory()
		w.requireHistoryOnce(w.sampleCount())
		w.stop()
		w.stop = nil
	})
}
