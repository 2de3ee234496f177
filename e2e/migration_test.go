package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Who replaces the three programs of the reference by ours goes on with what those left, and so does who
// goes back. Recommendations do not fall, and nothing of the history is lost. No pod is touched because
// of the move. Afterwards new pods get what is recommended, and pods that are far from it are changed, as before.
func TestMovingOverFromTheReferenceAndBack(t *testing.T) {
	if os.Getenv("LOADLINE_MIGRATION") == "" {
		t.Skip("make e2e-migration looks at it: to build the programs of the reference takes minutes, in which other promises would wait for the processors")
	}
	theirs, ours := referenceInstallation(t), ourInstallation(t)
	t.Cleanup(func() { require.NoError(t, admission.Start(context.WithoutCancel(t.Context()))) })
	t.Cleanup(theirs.stop)
	t.Cleanup(ours.stop)
	ours.stop() // its admission controller is that of all promises

	// The recommender decides about one workload, the test about two: it can move them when it likes.
	db := plain(t, movingNamespace, 2)
	db.Name, db.Annotations = "db", harness.Uses("app", "700m", "900Mi")
	web, cache := plain(t, movingNamespace, 2), plain(t, movingNamespace, 2)
	cache.Name = "cache"
	written := running(t, db)
	running(t, web)
	running(t, cache)
	theirs.begin(t)
	require.NoError(t, cluster.CreateVPA(t.Context(), db, vpav1.UpdateModeRecreate, naming("moving")))
	advise(t, web, vpav1.UpdateModeRecreate, larger)
	advise(t, cache, vpav1.UpdateModeInPlaceOrRecreate, larger)
	awaitRecommendation(t, db)
	awaitReplaced(t, longestWait, db, written)
	awaitSized(t, web, "300m")
	awaitSized(t, cache, "300m")
	newPodIsSized(t, db)

	for _, move := range []struct {
		from, to installation
		then     corev1.ResourceList // what is advised next
	}{
		{theirs, ours, pair("400m", "300Mi")},
		{ours, theirs, pair("500m", "400Mi")},
	} {
		held := awaitCheckpoint(t, db, "app", 4)
		recommended := onlyContainer(t, getVPA(t, db)).Target
		before := map[string][]corev1.Pod{}
		for _, w := range []harness.Workload{db, web, cache} {
			before[w.Name] = awaitRunning(t, w)
		}
		move.to.replace(t, move.from)
		nothingMoves := func() {
			for _, w := range []harness.Workload{db, web, cache} {
				sameSizes(t, w, before[w.Name])
				requireSamePods(t, w, before[w.Name])
			}
			after := onlyContainer(t, getVPA(t, db)).Target
			for _, kind := range kinds {
				notLess(t, recommended, after, kind, "target")
			}
		}
		forPasses(t, move.to.recommender, 2, nothingMoves)
		forPasses(t, move.to.updater, 5, nothingMoves)
		kept := awaitCheckpoint(t, db, "app", held.Status.TotalSamplesCount+1)
		require.Equal(t, held.UID, kept.UID, "the same object")
		require.Equal(t, held.Status.FirstSampleStart, kept.Status.FirstSampleStart, "the same history")

		newPodIsSized(t, db)
		for _, w := range []harness.Workload{web, cache} {
			adviseAgain(t, w, move.then)
			awaitSized(t, w, move.then.Cpu().String())
		}
		requireSamePods(t, cache, before[cache.Name]) // in place
		registeredOnce(t)
	}
}

// movingNamespace has workloads that nobody but the programs of an installation changes.
const movingNamespace = "moving"

// installation is the three programs, of the reference or ours.
type installation struct {
	recommender, updater, admission *harness.Daemon

	start func(t *testing.T, d *harness.Daemon, what string, works func() error)
}

// movingRecommender and movingUpdater are flags of both installations. A pod that lives for some seconds and is more than a tenth away from
// the recommendation is changed: by default it could stay within wide bounds for hours.
var (
	movingRecommender = []string{"--recommender-name=moving", "--recommender-interval=2s"}
	movingUpdater     = []string{"--vpa-object-namespace=" + movingNamespace, "--updater-interval=2s", "--in-recommendation-bounds-eviction-lifetime-threshold=5s"}
)

// referenceInstallation builds the programs of the reference.
func referenceInstallation(t *testing.T) (i installation) {
	t.Helper()
	dir := t.TempDir()
	built := func(name string) string {
		binary := filepath.Join(dir, name) // metrics have the name of the program
		require.NoError(t, harness.BuildReference(t.Context(), "./pkg/"+name, binary))
		t.Cleanup(func() {
			require.NoError(t, cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "clusterrolebinding", "vpa-moving-"+name))
		})
		return binary
	}
	var err error
	i.recommender, err = cluster.Foreign(t.Context(), built("recommender"), "moving-recommender", movingRecommender...)
	require.NoError(t, err)
	i.updater, err = cluster.Foreign(t.Context(), built("updater"), "moving-updater", movingUpdater...)
	require.NoError(t, err)
	i.admission, err = cluster.ReferenceAdmissionController(t.Context(), built("admission-controller"), "moving-admission-controller")
	require.NoError(t, err)
	i.start = startReferenceUntil
	return i
}

func ourInstallation(t *testing.T) installation {
	t.Helper()
	i := installation{admission: admission, start: func(t *testing.T, d *harness.Daemon, what string, works func() error) {
		t.Helper()
		require.NoError(t, d.Start(t.Context()))
		eventually(t, what, works)
	}}
	var err error
	i.recommender, err = cluster.Daemon(t.Context(), "recommender", "recommender-moving", append(movingRecommender, "--checkpoints-interval=5s")...)
	require.NoError(t, err)
	i.updater, err = cluster.Daemon(t.Context(), "updater", "updater-moving", movingUpdater...)
	require.NoError(t, err)
	return i
}

// replace puts the programs in the place of those of another installation, one after the other, in the order of docs/migrate.md.
func (i installation) replace(t *testing.T, other installation) {
	t.Helper()
	other.recommender.Stop()
	i.start(t, i.recommender, "a pass of the recommender", onePass(t, i.recommender))
	other.updater.Stop()
	i.start(t, i.updater, "a pass of the updater", onePass(t, i.updater))
	other.admission.Stop()
	i.start(t, i.admission, "the webhook answers", func() error { return webhookAnswers(t) })
}

// begin starts the programs where there are no others.
func (i installation) begin(t *testing.T) {
	t.Helper()
	i.replace(t, i)
}

func (i installation) stop() {
	for _, d := range []*harness.Daemon{i.recommender, i.updater, i.admission} {
		d.Stop()
	}
}

// webhookAnswers says whether a VPA is refused that only a webhook refuses. There may be none for some
// time: the reference registers its own some seconds after it has started.
func webhookAnswers(t *testing.T) error {
	t.Helper()
	invalid := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "invalid"},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "invalid"},
			UpdatePolicy: &vpav1.PodUpdatePolicy{MinReplicas: new(int32)},
		},
	}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(movingNamespace).Create(t.Context(), invalid, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return errors.New("an invalid VPA was accepted")
	}
	require.ErrorContains(t, err, "denied the request")
	return nil
}

// newPodIsSized deletes a pod of a workload, and requires that its successor begins with what is recommended.
func newPodIsSized(t *testing.T, w harness.Workload) {
	t.Helper()
	before, recommended := awaitRunning(t, w), onlyContainer(t, getVPA(t, w)).Target
	require.NoError(t, cluster.Kube.CoreV1().Pods(w.Namespace).Delete(t.Context(), before[0].Name, metav1.DeleteOptions{}))
	eventually(t, "a new pod of "+w.Name, func() error {
		for _, pod := range pods(t, w) {
			if pod.UID != before[0].UID && pod.UID != before[1].UID {
				requested := pod.Spec.Containers[0].Resources.Requests
				for _, kind := range kinds {
					notLess(t, recommended, requested, kind, "request of a new pod")
					notLess(t, requested, onlyContainer(t, getVPA(t, w)).Target, kind, "target below the request of a new pod, which")
				}
				return nil
			}
		}
		return fmt.Errorf("%s has no successor", before[0].Name)
	})
}

// registeredOnce requires that no webhook is left that nobody answers.
func registeredOnce(t *testing.T) {
	t.Helper()
	registered, err := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, registered.Items, 1)
	require.Len(t, registered.Items[0].Webhooks, 1, "in %s", registered.Items[0].Name)
}
