package recommend

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

type cpuLimits func(usage.ContainerKey) resources.Amount

func (f cpuLimits) Limit(c usage.ContainerKey) resources.Amount { return f(c) }

// newSketchKeeper returns a keeper with one VPA and one pod with containers a and b.
func newSketchKeeper(t testing.TB, text string) *SketchKeeper {
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	cluster := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
	cluster.PutPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
	}, now())
	k := &SketchKeeper{Book: book, Model: cluster, Limits: cpuLimits(func(usage.ContainerKey) resources.Amount { return 0 }),
		Pods: podWith("100m", "200Mi")}
	k.syncVPA(text, "d")
	return k
}

func (k *SketchKeeper) syncVPA(text, target string) *model.VPA {
	k.Model.SyncVPAs([]model.Observed{{Selector: labels.Everything(), Object: &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", Annotations: map[string]string{recipe.Annotation: text}},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: target}},
	}}}, now())
	k.Follow(klog.Background(), now())
	return k.Model.Find("ns", "v")
}

func sample(k resources.Kind, minute int, a resources.Amount) usage.Sample {
	return usage.Sample{Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}, Kind: k, At: now().Add(time.Duration(minute) * time.Minute), Amount: a}
}

func TestSketchKeeper_ReferenceRecipeCostsNothing(t *testing.T) {
	k := newSketchKeeper(t, "")
	k.Limits = cpuLimits(func(usage.ContainerKey) resources.Amount { t.Error("nobody wants to know"); return 0 })
	require.Zero(t, testing.AllocsPerRun(100, func() {
		k.Observe(sample(resources.CPU, 1, 100), 1)
		k.ObserveKill(usage.OOM{Container: sample(resources.CPU, 0, 0).Container, Memory: 5})
	}))
	require.Nil(t, k.Model.Find("ns", "v").Sketches)
}

func TestSketchKeeper_CensorsUsageAtLimit(t *testing.T) {
	k := newSketchKeeper(t, "loadline")
	k.Limits = cpuLimits(func(c usage.ContainerKey) resources.Amount {
		require.Equal(t, "a", c.Container)
		return 1000
	})
	for m := range 100 {
		k.Observe(sample(resources.CPU, m, 990), 1)
	}
	a := k.Model.Find("ns", "v").Sketches["a"]
	require.InEpsilon(t, 2000, a.Load[resources.CPU].Level(0, a.Now), 0.05)
}

// A burst is a sample of history that covers five minutes, or a few minutes of live samples.
func TestSketchKeeper_IgnoresSingleBurst(t *testing.T) {
	for _, tc := range []struct {
		name            string
		minutes, weight int // step length and sample weight
		counts          bool
	}{
		{name: "history in steps of one hour", minutes: 60, weight: 15, counts: true},
		{name: "history in steps of five minutes", minutes: 5, weight: 5},
		{name: "live samples", minutes: 1, weight: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newSketchKeeper(t, "loadline")
			for m := 0; m < 48*60; m += tc.minutes {
				use := resources.Amount(60)
				if m == 24*60 {
					use = 5000
				}
				k.Observe(sample(resources.CPU, m, use), tc.weight)
			}
			v := k.Model.Find("ns", "v")
			target := v.Recipe.Recommend(recipe.Input{Sketch: v.Sketches["a"], Containers: 1}).Bounds.Target.Value(resources.CPU)
			require.Equal(t, tc.counts, target > 5000, "target %d", target)
		})
	}
}

func TestSketchKeeper_CountsCPUWaiting(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		want   float64
	}{
		{name: "CruiseKube", recipe: "cruisekube", want: 600},
		{name: "loadline", recipe: "loadline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newSketchKeeper(t, tc.recipe)
			s := sample(resources.CPU, 0, 500)
			s.Pressure = 0.2
			k.Observe(s, 1)
			pressed := k.Model.Find("ns", "v").Sketches["a"].PressureHours
			if tc.want == 0 {
				require.Nil(t, pressed)
				return
			}
			require.InEpsilon(t, tc.want, pressed.Peak(), 0.002)
		})
	}
}

func TestSketchKeeper_AbsorbsHistory(t *testing.T) {
	live := newSketchKeeper(t, "loadline")
	past := live.Fork(newSketchKeeper(t, "loadline:memory=safe").Model, live.Limits)
	past.Follow(klog.Background(), now())
	past.Observe(sample(resources.Memory, -3*24*60, 900<<20), 15)
	live.Observe(sample(resources.Memory, 0, 100<<20), 1)
	live.Absorb(past.Model)
	tr := live.Model.Find("ns", "v").Sketches["a"]
	require.InEpsilonSlice(t, []float64{100 << 20, 900 << 20}, tr.Peaks.Daily(), 0.002)
	require.InEpsilon(t, 900.0/((15*900+100)/16.0)-1, tr.Peaks.ExcessOverMean(), 0.01, "it counts as fifteen")
	covered, _ := tr.Coverage(resources.Memory)
	require.Equal(t, 3*24*time.Hour, covered)

	// A retargeted VPA does not take the history.
	elsewhere := newSketchKeeper(t, "loadline")
	elsewhere.syncVPA("loadline", "other")
	elsewhere.Absorb(past.Model)
	require.Nil(t, elsewhere.Model.Find("ns", "v").Sketches)
	none := newSketchKeeper(t, "")
	none.Absorb(past.Model)
	require.Nil(t, none.Model.Find("ns", "v").Sketches)
}

func TestUpdateLimits_OnlyIfRecipeNeedsLimit(t *testing.T) {
	k := newSketchKeeper(t, "loadline")
	k.Observe(sample(resources.Memory, 0, 100<<20), 1)
	v := k.Model.Find("ns", "v")
	before := v.Revision()
	k.UpdateLimits()
	require.Equal(t, sketch.NoLimitRatio, v.Sketches["a"].LimitRatio)
	require.InEpsilon(t, 200<<20, v.Sketches["a"].Declared(), 0.0011)
	require.NotEqual(t, before, v.Revision(), "the recommendation is another")
	before = v.Revision()
	require.Zero(t, testing.AllocsPerRun(10, k.UpdateLimits))
	require.Equal(t, before, v.Revision())
	v = k.syncVPA("loadline:memory=safe", "d")
	k.UpdateLimits()
	require.Equal(t, sketch.UnknownRatio, v.Sketches["a"].LimitRatio)
	v = k.syncVPA("loadline", "d")
	k.UpdateLimits()
	require.Equal(t, sketch.NoLimitRatio, v.Sketches["a"].LimitRatio)
}

func TestRestore_RejectsCorruptSketches(t *testing.T) {
	k := newSketchKeeper(t, "loadline")
	v := k.Model.Find("ns", "v")
	whole := sketch.New(v.Recipe.Needs)
	whole.Observe(now(), resources.CPU, 100, 0)
	err := k.Restore(v, map[string][]byte{"a": whole.Image(), "b": {4, 200, 1}}, now(), time.Hour)
	require.ErrorContains(t, err, "restore the sketch of container b for recipe loadline: truncated or corrupt image")
	require.Equal(t, whole.Image(), v.Sketches["a"].Image())
	require.NotContains(t, v.Sketches, "b")
	err = k.Restore(v, map[string][]byte{"a": whole.Image()}, now().Add(-2*time.Hour), time.Hour)
	require.ErrorIs(t, err, sketch.ErrFuture)
}

func TestExpire_DropsSketchesOfRemovedContainers(t *testing.T) {
	k := newSketchKeeper(t, "loadline")
	k.Observe(sample(resources.CPU, 0, 100), 1)
	v := k.Model.Find("ns", "v")
	v.Sketches["gone"] = sketch.New(v.Recipe.Needs)
	k.Expire(now())
	require.Contains(t, v.Sketches, "a")
	require.NotContains(t, v.Sketches, "gone")
}

// Pods of an unreadable target are unknown, not deleted.
func TestExpire_KeepsSketchesDuringTargetError(t *testing.T) {
	k := newSketchKeeper(t, "loadline")
	k.Observe(sample(resources.CPU, 0, 100), 1)
	v := k.Model.Find("ns", "v")
	unreadable := model.Observed{Object: v.Object, Err: errors.New("no answer")}
	k.Model.SyncVPAs([]model.Observed{unreadable}, now())
	k.Model.SyncVPAs([]model.Observed{unreadable}, now().Add(model.Grace))
	require.Empty(t, v.Series("a"))
	k.Expire(now().Add(time.Hour))
	require.Contains(t, v.Sketches, "a")
	k.Expire(now().Add(8 * 24 * time.Hour))
	require.Empty(t, v.Sketches, "it is as old as histories become")
}

// BenchmarkObserve includes the lookup for VPAs with a recipe without sketches.
func BenchmarkObserve(b *testing.B) {
	for name, text := range map[string]string{"vpa": "vpa", "loadline": "loadline", "autopilot": "autopilot:models=ensemble"} {
		b.Run(name, func(b *testing.B) {
			k := newSketchKeeper(b, text)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k.Observe(sample(resources.Kind(i%2), i, resources.Amount(100+i*7919%1000)), 1)
			}
		})
	}
}

func (k *SketchKeeper) setContainerStart(at time.Time) {
	k.Pods = podWith("100m", "200Mi")
	pod, _ := k.Pods.Pods("ns").Get("p")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}}
}

// CPU usage in the minutes after a container start is not steady demand.
func TestObserve_IgnoresCPUDuringStart(t *testing.T) {
	boost := &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Factor: new(int32(2)), DurationSeconds: new(int32(300))}}
	for _, tc := range []struct {
		name   string
		recipe string
		boost  *vpav1.StartupBoost
		spared int // ignored minutes of each start
	}{
		{name: "loadline", recipe: "loadline", spared: 3},
		{name: "tracking", recipe: "loadline:cpu=tracking", spared: 3},
		{name: "no start minutes", recipe: "loadline:start-minutes=0", spared: 0},
		{name: "five start minutes", recipe: "loadline:start-minutes=5", spared: 5},
		{name: "startup boost", recipe: "loadline", boost: boost, spared: 8},
		{name: "startup boost with autopilot", recipe: "autopilot", boost: boost, spared: 0},
		{name: "crane", recipe: "crane", spared: 0},
		{name: "shared CPU", recipe: "loadline:cpu=shared", spared: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, plain := newSketchKeeper(t, tc.recipe), newSketchKeeper(t, tc.recipe)
			k.Model.Find("ns", "v").Object.Spec.StartupBoost = tc.boost
			for m := range 600 {
				if m%60 == 0 {
					k.setContainerStart(sample(resources.CPU, m, 0).At)
				}
				use := resources.Amount(100)
				if m%60 < 8 {
					use = resources.Amount(2800 - 100*(m%60))
				}
				if m < 60 {
					use = 100
				}
				used := sample(resources.CPU, m, use)
				used.Pressure = 0.1
				k.Observe(used, 1)
				k.Observe(sample(resources.Memory, m, 100<<20), 1)
				if m < 60 && m >= tc.spared || m%60 >= tc.spared {
					plain.Observe(used, 1)
				}
				plain.Observe(sample(resources.Memory, m, 100<<20), 1)
			}
			require.Equal(t, plain.Model.Find("ns", "v").Sketches["a"].Image(), k.Model.Find("ns", "v").Sketches["a"].Image())
		})
	}
}

func TestObserve_CountsCPUOfUncachedPod(t *testing.T) {
	k := newSketchKeeper(t, "loadline")
	k.setContainerStart(now())
	gone := sample(resources.CPU, 1, 2000)
	gone.Container.Pod = "gone" // in the model, but not in the cache
	k.Model.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}, now())
	k.Observe(sample(resources.CPU, 5, 100), 1)
	before := k.Model.Find("ns", "v").Sketches["a"].Image()
	k.Observe(sample(resources.CPU, 1, 2000), 1)
	require.Equal(t, before, k.Model.Find("ns", "v").Sketches["a"].Image())
	k.Observe(gone, 1)
	require.NotEqual(t, before, k.Model.Find("ns", "v").Sketches["a"].Image())
}

// A container with too little CPU may restart before its start is over. Its starts are the only
// usage, so they must count.
func TestObserve_CountsStartsThatLackCPU(t *testing.T) {
	for _, tc := range []struct {
		name      string
		restarts  int32
		use       resources.Amount
		throttled float64
		rises     bool
	}{
		{name: "usage at the limit", restarts: 1, use: 200, throttled: 0, rises: true},
		{name: "throttled", restarts: 1, use: 120, throttled: 0.3, rises: true},
		{name: "start of a new pod", restarts: 0, use: 200, throttled: 0},
		{name: "usage below the limit", restarts: 1, use: 150, throttled: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newSketchKeeper(t, "loadline")
			k.Limits = cpuLimits(func(usage.ContainerKey) resources.Amount { return 200 })
			v := k.Model.Find("ns", "v")
			k.setContainerStart(now())
			for m := range 24 * 60 {
				k.Observe(sample(resources.CPU, m, 50), 1)
			}
			before := v.Sketches["a"].Load[resources.CPU].Level(0, v.Sketches["a"].Now)
			for m := 24 * 60; m < 26*60; m++ {
				if m%2 == 0 {
					k.setContainerStart(sample(resources.CPU, m, 0).At)
					pod, _ := k.Pods.Pods("ns").Get("p")
					pod.Status.ContainerStatuses[0].RestartCount = tc.restarts
				}
				s := sample(resources.CPU, m, tc.use)
				s.Throttled = tc.throttled
				k.Observe(s, 1)
			}
			after := v.Sketches["a"].Load[resources.CPU].Level(0, v.Sketches["a"].Now)
			require.Equal(t, tc.rises, after > 1.5*before, "%g, was %g", after, before)
		})
	}
}
