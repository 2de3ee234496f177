package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// The cluster and the programs that all tests share, set once before the first test.
var (
	cluster     *harness.Cluster
	recommender *harness.Daemon
	updater     *harness.Daemon
	admission   *harness.Daemon
)

// simulatedNodes have room for all pods of parallel tests. A DaemonSet pod runs on one node only,
// so it needs room there.
const simulatedNodes = 6

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	binary := os.Getenv("LOADLINE_CLUSTER")
	if binary == "" {
		fmt.Println("skipped: the promises need the local control plane; run `make e2e`, which builds it and sets LOADLINE_CLUSTER")
		return 0
	}
	if err := checkProcess(); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "loadline-e2e-")
	if err == nil {
		cluster, err = harness.Start(ctx, harness.Options{Binary: binary, Root: "..", Dir: filepath.Join(dir, "cluster"), Nodes: simulatedNodes, Out: os.Stdout})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return cluster.Test(ctx, func() int {
		if err := startPrograms(ctx); err != nil {
			fmt.Println(err)
			return 1
		}
		if code := m.Run(); code != 0 {
			return code
		}
		return checkPermissions()
	})
}

const alpha = "--feature-gates=InPlace=true,CPUStartupBoost=true,PerVPAConfig=true"

// eventAfter is the time after which a skipped pod gets an event, long enough to verify that there
// is none before.
const eventAfter = 4 * time.Minute

// ownNamespaces are the namespaces of tests with their own updater, see ownUpdater. The shared
// updater ignores them.
var ownNamespaces = []string{"canary", "arrows", "taken-back", "shares", "node-load"}

func startPrograms(ctx context.Context) (err error) {
	if recommender, err = cluster.Daemon(ctx, "recommender", "recommender",
		"--recommender-interval=3s", "--checkpoints-gc-interval=10s", "--leader-elect=true"); err != nil {
		return err
	}
	if updater, err = cluster.Daemon(ctx, "updater", "updater",
		"--updater-interval=3s", "--leader-elect=true", "--in-recommendation-bounds-eviction-lifetime-threshold=30s", alpha,
		"--ignored-vpa-object-namespaces="+strings.Join(ownNamespaces, ","),
		"--sharing-min-age=1s", // workloads of these clusters are younger than an hour
		// All tests together are a mass event.
		"--eviction-pace=0", "--namespace-eviction-pace=0", "--skip-event-after="+eventAfter.String()); err != nil {
		return err
	}
	if admission, err = cluster.AdmissionController(ctx, alpha); err != nil {
		return err
	}
	for _, d := range []*harness.Daemon{admission, recommender, updater} {
		if err := d.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Tests are split between processes with a cluster each, because the tests that stop a program take
// three times as long as all others. LOADLINE_PROMISES selects a process. Without it one process runs all
// tests.
const (
	processTogether = "together" // no program is stopped for long
	processFirst    = "first"    // a program is stopped; first, second and third take equally long
	processSecond   = "second"
	processThird    = "third"
)

var process = os.Getenv("LOADLINE_PROMISES")

// checkProcess rejects values of LOADLINE_PROMISES that would run no test.
func checkProcess() error {
	if known := []string{"", processTogether, processFirst, processSecond, processThird}; !slices.Contains(known, process) {
		return fmt.Errorf("LOADLINE_PROMISES=%s: must be one of %q", process, known)
	}
	return nil
}

// skipUnlessProcess skips a test that belongs to another process.
func skipUnlessProcess(t *testing.T, other string) {
	t.Helper()
	if process != "" && process != other {
		t.Skip("another process looks at it")
	}
}

// parallelTest starts a test that may run in parallel with others.
func parallelTest(t *testing.T) {
	sequentialTest(t)
	t.Parallel()
}

// sequentialTest starts a short test that must not run in parallel with others.
func sequentialTest(t *testing.T) {
	t.Helper()
	skipUnlessProcess(t, processTogether)
}

// exclusiveTest starts a long test that stops a program, and so must not run in parallel with
// others.
func exclusiveTest(t *testing.T, other string) {
	t.Helper()
	skipUnlessProcess(t, other)
}

// longestWait is the default timeout: the first usage of a new pod arrives after two scrapes of
// metrics-server, and the machine may be busy.
const longestWait = 3 * time.Minute

func namespace(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, cluster.CreateNamespace(t.Context(), name))
	return name
}

// eventually polls until condition returns nil. The last error explains a failure.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	within(t, longestWait, what, condition)
}

func within(t *testing.T, limit time.Duration, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: interrupted: %v", what, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func getVPA(t *testing.T, w harness.Workload) *vpav1.VerticalPodAutoscaler {
	t.Helper()
	vpa, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return vpa
}

func pods(t *testing.T, w harness.Workload) []corev1.Pod {
	t.Helper()
	list, err := cluster.Pods(t.Context(), w)
	require.NoError(t, err)
	return list
}

func awaitRunning(t *testing.T, w harness.Workload) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	eventually(t, "pods of "+w.Name+" run", func() error {
		found = pods(t, w)
		ready := 0
		for _, pod := range found {
			if isReady(&pod) {
				ready++
			}
		}
		if ready != int(w.Replicas) || len(found) != int(w.Replicas) {
			return fmt.Errorf("%d of %d ready, %d there", ready, w.Replicas, len(found))
		}
		return nil
	})
	return found
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func awaitRecommendation(t *testing.T, w harness.Workload) *vpav1.VerticalPodAutoscaler {
	t.Helper()
	return awaitRecommendationWithin(t, longestWait, w)
}

func awaitRecommendationWithin(t *testing.T, limit time.Duration, w harness.Workload) *vpav1.VerticalPodAutoscaler {
	t.Helper()
	var vpa *vpav1.VerticalPodAutoscaler
	within(t, limit, "recommendation for "+w.Name, func() error {
		vpa = getVPA(t, w)
		if vpa.Status.Recommendation == nil || len(vpa.Status.Recommendation.ContainerRecommendations) != len(w.Containers) {
			return fmt.Errorf("status is %+v", vpa.Status)
		}
		return nil
	})
	return vpa
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, status := range pod.Status.ContainerStatuses {
		n += status.RestartCount
	}
	return n
}

func atLeast(t *testing.T, want string, got resource.Quantity, what string) {
	t.Helper()
	require.GreaterOrEqual(t, got.Cmp(resource.MustParse(want)), 0, "%s is %s, expected at least %s", what, got.String(), want)
}

func atMost(t *testing.T, want string, got resource.Quantity, what string) {
	t.Helper()
	require.LessOrEqual(t, got.Cmp(resource.MustParse(want)), 0, "%s is %s, expected at most %s", what, got.String(), want)
}
