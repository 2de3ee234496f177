package e2e

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

func requireSameSizes(t *testing.T, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	after := pods(t, w)
	require.Len(t, after, len(before))
	for i := range after {
		require.Equal(t, before[i].UID, after[i].UID, "a pod was replaced")
		require.Equal(t, before[i].Spec.Containers[0].Resources, after[i].Spec.Containers[0].Resources)
	}
}

// Deletes a policy during a rollout and then the definitions. Neither the running updater, nor a
// restarted one, nor upstream's may change pods of the generated VPA. All of them must still act on
// user VPAs.
func TestGeneratedVPA_ChangesNoPodWithoutCRDs(t *testing.T) {
	exclusiveTest(t, processFirst)
	binary := filepath.Join(cluster.Root, "bin", "reference", "updater")
	require.NoError(t, harness.BuildReferenceUpdater(t.Context(), binary))
	reference, err := cluster.Foreign(t.Context(), binary, "reference-updater", "--updater-interval=2s")
	require.NoError(t, err)
	defer func() {
		require.NoError(t, cluster.Kubectl(t.Context(), "delete", "clusterrolebinding", "vpa-reference-updater"))
	}()
	w, person, other := newWorkload(t, "unmoved", 4), newWorkload(t, "unmoved-person", 2), newWorkload(t, "unmoved-reference", 2)
	startWorkload(t, w)
	startWorkload(t, person)
	evicted := startWorkload(t, other)
	require.NoError(t, cluster.CreateVPA(t.Context(), person, vpav1.UpdateModeInPlaceOrRecreate, withRecommender("nobody")))
	require.NoError(t, cluster.CreateVPA(t.Context(), other, vpav1.UpdateModeRecreate, withRecommender("nobody")))
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation)
	made := w
	made.Name = "deployment-web"
	awaitGeneratedVPA(t, w.Namespace, made.Name)
	awaitRecommendation(t, made)
	var since time.Time
	eventually(t, "a change is under observation", func() error {
		for _, at := range notes(t, w) {
			since = at
			return nil
		}
		return errors.New("none is")
	})

	definitions := []string{filepath.Join(cluster.Root, "deploy", "crds", "loadline.dev_sizingpolicies.yaml"), filepath.Join(cluster.Root, "deploy", "crds", "loadline.dev_sizingrecords.yaml")}
	for _, file := range definitions {
		defer func() { require.NoError(t, cluster.Kubectl(t.Context(), "apply", "-f", file)) }()
		require.NoError(t, cluster.Kubectl(t.Context(), "delete", "-f", file))
	}
	awaitSkipped(t, w.Namespace, "PolicyUnknown")
	before := pods(t, w)
	unmoved := func() { requireSameSizes(t, w, before) }
	require.NotEmpty(t, podsWithCPU(t, w, "100m"), "pods that the policy would still let be changed")
	setTarget(t, person, larger)
	awaitSized(t, person, "300m")
	forIterations(t, updater, 10, unmoved)

	updater.Kill()
	require.NoError(t, updater.Start(t.Context()))
	setTarget(t, person, resourceList("400m", "300Mi"))
	awaitSized(t, person, "400m")
	forIterations(t, updater, 10, unmoved)

	updater.Stop()
	defer func() { require.NoError(t, updater.Start(t.Context())) }()
	defer reference.Stop()
	startUpstream(t, reference)
	setTarget(t, other, larger)
	awaitReplaced(t, longestWait, other, evicted)
	forIterations(t, reference, 10, unmoved)
	require.Greater(t, time.Since(since), 2*time.Minute, "past the end of the observation")
}

func startUpstream(t *testing.T, d *harness.Daemon) {
	t.Helper()
	startUpstreamUntil(t, d, "a pass of the reference", hasIterated(t, d))
}

// startUpstreamUntil starts an upstream program, again if it exits early: it registers types while
// its watches already use them, which sometimes crashes it at startup.
func startUpstreamUntil(t *testing.T, d *harness.Daemon, what string, works func() error) {
	t.Helper()
	eventually(t, what, func() error {
		if !d.Running() {
			if err := d.Start(t.Context()); err != nil {
				return err
			}
		}
		return works()
	})
}

func hasIterated(t *testing.T, d *harness.Daemon) func() error {
	return func() error {
		metrics, err := d.Metrics(t.Context())
		if err == nil && metrics[iterationMetric(d)] == 0 {
			err = errors.New("it has made none")
		}
		return err
	}
}
