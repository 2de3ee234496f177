package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/e2e/prometheus/server"
)

// The cluster and the updater that all tests share, set once before the first test.
var (
	cluster *harness.Cluster
	updater *harness.Daemon
)

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	binary := os.Getenv("LOADLINE_CLUSTER")
	if binary == "" {
		return skip("it needs the local control plane; run `make e2e-node`, which builds it and sets LOADLINE_CLUSTER")
	}
	if os.Geteuid() != 0 {
		return skip(fmt.Sprintf("it needs root, not user %d", os.Geteuid()))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "loadline-node-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if binary, err = withContainerNames(binary); err != nil {
		return skip(err.Error())
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(binary)) }()
	state := filepath.Join(dir, "cluster")
	var said bytes.Buffer
	cluster, err = harness.Start(ctx, options(binary, state, io.MultiWriter(os.Stdout, &said)))
	if err != nil {
		why := reason(state, said.String(), err)
		if !isNodeFailure(why) {
			fmt.Println(err)
			return 1
		}
		return skip(why)
	}
	return cluster.Test(ctx, func() int {
		defer func() {
			if monitoring != nil {
				_ = monitoring.Stop()
			}
		}()
		if err := startPrograms(ctx, dir); err != nil {
			fmt.Println(err)
			return 1
		}
		defer printTimes(os.Stdout)
		return m.Run()
	})
}

// withContainerNames copies the control plane binary to its own folder, with a kubelet that names
// containers in its metrics: its cAdvisor needs the path of containerd.
func withContainerNames(binary string) (string, error) {
	from := filepath.Dir(binary)
	// Hard links next to the original need no space.
	folder, err := os.MkdirTemp(from, "names-")
	if err != nil {
		return "", fmt.Errorf("programs of the real node: %w", err)
	}
	const kubelet, kept = "loadline-kubelet", "kubelet"
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\" --containerd=/run/containerd.sock\n", filepath.Join(folder, kept))
	err = errors.Join(os.Link(binary, filepath.Join(folder, filepath.Base(binary))), os.Link(filepath.Join(from, "loadline-burn"), filepath.Join(folder, "loadline-burn")),
		os.Link(filepath.Join(from, kubelet), filepath.Join(folder, kept)), os.WriteFile(filepath.Join(folder, kubelet), []byte(script), 0o755))
	if err != nil {
		_ = os.RemoveAll(folder)
		return "", fmt.Errorf("programs of the real node: %w", err)
	}
	return filepath.Join(folder, filepath.Base(binary)), nil
}

// options configures a control plane with one real node, and one simulated node to show that both
// work together.
func options(binary, dir string, out io.Writer) harness.Options {
	return harness.Options{Binary: binary, Root: "../..", Dir: dir, Nodes: 1, Args: []string{"--real-node"}, Out: out}
}

func skip(why string) int {
	if os.Getenv("LOADLINE_NODE") == "required" {
		fmt.Println("failed: no real node here:", why)
		return 1
	}
	fmt.Println("skipped: no real node here:", why)
	return 0
}

// reason returns the reason for which the control plane did not start: from its state file, or else
// its last output line.
func reason(state, said string, err error) string {
	var kept struct{ Stopped string }
	if data, readErr := os.ReadFile(filepath.Join(state, "cluster.json")); readErr == nil && json.Unmarshal(data, &kept) == nil && kept.Stopped != "" {
		return strings.ReplaceAll(kept.Stopped, "\n", "; ")
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return err.Error()
}

// isNodeFailure reports whether a start failed because of the real node. Other reasons are failures
// everywhere, because simulated nodes would not start either.
func isNodeFailure(why string) bool {
	return slices.ContainsFunc([]string{"real node", "real-node", "nodes are ready"}, func(part string) bool { return strings.Contains(why, part) })
}

// lifetime is the minimum age of a pod for a small change.
const lifetime = 10 * time.Second

// startPrograms runs the three programs with short intervals and low minimums, and Prometheus if
// available.
func startPrograms(ctx context.Context, dir string) error {
	recommender, err := cluster.Daemon(ctx, "recommender", "recommender",
		"--recommender-interval=3s", "--ignored-vpa-object-namespaces="+shippedNamespace, "--pod-recommendation-min-cpu-millicores=10", "--pod-recommendation-min-memory-mb=20")
	if err != nil {
		return err
	}
	flags := append(roomFlags(ctx), "--feature-gates=InPlace=true", "--updater-interval=3s", "--ignored-vpa-object-namespaces="+shippedNamespace, "--in-recommendation-bounds-eviction-lifetime-threshold="+lifetime.String(),
		"--sharing-min-age=1s") // workloads are younger than an hour here
	if prometheus, err := server.Find(ctx); err != nil {
		noMonitoring = err
	} else if err := monitor(ctx, prometheus, filepath.Join(dir, "prometheus")); err != nil {
		return err
	} else {
		flags = append(flags, "--prometheus-address="+monitoring.URL)
	}
	if updater, err = cluster.Daemon(ctx, "updater", "updater", flags...); err != nil {
		return err
	}
	admission, err := cluster.AdmissionController(ctx, "--feature-gates=InPlace=true")
	if err != nil {
		return err
	}
	for _, d := range []*harness.Daemon{admission, recommender, updater} {
		if err := d.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// roomFlags turns off the updater's own check for free room, because these tests need the kubelet's
// responses.
func roomFlags(ctx context.Context) []string {
	const flag = "--eviction-room"
	help, _ := exec.CommandContext(ctx, filepath.Join(cluster.Root, "bin", "updater"), "--help").CombinedOutput()
	if bytes.Contains(help, []byte(flag)) {
		return []string{flag + "=off"}
	}
	return nil
}

type measured struct {
	what string
	took time.Duration
}

var (
	timesMu sync.Mutex
	times   []measured
)

func took(t *testing.T, what string, began time.Time) {
	t.Helper()
	timesMu.Lock()
	defer timesMu.Unlock()
	times = append(times, measured{what, time.Since(began)})
	t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
}

func printTimes(out io.Writer) {
	timesMu.Lock()
	defer timesMu.Unlock()
	slices.SortFunc(times, func(a, b measured) int { return strings.Compare(a.what, b.what) })
	for _, m := range times {
		fmt.Fprintf(out, "| %s | %.1f s |\n", m.what, m.took.Seconds())
	}
}

// eventually polls until condition returns nil. The last error explains a failure.
func eventually(t *testing.T, limit time.Duration, what string, condition func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); pause(t) {
		if err = condition(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %s: %v", what, limit, err)
}

// during requires that a condition holds throughout a duration.
func during(t *testing.T, length time.Duration, what string, condition func() error) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); pause(t) {
		require.NoError(t, condition(), what)
	}
}

func pause(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal("interrupted")
	case <-time.After(200 * time.Millisecond):
	}
}

func TestReason_ReturnsErrorOfControlPlane(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, "no root", reason(dir, "starting\nno root\n", errors.New("exit status 1")))
	require.Equal(t, "exit status 1", reason(dir, "", errors.New("exit status 1")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(`{"stopped":"real-node died\nno runc"}`), 0o644))
	why := reason(dir, "x", errors.New("exit status 1"))
	require.Equal(t, "real-node died; no runc", why)
	require.True(t, isNodeFailure(why))
	require.True(t, isNodeFailure(`waiting for "nodes ready": context deadline exceeded; 1 of 2 nodes are ready`))
	require.False(t, isNodeFailure(`waiting for "metrics API available": context deadline exceeded`))
}
