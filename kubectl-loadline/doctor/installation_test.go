package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/core/reason"
)

func (w *testCluster) byChart(t *testing.T) {
	t.Helper()
	w.deployments = plugintest.DeploymentsIn(t, "testdata/chart.yaml")
	w.leases[1].Name = "vpa-updater-lease"
	for i := range w.accounts {
		w.accounts[i] = w.deployments[i].Name
	}
	w.pod.Labels = w.deployments[2].Spec.Template.Labels
	w.more[0].(*corev1.Service).Spec.Selector = w.deployments[2].Spec.Selector.MatchLabels
}

// byFlags sets other names of Leases with flags.
func (w *testCluster) byFlags() {
	for i, line := range [][]string{
		{"--leader-elect", "--leader-elect_resource-name=old", "--leader-elect-resource-name", "mine", "--leader-elect-resource-namespace=leases"},
		{"--leader-elect=true", "--leader-elect-resource-name=$(LEASE)"},
		{"--status-lease-name=beat", "--status-lease-namespace=$(NAMESPACE)"},
	} {
		c := &w.deployments[i].Spec.Template.Spec.Containers[0]
		c.Command, c.Args = append([]string{"/program"}, line...), nil
		c.Env = append(c.Env, corev1.EnvVar{Name: "LEASE", Value: "changes"})
	}
	w.leases[0].Name, w.leases[0].Namespace, w.leases[1].Name, w.leases[2].Name = "mine", "leases", "changes", "beat"
}

var installations = map[string]func(*testCluster, *testing.T){
	"manifests":     func(*testCluster, *testing.T) {},
	"chart":         (*testCluster).byChart,
	"other flags":   func(w *testCluster, _ *testing.T) { w.byFlags() },
	"outside of it": func(w *testCluster, _ *testing.T) { w.deployments = nil },
	"an own account": func(w *testCluster, _ *testing.T) {
		w.deployments[1].Spec.Template.Spec.ServiceAccountName, w.accounts[1] = "mine", "mine"
	},
}

func TestDoctor_FindsAllInstallations(t *testing.T) {
	for name, install := range installations {
		w := newTestCluster(t)
		install(w, t)
		a := w.examine(t)
		require.Empty(t, a.Unchecked, name)
		for _, f := range a.Findings {
			require.Equal(t, severityNote, f.Severity, "%s: %v", name, f)
		}
	}
}

func TestDoctor_FixesSelectPods(t *testing.T) {
	hint := regexp.MustCompile(`^kubectl -n kube-system get pods -l (\S+), and its log`)
	for name, install := range installations {
		w := newTestCluster(t)
		install(w, t)
		for _, l := range w.leases {
			l.Spec.RenewTime = new(metav1.NewMicroTime(plugintest.Before(5)))
		}
		pods := w.deployments
		if pods == nil {
			pods = plugintest.ManifestDeployments(t)
		}
		found := slices.DeleteFunc(w.examine(t).Findings, func(f finding) bool { return f.Severity == severityNote })
		require.Len(t, found, len(pods), name)
		for i, f := range found {
			require.Equal(t, "Lease "+w.leases[i].Namespace+"/"+w.leases[i].Name, f.Object, name)
			parts := hint.FindStringSubmatch(f.Fix)
			require.Len(t, parts, 2, f.Fix)
			selector, err := labels.Parse(parts[1])
			require.NoError(t, err)
			for j, d := range pods {
				require.Equal(t, i == j, selector.Matches(labels.Set(d.Spec.Template.Labels)), "%s: %s", name, f.Fix)
			}
		}
	}
}

func TestDoctor_ProgramWithoutLease(t *testing.T) {
	for available, want := range map[int32]int{0: 1, 1: 0} {
		w := newTestCluster(t)
		w.deployments[1].Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect=false"}
		w.deployments[1].Status.AvailableReplicas = available
		w.leases[1].Name = "other"
		a := w.examine(t)
		require.Len(t, a.Findings, want)
		for _, f := range a.Findings {
			require.Equal(t, finding{
				Severity: severityError, Check: "leases", Object: "Deployment kube-system/vpa-updater",
				Problem: "no pod of it is available, so no running pod is changed",
				Fix:     "kubectl -n kube-system get pods -l app=vpa-updater, and its log",
			}, f)
		}
	}
}

func TestDoctor_ReportsMissingDeploymentsOnce(t *testing.T) {
	w := newTestCluster(t)
	w.deployments = nil
	require.Equal(t, []finding{{
		Severity: severityNote, Check: "programs", Object: "Namespace kube-system",
		Problem: "no Deployment of recommender, updater, admission-controller was found: " +
			"the service accounts, labels and Leases of deploy/base are taken for theirs",
		Fix: "nothing, if they run outside of the cluster; else set --programs-namespace to their namespace",
	}}, w.examine(t).Findings)
	w = newTestCluster(t)
	w.hidden = true
	a := w.examine(t)
	require.Empty(t, a.Findings)
	require.Len(t, a.Unchecked, 1)
	require.Regexp(t, "^programs: list Deployments of namespace kube-system: .* is forbidden.*; the service accounts, labels and Leases of deploy/base are taken for theirs$", a.Unchecked[0])
}

// An installation of the recommender alone is complete.
func TestDoctor_SkipsMissingPrograms(t *testing.T) {
	lone := func(installation string, kept ...int) *doctorReport {
		w := newTestCluster(t)
		installations[installation](w, t)
		var deployments []*appsv1.Deployment
		var leases []*coordinationv1.Lease
		var accounts []string
		for _, i := range kept {
			deployments, leases, accounts = append(deployments, w.deployments[i]), append(leases, w.leases[i]), append(accounts, w.accounts[i])
		}
		w.deployments, w.leases, w.accounts = deployments, leases, accounts
		w.hook.Name, w.secret.Data = "other", nil
		return w.examine(t)
	}
	found := func(a *doctorReport) (all []string) {
		require.Empty(t, a.Unchecked)
		for _, f := range a.Findings {
			all = append(all, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Problem))
		}
		return all
	}
	for _, installation := range []string{"manifests", "chart", "other flags"} {
		a := lone(installation, 0)
		require.Equal(t, []string{"note programs: no Deployment runs the updater: no running pod is changed", "note programs: no Deployment runs the admission-controller: new pods are not sized"}, found(a), installation)
		require.Equal(t, "nothing, if intended; if it runs elsewhere, set --programs-namespace to its namespace; else kubectl apply -k dist/deploy, or the folder that it was installed from, with the updater enabled (docs/install.md)", a.Findings[0].Fix)
	}
	require.Equal(t, []string{"note programs: no Deployment runs the admission-controller: new pods are not sized, and the updater evicts none"}, found(lone("manifests", 0, 1)))
	require.Contains(t, found(lone("manifests", 1, 2)), "warning programs: no Deployment runs the recommender: nothing is recommended", "that is hardly meant")
	require.NotContains(t, fmt.Sprint(lone("manifests", 1, 2).Findings), "vpa-recommender")
	require.Contains(t, fmt.Sprint(found(lone("manifests"))), "no updater holds it", "no program is known to be left out")
}

func TestDoctor_UsageSources(t *testing.T) {
	usage := []string{"metrics API", "permissions"}
	for line, want := range map[string][]string{
		"":                                slices.Concat(usage, []string{"checkpoints"}),
		"--usage-source=metrics":          slices.Concat(usage, []string{"checkpoints"}),
		"--usage-source=prometheus":       {"checkpoints"},
		"--usage-source prometheus --v=4": {"checkpoints"},
		"--use-external-metrics":          {"checkpoints"},
		"--use-external-metrics=false":    slices.Concat(usage, []string{"checkpoints"}),
		"--storage=prometheus":            usage,
		"--storage=checkpoint":            slices.Concat(usage, []string{"checkpoints"}),
		"--storage=$(WHERE)":              usage,
		"--usage-source=prometheus --use-external-metrics=false --storage=prometheus": nil,
		"--usage-source=prometheus --usage-source=metrics":                            slices.Concat(usage, []string{"checkpoints"}),
	} {
		w := newTestCluster(t)
		c := &w.deployments[0].Spec.Template.Spec.Containers[0]
		c.Args, c.Env = append(c.Args, strings.Fields(line)...), append(c.Env, corev1.EnvVar{Name: "WHERE", Value: "prometheus"})
		w.resources = slices.Delete(w.resources, 1, 2)
		w.forbidden = []string{"pods.metrics.k8s.io"}
		w.own[0].(*vpav1.VerticalPodAutoscalerCheckpoint).Status.LastUpdateTime = metav1.NewTime(plugintest.Before(600))
		var found []string
		for _, f := range w.examine(t).Findings {
			found = append(found, f.Check)
		}
		require.Equal(t, want, found, line)
	}
}

func TestDoctor_StartingAdmissionController(t *testing.T) {
	progressing := func(status corev1.ConditionStatus, reason string, since time.Time) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, LastUpdateTime: metav1.NewTime(since)}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   severity
	}{
		{name: "created a moment ago", change: func(d *appsv1.Deployment) {
			d.CreationTimestamp = metav1.NewTime(plugintest.Now().Add(-59 * time.Second))
		}, want: severityWarning},
		{name: "not available yet", change: progressing(corev1.ConditionTrue, "ReplicaSetUpdated", plugintest.Before(5)),
			want: severityWarning},
		{name: "available a moment ago",
			change: progressing(corev1.ConditionTrue, "NewReplicaSetAvailable", plugintest.Now().Add(-59*time.Second)),
			want:   severityWarning},
		{name: "available for a while", change: progressing(corev1.ConditionTrue, "NewReplicaSetAvailable", plugintest.Before(1)),
			want: severityError},
		{name: "not available in time", change: progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded", plugintest.Now()),
			want: severityError},
		{name: "no condition", change: func(*appsv1.Deployment) {}, want: severityError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTestCluster(t)
			w.leases = w.leases[:2]
			tc.change(w.deployments[2])
			a := w.examine(t)
			require.Len(t, a.Findings, 1)
			f := a.Findings[0]
			require.Equal(t, tc.want, f.Severity)
			require.Equal(t, "Lease kube-system/vpa-admission-controller", f.Object)
			require.Contains(t, f.Fix, "kubectl -n kube-system get pods -l app=vpa-admission-controller")
			require.Equal(t, tc.want == severityWarning, regexp.MustCompile("it is starting").MatchString(f.Problem))
		})
	}
}

func TestSkipReasons_FindUpdaterOfAllInstallations(t *testing.T) {
	for name, install := range installations {
		for _, led := range []bool{true, false} {
			w := newTestCluster(t)
			install(w, t)
			kube := kubefake.NewClientset()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "updater-7", Labels: map[string]string{"app": "vpa-updater"}}}
			for _, d := range w.deployments {
				require.NoError(t, kube.Tracker().Add(d))
			}
			if w.deployments != nil {
				pod.Labels = w.deployments[1].Spec.Template.Labels
			}
			lease := w.leases[1].DeepCopy()
			lease.Spec.HolderIdentity = new("updater-7_0a")
			var there runtime.Object = pod
			if led {
				there = lease
			}
			require.NoError(t, kube.Tracker().Add(there))
			require.Equal(t, reason.NodeFull, skipReasonsOf(t, kube)["x"], name)
		}
	}
}

func skipReasonsOf(t *testing.T, kube *kubefake.Clientset) map[types.UID]reason.Reason {
	t.Helper()
	kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		require.Equal(t, "updater-7", a.(clienttesting.ProxyGetAction).GetName())
		return true, plugintest.Response{Text: `{"reasons": {"NodeFull": ["x"]}}`}, nil
	})
	said, err := programs.SkipReasons(t.Context(), kubernetes.Interface(kube), "kube-system", plugintest.Now())
	require.NoError(t, err)
	return said
}

// A Lease left by another updater does not identify the leader.
func TestSkipReasons_IgnoreStaleLease(t *testing.T) {
	w := newTestCluster(t)
	w.deployments[1].Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect=false"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "updater-7", Labels: map[string]string{"app": "vpa-updater"}}}
	require.Equal(t, reason.NodeFull, skipReasonsOf(t, kubefake.NewClientset(w.deployments[1], w.leases[1], pod))["x"])
}

// Without permission to list Deployments, the Lease of the manifests is used.
func TestSkipReasons_WithoutPermissionForDeployments(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("updater-7_0a"), RenewTime: new(metav1.NewMicroTime(plugintest.Now())), LeaseDurationSeconds: new(int32(15))}}
	kube := kubefake.NewClientset(lease)
	plugintest.Forbid(&kube.Fake, "deployments")
	require.Equal(t, reason.NodeFull, skipReasonsOf(t, kube)["x"])
}

func TestDoctor_FixesHelmReleases(t *testing.T) {
	const fix = "helm -n kube-system upgrade prod CHART --reset-then-reuse-values, with the chart of the release"
	for _, tc := range []struct {
		name string
		seed func(*testCluster)
	}{
		{name: "missing permission", seed: func(w *testCluster) { w.forbidden = []string{"pods/resize"} }},
		{name: "no Service", seed: func(w *testCluster) { w.hook.Webhooks[0].ClientConfig.Service.Name = "gone" }},
		{name: "no webhook", seed: func(w *testCluster) { w.hook.Name = "other" }},
		{name: "no definition of checkpoints",
			seed: func(w *testCluster) { w.resources[2].APIResources = w.resources[2].APIResources[:1] }},
		{name: "no definition of policies", seed: func(w *testCluster) { w.resources[3].APIResources = w.resources[3].APIResources[:1] }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTestCluster(t)
			w.byChart(t)
			for _, d := range w.deployments {
				d.Annotations = map[string]string{"meta.helm.sh/release-name": "prod"}
			}
			tc.seed(w)
			a := w.examine(t)
			require.Len(t, a.Findings, 1)
			require.True(t, strings.HasPrefix(a.Findings[0].Fix, fix), "%s", a.Findings[0].Fix)
		})
	}
}

func TestDoctor_ReadsServedCertificate(t *testing.T) {
	mount := func(w *testCluster, folder string, s corev1.SecretVolumeSource) *corev1.Container {
		pod := &w.deployments[2].Spec.Template.Spec
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "serving", VolumeSource: corev1.VolumeSource{Secret: &s}})
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "serving", MountPath: folder})
		return &pod.Containers[0]
	}
	for _, tc := range []struct {
		name        string
		install     func(*testCluster)
		secret, key string
		mounted     bool // the Secret is mounted, so the program issues no certificate
	}{
		{name: "default", install: func(*testCluster) {}, secret: "vpa-tls-certs", key: "serverCert.pem"},
		{name: "Secret set with --tls-secret", install: func(w *testCluster) {
			w.deployments[2].Spec.Template.Spec.Containers[0].Args = []string{"--tls-secret=mine"}
		}, secret: "mine", key: "serverCert.pem"},
		{name: "cert-manager", install: func(w *testCluster) {
			mount(w, "/etc/tls-certs/", corev1.SecretVolumeSource{SecretName: "issued", Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "serverCert.pem"}}})
		}, secret: "issued", key: "tls.crt", mounted: true},
		{name: "files of a mounted Secret", install: func(w *testCluster) {
			mount(w, "/certs", corev1.SecretVolumeSource{SecretName: "own"}).Args = []string{"--tls-cert-file=/certs/cert"}
		}, secret: "own", key: "cert", mounted: true},
		{name: "mounted Secret without certificate",
			install: func(w *testCluster) { mount(w, "/var/run/password", corev1.SecretVolumeSource{SecretName: "other"}) },
			secret:  "vpa-tls-certs", key: "serverCert.pem"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTestCluster(t)
			tc.install(w)
			w.secret.Name, w.secret.Data = tc.secret, map[string][]byte{tc.key: w.authority.issue(t, plugintest.Now().Add(48*time.Hour))}
			a := w.examine(t)
			require.Len(t, a.Findings, 1, a.Findings)
			require.Equal(t, "Secret kube-system/"+tc.secret, a.Findings[0].Object)
			require.Contains(t, a.Findings[0].Problem, "expires at 2026-03-04T08:00:00Z")
			w.secret.Data = nil
			unreadable := w.examine(t).Findings
			require.Len(t, unreadable, 1, unreadable)
			require.Contains(t, unreadable[0].Problem, "it has no certificate that can be read")
			for _, f := range []finding{a.Findings[0], unreadable[0]} {
				require.Equal(t, tc.mounted, strings.HasPrefix(f.Fix, "renew it with whoever issues it"), f.Fix)
				require.Equal(t, !tc.mounted, strings.Contains(f.Fix, "restart the admission controller to issue a new one"), f.Fix)
			}
		})
	}
}
