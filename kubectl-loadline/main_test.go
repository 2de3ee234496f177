package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommands(t *testing.T) {
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{nil, 2, "", "Usage:"},
		{[]string{"--help"}, 0, "kubectl loadline backtest", ""},
		{[]string{"version"}, 0, "kubectl-loadline ", ""},
		{[]string{"fly"}, 2, "", `command "fly" does not exist: must be backtest, completion, create, diff, doctor, explain, export, history, migrate, policy, recommend, savings, status, version`},
		{[]string{"--version"}, 0, "kubectl-loadline ", ""},
		{[]string{"explain", "--none"}, 2, "", "kubectl loadline explain: unknown flag: --none (see kubectl loadline explain --help)"},
		{[]string{"completion", "bash"}, 0, "__complete", ""},
		{[]string{"__complete", "pol"}, 0, "policy\ttake SizingPolicies off their pods", ""},
		{[]string{"policy"}, 2, "", "want the command detach"},
		{[]string{"savings", "--help"}, 0, "Usage: kubectl loadline savings [flags] [POLICY...]", ""},
		{[]string{"backtest", "--help"}, 0, "Usage: kubectl loadline backtest [flags] FILE|DIRECTORY|URL...", ""},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, c.code, run(context.Background(), c.args, &out, &errs), "%v", c.args)
		require.Contains(t, out.String(), c.out)
		require.Contains(t, errs.String(), c.errs)
	}
}
