// Package plugintest has fixtures for tests of the plugin: a small cluster, and checks of output.
package plugintest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/kubectl-loadline/cli"
)

// Now is the time of all fixtures.
func Now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

// Before returns the time some minutes before Now.
func Before(minutes int) time.Time { return Now().Add(-time.Duration(minutes) * time.Minute) }

// Hostile clears the screen, forges a line, reorders text and ends a cell.
const Hostile = "=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|"

// RequirePrintable checks that no character controls the terminal.
func RequirePrintable(t *testing.T, printed string) {
	t.Helper()
	for _, r := range printed {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", printed, r)
	}
	require.NotContains(t, printed, "\n! forged")
}

// PoliciesForbidden is the note of commands that cannot list SizingPolicies.
const PoliciesForbidden = "nothing here counts what SizingPolicies say: list SizingPolicies: sizingpolicies is forbidden: "

// AskServer runs a command against an API server with empty lists, and returns the requested paths.
func AskServer(t *testing.T, commands []*cobra.Command, absent string, args ...string) (paths []string, code int, out, errs string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		paths = append(paths, r.URL.Path)
		if absent != "" && strings.HasSuffix(r.URL.Path, absent) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"k","namespace":"mine"}}],"clusters":[{"name":"k","cluster":{"server":%q}}]}`, server.URL), 0o600))
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), commands, append(args, "--kubeconfig="+file), &o, &e)
	return paths, code, o.String(), e.String()
}

// Printed returns a report in an output format.
func Printed(t *testing.T, a cli.Report, format string) string {
	t.Helper()
	var out bytes.Buffer
	o := cli.OutputFlag{Format: format}
	require.NoError(t, o.Validate())
	require.NoError(t, o.Print(&out, &out, a))
	return out.String()
}

// InTheDocs checks that docs/kubectl.md shows the output of a command.
func InTheDocs(t *testing.T, command, text string) {
	t.Helper()
	InTheDocsOf(t, "kubectl.md", command, text)
}

// InTheDocsOf checks that a page shows the output of a command.
func InTheDocsOf(t *testing.T, name, command, text string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	if want := "$ kubectl loadline " + command + "\n" + text + "```\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/%s does not have %q", name, want)
	}
}
