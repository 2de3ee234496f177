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
	for _, tc := range []struct{ name, args, want string }{
		{
			name: "two namespace filters", args: "--vpa-object-namespace=a --ignored-vpa-object-namespaces=b",
			want: "--vpa-object-namespace=a: excludes --ignored-vpa-object-namespaces=b",
		},
		{
			name: "external metrics without a metric", args: "--use-external-metrics",
			want: "--use-external-metrics=true: needs --external-metrics-cpu-metric, --external-metrics-memory-metric or both",
		},
		{
			name: "external metrics with usage from Prometheus",
			args: "--use-external-metrics --external-metrics-cpu-metric=c --usage-source=prometheus",
			want: "--use-external-metrics=true: excludes --usage-source=prometheus",
		},
		{
			name: "unknown usage source", args: "--usage-source=tea-leaves",
			want: `--usage-source=tea-leaves: must be "metrics" or "prometheus"`,
		},
		{
			name: "address without a scheme", args: "--storage=prometheus --prometheus-address=prometheus:9090",
			want: "--prometheus-address: prometheus:9090 must be a URL such as http",
		},
		{
			name: "invalid query timeout", args: "--storage=prometheus --prometheus-query-timeout=5x",
			want: "--prometheus-query-timeout=5x: must be a duration such as 5m",
		},
		{
			name: "invalid history length", args: "--storage=prometheus --history-length=lots",
			want: "--history-length=lots: must be a duration of at least 1s, such as 8d",
		},
		{
			name: "zero history resolution", args: "--storage=prometheus --history-resolution=0s",
			want: "--history-resolution=0s: must be a duration of at least 1s",
		},
		{
			name: "resolution longer than the history", args: "--storage=prometheus --history-resolution=2w",
			want: "--history-resolution=2w: must not be longer than --history-length=8d",
		},
		{
			name: "empty container label", args: "--storage=prometheus --container-name-label=",
			want: `--container-name-label="": must not be empty`,
		},
		{
			name: "zero rate window", args: "--usage-source=prometheus --prometheus-rate-window=0s",
			want: "--prometheus-rate-window=0s: must be at least 1s",
		},
		{
			name: "missing token file", args: "--prometheus-bearer-token-file=/does/not/exist",
			want: "--prometheus-bearer-token-file=/does/not/exist: must be a file with a token",
		},
		{name: "percentile above one", args: "--target-cpu-percentile=90", want: "--target-cpu-percentile=90: must be from 0 to 1"},
		{name: "zero interval", args: "--recommender-interval=0s", want: "--recommender-interval=0s: must be longer than 0"},
		{name: "no update workers", args: "--update-worker-count=0", want: "--update-worker-count=0: must be at least 1"},
		{name: "OOM ratio below one", args: "--oom-bump-up-ratio=0.5", want: "--oom-bump-up-ratio=0.5: must be at least 1"},
		{name: "listen address without a host", args: "--address=8942", want: "--address=8942: must be host:port"},
		{
			name: "zero aggregation intervals", args: "--memory-aggregation-interval-count=0",
			want: "--memory-aggregation-interval-count=0: must be at least 1",
		},
		{
			name: "lease shorter than the renew deadline", args: "--leader-elect --leader-elect-lease-duration=5s",
			want: "--leader-elect-lease-duration=5s: must be longer than --leader-elect-renew-deadline=10s",
		},
		{
			name: "token and token file", args: "--prometheus-bearer-token=secret --prometheus-bearer-token-file=/f",
			want: "excludes --prometheus-bearer-token-file=/f",
		},
		{name: "user name and token", args: "--username=u --prometheus-bearer-token=secret", want: "--username=u: excludes a bearer token"},
		{
			name: "negative maximum of CPU", args: "--container-recommendation-max-allowed-cpu=-1",
			want: "--container-recommendation-max-allowed-cpu=-1: must not be negative",
		},
		{name: "invalid maximum of CPU", args: "--container-recommendation-max-allowed-cpu=lots", want: "want a quantity"},
		{name: "removed feature gate", args: "--feature-gates=InPlaceOrRecreate=true", want: "removed with VPA 1.7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse(strings.Fields(tc.args)...)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestConfig_ErrorsOmitBearerToken(t *testing.T) {
	for _, tc := range []struct{ name, arg string }{
		{name: "token and token file", arg: "--prometheus-bearer-token-file=/f"},
		{name: "token and user name", arg: "--username=u"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse("--prometheus-bearer-token=secret", tc.arg)
			require.ErrorContains(t, err, "excludes")
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestConfig_IgnoresUnusedPrometheusFlags(t *testing.T) {
	_, err := parse("--prometheus-address=prometheus:9090", "--history-length=lots")
	require.NoError(t, err, "the reference starts with them")
}

func TestPrometheusCredentials_FromEnvironment(t *testing.T) {
	t.Setenv("PROMETHEUS_USERNAME", "user")
	t.Setenv("PROMETHEUS_PASSWORD", "word")
	for _, tc := range []struct{ name, args, want string }{
		{name: "environment", want: "user word"},
		{name: "user name without a password", args: "--username=u", want: "user word"},
		{name: "flags", args: "--username=u --password=p", want: "u p"},
		{name: "bearer token", args: "--prometheus-bearer-token=something", want: " "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse(strings.Fields(tc.args)...)
			require.NoError(t, err)
			client := c.Prometheus.Client(nil)
			require.Equal(t, tc.want, client.Username+" "+client.Password)
		})
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
