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
	for name, c := range map[string]struct {
		seed         func(*testCluster)
		severity     severity
		problem, fix string
	}{
		"an unknown flag": {updater("--updater-interval=1m", "--surge=2", "--fast"), severityError, "the updater does not know, so it would not start: --surge, --fast", "docs/flags.md"},
		"a flag of ours":  {updater("--eviction-pace=5"), severityNote, "the reference VPA does not know: --eviction-pace", "before you go back"},
		"another image":   {updater("--v=4"), severityNote, "the image of container updater is example.org:5000/vpa-updater@sha256:0a", "updater=loadline-updater:TAG"},
		"no updater":      {func(w *testCluster) { w.more[oldUpdaterIndex] = programmed("other", "web:1") }, severityWarning, "no Deployment runs the updater", "kubectl apply -k dist/deploy"},
		"no definitions":  {func(w *testCluster) { w.resources[2].APIResources = w.resources[2].APIResources[:1] }, severityError, "the definition is not installed, so nothing works", "kubectl apply -k deploy/crds"},
		"a permission":    {func(w *testCluster) { w.forbidden = append(w.forbidden, "pods/resize") }, severityNote, "it may not patch pods/resize", "kubectl apply -k deploy/migrate"},
		"another account": {func(w *testCluster) {
			w.more[oldUpdaterIndex].(*appsv1.Deployment).Spec.Template.Spec.ServiceAccountName = "vpa"
		},
			severityNote, "it may not list poddisruptionbudgets", "kubectl apply -k deploy/migrate, with this account in its bindings"},
		"a release of Helm": {func(w *testCluster) {
			w.more[oldUpdaterIndex].(*appsv1.Deployment).Annotations = map[string]string{releaseAnnotation: "vpa", releaseNamespace: "kube-system"}
		}, severityNote, "the image of container updater", "helm -n kube-system upgrade vpa charts/loadline --reset-then-reuse-values --take-ownership"},
		"a second webhook": {func(w *testCluster) {
			w.more = append(w.more, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "own.vpa.k8s.io"}}})
		}, severityWarning, "is another one for VPAs", "delete it"},
		"the webhook of another release": {released("vpa", "other"), severityWarning, "is another one for VPAs", "delete it"},
		"the webhook of its release":     {released("vpa", "vpa"), severityNote, "webhook vpa.k8s.io is that of the release: the upgrade puts vpa-webhook-config in its place", "nothing"},
		"a long timeout":                 {func(w *testCluster) { w.hook.Webhooks[0].TimeoutSeconds = new(int32(30)) }, severityNote, "waits 30 seconds", "--webhook-timeout-seconds=5"},
		"mode Auto": {func(w *testCluster) {
			w.vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeAuto)}
		}, severityNote, "there are 1 of mode Auto", "nothing"},
		"a recommender": {func(w *testCluster) {
			w.vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "fast"}}
		}, severityNote, `ask for recommender "fast"`, "nothing"},
		"a trial": {func(w *testCluster) {
			second := w.vpa.DeepCopy()
			second.Name, second.Spec.UpdatePolicy = "web-trial", &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
			w.own = append(w.own, second)
		}, severityNote, "VPA web has the same target, Deployment web, and controls its pods: this one only recommends", "nothing"},
		"an old checkpoint": {func(w *testCluster) { w.own[0].(*vpav1.VerticalPodAutoscalerCheckpoint).Status.Version = "v2" }, severityWarning, `its version is "v2"`, "wait until"},
	} {
		before := newOldCluster(t).examine(t).Findings
		w := newOldCluster(t)
		c.seed(w)
		var fresh []finding
		for _, f := range w.examine(t).Findings {
			if !slices.Contains(before, f) {
				fresh = append(fresh, f)
			}
		}
		at := slices.IndexFunc(fresh, func(f finding) bool { return strings.Contains(f.Problem, c.problem) })
		require.GreaterOrEqual(t, at, 0, "%s: %v", name, fresh)
		require.Equal(t, c.severity, fresh[at].Severity, "%s: %v", name, fresh)
		require.Contains(t, fresh[at].Fix, c.fix, name)
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
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate"}, 2, "missing command: must be check"},
		{[]string{"migrate", "check", "--help"}, 0, "Usage: kubectl loadline migrate check [flags]"},
		{[]string{"migrate", "check", "--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline migrate check: "},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, c.code, cli.Run(t.Context(), Commands(), c.args, &out, &errOut), c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
}
