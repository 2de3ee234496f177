package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
)

// deploymentsIn returns those that are written in files, by the order of programs.
func deploymentsIn(t *testing.T, files ...string) (all []*appsv1.Deployment) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
			d := &appsv1.Deployment{}
			require.NoError(t, yaml.Unmarshal(part, d))
			if d.Kind == "Deployment" {
				d.CreationTimestamp = metav1.NewTime(before(600))
				all = append(all, d)
			}
		}
	}
	require.Len(t, all, len(programs))
	return all
}

// manifestDeployments are those of deploy/base.
func manifestDeployments(t *testing.T) []*appsv1.Deployment {
	t.Helper()
	return deploymentsIn(t, "../deploy/base/recommender/deployment.yaml", "../deploy/base/updater/deployment.yaml", "../deploy/base/admission-controller/deployment.yaml")
}

// byChart makes the ward one in which the chart installed the programs.
func (w *ward) byChart(t *testing.T) {
	t.Helper()
	w.deployments = deploymentsIn(t, "testdata/chart.yaml")
	w.leases[1].Name = "vpa-updater-lease"
	for i := range w.accounts {
		w.accounts[i] = w.deployments[i].Name
	}
	w.pod.Labels = w.deployments[2].Spec.Template.Labels
	w.more[0].(*corev1.Service).Spec.Selector = w.deployments[2].Spec.Selector.MatchLabels
}

// byFlags makes the ward one in which the programs have Leases of other names.
func (w *ward) byFlags() {
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

// installations are ways in which the programs get into a cluster.
var installations = map[string]func(*ward, *testing.T){
	"manifests":     func(*ward, *testing.T) {},
	"chart":         (*ward).byChart,
	"other flags":   func(w *ward, _ *testing.T) { w.byFlags() },
	"outside of it": func(w *ward, _ *testing.T) { w.deployments = nil },
	"an own account": func(w *ward, _ *testing.T) {
		w.deployments[1].Spec.Template.Spec.ServiceAccountName, w.accounts[1] = "mine", "mine"
	},
}

func TestTheDoctorKnowsTheProgramsHoweverTheyAreInstalled(t *testing.T) {
	for name, install := range installations {
		w := newWard(t)
		install(w, t)
		a := w.examine(t)
		require.Empty(t, a.Unchecked, name)
		for _, f := range a.Findings {
			require.Equal(t, isNote, f.Severity, "%s: %v", name, f)
		}
	}
}

func TestHintsSelectThePodsOfTheProgram(t *testing.T) {
	hint := regexp.MustCompile(`^kubectl -n kube-system get pods -l (\S+), and its log`)
	for name, install := range installations {
		w := newWard(t)
		install(w, t)
		for _, l := range w.leases {
			l.Spec.RenewTime = new(metav1.NewMicroTime(before(5)))
		}
		pods := w.deployments
		if pods == nil {
			pods = manifestDeployments(t)
		}
		found := slices.DeleteFunc(w.examine(t).Findings, func(f finding) bool { return f.Severity == isNote })
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

func TestASelectorOfExpressionsIsQuoted(t *testing.T) {
	d := manifestDeployments(t)[1]
	d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}}
	require.Equal(t, "kubectl -n kube-system get pods -l 'app in (a,b)'", asInstalled("updater", "kube-system", []appsv1.Deployment{*d}).podsHint())
}

func TestAProgramThatTakesNoLeaseIsSeenByItsPods(t *testing.T) {
	for available, want := range map[int32]int{0: 1, 1: 0} {
		w := newWard(t)
		w.deployments[1].Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect=false"}
		w.deployments[1].Status.AvailableReplicas = available
		w.leases[1].Name = "other"
		a := w.examine(t)
		require.Len(t, a.Findings, want)
		for _, f := range a.Findings {
			require.Equal(t, finding{isError, "leases", "Deployment kube-system/vpa-updater", "no pod of it is available, so no running pod is changed", "kubectl -n kube-system get pods -l app=vpa-updater, and its log"}, f)
		}
	}
}

func deploymentOf(name, image string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	return d
}

func TestThatNoDeploymentIsFoundIsSaidOnce(t *testing.T) {
	w := newWard(t)
	w.deployments = nil
	require.Equal(t, []finding{{isNote, "programs", "Namespace kube-system", "no Deployment of recommender, updater, admission-controller was found: the service accounts, labels and Leases of deploy/base are taken for theirs",
		"nothing, if they run outside of the cluster; else --programs-namespace says where to look"}}, w.examine(t).Findings)
	w = newWard(t)
	w.hidden = true
	a := w.examine(t)
	require.Empty(t, a.Findings)
	require.Len(t, a.Unchecked, 1)
	require.Regexp(t, "^programs: list Deployments of namespace kube-system: .* is forbidden.*; the service accounts, labels and Leases of deploy/base are taken for theirs$", a.Unchecked[0])
}

// Who installed the recommender alone lacks nothing of the others.
func TestProgramsThatAreNotInstalledAreNotLookedAt(t *testing.T) {
	lone := func(installation string, kept ...int) *doctorAnswer {
		w := newWard(t)
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
	found := func(a *doctorAnswer) (all []string) {
		require.Empty(t, a.Unchecked)
		for _, f := range a.Findings {
			all = append(all, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Problem))
		}
		return all
	}
	for _, installation := range []string{"manifests", "chart", "other flags"} {
		a := lone(installation, 0)
		require.Equal(t, []string{"note programs: no Deployment runs the updater: no running pod is changed", "note programs: no Deployment runs the admission-controller: new pods are not sized"}, found(a), installation)
		require.Equal(t, "nothing, if that is meant; if it runs elsewhere, --programs-namespace says where to look; else kubectl apply -k dist/deploy, or the folder that it was installed from, with the updater among what that installs (docs/install.md)", a.Findings[0].Fix)
	}
	require.Equal(t, []string{"note programs: no Deployment runs the admission-controller: new pods are not sized, and the updater evicts none"}, found(lone("manifests", 0, 1)))
	require.Contains(t, found(lone("manifests", 1, 2)), "warning programs: no Deployment runs the recommender: nothing is recommended", "that is hardly meant")
	require.NotContains(t, fmt.Sprint(lone("manifests", 1, 2).Findings), "vpa-recommender")
	require.Contains(t, fmt.Sprint(found(lone("manifests"))), "no updater holds it", "no program is known to be left out")
}

// Usage comes from where the recommender takes it, and history is kept where it keeps it.
func TestTheDoctorKnowsWhatTheRecommenderReads(t *testing.T) {
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
		w := newWard(t)
		c := &w.deployments[0].Spec.Template.Spec.Containers[0]
		c.Args, c.Env = append(c.Args, strings.Fields(line)...), append(c.Env, corev1.EnvVar{Name: "WHERE", Value: "prometheus"})
		w.resources = slices.Delete(w.resources, 1, 2)
		w.forbidden = []string{"pods.metrics.k8s.io"}
		w.own[0].(*vpav1.VerticalPodAutoscalerCheckpoint).Status.LastUpdateTime = metav1.NewTime(before(600))
		var found []string
		for _, f := range w.examine(t).Findings {
			found = append(found, f.Check)
		}
		require.Equal(t, want, found, line)
	}
}

func TestWhichDeploymentRunsAProgram(t *testing.T) {
	of := func(name, image string, labels map[string]string) appsv1.Deployment {
		d := deploymentOf(name, image)
		d.Spec.Template.Labels = labels
		return *d
	}
	app, component := map[string]string{"app": "vpa-updater"}, map[string]string{"app.kubernetes.io/component": "updater"}
	for name, c := range map[string]struct {
		there []appsv1.Deployment
		want  string
	}{
		"the label of the manifests":   {[]appsv1.Deployment{of("a", "mirror/a:1", nil), of("b", "mirror/b:1", app)}, "b"},
		"the label of the chart":       {[]appsv1.Deployment{of("a", "mirror/a:1", nil), of("b", "mirror/b:1", component)}, "b"},
		"the image, not a label":       {[]appsv1.Deployment{of("a", "images/updater:1", component), of("b", "mirror/vpa-updater:1", nil)}, "b"},
		"the image of another program": {[]appsv1.Deployment{of("a", "loadline-recommender:1", nil)}, ""},
		"image and label":              {[]appsv1.Deployment{of("a", "loadline-updater:1", nil), of("b", "loadline-updater:1", app)}, "b"},
		"two":                          {[]appsv1.Deployment{of("b", "loadline-updater:1", app), of("a", "loadline-updater:1", app), of("c", "loadline-updater:1", app)}, "a"},
		"none":                         {[]appsv1.Deployment{of("a", "mirror/a:1", nil)}, ""},
	} {
		p := asInstalled("updater", "kube-system", c.there)
		if c.want == "" {
			require.Nil(t, p.deployment, name)
			continue
		}
		require.Equal(t, c.want, p.deployment.Name, name)
	}
	d := of("a", "mesh/proxy:1", app)
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "vpa-updater", Image: "mirror/u:1", Args: []string{"--leader-elect", "--leader-elect-resource-name=x"}})
	p := asInstalled("updater", "kube-system", []appsv1.Deployment{d})
	require.Equal(t, "kube-system/x", p.lease.String(), "not the sidecar's")
}

// Without flags the Leases are in kube-system, but that of the heartbeat is where NAMESPACE says.
func TestLeasesOfProgramsThatRunElsewhere(t *testing.T) {
	all := manifestDeployments(t)
	all[1].Spec.Template.Spec.Containers[0].Args = nil
	for i, want := range []string{"kube-system/vpa-recommender-lease true", "kube-system/vpa-updater false", "sizing/vpa-admission-controller false"} {
		d := all[i]
		d.Namespace = "sizing"
		p := asInstalled(programs[i], d.Namespace, []appsv1.Deployment{*d})
		require.Equal(t, want, fmt.Sprint(p.lease, " ", p.elected))
		d.Spec.Template.Spec.Containers[0].Env = nil
		require.Equal(t, "kube-system", asInstalled(programs[i], d.Namespace, []appsv1.Deployment{*d}).lease.Namespace)
		require.Equal(t, "sizing", asInstalled(programs[i], "sizing", nil).lease.Namespace)
	}
}

func TestAnAdmissionControllerThatStartsIsNoError(t *testing.T) {
	progressing := func(status corev1.ConditionStatus, reason string, since time.Time) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, LastUpdateTime: metav1.NewTime(since)}}
		}
	}
	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		want   severity
	}{
		"created a moment ago":     {func(d *appsv1.Deployment) { d.CreationTimestamp = metav1.NewTime(explainNow().Add(-59 * time.Second)) }, isWarning},
		"not available yet":        {progressing(corev1.ConditionTrue, "ReplicaSetUpdated", before(5)), isWarning},
		"available a moment ago":   {progressing(corev1.ConditionTrue, "NewReplicaSetAvailable", explainNow().Add(-59*time.Second)), isWarning},
		"available for a while":    {progressing(corev1.ConditionTrue, "NewReplicaSetAvailable", before(1)), isError},
		"not available in time":    {progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded", explainNow()), isError},
		"nothing is known of that": {func(*appsv1.Deployment) {}, isError},
	} {
		w := newWard(t)
		w.leases = w.leases[:2]
		c.change(w.deployments[2])
		a := w.examine(t)
		require.Len(t, a.Findings, 1, name)
		f := a.Findings[0]
		require.Equal(t, c.want, f.Severity, name)
		require.Equal(t, "Lease kube-system/vpa-admission-controller", f.Object)
		require.Contains(t, f.Fix, "kubectl -n kube-system get pods -l app=vpa-admission-controller")
		require.Equal(t, c.want == isWarning, regexp.MustCompile("it is starting").MatchString(f.Problem), name)
	}
}

// The updater is asked where it runs, by its Lease or by its pods.
func TestTheUpdaterIsAskedHoweverItIsInstalled(t *testing.T) {
	for name, install := range installations {
		for _, led := range []bool{true, false} {
			w := newWard(t)
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
			require.Equal(t, reason.NodeFull, asked(t, kube)["x"], name)
		}
	}
}

// asked returns what the updater says whose pod is called updater-7.
func asked(t *testing.T, kube *kubefake.Clientset) map[types.UID]reason.Reason {
	t.Helper()
	kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		require.Equal(t, "updater-7", a.(clienttesting.ProxyGetAction).GetName())
		return true, response{text: `{"reasons": {"NodeFull": ["x"]}}`}, nil
	})
	said, err := askUpdater(t.Context(), kubernetes.Interface(kube), "kube-system", "", explainNow())
	require.NoError(t, err)
	return said
}

// A Lease that another updater left behind does not say who leads.
func TestAnUpdaterThatTakesNoLeaseIsAskedByItsPods(t *testing.T) {
	w := newWard(t)
	w.deployments[1].Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect=false"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "updater-7", Labels: map[string]string{"app": "vpa-updater"}}}
	require.Equal(t, reason.NodeFull, asked(t, kubefake.NewClientset(w.deployments[1], w.leases[1], pod))["x"])
}

// Who may read the Lease but no Deployment still asks the updater of the manifests.
func TestTheUpdaterIsAskedByWhoMayNotReadDeployments(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("updater-7_0a"), RenewTime: new(metav1.NewMicroTime(explainNow())), LeaseDurationSeconds: new(int32(15))}}
	kube := kubefake.NewClientset(lease)
	refuse(&kube.Fake, "deployments")
	require.Equal(t, reason.NodeFull, asked(t, kube)["x"])
}

// refuse lets nobody list a resource.
func refuse(fake *clienttesting.Fake, resource string) {
	fake.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	})
}

func TestWhatHelmInstalledHelmPutsBack(t *testing.T) {
	const fix = "helm -n kube-system upgrade prod CHART --reset-then-reuse-values, with the chart of the release"
	for name, seed := range map[string]func(*ward){
		"a permission":              func(w *ward) { w.forbidden = []string{"pods/resize"} },
		"no Service":                func(w *ward) { w.hook.Webhooks[0].ClientConfig.Service.Name = "gone" },
		"no webhook":                func(w *ward) { w.hook.Name = "other" },
		"no definition":             func(w *ward) { w.resources[2].APIResources = w.resources[2].APIResources[:1] },
		"no definition of policies": func(w *ward) { w.resources[3].APIResources = w.resources[3].APIResources[:1] },
	} {
		w := newWard(t)
		w.byChart(t)
		for _, d := range w.deployments {
			d.Annotations = map[string]string{"meta.helm.sh/release-name": "prod"}
		}
		seed(w)
		a := w.examine(t)
		require.Len(t, a.Findings, 1, name)
		require.True(t, strings.HasPrefix(a.Findings[0].Fix, fix), "%s: %s", name, a.Findings[0].Fix)
	}
}

func TestTheDoctorReadsTheCertificateThatIsServed(t *testing.T) {
	mount := func(w *ward, folder string, s corev1.SecretVolumeSource) *corev1.Container {
		pod := &w.deployments[2].Spec.Template.Spec
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "serving", VolumeSource: corev1.VolumeSource{Secret: &s}})
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "serving", MountPath: folder})
		return &pod.Containers[0]
	}
	for name, c := range map[string]struct {
		install     func(*ward)
		secret, key string
		mounted     bool // so that the program issues none
	}{
		"as by default":  {func(*ward) {}, "vpa-tls-certs", "serverCert.pem", false},
		"another Secret": {func(w *ward) { w.deployments[2].Spec.Template.Spec.Containers[0].Args = []string{"--tls-secret=mine"} }, "mine", "serverCert.pem", false},
		"cert-manager": {func(w *ward) {
			mount(w, "/etc/tls-certs/", corev1.SecretVolumeSource{SecretName: "issued", Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "serverCert.pem"}}})
		}, "issued", "tls.crt", true},
		"own files": {func(w *ward) {
			mount(w, "/certs", corev1.SecretVolumeSource{SecretName: "own"}).Args = []string{"--tls-cert-file=/certs/cert"}
		}, "own", "cert", true},
		"a volume of something else": {func(w *ward) { mount(w, "/var/run/password", corev1.SecretVolumeSource{SecretName: "other"}) }, "vpa-tls-certs", "serverCert.pem", false},
	} {
		w := newWard(t)
		c.install(w)
		w.secret.Name, w.secret.Data = c.secret, map[string][]byte{c.key: w.authority.issue(t, explainNow().Add(48*time.Hour))}
		a := w.examine(t)
		require.Len(t, a.Findings, 1, "%s: %v", name, a.Findings)
		require.Equal(t, "Secret kube-system/"+c.secret, a.Findings[0].Object, name)
		require.Contains(t, a.Findings[0].Problem, "expires at 2026-03-04T08:00:00Z", name)
		w.secret.Data = nil
		unreadable := w.examine(t).Findings
		require.Len(t, unreadable, 1, "%s: %v", name, unreadable)
		require.Contains(t, unreadable[0].Problem, "it has no certificate that can be read", name)
		for _, f := range []finding{a.Findings[0], unreadable[0]} {
			require.Equal(t, c.mounted, strings.HasPrefix(f.Fix, "renew it with whoever issues it"), "%s: %s", name, f.Fix)
			require.Equal(t, !c.mounted, strings.Contains(f.Fix, "restart the admission controller, which issues another"), "%s: %s", name, f.Fix)
		}
	}
}

func TestTheUpdaterIsAskedAtItsPort(t *testing.T) {
	for flag, want := range map[string]string{"--v=4": "8943", "--address=:9943": "9943", "--address=[::1]:80": "80", "--address=wrong": "8943"} {
		d := manifestDeployments(t)[1]
		d.Spec.Template.Spec.Containers[0].Args = []string{flag}
		_, port, err := updaterPods(t.Context(), kubefake.NewClientset(d), "kube-system", explainNow())
		require.NoError(t, err)
		require.Equal(t, want, port, flag)
	}
}
