package updater

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/nodeload"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/shares"
)

// Flags of the reference VPA keep their names, types and defaults. Loadline's own flags have a
// separate file.
func TestFlags_MatchGolden(t *testing.T) {
	own := flags.New("own")
	Default().addOwnFlags(own)
	all := flags.New("updater")
	Default().AddFlags(all)
	var upstream, ours []string
	all.VisitAll(func(f *pflag.Flag) {
		line := fmt.Sprintf("%s %s %q", f.Name, f.Value.Type(), f.DefValue)
		if own.Lookup(f.Name) != nil {
			ours = append(ours, line)
		} else {
			upstream = append(upstream, line)
		}
	})
	golden(t, "flags.golden", upstream)
	golden(t, "flags-own.golden", ours)
}

func TestMetrics_MatchGolden(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	s := &score{Name: cache.NewObjectName("shop", "web"), Mode: vpav1.UpdateModeRecreate, Pods: 1 << 20}
	m.InitCounters(s)
	m.FailedEviction(s, "EvictionError")
	m.FailedResize(s, "InPlaceUpdateError")
	m.Infeasible(s)
	m.HeartbeatMissing("error")
	m.Stopwatch().Total()
	m.Publish([]*score{s}, map[reason.Reason]int{})
	m.NodeLoad(nodeload.Counts{})
	m.NodeLoadFailed(nodeload.SourcePrometheus)
	m.Shared(&shares.Round{Nodes: []*shares.NodeResult{{Active: true, Pods: 1}}}, 1)
	m.Reverted(s.Name, rollout.OOMKill)
	m.RevertDeferred(s.Name, rollout.OOMKill)
	m.RecordFailed()
	m.RevertFailed()
	m.EvidenceMissing(1)
	m.Observed(1)
	m.Fuses(map[string]*policies.Limits{"fleet": {}})
	m.cacheAges.SetSource(func() map[string]time.Duration { return map[string]time.Duration{"pods": time.Minute} })
	m.cacheSizes.Add("pods", cache.NewStore(cache.MetaNamespaceKeyFunc))
	synctest.Test(t, func(t *testing.T) { // until the cache is measured
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		m.cacheSizes.Run(ctx)
	})
	serving.NewClosedConnections(registry)
	golden(t, "metrics.golden", describe(registry, t))
}

// golden compares lines with a file in testdata. UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	slices.Sort(lines)
	path := filepath.Join("testdata", name)
	text := strings.Join(lines, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

type capture struct {
	process.OS

	out io.Writer
}

func (c capture) Stdout() io.Writer { return c.out }

func start(args ...string) (code int, stderr string) {
	config := Default()
	var out, errOut bytes.Buffer
	program := flags.Program{Name: "updater", Config: config, Logging: &config.Logging,
		Run: func(ctx context.Context) error { return Run(ctx, config, capture{out: &out}) }}
	code = program.Main(args, &out, &errOut)
	return code, errOut.String()
}

func TestConfig_InvalidInputPrintsOneLineEach(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "unknown flag", args: []string{"--no-such-flag"}, code: flags.ExitUsage, want: "unknown flag: --no-such-flag"},
		{name: "one namespace and ignored namespaces", args: []string{"--vpa-object-namespace=a", "--ignored_vpa_object_namespaces=b"},
			code: flags.ExitUsage, want: "give only one of the two"},
		{name: "lease timeout of zero", args: []string{"--admission-controller-status-lease-timeout=0s"}, code: flags.ExitUsage,
			want: "must be longer than 0"},
		{name: "no boost syncs", args: []string{"--concurrent-cpu-startup-boost-syncs=0"}, code: flags.ExitUsage,
			want: "must be at least 1"},
		{name: "burst of zero", args: []string{"--eviction-rate-limit=1", "--eviction-rate-burst=0"}, code: flags.ExitUsage,
			want: "no pod is ever changed"},
		{name: "invalid label selector", args: []string{"--static-cpu-nodes=a=("}, code: flags.ExitUsage,
			want: "--static-cpu-nodes=a=(: must be a label selector such as cpumanager=true: "},
		{name: "tolerance that is no number", args: []string{"--eviction-tolerance=NaN"}, code: flags.ExitUsage,
			want: "must be between 0 and 1"},
		{name: "stabilization window too long", args: []string{"--stabilization-window=25h"}, code: flags.ExitUsage,
			want: "--stabilization-window=25h0m0s: must be from 0 to 24h"},
		{name: "invalid value of the taint", args: []string{"--node-load-taint=yes"}, code: flags.ExitUsage,
			want: "--node-load-taint=yes: must be off, dry-run or on"},
		{name: "taint without Prometheus", args: []string{"--node-load-taint=dry-run"}, code: flags.ExitUsage,
			want: "--node-load-taint=dry-run: requires --prometheus-address"},
		{name: "empty metric", args: []string{"--node-load-metric="}, code: flags.ExitUsage,
			want: `--node-load-metric="": must be a metric such as node_load1, or a PromQL expression`},
		{name: "invalid label", args: []string{"--node-load-label=the node"}, code: flags.ExitUsage,
			want: "--node-load-label=the node: must be the name of a label: "},
		{name: "load threshold of zero", args: []string{"--node-load-threshold=0"}, code: flags.ExitUsage,
			want: "--node-load-threshold=0: must be more than 0"},
		{name: "load threshold that is no number", args: []string{"--node-load-threshold=NaN"}, code: flags.ExitUsage,
			want: "--node-load-threshold=NaN: must be more than 0"},
		{name: "load interval too short", args: []string{"--node-load-interval=100ms"}, code: flags.ExitUsage,
			want: "--node-load-interval=100ms: must be from 1s to 10m"},
		{name: "load interval too long", args: []string{"--node-load-interval=11m"}, code: flags.ExitUsage,
			want: "--node-load-interval=11m0s: must be from 1s to 10m"},
		{name: "taint of all nodes", args: []string{"--node-load-max-tainted=1"}, code: flags.ExitUsage,
			want: "--node-load-max-tainted=1: must be more than 0 and less than 1: some node must be left for new pods"},
		{name: "taint of no node", args: []string{"--node-load-max-tainted=0"}, code: flags.ExitUsage,
			want: "--node-load-max-tainted=0: must be more than 0 and less than 1"},
		{name: "negative event delay", args: []string{"--skip-event-after=-1s"}, code: flags.ExitUsage,
			want: "--skip-event-after=-1s: must not be negative"},
		{name: "address in use", args: []string{"--address=" + listener.Addr().String()}, code: flags.ExitFailed,
			want: "address already in use"},
		{name: "missing kubeconfig", args: []string{"--address=127.0.0.1:0", "--kubeconfig=/no/such/file"}, code: flags.ExitFailed,
			want: "must be a readable kubeconfig file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stderr := start(append(tc.args, "--v=0")...)
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.want)
			require.Equal(t, 1, strings.Count(strings.TrimSpace(stderr), "\n")+1, stderr)
		})
	}
	code, stderr := start("--updater-interval=0s", "--eviction-tolerance=2")
	require.Equal(t, flags.ExitUsage, code)
	require.Equal(t, 2, strings.Count(stderr, "\n"), "all problems at once: %s", stderr)
}
