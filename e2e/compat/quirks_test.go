package compat

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"

	"loadline.dev/loadline/pkg/core/usage"
)

const mebibyte = 1 << 20

func defaults() options {
	const day = 24 * time.Hour
	return options{
		aggregation: *model.NewAggregationsConfig(day, 8, day, day, 1.2, 100*mebibyte),
		estimate: logic.RecommendationConfig{
			SafetyMarginFraction: 0.15, PodMinCPUMillicores: 25, PodMinMemoryMb: 250,
			TargetCPUPercentile: 0.9, LowerBoundCPUPercentile: 0.5, UpperBoundCPUPercentile: 0.95, ConfidenceIntervalCPU: day,
			TargetMemoryPercentile: 0.9, LowerBoundMemoryPercentile: 0.5, UpperBoundMemoryPercentile: 0.95, ConfidenceIntervalMemory: day,
		},
		format: logic.RecommendationFormat{RoundCPUMillicores: 1, RoundMemoryBytes: 1},
	}
}

// scene is a pair with one VPA and one pod of one container. Scenes cover intentional differences
// that random histories leave out.
type scene struct {
	*pair
	t *testing.T
}

// play runs a scene with a fake clock, with the given policies as successive versions of the VPA.
func play(t *testing.T, act func(t *testing.T, s scene), policies ...upstreamv1.ContainerResourcePolicy) {
	t.Helper()
	require.NoError(t, features.MutableFeatureGate.Set("PerVPAConfig=true"))
	plan := vpaPlan{namespace: "shop", name: "web"}
	for _, p := range append(policies, upstreamv1.ContainerResourcePolicy{ContainerName: "*"}) {
		v := plan.bare()
		v.Spec.ResourcePolicy = &upstreamv1.PodResourcePolicy{ContainerPolicies: []upstreamv1.ContainerResourcePolicy{p}}
		plan.versions = append(plan.versions, v)
	}
	synctest.Test(t, func(t *testing.T) {
		s := scene{t: t, pair: newPair(t, history{options: defaults(), vpas: []vpaPlan{plan}})}
		s.do(event{kind: changes})
		s.do(event{kind: appears, pod: "web-1", labels: labels.Set{"app": "web"}, names: []string{"app"}})
		act(t, s)
	})
}

func (s scene) do(e event) {
	s.t.Helper()
	require.Empty(s.t, s.take(s.t, e))
}

// use and kill record an event of the container at the current time.
func (s scene) use(r model.ResourceName, amount int64) { s.now(uses, r, amount) }
func (s scene) kill(request int64)                     { s.now(killed, model.ResourceMemory, request) }

func (s scene) now(kind eventKind, r model.ResourceName, amount int64) {
	e := event{kind: kind, pod: "web-1", container: "app", resource: r, amount: amount, sampled: time.Since(s.begin)}
	s.theirs.take(s.t, s.begin, s.history.vpas[0], e)
	s.ours.take(s.begin, time.Now(), s.history.vpas[0], e)
}

func (s scene) targets() (upstream, loadline corev1.ResourceList) {
	s.see(s.t)
	p := s.history.vpas[0]
	if list := s.theirs.recommend(s.t, p, s.objects[0]); len(list) > 0 {
		upstream = list[0].Target
	}
	if list := s.ours.recommend(p); len(list) > 0 {
		loadline = list[0].Target
	}
	return upstream, loadline
}

func requireMiB(t *testing.T, atLeast, atMost int64, list corev1.ResourceList) {
	t.Helper()
	memory := list[corev1.ResourceMemory]
	require.GreaterOrEqual(t, memory.Value(), atLeast*mebibyte)
	require.LessOrEqual(t, memory.Value(), atMost*mebibyte)
}

// A container is measured before it uses memory. Upstream ignores the rest of the window.
func TestMemoryWindow_OpensWithZero(t *testing.T) {
	play(t, func(t *testing.T, s scene) {
		s.use(model.ResourceMemory, 0)
		time.Sleep(time.Hour)
		s.use(model.ResourceMemory, 800*mebibyte)
		s.kill(800 * mebibyte)
		upstream, loadline := s.targets()
		requireMiB(t, 250, 250, upstream) // the floor: upstream ignores both the usage and the kill
		requireMiB(t, 960, 1300, loadline)
	})
}

// A VPA drops its override. Upstream continues to apply it.
func TestOverride_Removed(t *testing.T) {
	own := upstreamv1.ContainerResourcePolicy{ContainerName: "*", OOMBumpUpRatio: new(resource.MustParse("4"))}
	play(t, func(t *testing.T, s scene) {
		s.use(model.ResourceMemory, 100*mebibyte)
		s.do(event{kind: changes, version: 1})
		s.kill(1000 * mebibyte)
		upstream, loadline := s.targets()
		requireMiB(t, 4000, 5200, upstream) // still four times
		requireMiB(t, 1200, 1600, loadline) // the flag's 1.2 times
	}, own)
}

// A container is killed before its first sample. Loadline recommends no CPU for it, and keeps the
// kill when the pod is gone.
func TestOOMKill_WithoutCPUSample(t *testing.T) {
	play(t, func(t *testing.T, s scene) {
		s.kill(1000 * mebibyte)
		upstream, loadline := s.targets()
		requireMiB(t, 1200, 1600, upstream)
		requireMiB(t, 1200, 1600, loadline)
		require.Contains(t, upstream, corev1.ResourceCPU, "the floor")
		require.NotContains(t, loadline, corev1.ResourceCPU)

		s.do(event{kind: vanishes, pod: "web-1"})
		time.Sleep(2 * time.Hour)
		s.theirs.clean(t.Context(), time.Now())
		s.ours.clean(time.Now())
		upstream, loadline = s.targets()
		require.Empty(t, upstream)
		requireMiB(t, 1200, 1600, loadline)
	})
}

// A checkpoint lacks the peak of the open window. Upstream starts over after a restart, Loadline
// resumes the window, which it stores with the histogram.
func TestMemoryWindow_OpenPeakAfterRestart(t *testing.T) {
	play(t, func(t *testing.T, s scene) {
		s.use(model.ResourceCPU, 100)
		s.use(model.ResourceMemory, 2000*mebibyte)
		time.Sleep(time.Hour)
		before, same := s.targets()
		requireMiB(t, 2000, 2600, before)
		requireMiB(t, 2000, 2600, same)

		windows := map[usage.ContainerKey]usage.Window{}
		for key, w := range s.ours.store.Windows(time.Now(), s.ours.model.Find("shop", "web").Series("app")...) {
			windows[key] = w
		}
		require.Len(t, windows, 1)
		s.do(event{kind: restarts})
		for key, w := range windows {
			require.True(t, s.ours.store.RestoreWindow(key, w))
		}
		time.Sleep(time.Minute)
		s.use(model.ResourceCPU, 100)
		s.use(model.ResourceMemory, 300*mebibyte)
		upstream, loadline := s.targets()
		requireMiB(t, 300, 500, upstream)
		require.Zero(t, loadline.Memory().Cmp(*same.Memory()))
	})
}

// Both programs read each other's checkpoints as API objects with Loadline's annotation, and
// recommend the same as the writer after a restart.
func TestCheckpoints_InterchangeableWithUpstream(t *testing.T) {
	play(t, func(t *testing.T, s scene) {
		for range 3 * 24 {
			time.Sleep(time.Hour)
			s.use(model.ResourceCPU, 100+time.Since(s.begin).Milliseconds()/3600000*7%300)
			s.use(model.ResourceMemory, (300+time.Since(s.begin).Milliseconds()/3600000*11%500)*mebibyte)
		}
		p, plans := s.history.vpas[0], s.history.vpas
		s.see(t)
		theirs, ours := s.theirs.save(t), s.ours.save(t, plans, time.Now())
		for _, c := range ours {
			c.Annotations = map[string]string{"loadline.dev/open-windows": `{"written":"` + time.Now().Format(time.RFC3339) + `","windows":{}}`}
		}
		require.Len(t, theirs, 1)
		require.Equal(t, "", s.compareCheckpoints(theirs, ours))

		var results []corev1.ResourceList
		for _, saved := range []storedCheckpoints{theirs, ours} {
			saved = *through[storedCheckpoints](t, saved)
			s.pair = newPair(t, history{options: defaults(), vpas: plans})
			s.do(event{kind: changes})
			s.theirs.load(t, p, saved)
			s.ours.load(t, p, saved)
			upstream, loadline := s.targets()
			requireMiB(t, 500, 1000, loadline)
			results = append(results, upstream, loadline)
		}
		for _, list := range results {
			require.True(t, equalLists(results[0], list), "%v", results)
		}
	})
}
