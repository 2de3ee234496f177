package recommender

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the names, types and defaults are frozen; run with -update only for a flag or metric of our own")
}

func TestFlags_MatchGolden(t *testing.T) {
	fs := flags.New("recommender")
	Default().AddFlags(fs)
	var list strings.Builder
	fs.VisitAll(func(f *pflag.Flag) { fmt.Fprintf(&list, "%s\t%s\t%s\n", f.Name, f.Value.Type(), f.DefValue) })
	golden(t, "testdata/flags.golden", list.String())
}

func parse(args ...string) (*Config, error) {
	c := Default()
	fs := flags.New("recommender")
	c.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	return c, errors.Join(c.Complete(), c.Validate())
}

func TestConfig_DefaultsAreValid(t *testing.T) {
	_, err := parse()
	require.NoError(t, err)
}

func TestFlags_AcceptUnderscores(t *testing.T) {
	config, err := parse("--add_dir_header", "--recommender_name=own", "--memory_saver")
	require.NoError(t, err)
	require.Equal(t, "own", config.Name)
}

func TestConfig_RejectsInvalidFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--vpa-object-namespace=a --ignored-vpa-object-namespaces=b", "--vpa-object-namespace=a: excludes --ignored-vpa-object-namespaces=b"},
		{"--use-external-metrics", "--use-external-metrics=true: needs --external-metrics-cpu-metric, --external-metrics-memory-metric or both"},
		{"--use-external-metrics --external-metrics-cpu-metric=c --usage-source=prometheus", "--use-external-metrics=true: excludes --usage-source=prometheus"},
		{"--usage-source=tea-leaves", `--usage-source=tea-leaves: must be "metrics" or "prometheus"`},
		{"--storage=prometheus --prometheus-address=prometheus:9090", "--prometheus-address: prometheus:9090 must be a URL such as http"},
		{"--storage=prometheus --prometheus-query-timeout=5x", "--prometheus-query-timeout=5x: must be a duration such as 5m"},
		{"--storage=prometheus --history-length=lots", "--history-length=lots: must be a duration of at least 1s, such as 8d"},
		{"--storage=prometheus --history-resolution=0s", "--history-resolution=0s: must be a duration of at least 1s"},
		{"--storage=prometheus --history-resolution=2w", "--history-resolution=2w: must not be longer than --history-length=8d"},
		{"--storage=prometheus --container-name-label=", `--container-name-label="": must not be empty`},
		{"--usage-source=prometheus --prometheus-rate-window=0s", "--prometheus-rate-window=0s: must be at least 1s"},
		{"--prometheus-bearer-token-file=/does/not/exist", "--prometheus-bearer-token-file=/does/not/exist: must be a file with a token"},
		{"--target-cpu-percentile=90", "--target-cpu-percentile=90: must be from 0 to 1"},
		{"--recommender-interval=0s", "--recommender-interval=0s: must be longer than 0"},
		{"--update-worker-count=0", "--update-worker-count=0: must be at least 1"},
		{"--oom-bump-up-ratio=0.5", "--oom-bump-up-ratio=0.5: must be at least 1"},
		{"--address=8942", "--address=8942: must be host:port"},
		{"--memory-aggregation-interval-count=0", "--memory-aggregation-interval-count=0: must be at least 1"},
		{"--leader-elect --leader-elect-lease-duration=5s", "--leader-elect-lease-duration=5s: must be longer than --leader-elect-renew-deadline=10s"},
		{"--prometheus-bearer-token=secret --prometheus-bearer-token-file=/f", "excludes --prometheus-bearer-token-file=/f"},
		{"--username=u --prometheus-bearer-token=secret", "--username=u: excludes a bearer token"},
		{"--container-recommendation-max-allowed-cpu=-1", "--container-recommendation-max-allowed-cpu=-1: must not be negative"},
		{"--container-recommendation-max-allowed-cpu=lots", "want a quantity"},
		{"--feature-gates=InPlaceOrRecreate=true", "removed with VPA 1.7"},
	} {
		_, err := parse(strings.Fields(c.args)...)
		require.ErrorContains(t, err, c.want, c.args)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestConfig_IgnoresUnusedPrometheusFlags(t *testing.T) {
	_, err := parse("--prometheus-address=prometheus:9090", "--history-length=lots")
	require.NoError(t, err, "the reference starts with them")
}

func TestPrometheusCredentials_FromEnvironment(t *testing.T) {
	t.Setenv("PROMETHEUS_USERNAME", "user")
	t.Setenv("PROMETHEUS_PASSWORD", "word")
	for args, want := range map[string]string{
		"":                                    "user word",
		"--username=u":                        "user word",
		"--username=u --password=p":           "u p",
		"--prometheus-bearer-token=something": " ",
	} {
		c, err := parse(strings.Fields(args)...)
		require.NoError(t, err)
		client := c.Prometheus.Client(nil)
		require.Equal(t, want, client.Username+" "+client.Password, args)
	}
	t.Setenv("PROMETHEUS_PASSWORD", "")
	c, err := parse("--password=p")
	require.NoError(t, err)
	require.Empty(t, c.Prometheus.Client(nil).Password)
	require.Contains(t, c.warnings(), `--username="": has no effect without --password, and the other way round`)
}

func TestConfig_ReportsAllErrors(t *testing.T) {
	_, err := parse("--update-worker-count=-1", "--recommender-interval=-1s", "--usage-source=x")
	require.ErrorContains(t, err, "update-worker-count")
	require.ErrorContains(t, err, "recommender-interval")
	require.ErrorContains(t, err, "usage-source")
}

func TestRun_WithoutClusterPrintsOneError(t *testing.T) {
	c := Default()
	p := flags.Program{Name: "recommender", Config: c, Logging: &c.Logging, Run: func(ctx context.Context) error { return Run(ctx, c, process.OS{}) }}
	var out, errOut bytes.Buffer
	code := p.Main([]string{"--kubeconfig=/does/not/exist", "--address=127.0.0.1:0", "--v=0"}, &out, &errOut)
	require.Equal(t, flags.ExitFailed, code)
	require.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
	require.Contains(t, errOut.String(), "--kubeconfig=/does/not/exist: must be a readable kubeconfig file")
}
