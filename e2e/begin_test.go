package e2e

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

// Starts scenarios that need minutes without events, before the tests that run alone (next in file
// order). They are verified in parallel with all other tests.
func TestLongScenarios_Begin(t *testing.T) {
	sequentialTest(t)
	// Each needs two sharing rounds, five minutes apart. The updater starts with a round, so that
	// only one wait remains.
	sharingScenario.begun(t)
	sharingOnFullNodeScenario.begun(t)
	restartUpdater(t)
	deferredScenario.begun(t)
	fullNodeScenario.begun(t)
	for _, l := range []*longScenario{throttledScenario, waitingScenario, harmlessScenario} {
		l.begun(t)
	}
}

// longScenario is the setup of a scenario that takes minutes. It runs once: in
// TestLongScenarios_Begin, or in its own test if that runs alone.
type longScenario struct {
	begin func(t *testing.T) (harness.Workload, []corev1.Pod)

	once   sync.Once
	w      harness.Workload
	before []corev1.Pod
	since  time.Time
}

func (l *longScenario) begun(t *testing.T) (harness.Workload, []corev1.Pod) {
	t.Helper()
	l.once.Do(func() {
		l.w, l.before = l.begin(t)
		l.since = time.Now()
	})
	return l.w, l.before
}

var (
	deferredScenario = &longScenario{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		w := newWorkload(t, "deferred", 2)
		w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, "defer")
		before := startWorkload(t, w)
		createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
		awaitSkipped(t, w.Namespace, "Deferred")
		return w, before
	}}
	fullNodeScenario = &longScenario{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		w, before := startOnFullNode(t, "node-full-told", vpav1.UpdateModeInPlace)
		awaitSkipped(t, w.Namespace, "Deferred")
		return w, before
	}}
	// sharingScenario are pods that share node headroom until their policy turns sharing off.
	sharingScenario = &longScenario{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		return startSharingPods(t, loadlinev1alpha1.SharingOn, "sharing-in-place", "280m")
	}}
	// sharingOnFullNodeScenario are sharing pods on a node that is full when sharing is turned off.
	sharingOnFullNodeScenario = &longScenario{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		return startSharingPods(t, loadlinev1alpha1.SharingOn, "sharing-off-full", "280m")
	}}
)
