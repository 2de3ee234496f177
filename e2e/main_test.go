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

// The cluster and the programs that all promises share. They are set once,
// before the first test runs.
var (
	cluster     *harness.Cluster
	recommender *harness.Daemon
	updater     *harness.Daemon
	admission   *harness.Daemon
)

// simulatedNodes have room for all pods that the tests run side by side: a daemon has
// only its own node, and would wait for that of others.
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

// alpha switches on what promises need.
const alpha = "--feature-gates=InPlace=true,CPUStartupBoost=true,PerVPAConfig=true"

// eventAfter is how long pods are left alone before an event says so: long enough to see
// that there was none before.
const eventAfter = 4 * time.Minute

// ownNamespaces are those of promises that need an updater of their own, see ownUpdater: the
// shared one leaves them alone.
var ownNamespaces = []string{"canary", "arrows", "taken-back", "shares", "node-load"}

// startPrograms runs the three programs with short intervals, the alpha features
// that promises need, and otherwise their defaults.
func startPrograms(ctx context.Context) (err error) {
	if recommender, err = cluster.Daemon(ctx, "recommender", "recommender",
		"--recommender-interval=3s", "--checkpoints-gc-interval=10s", "--leader-elect=true"); err != nil {
		return err
	}
	if updater, err = cluster.Daemon(ctx, "updater", "updater",
		"--updater-interval=3s", "--leader-elect=true", "--in-recommendation-bounds-eviction-lifetime-threshold=30s", alpha,
		"--ignored-vpa-object-namespaces="+strings.Join(ownNamespaces, ","),
		"--sharing-min-age=1s", // all workloads of these clusters are younger than an hour
		// All the promises together are a mass event.
		"--eviction-pace=0", "--namespace-eviction-pace=0", "--left-alone-event-after="+eventAfter.String()); err != nil {
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

// Processes, each with a cluster of its own, share the promises: those for which a program is
// stopped would take twice as long as all others together. LOADLINE_PROMISES names one of them; without
// it one process looks at all, one after the other where it must be.
const (
	processTogether = "together" // nothing is stopped for long
	processFirst    = "first"    // a program is stopped; these two take as long as each other
	processSecond   = "second"
)

var process = os.Getenv("LOADLINE_PROMISES")

// checkProcess returns an error where this process would look at nothing.
func checkProcess() error {
	if known := []string{"", processTogether, processFirst, processSecond}; !slices.Contains(known, process) {
		return fmt.Errorf("LOADLINE_PROMISES=%s: must be one of %q", process, known)
	}
	return nil
}

// in leaves a promise to the process that looks at it.
func in(t *testing.T, other string) {
	t.Helper()
	if process != "" && process != other {
		t.Skip("another process looks at it")
	}
}

// together begins a promise that is looked at beside others.
func together(t *testing.T) {
	inTurn(t)
	t.Parallel()
}

// inTurn begins a short promise beside which no other may be looked at.
func inTurn(t *testing.T) {
	t.Helper()
	in(t, processTogether)
}

// alone begins a long promise beside which no other may be looked at, as a program is stopped.
func alone(t *testing.T, other string) {
	t.Helper()
	in(t, other)
}

// longestWait is how long a promise may take: a new pod's first usage arrives
// after two scrapes of metrics-server, and the machine may be busy.
const longestWait = 3 * time.Minute

// namespace creates the test's own namespace.
func namespace(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, cluster.CreateNamespace(t.Context(), name))
	return name
}

// eventually asks condition again and again until it returns nil; the last
// answer explains a failure.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	within(t, longestWait, what, condition)
}

// within is eventually for a promise that names a time.
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

// awaitRunning waits until all replicas run and are ready.
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

// awaitRecommendation waits until the VPA recommends something for every
// container of the workload.
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
