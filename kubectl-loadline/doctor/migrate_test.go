package doctor

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

func programmed(program, image string, line ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-" + program}}
	d.Spec.Template.Spec.ServiceAccountName = "vpa-" + program
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: program, Image: image, Args: line}}
	return d
}

const oldUpdaterIndex = 4

// newOldCluster returns a cluster with the upstream VPA, installed from its manifests.
func newOldCluster(t *testing.T) *testCluster {
	t.Helper()
	w := newTestCluster(t)
	w.checks, w.moves, w.deployments, w.accounts = migrateChecks, true, nil, nil
	w.own[0].(*vpav1.VerticalPodAutoscalerCheckpoint).Status.Version = "v3"
	w.resources = w.resources[:3]
	w.forbidden = []string{"poddisruptionbudgets"} // the only permission that its roles lack
	const images = "registry.k8s.io/autoscaling/vpa-"
	w.more = append(w.more, programmed("recommender", images+"recommender:1.8.1"), programmed("updater", images+"updater:1.8.1"),
		programmed("admission-controller", images+"admission-controller:1.8.1", "--v=4", "--stderrthreshold=info", "--reload-cert"))
	return w
}

func TestMigrate_UpstreamInstallation(t *testing.T) {
	a := newOldCluster(t).examine(t)
	require.Empty(t, a.Unchecked)
	require.Len(t, a.Checked, len(migrateChecks))
	for _, f := range a.Findings {
		require.Equal(t, severityNote, f.Severity, "%v", f)
	}
	plugintest.InTheDocsOf(t, "migrate.md", "migrate check", a.text())
}

func TestMigrate_Findings(t *testing.T) {
	updater := func(line ...string) func(*testCluster) {
		return func(w *testCluster) {
			w.more[oldUpdaterIndex] = programmed("updater", "example.org:5000/vpa-updater@sha256:0a", line...)
		}
	}
	for _, tc := range []struct {
		name         string
		seed         func(*testCluster)
		severity     severity
		problem, fix string
	}{
		{name: "unknown flag", seed: updater("--updater-interval=1m", "--surge=2", "--fast"), severity: severityError,
			problem: "the updater does not know, so it would not start: --surge, --fast", fix: "docs/flags.md"},
		{name: "flag unknown to the reference VPA", seed: updater("--eviction-pace=5"), severity: severityNote,
			problem: "the reference VPA does not know: --eviction-pace", fix: "before you go back"},
		{name: "another image", seed: updater("--v=4"), severity: severityNote,
			problem: "the image of container updater is example.org:5000/vpa-updater@sha256:0a", fix: "updater=loadline-updater:TAG"},
		{name: "no updater", seed: func(w *testCluster) { w.more[oldUpdaterIndex] = programmed("other", "web:1") },
			severity: severityWarning, problem: "no Deployment runs the updater", fix: "kubectl apply -k dist/deploy"},
		{name: "missing definitions", seed: func(w *testCluster) { w.resources[2].APIResources = w.resources[2].APIResources[:1] },
			severity: severityError, problem: "the definition is not installed, so nothing works", fix: "kubectl apply -k deploy/crds"},
		{name: "missing permission", seed: func(w *testCluster) { w.forbidden = append(w.forbidden, "pods/resize") },
			severity: severityNote, problem: "it may not patch pods/resize", fix: "kubectl apply -k deploy/migrate"},
		{name: "permissions of another account", seed: func(w *testCluster) {
			w.more[oldUpdaterIndex].(*appsv1.Deployment).Spec.Template.Spec.ServiceAccountName = "vpa"
		}, severity: severityNote, problem: "it may not list poddisruptionbudgets",
			fix: "kubectl apply -k deploy/migrate, with this account in its bindings"},
		{name: "Helm release", seed: func(w *testCluster) {
			w.more[oldUpdaterIndex].(*appsv1.Deployment).Annotations = map[string]string{releaseAnnotation: "vpa", releaseNamespace: "kube-system"}
		}, severity: severityNote, problem: "the image of container updater",
			fix: "helm -n kube-system upgrade vpa charts/loadline --reset-then-reuse-values --take-ownership"},
		{name: "second webhook", seed: func(w *testCluster) {
			w.more = append(w.more, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "own.vpa.k8s.io"}}})
		}, severity: severityWarning, problem: "is another one for VPAs", fix: "delete it"},
		{name: "webhook of another release", seed: released("vpa", "other"), severity: severityWarning, problem: "is another one for VPAs",
			fix: "delete it"},
		{name: "webhook of the same release", seed: released("vpa", "vpa"), severity: severityNote,
			problem: "webhook vpa.k8s.io is that of the release: the upgrade puts vpa-webhook-config in its place", fix: "nothing"},
		{name: "long webhook timeout", seed: func(w *testCluster) { w.hook.Webhooks[0].TimeoutSeconds = new(int32(30)) },
			severity: severityNote, problem: "waits 30 seconds", fix: "--webhook-timeout-seconds=5"},
		{name: "mode Auto", seed: func(w *testCluster) {
			w.vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeAuto)}
		}, severity: severityNote, problem: "there are 1 of mode Auto", fix: "nothing"},
		{name: "another recommender", seed: func(w *testCluster) {
			w.vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "fast"}}
		}, severity: severityNote, problem: `ask for recommender "fast"`, fix: "nothing"},
		{name: "second VPA in a trial", seed: func(w *testCluster) {
			second := w.vpa.DeepCopy()
			second.Name, second.Spec.UpdatePolicy = "web-trial", &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
			w.own = append(w.own, second)
		}, severity: severityNote, problem: "VPA web has the same target, Deployment web, and controls its pods: this one only recommends",
			fix: "nothing"},
		{name: "checkpoint of another version",
			seed:     func(w *testCluster) { w.own[0].(*vpav1.VerticalPodAutoscalerCheckpoint).Status.Version = "v2" },
			severity: severityWarning, problem: `its version is "v2"`, fix: "wait until"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := newOldCluster(t).examine(t).Findings
			w := newOldCluster(t)
			tc.seed(w)
			var fresh []finding
			for _, f := range w.examine(t).Findings {
				if !slices.Contains(before, f) {
					fresh = append(fresh, f)
				}
			}
			at := slices.IndexFunc(fresh, func(f finding) bool { return strings.Contains(f.Problem, tc.problem) })
			require.GreaterOrEqual(t, at, 0, fresh)
			require.Equal(t, tc.severity, fresh[at].Severity, fresh)
			require.Contains(t, fresh[at].Fix, tc.fix)
		})
	}
}

// released returns a change that installs the updater by one Helm release and a webhook by another.
func released(program, hook string) func(*testCluster) {
	of := func(release string) map[string]string {
		return map[string]string{releaseAnnotation: release, releaseNamespace: "kube-system"}
	}
	return func(w *testCluster) {
		w.more[oldUpdaterIndex].(*appsv1.Deployment).Annotations = of(program)
		w.more = append(w.more, &admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: hook + "-vertical-pod-autoscaler-webhook-config", Annotations: of(hook)}, Webhooks: []admissionv1.MutatingWebhook{{Name: "vpa.k8s.io"}},
		})
	}
}

func TestMigrate_CommandLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "missing command", args: []string{"migrate"}, code: 2, want: "missing command: must be check"},
		{name: "help", args: []string{"migrate", "check", "--help"}, code: 0, want: "Usage: kubectl loadline migrate check [flags]"},
		{name: "missing kubeconfig", args: []string{"migrate", "check", "--kubeconfig=/nowhere/at/all"}, code: 1,
			want: "kubectl loadline migrate check: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), Commands(), tc.args, &out, &errOut))
			require.Contains(t, out.String()+errOut.String(), tc.want)
		})
	}
}
