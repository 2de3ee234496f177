package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// withTarget sets the target, generation and observed generation of a VPA.
func withTarget(vpa *vpav1.VerticalPodAutoscaler, target string, generation, seen int64) *vpav1.VerticalPodAutoscaler {
	vpa.Spec.TargetRef.Name, vpa.Generation, vpa.Status.ObservedGeneration = target, generation, seen
	return vpa
}

func (w *world) observe(vpa *vpav1.VerticalPodAutoscaler) {
	w.t.Helper()
	lister := w.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister()
	before, err := lister.VerticalPodAutoscalers("shop").Get(vpa.Name)
	require.NoError(w.t, err)
	_, err = w.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Update(w.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		now, err := lister.VerticalPodAutoscalers("shop").Get(vpa.Name)
		return err == nil && now != before
	}, time.Minute, time.Millisecond)
}

// Otherwise its pods would get the recommendation of another workload.
func TestStatusOutdated_WaitsForRecommender(t *testing.T) {
	const mode = vpav1.UpdateModeInPlaceOrRecreate
	w := newWorld(t, Default(), append(deployment(2, nil), withTarget(autoscaler(mode), "other", 1, 1))...)
	w.observe(withTarget(autoscaler(mode), "web", 2, 1))
	w.runOnce(noon)
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.Empty(t, w.writes())
	require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "StatusOutdated"))
	w.observe(withTarget(autoscaler(mode), "web", 2, 2))
	w.runOnce(noon)
	require.NotEmpty(t, w.writes())
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "StatusOutdated"))
}

func TestStatusOutdated_OtherVPAChangesApplyAtOnce(t *testing.T) {
	const mode = vpav1.UpdateModeInPlaceOrRecreate
	w := newWorld(t, Default(), append(deployment(2, nil), withTarget(autoscaler(mode), "web", 1, 1))...)
	capped := withTarget(autoscaler(mode), "web", 2, 1)
	capped.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "app", MaxAllowed: list("170m", "170Mi")}}}
	w.observe(capped)
	w.runOnce(noon)
	require.Equal(t, "170m", w.cpu("web-1-0"))

	w = newWorld(t, Default(), append(deployment(2, nil), withTarget(autoscaler(mode), "web", 1, 1))...)
	w.observe(withTarget(autoscaler(vpav1.UpdateModeOff), "web", 2, 1))
	w.runOnce(noon)
	require.Empty(t, w.writes())
}

// A new process does not know the previous target.
func TestStatusOutdated_RequiresObservedGenerationAfterStart(t *testing.T) {
	for _, tc := range []struct {
		name             string
		generation, seen int64
		acts             bool
	}{
		{name: "status behind the spec", generation: 3, seen: 2, acts: false},
		{name: "current status", generation: 3, seen: 3, acts: true},
		{name: "recommender without observed generation", generation: 3, seen: 0, acts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := withTarget(autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "web", tc.generation, tc.seen)
			w := newWorld(t, Default(), append(deployment(2, nil), vpa)...)
			w.runOnce(noon)
			require.Equal(t, tc.acts, len(w.writes()) > 0)
		})
	}
}

// A pod evicted while its replacement has no recommendation must not count as a change without
// effect.
func TestStatusOutdated_NewPodsCauseNoBackoff(t *testing.T) {
	const mode = vpav1.UpdateModeRecreate
	w := newWorld(t, Default(), append(deployment(2, nil), withTarget(autoscaler(mode), "web", 1, 1))...)
	w.afterEach = func(minute int) {
		if minute == 0 {
			w.observe(withTarget(autoscaler(mode), "other", 2, 1))
			w.observe(withTarget(autoscaler(mode), "web", 3, 1))
		}
	}
	require.Equal(t, 1, w.runForAnHour(func(*corev1.Pod) {}))
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "BackingOff"))
	require.Empty(t, w.pod("new-1").Annotations[convert.BackoffAnnotation])
}
