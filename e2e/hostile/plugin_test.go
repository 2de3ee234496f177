package hostile

import (
	"bytes"
	"context"
	"encoding/csv"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// askPlugin runs a plugin command and returns its output and errors. A non-zero exit code is
// allowed.
func askPlugin(ctx context.Context, args ...string) (stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "kubectl-loadline"), append(args, "--kubeconfig", cluster.Kubeconfig())...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		errs.WriteString(err.Error())
	}
	return out.String(), errs.String()
}

func requirePrintable(t *testing.T, command []string, text string) {
	t.Helper()
	require.NotEmpty(t, text, "%v", command)
	for _, r := range text {
		require.True(t, unicode.IsPrint(r) || r == '\n' || r == '\t', "%v prints %U: %q", command, r, text)
	}
}

func requireNoFormula(t *testing.T, text string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err, text)
	for _, row := range rows {
		for _, cell := range row {
			require.NotRegexp(t, `^\s*([=@]|[+-][^0-9I])`, cell)
		}
	}
}
