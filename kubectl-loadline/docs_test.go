package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/kubectl-loadline/cli"
)

// commandOf matches commands of the plugin in a page, in code blocks and between backquotes.
var commandOf = regexp.MustCompile("(?m)(?:^(?:\\$ )?|`)(?:bin/)?kubectl[ -]loadline ([a-z][^`\n]*)")

// words splits a command into arguments as a shell without variables does, up to a comment or
// another command.
func words(command string) (all []string) {
	for word := range strings.FieldsSeq(command) {
		word, last := strings.CutSuffix(word, ";")
		if strings.HasPrefix(word, "#") || strings.ContainsAny(word, "|&<>") {
			return all
		}
		all = append(all, word)
		if last {
			return all
		}
	}
	return all
}

func TestDocs_CommandsExist(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	studies, err := filepath.Glob("../lab/docs/*.md")
	require.NoError(t, err)
	pages = append(pages, studies...)
	found := map[string]bool{}
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md", "../charts/loadline/README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range commandOf.FindAllStringSubmatch(string(text), -1) {
			root := cli.NewRoot(commands())
			root.InitDefaultCompletionCmd()
			cmd, args, err := root.Find(words(match[1]))
			if err != nil || cmd == root {
				t.Errorf("%s: there is no command %q", page, match[1])
				continue
			}
			if err := cmd.ParseFlags(args); err != nil {
				t.Errorf("%s: %q: %v", page, match[1], err)
			}
			found[cmd.Name()] = true
		}
	}
	for _, cmd := range commands() {
		require.True(t, found[cmd.Name()] || cmd.Name() == "version" || cmd.HasSubCommands(), "no page shows how %s is called", cmd.Name())
	}
}

// offline maps pages whose commands need no cluster to output that they quote.
var offline = map[string][]string{
	"../docs/backtest.md":  {"recommender"},
	"../lab/docs/finer.md": {"loadline:pod-min-cpu=10,pod-min-memory=8"},
}

// The commands of these pages run in order in a directory with recordings. Commands with a
// Prometheus address or with external recordings are skipped.
func TestDocs_CommandsWithoutClusterRun(t *testing.T) {
	programs := t.TempDir()
	for name, source := range map[string][]string{"kubectl-loadline": {".", "."}, "coarsen": {"../lab", "./coarsen"}} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-C", source[0], "-o", filepath.Join(programs, name), source[1]).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	for page, quoted := range offline {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		script := []string{
			"set -euo pipefail",
			`go() { [ "$1 $2 $3 $4" = "run -C lab ./coarsen" ] || { echo "unexpected command: go $*" >&2; exit 1; }; shift 4; (cd lab; "$PROGRAMS/coarsen" "$@"); }`,
			`kubectl() { [ "$1" = loadline ]; shift; "$PROGRAMS/kubectl-loadline" "$@"; }`,
			`ln -s "$PROGRAMS" bin; ln -s "$CHECKOUT/testdata" testdata; mkdir recordings lab; ln -s "$CHECKOUT/lab/testdata" lab/testdata`,
			"go run -C lab ./coarsen -step 1s -times 60 ../testdata/traces/growing.csv.gz > recordings/growing.csv; gzip -c recordings/growing.csv > one.csv.gz; cp recordings/growing.csv grown.csv",
		}
		ran := 0
		for _, command := range documented(string(text)) {
			if strings.Contains(command, "https://") || strings.Contains(command, "bitbrains") {
				continue
			}
			script, ran = append(script, command), ran+1
		}
		require.Greater(t, ran, 5, page)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.Join(script, "\n"))
		checkout, err := filepath.Abs("..")
		require.NoError(t, err)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PROGRAMS="+programs, "CHECKOUT="+checkout)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", page, out)
		for _, words := range quoted {
			require.Contains(t, string(out), words, page)
		}
	}
}

// documented returns the commands in the code blocks of a page, with continuation lines.
func documented(text string) (commands []string) {
	begins := regexp.MustCompile(`^(?:[A-Z]=|go run |kubectl |bin/kubectl-loadline )`)
	fenced := false
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		typed, indented := strings.CutPrefix(line, "    ")
		typed = strings.TrimPrefix(typed, "$ ")
		if !fenced && !indented || !begins.MatchString(typed) {
			continue
		}
		for strings.HasSuffix(typed, "\\") {
			i++
			typed += "\n" + lines[i]
		}
		commands = append(commands, typed)
	}
	return commands
}
