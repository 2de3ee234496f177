package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

const certificates = "vpa-tls-certs"

// replicas are two admission controllers behind one Service that replace the shared one.
type replicas struct {
	service *harness.Service
	daemons [2]*harness.Daemon
	ports   [2]string
}

// twoReplicas stops the shared admission controller until the test ends.
func twoReplicas(t *testing.T, args ...string) *replicas {
	admission.Stop()
	t.Cleanup(func() { require.NoError(t, admission.Start(context.WithoutCancel(t.Context()))) })
	service, err := harness.NewService()
	require.NoError(t, err)
	t.Cleanup(func() { service.Close() })
	host, port, err := net.SplitHostPort(service.Address())
	require.NoError(t, err)
	r := &replicas{service: service}
	for i := range r.daemons {
		own, err := harness.FreeAddress()
		require.NoError(t, err)
		_, ownPort, err := net.SplitHostPort(own)
		require.NoError(t, err)
		r.ports[i] = own
		r.daemons[i], err = cluster.Daemon(t.Context(), "admission-controller", fmt.Sprintf("admission-controller-%d-%s", i, port), append([]string{
			"--port=" + ownPort, "--register-by-url", "--webhook-address=https://" + host, "--webhook-port=" + port,
			"--webhook-timeout-seconds=5", "--status-lease-update-interval=1s"}, args...)...)
		require.NoError(t, err)
		t.Cleanup(r.daemons[i].Stop)
	}
	// Starts both at once, so that they must agree on one certificate.
	var started sync.WaitGroup
	for i := range r.daemons {
		started.Go(func() { r.start(t, i) })
	}
	started.Wait()
	return r
}

func (r *replicas) start(t *testing.T, i int) {
	if err := r.daemons[i].Start(t.Context()); err != nil {
		t.Error(err)
		return
	}
	r.service.Add(r.ports[i])
}

// stop stops a replica as in a rollout: the Service removes it some time after SIGTERM.
func (r *replicas) stop(i int) {
	out := time.AfterFunc(time.Second, func() { r.service.Remove(r.ports[i]) })
	r.daemons[i].Stop()
	out.Stop()
	r.service.Remove(r.ports[i])
}

type creations struct {
	created, changed atomic.Int64
	mu               sync.Mutex
	failures         []string
	stop             func()
}

// createPods starts to create pods with a scheduling gate, so that only the webhook processes them.
func createPods(t *testing.T, name string) *creations {
	w := harness.Workload{Namespace: namespace(t, name), Name: "web", Containers: []harness.Container{{Name: "app", CPU: "50m", Memory: "64Mi"}}}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	createInitialVPAWithTarget(t, w, resourceList("200m", "128Mi"))
	owner, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c := &creations{}
	var workers sync.WaitGroup
	c.stop = func() { cancel(); workers.Wait() }
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				c.create(ctx, ownedPod(w, owner))
				time.Sleep(40 * time.Millisecond)
			}
		})
	}
	return c
}

func (c *creations) create(ctx context.Context, pod *corev1.Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "loadline.dev/never"}}
	created, err := cluster.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if ctx.Err() != nil {
		return
	}
	c.created.Add(1)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failures = append(c.failures, time.Now().Format("15:04:05.000 ")+err.Error())
		return
	}
	if created.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() == 200 {
		c.changed.Add(1)
	}
	_ = cluster.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func (c *creations) end(t *testing.T) {
	t.Helper()
	c.stop()
	require.Empty(t, c.failures, "of %d creations", c.created.Load())
	require.Greater(t, c.created.Load(), int64(100))
	t.Logf("%d pods created, %d of them with the resources of the VPA", c.created.Load(), c.changed.Load())
}

// ownedPod returns a pod of the Deployment, as its controller would create it.
func ownedPod(w harness.Workload, owner *appsv1.Deployment) *corev1.Pod {
	template := w.Template()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.Name + "-", Namespace: w.Namespace, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner.Name, UID: owner.UID, Controller: new(true)}}},
		Spec: template.Spec,
	}
}

// createInitialVPAWithTarget creates a VPA in mode Initial with a fixed recommendation for the
// first container that no recommender updates.
func createInitialVPAWithTarget(t *testing.T, w harness.Workload, target corev1.ResourceList, change ...func(*vpav1.VerticalPodAutoscaler)) {
	t.Helper()
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, append(change, withRecommender("nobody"))...))
	vpa := getVPA(t, w)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: w.Containers[0].Name, Target: target, LowerBound: target, UpperBound: target,
	}}}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// Stops two replicas in turns, as in a rollout, with failure policy Fail. The test must not run in
// parallel with others, which need the webhook.
func TestWebhook_RolloutUnderLoad(t *testing.T) {
	exclusiveTest(t, processThird)
	r := twoReplicas(t, "--webhook-failure-policy-fail")
	load := createPods(t, "replaced-replicas")
	defer load.stop()
	for round := range 6 {
		time.Sleep(2 * time.Second)
		r.stop(round % 2)
		r.start(t, round%2)
	}
	load.end(t)
	require.Equal(t, load.created.Load(), load.changed.Load(), "and each went through the webhook")
}

// Kills replicas in turns. With the default failure policy no creation may fail, but some pods may
// start without the target.
func TestWebhook_KilledReplicasUnderLoad(t *testing.T) {
	exclusiveTest(t, processThird)
	r := twoReplicas(t)
	load := createPods(t, "killed-replicas")
	defer load.stop()
	for round := range 6 {
		time.Sleep(2 * time.Second)
		r.daemons[round%2].Kill()
		r.service.Remove(r.ports[round%2])
		r.start(t, round%2)
	}
	load.end(t)
	require.Greater(t, load.changed.Load(), load.created.Load()*9/10, "while one is away the other answers")
}

// The certificate and its CA are replaced twice under load: before they expire, and immediately
// after the Secret is deleted. No creation may fail.
func TestCertificate_RotationUnderLoad(t *testing.T) {
	exclusiveTest(t, processSecond)
	secrets := cluster.Kube.CoreV1().Secrets(harness.SystemNamespace)
	admission.Stop() // no other program may write a certificate
	old := expiringCertificate(t, 70*time.Second)
	require.NoError(t, secrets.Delete(t.Context(), certificates, metav1.DeleteOptions{}))
	_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificates}, Data: old}, metav1.CreateOptions{})
	require.NoError(t, err)
	twoReplicas(t, "--webhook-failure-policy-fail")
	load := createPods(t, "rotated-certificate")
	defer load.stop()

	serving := func() string {
		secret, err := secrets.Get(t.Context(), certificates, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		require.NoError(t, err)
		return string(secret.Data["serverCert.pem"])
	}
	another := func(before string) func() error {
		return func() error {
			if now := serving(); now == "" || now == before {
				return fmt.Errorf("it is still the former one")
			}
			return nil
		}
	}
	eventually(t, "a certificate in place of the one that ends", another(string(old["serverCert.pem"])))
	time.Sleep(40 * time.Second) // the old one has expired
	before := serving()
	require.NoError(t, secrets.Delete(t.Context(), certificates, metav1.DeleteOptions{}))
	eventually(t, "a certificate in place of the deleted one", another(before))
	time.Sleep(40 * time.Second) // longer than a new CA is published before its use
	load.end(t)
	require.Equal(t, load.created.Load(), load.changed.Load(), "and each went through the webhook")
}

// expiringCertificate returns the data of a Secret with a certificate that expires after left, a
// tenth of its lifetime.
func expiringCertificate(t *testing.T, left time.Duration) map[string][]byte {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "old CA"}, NotBefore: time.Now().Add(-9 * left), NotAfter: time.Now().Add(left),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	server := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	require.NoError(t, err)
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, caKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	return map[string][]byte{"caCert.pem": block("CERTIFICATE", caDER), "serverCert.pem": block("CERTIFICATE", serverDER), "serverKey.pem": block("PRIVATE KEY", keyDER)}
}
