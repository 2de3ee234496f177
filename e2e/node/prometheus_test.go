package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/e2e/prometheus/server"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/updater/rollouts"
)

type scraper struct {
	*server.Server
	client *prometheus.Client
	shares *rollouts.EvidenceSource // configured as in the updater
}

// monitoring is shared by all tests and set once before the first one. If it is nil, noMonitoring
// is the reason.
var (
	monitoring   *scraper
	noMonitoring error
)

// account may read the kubelet's metrics, as in docs/policy.md.
const account = `
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: monitoring, name: prometheus}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects: [{kind: ServiceAccount, namespace: monitoring, name: prometheus}]
`

// scrapes is the configuration of docs/policy.md, with static targets and files: Debian's
// Prometheus is built without Kubernetes service discovery.
const scrapes = `
global: {scrape_interval: 5s}
scrape_configs:
- job_name: kubernetes-cadvisor
  scheme: https
  metrics_path: /metrics/cadvisor
  authorization: {credentials_file: %[1]q}
  tls_config: {ca_file: %[2]q}
  static_configs:
  - targets: [%[3]q]
`

func monitor(ctx context.Context, programs server.Programs, dir string) error {
	manifest, token, ca := filepath.Join(dir, "account.yaml"), filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(manifest, []byte(account), 0o644), os.WriteFile(ca, cluster.Config.CAData, 0o644)); err != nil {
		return err
	}
	if _, err := cluster.KubectlOutput(ctx, "apply", "-f", manifest); err != nil {
		return err
	}
	made, err := cluster.Kube.CoreV1().ServiceAccounts("monitoring").CreateToken(ctx, "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token for Prometheus: %w", err)
	}
	if err := os.WriteFile(token, []byte(made.Status.Token), 0o600); err != nil {
		return err
	}
	node, err := cluster.Kube.CoreV1().Nodes().Get(ctx, realNode, metav1.GetOptions{})
	if err != nil {
		return err
	}
	kubelet := fmt.Sprintf("%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	started, err := programs.Start(ctx, dir, fmt.Sprintf(scrapes, token, ca, kubelet))
	if err != nil {
		return err
	}
	config := rollouts.DefaultEvidenceConfig()
	config.Address = started.URL
	client, clientErr := prometheus.New(process.OS{}, config.Client(started.URL))
	source, sourceErr := rollouts.NewEvidenceSource(process.OS{}, config)
	monitoring = &scraper{started, client, source}
	return errors.Join(clientErr, sourceErr)
}

const (
	periods = "container_cpu_cfs_periods_total"
	waiting = "container_pressure_cpu_waiting_seconds_total"
)

// requireMetric skips the test if there is no Prometheus, or if the kubelet lacks the counter of a
// container that has other metrics.
func requireMetric(t *testing.T, pod *corev1.Pod, counter string) {
	t.Helper()
	if monitoring == nil {
		t.Skipf("%s is not known here: %v", counter, noMonitoring)
	}
	series := func(counter string) (n int, err error) {
		query := fmt.Sprintf(`%s{namespace=%q,pod=%q,container="app"}`, counter, pod.Namespace, pod.Name)
		_, err = monitoring.client.Instant(t.Context(), query, time.Now(), func(map[string]string, []prometheus.Point) { n++ })
		return n, err
	}
	eventually(t, longestWait, "Prometheus has the metrics of the container", func() error {
		n, err := series("container_cpu_usage_seconds_total")
		if err == nil && n == 0 {
			err = errors.New("it has none")
		}
		return err
	})
	n, err := series(counter)
	require.NoError(t, err)
	if n == 0 {
		t.Skipf("the kubelet does not have %s of a container on this machine (pressure needs control groups of version 2)", counter)
	}
}

// awaitShare waits until a share of the pod's container is available for a whole minute, which a
// change requires.
func awaitShare(t *testing.T, pod *corev1.Pod, limit time.Duration, share func(rollouts.CPUPressure) float64) {
	t.Helper()
	eventually(t, limit, "Prometheus knows the figure of the time before the change", func() error {
		shares, err := monitoring.shares.CPUPressure(t.Context(), pod.Namespace, []string{pod.Name}, time.Now().Truncate(time.Minute))
		if err == nil && math.IsNaN(share(rollouts.PressureOf(shares, pod.Name, "app"))) {
			err = fmt.Errorf("%+v", shares)
		}
		return err
	})
}
