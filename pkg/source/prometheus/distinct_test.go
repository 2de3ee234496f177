package prometheus

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
)

func TestDistinct_ReportsOtherLabels(t *testing.T) {
	c := usage.ContainerKey{Namespace: "data", Pod: "db-0", Container: "db"}
	for _, tc := range []struct {
		name         string
		first, other map[string]string
		want         string // in the error; empty: none
	}{
		{"runs on two nodes", map[string]string{"id": "a", "node": "n1", "instance": "10.0.0.1"}, map[string]string{"id": "b", "node": "n2", "instance": "10.0.0.2"}, ""},
		{"two clusters", map[string]string{"cluster": "west"}, map[string]string{"cluster": "east"},
			`container db of pod data/db-0 has series with cluster="east" and cluster="west": select one, for example with --prometheus-matchers='cluster="west"'`},
		{"a replica without label", map[string]string{}, map[string]string{"replica": "b"}, `--prometheus-matchers='replica="b"'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewDistinct(hour().Usage)
			require.True(t, d.Add(c, tc.first))
			require.Equal(t, tc.want == "", d.Add(c, tc.other))
			if tc.want == "" {
				require.NoError(t, d.Err())
				return
			}
			require.ErrorContains(t, d.Err(), tc.want)
			require.ErrorContains(t, d.Ambiguous(c), tc.want)
		})
	}
}

// Headers from flags and from the file, which is read for each request, reach the server.
func TestAccess_SendsHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(file, []byte("# tenant\nX-Scope-OrgID: one\n\n"), 0o600))
	a := DefaultAccess()
	fs := flags.New("")
	a.AddFlags(fs)
	require.NoError(t, fs.Parse([]string{"--prometheus-header=X-Team: a: b", "--prometheus-headers-file=" + file, `--prometheus-matchers=cluster="eu"`}))
	require.NoError(t, a.Complete())
	require.NoError(t, a.Validate(true))
	require.Equal(t, `cluster="eu"`, a.Matchers)
	var got []string
	client, _ := serve(t, a.Client(""), func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("X-Scope-OrgID")+" "+r.Header.Get("X-Team"))
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	require.NoError(t, ask(t, client))
	require.NoError(t, os.WriteFile(file, []byte("X-Scope-OrgID: two"), 0o600))
	require.NoError(t, ask(t, client))
	require.Equal(t, []string{"one a: b", "two a: b"}, got)

	a.Headers = []string{"no header"}
	require.ErrorContains(t, a.Validate(false), "--prometheus-header=(hidden): must be")
}
