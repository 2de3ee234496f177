package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Replaces upstream's programs with Loadline's and back, with the commands of docs/migrate.md.
// Recommendations do not fall, history is kept, and no pod changes because of the migration.
// Afterwards both act on pods as before.
//
// The cluster has upstream's manifests with simulated pods and a certificate like that of its
// script. The programs are processes with the tokens of the pods' service accounts.
func TestMigration_UpstreamAndBack(t *testing.T) {
	if os.Getenv("LOADLINE_MIGRATION") == "" {
		t.Skip("make e2e-migration looks at it: to build the programs of the reference takes minutes, in which other promises would wait for the processors, and nothing of ours is installed afterwards")
	}
	loadlinePermissions := programPermissions(t)
	manifests := installUpstream(t)
	upstreamPermissions := programPermissions(t)
	theirs, ours := upstreamInstallation(t), ourInstallation(t)
	t.Cleanup(theirs.stop)
	t.Cleanup(ours.stop)

	// The recommender sets the target of one workload, the test sets the others to trigger changes
	// at will.
	db := newWorkload(t, migrationNamespace, 2)
	db.Name, db.Annotations = "db", harness.Uses("app", "700m", "900Mi")
	web, cache := newWorkload(t, migrationNamespace, 2), newWorkload(t, migrationNamespace, 2)
	cache.Name = "cache"
	written := startWorkload(t, db)
	startWorkload(t, web)
	startWorkload(t, cache)
	theirs.begin(t)
	require.NoError(t, cluster.CreateVPA(t.Context(), db, vpav1.UpdateModeRecreate))
	awaitCheckpoint(t, db, "app", 1)
	checked := runPlugin(t, "migrate", "check")
	page, err := os.ReadFile("../docs/migrate.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "$ kubectl loadline migrate check\n"+checked+"```\n", "the page shows something else")
	createVPAWithTarget(t, web, vpav1.UpdateModeRecreate, larger)
	createVPAWithTarget(t, cache, vpav1.UpdateModeInPlaceOrRecreate, larger)
	awaitRecommendation(t, db)
	awaitReplaced(t, longestWait, db, written)
	awaitSized(t, web, "300m")
	awaitSized(t, cache, "300m")
	requireNewPodSized(t, db)
	runTrial(t, db)

	for _, move := range []struct {
		from, to installation
		section  string              // section of the page with the commands
		images   string              // expected image prefix of the Deployments
		then     corev1.ResourceList // next target
	}{
		{from: theirs, to: ours, section: "## Move over", images: "loadline-", then: resourceList("400m", "300Mi")},
		{from: ours, to: theirs, section: "## Go back", images: upstreamImages, then: resourceList("500m", "400Mi")},
	} {
		held := awaitCheckpoint(t, db, "app", 4)
		recommended := onlyContainer(t, getVPA(t, db)).Target
		before := map[string][]corev1.Pod{}
		for _, w := range []harness.Workload{db, web, cache} {
			before[w.Name] = awaitRunning(t, w)
		}
		runDocumented(t, "..", string(page), move.section, 0)
		requireImages(t, move.images)
		move.to.replace(t, move.from)
		if move.to.recommender == theirs.recommender {
			kubectl(t, "..", "delete", "-k", "deploy/migrate")
		}
		nothingMoves := func() {
			for _, w := range []harness.Workload{db, web, cache} {
				requireSameSizes(t, w, before[w.Name])
				requireSamePods(t, w, before[w.Name])
			}
			after := onlyContainer(t, getVPA(t, db)).Target
			for _, kind := range kinds {
				requireNotLess(t, recommended, after, kind, "target")
			}
		}
		forIterations(t, move.to.recommender, 2, nothingMoves)
		forIterations(t, move.to.updater, 5, nothingMoves)
		kept := awaitCheckpoint(t, db, "app", held.Status.TotalSamplesCount+1)
		require.Equal(t, held.UID, kept.UID, "the same object")
		require.Equal(t, held.Status.FirstSampleStart, kept.Status.FirstSampleStart, "the same history")

		requireNewPodSized(t, db)
		for _, w := range []harness.Workload{web, cache} {
			setTarget(t, w, move.then)
			awaitSized(t, w, move.then.Cpu().String())
		}
		requireSamePods(t, cache, before[cache.Name]) // resized in place
		requireOneWebhook(t)
	}
	theirs.stop()
	require.Equal(t, upstreamPermissions, programPermissions(t))

	// With more changes than the images, the rollback names the images.
	runDocumented(t, "..", string(page), "## Move over", 0)
	kubectl(t, "..", "-n", harness.SystemNamespace, "rollout", "restart", "deployment/vpa-recommender")
	runDocumented(t, "..", string(page), "## Go back", 1)
	requireImages(t, upstreamImages)

	// After the step "Stay" the permissions equal those of a new installation. A rollback from
	// there restores upstream's.
	kubectl(t, "..", "apply", "-k", "deploy")
	runDocumented(t, "..", string(page), "## Stay", 0)
	requireImages(t, "loadline-")
	require.Equal(t, loadlinePermissions, programPermissions(t))
	runDocumented(t, manifests, string(page), "## Go back", 2)
	requireImages(t, upstreamImages)
	require.Equal(t, upstreamPermissions, programPermissions(t))
	budgets, err := cluster.Kube.PolicyV1().PodDisruptionBudgets(harness.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, budgets.Items, "with one replica they would keep nodes from being drained")
}

const upstreamImages = "registry.k8s.io/autoscaling/vpa-"

func requireImages(t *testing.T, prefix string) {
	t.Helper()
	for _, program := range []string{"recommender", "updater", "admission-controller"} {
		deployment, err := cluster.Kube.AppsV1().Deployments(harness.SystemNamespace).Get(t.Context(), "vpa-"+program, metav1.GetOptions{})
		require.NoError(t, err)
		require.Regexp(t, "^"+prefix+program+":", deployment.Spec.Template.Spec.Containers[0].Image)
	}
}

func programPermissions(t *testing.T) []string {
	t.Helper()
	var all []string
	rbac := cluster.Kube.RbacV1()
	bound := func(kind, name string, to rbacv1.RoleRef, subjects []rbacv1.Subject) {
		for _, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && strings.HasPrefix(s.Name, "vpa-") {
				all = append(all, fmt.Sprintf("%s %s: %s %s for %s", kind, name, to.Kind, to.Name, s.Name))
			}
		}
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, b := range clusterBindings.Items {
		bound("ClusterRoleBinding", b.Name, b.RoleRef, b.Subjects)
	}
	bindings, err := rbac.RoleBindings(harness.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, b := range bindings.Items {
		bound("RoleBinding", b.Name, b.RoleRef, b.Subjects)
	}
	clusterRoles, err := rbac.ClusterRoles().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, r := range clusterRoles.Items {
		if strings.HasPrefix(r.Name, "system:vpa-") || r.Name == "system:evictioner" || r.Name == "system:metrics-reader" {
			all = append(all, fmt.Sprintf("ClusterRole %s: %v", r.Name, r.Rules))
		}
	}
	roles, err := rbac.Roles(harness.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, r := range roles.Items {
		if strings.Contains(r.Name, "vpa-") {
			all = append(all, fmt.Sprintf("Role %s: %v", r.Name, r.Rules))
		}
	}
	slices.Sort(all)
	require.NotEmpty(t, all)
	return all
}

// installUpstream removes Loadline and installs upstream's manifests. It returns their folder.
func installUpstream(t *testing.T) (manifests string) {
	t.Helper()
	for _, d := range []*harness.Daemon{recommender, updater, admission} {
		d.Stop()
	}
	kubectl(t, "..", "delete", "-k", "deploy")
	kubectl(t, "..", "-n", harness.SystemNamespace, "delete", "--ignore-not-found", "secrets/vpa-tls-certs")
	manifests, err := harness.ReferenceManifests(t.Context())
	require.NoError(t, err)
	kubectl(t, "..", "apply", "-k", manifests)
	_, err = cluster.Kube.CoreV1().Secrets(harness.SystemNamespace).Create(t.Context(), scriptCertificate(t), metav1.CreateOptions{})
	require.NoError(t, err)
	return manifests
}

// scriptCertificate returns a Secret like that of upstream's script: a CA and a certificate, with
// their keys.
func scriptCertificate(t *testing.T) *corev1.Secret {
	t.Helper()
	data := map[string][]byte{}
	issue := func(file string, template, parent *x509.Certificate, signer *rsa.PrivateKey) (*x509.Certificate, *rsa.PrivateKey) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		if signer == nil {
			signer = key
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(100_000*time.Hour)
		raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		require.NoError(t, err)
		data[file+"Cert.pem"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
		data[file+"Key.pem"] = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
		certificate, err := x509.ParseCertificate(raw)
		require.NoError(t, err)
		return certificate, key
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vpa_webhook_ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authority, key := issue("ca", ca, ca, nil)
	issue("server", &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "vpa-webhook.kube-system.svc"}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		DNSNames: []string{"vpa-webhook.kube-system.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, // the webhook is called by URL here
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority, key)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "vpa-tls-certs"}, Data: data}
}

func kubectl(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cluster.Binary, append([]string{"kubectl", "--kubeconfig", cluster.Kubeconfig()}, args...)...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
}

// runDocumented runs the commands of a code block in a section of a page, counted from 0.
func runDocumented(t *testing.T, folder, page, section string, block int) {
	t.Helper()
	for line := range strings.Lines(documented(t, page, section, block)) {
		words := strings.Fields(strings.ReplaceAll(line, "TAG", "v0.1.0"))
		require.Equal(t, "kubectl", words[0], line)
		kubectl(t, folder, words[1:]...)
	}
}

func documented(t *testing.T, page, section string, block int) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n"+section+"\n")
	require.True(t, found, section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	parts := strings.Split(rest, "```\n") // every second part is a block
	require.Greater(t, len(parts), 2*block+1, section)
	return parts[2*block+1]
}

func runTrial(t *testing.T, w harness.Workload) {
	t.Helper()
	before, recommended := awaitRunning(t, w), onlyContainer(t, getVPA(t, w)).Target
	kubectl(t, "..", "apply", "-k", "deploy/crds")
	kubectl(t, "..", "apply", "-k", "deploy/migrate")
	trial, err := cluster.Daemon(t.Context(), "recommender", "recommender-trial", "--recommender-name=loadline-trial", "--recommender-interval=2s")
	require.NoError(t, err)
	require.NoError(t, trial.Start(t.Context()))
	defer trial.Stop()
	second := w
	second.Name = w.Name + "-trial"
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender("loadline-trial"), func(v *vpav1.VerticalPodAutoscaler) { v.Name = second.Name }))
	awaitRecommendation(t, second)
	forIterations(t, trial, 3, func() { requireSamePods(t, w, before) })
	for _, kind := range kinds {
		requireNotLess(t, recommended, onlyContainer(t, getVPA(t, w)).Target, kind, "target of the reference")
	}
	require.NoError(t, cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Delete(t.Context(), second.Name, metav1.DeleteOptions{}))
}

// migrationNamespace has workloads that only the programs of an installation change.
const migrationNamespace = "moving"

type installation struct {
	recommender, updater, admission *harness.Daemon

	start func(t *testing.T, d *harness.Daemon, what string, works func() error)
}

// Flags of both installations that change pods after a few seconds if they are a tenth off the
// target. With the defaults they could stay within wide bounds for hours.
var (
	migrationRecommenderFlags = []string{"--recommender-interval=2s"}
	migrationUpdaterFlags     = []string{"--updater-interval=2s", "--in-recommendation-bounds-eviction-lifetime-threshold=5s"}
)

func upstreamInstallation(t *testing.T) (i installation) {
	t.Helper()
	dir := t.TempDir()
	prepared := func(name string, args []string) *harness.Daemon {
		binary := filepath.Join(dir, name) // metrics contain the program name
		require.NoError(t, harness.BuildReference(t.Context(), "./pkg/"+name, binary))
		d, err := cluster.ReferenceProgram(t.Context(), binary, name, "reference-"+name, args...)
		require.NoError(t, err)
		return d
	}
	return installation{
		recommender: prepared("recommender", migrationRecommenderFlags),
		updater:     prepared("updater", migrationUpdaterFlags),
		admission:   prepared("admission-controller", mountedCertificateFlags(t, "reference")),
		start:       startUpstreamUntil,
	}
}

// mountedCertificateFlags returns the flags of an admission controller that is called by URL, with
// the certificate mounted as in its pod.
func mountedCertificateFlags(t *testing.T, whose string) []string {
	t.Helper()
	reached, err := harness.ByURL()
	require.NoError(t, err)
	files, err := cluster.CertificateFiles(t.Context(), "certificate-of-"+whose)
	require.NoError(t, err)
	return append(reached, files...)
}

func ourInstallation(t *testing.T) installation {
	t.Helper()
	i := installation{start: func(t *testing.T, d *harness.Daemon, what string, works func() error) {
		t.Helper()
		require.NoError(t, d.Start(t.Context()))
		eventually(t, what, works)
	}}
	var err error
	i.recommender, err = cluster.Daemon(t.Context(), "recommender", "recommender-moving", append(migrationRecommenderFlags, "--checkpoints-interval=5s")...)
	require.NoError(t, err)
	i.updater, err = cluster.Daemon(t.Context(), "updater", "updater-moving", migrationUpdaterFlags...)
	require.NoError(t, err)
	i.admission, err = cluster.Daemon(t.Context(), "admission-controller", "admission-controller-moving", mountedCertificateFlags(t, "ours")...)
	require.NoError(t, err)
	return i
}

// replace replaces the programs of another installation one by one, in the order of
// docs/migrate.md.
func (i installation) replace(t *testing.T, other installation) {
	t.Helper()
	other.recommender.Stop()
	i.start(t, i.recommender, "a pass of the recommender", hasIterated(t, i.recommender))
	other.updater.Stop()
	i.start(t, i.updater, "a pass of the updater", hasIterated(t, i.updater))
	other.admission.Stop()
	i.start(t, i.admission, "the webhook answers", func() error { return webhookAnswers(t) })
}

func (i installation) begin(t *testing.T) {
	t.Helper()
	i.replace(t, i)
}

func (i installation) stop() {
	for _, d := range []*harness.Daemon{i.recommender, i.updater, i.admission} {
		d.Stop()
	}
}

// webhookAnswers checks that the webhook rejects an invalid VPA. Upstream registers its webhook
// some seconds after its start.
func webhookAnswers(t *testing.T) error {
	t.Helper()
	invalid := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "invalid"},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "invalid"},
			UpdatePolicy: &vpav1.PodUpdatePolicy{MinReplicas: new(int32)},
		},
	}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(migrationNamespace).Create(t.Context(), invalid, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return errors.New("an invalid VPA was accepted")
	}
	require.ErrorContains(t, err, "denied the request")
	return nil
}

func requireNewPodSized(t *testing.T, w harness.Workload) {
	t.Helper()
	before, recommended := awaitRunning(t, w), onlyContainer(t, getVPA(t, w)).Target
	require.NoError(t, cluster.Kube.CoreV1().Pods(w.Namespace).Delete(t.Context(), before[0].Name, metav1.DeleteOptions{}))
	eventually(t, "a new pod of "+w.Name, func() error {
		for _, pod := range pods(t, w) {
			if pod.UID != before[0].UID && pod.UID != before[1].UID {
				requested := pod.Spec.Containers[0].Resources.Requests
				for _, kind := range kinds {
					requireNotLess(t, recommended, requested, kind, "request of a new pod")
					requireNotLess(t, requested, onlyContainer(t, getVPA(t, w)).Target, kind, "target below the request of a new pod, which")
				}
				return nil
			}
		}
		return fmt.Errorf("%s has no successor", before[0].Name)
	})
}

// requireOneWebhook requires that no webhook configuration without a server is left.
func requireOneWebhook(t *testing.T) {
	t.Helper()
	registered, err := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, registered.Items, 1)
	require.Len(t, registered.Items[0].Webhooks, 1, "in %s", registered.Items[0].Name)
}
