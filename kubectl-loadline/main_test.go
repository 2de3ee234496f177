package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/flags"
)

func TestCommands_ExitCodesAndOutput(t *testing.T) {
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
		{[]string{"__complete", "pol"}, 0, "policy\tdetach SizingPolicies from their pods", ""},
		{[]string{"policy"}, 2, "", "missing command: must be detach"},
		{[]string{"savings", "--help"}, 0, "Usage: kubectl loadline savings [flags] [POLICY...]", ""},
		{[]string{"backtest", "--help"}, 0, "Usage: kubectl loadline backtest [flags] FILE|DIRECTORY|URL...", ""},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, c.code, cli.Run(context.Background(), commands(), c.args, &out, &errs), "%v", c.args)
		require.Contains(t, out.String(), c.out)
		require.Contains(t, errs.String(), c.errs)
	}
}

func TestCommands_ValidateCommandLines(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"export", "-o", "json"}, 2, "--output=json: must be patch, kustomize, helm"},
		{[]string{"export", "--help"}, 0, "Usage: kubectl loadline export [flags] [[KIND/]NAME...]"},
		{[]string{"create", "-l", "a=b=c"}, 2, "--selector=a=b=c"},
		{[]string{"create", "--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline create: "},
		{[]string{"history", "a", "b"}, 2, "accepts at most 1 arg"},
		{[]string{"history", "--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline history: "},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, c.code, cli.Run(t.Context(), commands(), c.args, &out, &errOut), c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
}

func TestErrors_QuoteControlCharacters(t *testing.T) {
	var out, errOut bytes.Buffer
	require.NotZero(t, cli.Run(t.Context(), commands(), []string{"explain", "--kubeconfig", t.TempDir() + "/\x1b[2J", "web"}, &out, &errOut))
	plugintest.RequirePrintable(t, out.String()+errOut.String())
	require.NotZero(t, cli.Run(t.Context(), commands(), []string{"backtest", "\x1b[2J"}, &out, &errOut))
	plugintest.RequirePrintable(t, out.String()+errOut.String())
}

func TestCommands_ReadNamespacesOfFlags(t *testing.T) {
	const vpas, pods = "/verticalpodautoscalers", "/pods"
	for _, tc := range []struct {
		name, kind string
		args       []string
		all        bool   // all namespaces
		namespace  string // used if all is false
	}{
		{"savings", vpas, []string{"savings"}, true, ""},
		{"savings of one", vpas, []string{"savings", "-n", "a"}, false, "a"},
		{"savings of all", vpas, []string{"savings", "-n", "a", "-A"}, true, ""},
		{"status", vpas, []string{"status"}, false, "mine"},
		{"status of one", vpas, []string{"status", "-n", "a"}, false, "a"},
		{"status of all", vpas, []string{"status", "-A"}, true, ""},
		{"recommend", pods, []string{"recommend"}, false, "mine"},
		{"recommend of one", pods, []string{"recommend", "-n", "a"}, false, "a"},
		{"diff of one", pods, []string{"diff", "-n", "a"}, false, "a"},
		{"diff of all", pods, []string{"diff", "-A"}, true, ""},
		{"export of one", pods, []string{"export", "-n", "a"}, false, "a"},
		{"create of one", pods, []string{"create", "-n", "a"}, false, "a"},
		{"create of all", pods, []string{"create", "-A"}, true, ""},
		{"history of one", pods, []string{"history", "-n", "a"}, false, "a"},
		{"history of all", pods, []string{"history", "-A"}, true, ""},
		{"doctor", vpas, []string{"doctor"}, true, ""},
		{"doctor of one", vpas, []string{"doctor", "-n", "a"}, false, "a"},
		{"migrate check of one", vpas, []string{"migrate", "check", "-n", "a"}, false, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			paths, code, out, errs := plugintest.AskServer(t, commands(), "", tc.args...)
			require.Equal(t, flags.ExitOK, code, errs)
			require.Regexp(t, "found|findings", out+errs, "an empty answer says why it is empty")
			part := "/namespaces/" + tc.namespace + tc.kind
			if tc.all {
				part = "/v1" + tc.kind
			}
			require.True(t, slices.ContainsFunc(paths, func(path string) bool { return strings.HasSuffix(path, part) }), "%s: %v", part, paths)
		})
	}
}

func TestCommands_RejectFlagsThatDoNotApply(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"pod without its kind", []string{"why", "web-1"}, flags.ExitUsage, "must have one pod as argument, such as pod/web-1"},
		{"no pod", []string{"why"}, flags.ExitUsage, "must have one pod as argument, such as pod/web-1"},
		{"two pods", []string{"why", "pod/web-1", "pod/web-2"}, flags.ExitUsage, "must have one pod as argument, such as pod/web-1"},
		{"all namespaces for a pod", []string{"why", "-A", "pod/x"}, flags.ExitUsage, "-A"},
		{"namespace of a policy", []string{"policy", "detach", "-n", "a", "shop"}, flags.ExitUsage, "a SizingPolicy has no namespace"},
		{"workload that is not there", []string{"recommend", "-n", "a", "web"}, flags.ExitFailed, "web: no workload of this name has running pods in namespace a"},
		{"two of them", []string{"export", "-A", "deployment/web", "x"}, flags.ExitFailed, "x: no workload of this name has running pods in any namespace"},
		{"with labels", []string{"create", "-n", "a", "-l", "b=c", "web"}, flags.ExitFailed, "web: no workload of this name has running pods in namespace a with labels b=c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, code, out, errs := plugintest.AskServer(t, commands(), "", tc.args...)
			require.Equal(t, tc.code, code, out+errs)
			require.Contains(t, errs, tc.says)
		})
	}
}
