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
	for _, tc := range []struct {
		name      string
		args      []string
		code      int
		out, errs string // a part of each stream, empty for an empty stream
	}{
		{name: "no command", code: 2, errs: "Usage:"},
		{name: "help", args: []string{"--help"}, code: 0, out: "kubectl loadline backtest"},
		{name: "version", args: []string{"version"}, code: 0, out: "kubectl-loadline "},
		{name: "unknown command", args: []string{"fly"}, code: 2,
			errs: `command "fly" does not exist: must be backtest, completion, create, diff, doctor, ` +
				`explain, export, history, migrate, policy, recommend, savings, status, version`},
		{name: "version flag", args: []string{"--version"}, code: 0, out: "kubectl-loadline "},
		{name: "unknown flag", args: []string{"explain", "--none"}, code: 2,
			errs: "kubectl loadline explain: unknown flag: --none (see kubectl loadline explain --help)"},
		{name: "completion script", args: []string{"completion", "bash"}, code: 0, out: "__complete"},
		{name: "completion of a command", args: []string{"__complete", "pol"}, code: 0,
			out: "policy\tdetach SizingPolicies from their pods", errs: "Completion ended with directive: "},
		{name: "group without a command", args: []string{"policy"}, code: 2, errs: "missing command: must be detach"},
		{name: "help of savings", args: []string{"savings", "--help"}, code: 0, out: "Usage: kubectl loadline savings [flags] [POLICY...]"},
		{name: "help of backtest", args: []string{"backtest", "--help"}, code: 0,
			out: "Usage: kubectl loadline backtest [flags] FILE|DIRECTORY|URL..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			require.Equal(t, tc.code, cli.Run(context.Background(), commands(), tc.args, &out, &errs))
			for _, stream := range []struct{ got, want string }{{out.String(), tc.out}, {errs.String(), tc.errs}} {
				require.Contains(t, stream.got, stream.want)
				require.Equal(t, stream.want == "", stream.got == "", stream.got)
			}
		})
	}
}

func TestCommands_ValidateCommandLines(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "invalid output of export", args: []string{"export", "-o", "json"}, code: 2,
			want: "--output=json: must be patch, kustomize, helm"},
		{name: "help of export", args: []string{"export", "--help"}, code: 0,
			want: "Usage: kubectl loadline export [flags] [[KIND/]NAME...]"},
		{name: "invalid selector of create", args: []string{"create", "-l", "a=b=c"}, code: 2, want: "--selector=a=b=c"},
		{name: "missing kubeconfig of create", args: []string{"create", "--kubeconfig=/nowhere/at/all"}, code: 1,
			want: "kubectl loadline create: "},
		{name: "too many arguments of history", args: []string{"history", "a", "b"}, code: 2, want: "accepts at most 1 arg"},
		{name: "missing kubeconfig of history", args: []string{"history", "--kubeconfig=/nowhere/at/all"}, code: 1,
			want: "kubectl loadline history: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), commands(), tc.args, &out, &errOut))
			require.Contains(t, out.String()+errOut.String(), tc.want)
		})
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
		{name: "savings", kind: vpas, args: []string{"savings"}, all: true},
		{name: "savings of one", kind: vpas, args: []string{"savings", "-n", "a"}, namespace: "a"},
		{name: "savings of all", kind: vpas, args: []string{"savings", "-n", "a", "-A"}, all: true},
		{name: "status", kind: vpas, args: []string{"status"}, namespace: "mine"},
		{name: "status of one", kind: vpas, args: []string{"status", "-n", "a"}, namespace: "a"},
		{name: "status of all", kind: vpas, args: []string{"status", "-A"}, all: true},
		{name: "recommend", kind: pods, args: []string{"recommend"}, namespace: "mine"},
		{name: "recommend of one", kind: pods, args: []string{"recommend", "-n", "a"}, namespace: "a"},
		{name: "diff of one", kind: pods, args: []string{"diff", "-n", "a"}, namespace: "a"},
		{name: "diff of all", kind: pods, args: []string{"diff", "-A"}, all: true},
		{name: "export of one", kind: pods, args: []string{"export", "-n", "a"}, namespace: "a"},
		{name: "create of one", kind: pods, args: []string{"create", "-n", "a"}, namespace: "a"},
		{name: "create of all", kind: pods, args: []string{"create", "-A"}, all: true},
		{name: "history of one", kind: pods, args: []string{"history", "-n", "a"}, namespace: "a"},
		{name: "history of all", kind: pods, args: []string{"history", "-A"}, all: true},
		{name: "doctor", kind: vpas, args: []string{"doctor"}, all: true},
		{name: "doctor of one", kind: vpas, args: []string{"doctor", "-n", "a"}, namespace: "a"},
		{name: "migrate check of one", kind: vpas, args: []string{"migrate", "check", "-n", "a"}, namespace: "a"},
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
		want string
	}{
		{name: "pod without its kind", args: []string{"why", "web-1"}, code: flags.ExitUsage,
			want: "must have one pod as argument, such as pod/web-1"},
		{name: "no pod", args: []string{"why"}, code: flags.ExitUsage, want: "must have one pod as argument, such as pod/web-1"},
		{name: "two pods", args: []string{"why", "pod/web-1", "pod/web-2"}, code: flags.ExitUsage,
			want: "must have one pod as argument, such as pod/web-1"},
		{name: "all namespaces for a pod", args: []string{"why", "-A", "pod/x"}, code: flags.ExitUsage, want: "-A"},
		{name: "namespace of a policy", args: []string{"policy", "detach", "-n", "a", "shop"}, code: flags.ExitUsage,
			want: "a SizingPolicy has no namespace"},
		{name: "workload that is not there", args: []string{"recommend", "-n", "a", "web"}, code: flags.ExitFailed,
			want: "web: no workload of this name has running pods in namespace a"},
		{name: "two of them", args: []string{"export", "-A", "deployment/web", "x"}, code: flags.ExitFailed,
			want: "x: no workload of this name has running pods in any namespace"},
		{name: "with labels", args: []string{"create", "-n", "a", "-l", "b=c", "web"}, code: flags.ExitFailed,
			want: "web: no workload of this name has running pods in namespace a with labels b=c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, code, out, errs := plugintest.AskServer(t, commands(), "", tc.args...)
			require.Equal(t, tc.code, code, out+errs)
			require.Contains(t, errs, tc.want)
		})
	}
}
