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

// Promises about what lasts take minutes in which nothing happens. They begin before the
// tests that run alone, which come next in the order of files, and are looked at
// beside all the others.
func TestLongPromisesBegin(t *testing.T) {
	inTurn(t)
	// Rounds of sharing are five minutes apart, and each of these waits for two: with the first at the
	// start of an updater there is one left to wait for.
	sharedInPlace.begun(t)
	sharedUntilFull.begun(t)
	startUpdaterAnew(t)
	deferred.begun(t)
	fullForLong.begun(t)
	for _, l := range []*long{throttledForLong, waitingForLong, fineForLong} {
		l.begun(t)
	}
}

// long is the beginning of a promise that takes minutes, done once: here, or by its
// own test when that runs without the others.
type long struct {
	begin func(t *testing.T) (harness.Workload, []corev1.Pod)

	once   sync.Once
	w      harness.Workload
	before []corev1.Pod
	since  time.Time
}

func (l *long) begun(t *testing.T) (harness.Workload, []corev1.Pod) {
	t.Helper()
	l.once.Do(func() {
		l.w, l.before = l.begin(t)
		l.since = time.Now()
	})
	return l.w, l.before
}

var (
	// deferred is a workload whose node defers each resize.
	deferred = &long{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		w := plain(t, "deferred", 2)
		w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, "defer")
		before := running(t, w)
		advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
		awaitLeftAlone(t, w.Namespace, "Deferred")
		return w, before
	}}
	// fullForLong is a workload on a full node.
	fullForLong = &long{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		w, before := crowded(t, "node-full-told", vpav1.UpdateModeInPlace)
		awaitLeftAlone(t, w.Namespace, "Deferred")
		return w, before
	}}
	// sharedInPlace are pods that share a node until their policy says otherwise.
	sharedInPlace = &long{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		return sharers(t, loadlinev1alpha1.SharingOn, "sharing-in-place", "280m")
	}}
	// sharedUntilFull are pods that share a node which is full when they share no more.
	sharedUntilFull = &long{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		return sharers(t, loadlinev1alpha1.SharingOn, "sharing-off-full", "280m")
	}}
)
