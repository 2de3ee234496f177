package backtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func names(t *testing.T, args ...string) []string {
	t.Helper()
	found, err := (&Sources{Servers: DefaultServers()}).Find(args)
	require.NoError(t, err)
	var names []string
	for _, s := range found {
		names = append(names, s.Name+" as "+s.Dataset)
	}
	return names
}

func TestSourcesFind_FilesDirectoriesAndServers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	one := write("one.csv", "")
	write("two.csv.gz", "")
	write("series.csv", "")
	write("notes.txt", "")
	list := write("all.servers", "# production\nhttps://a.example/prometheus/\n\n http://b.example:9090 \n")
	servers := []string{"http://b.example:9090 as b.example:9090", "https://a.example/prometheus/ as a.example/prometheus"}
	files := []string{one + " as one.csv", filepath.Join(dir, "two.csv.gz") + " as two.csv.gz"}
	require.Equal(t, append(files, servers...), names(t, dir))
	require.Equal(t, servers, names(t, list))
	require.Equal(t, append(files[:1:1], servers[:1]...), names(t, "http://b.example:9090", one, one, "http://b.example:9090/"))
	bad := write("bad.servers", "http://a.example\nb.example:9090\n")
	_, err := (&Sources{}).Find([]string{bad})
	require.EqualError(t, err, `read recordings: `+bad+`:2: is "b.example:9090": expected an address such as http://prometheus.monitoring.svc:9090`)
	_, err = (&Sources{}).Find([]string{"http://"})
	require.ErrorContains(t, err, "must be a URL such as")
}

func TestServersQuery_AlignsTimesToSteps(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 2, 3, 4, time.UTC)
	s := DefaultServers()
	q, err := s.Query(now)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC), q.Until)
	require.Equal(t, q.Until.Add(-8*24*time.Hour), q.Since)
	require.Equal(t, 5*time.Minute, q.Step)
	s.Resolution, s.Since, s.Until, s.Selector = "30s", "2026-03-01T10:00:15+02:00", "2026-03-01T20:00:00Z", "app=web"
	q, err = s.Query(now)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), q.Since)
	require.Equal(t, time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC), q.Until)
	require.Equal(t, "app=web", q.Pods.String())
}

func TestServersQuery_ReportsAllInvalidFlags(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 2, 3, 4, time.UTC)
	s := Servers{Length: "week", Resolution: "1", Since: "yesterday", Until: "tomorrow", Selector: "a=(b"}
	s.Username, s.BearerToken, s.QueryTimeout = "u", "secret", "soon"
	_, err := s.Query(now)
	for _, text := range []string{
		"--history-length=week: must be a duration", "--history-resolution=1: must be", "--since=yesterday: must be a time", "--until=tomorrow", "--selector=a=(b: must be",
		"--username=u: excludes a bearer token", "--prometheus-query-timeout=soon", `--history-cpu-metric="": must not be empty`, `--container-name-label=""`,
	} {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), "secret")
	for _, tc := range []struct {
		name   string
		want   string
		change func(*Servers)
	}{
		{name: "too many samples", want: "--history-resolution=1s: must be longer: a container would have more than 1048576 samples",
			change: func(s *Servers) { s.Length, s.Resolution = "90d", "1s" }},
		{name: "start too late",
			want:   "--since=2026-03-02T08:00:00Z: must be at least --history-resolution=5m before the last sample, 2026-03-02T08:00:00Z",
			change: func(s *Servers) { s.Since = "2026-03-02T08:00:00Z" }},
		{name: "end in the future", want: "--until=2026-03-03T08:00:00Z: must not be in the future",
			change: func(s *Servers) { s.Until = "2026-03-03T08:00:00Z" }},
		{name: "missing token file", want: "--prometheus-bearer-token-file=nowhere: must be a file with a token",
			change: func(s *Servers) { s.BearerTokenFile = "nowhere" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := DefaultServers()
			tc.change(&s)
			_, err := s.Query(now)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n", "only that")
		})
	}
}
