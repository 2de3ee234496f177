package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commandOf finds the commands of the plugin in a page: lines of blocks, and what stands between backquotes.
var commandOf = regexp.MustCompile("(?m)(?:^(?:\\$ )?|`)(?:bin/)?kubectl[ -]loadline ([a-z][^`\n]*)")

// words returns the arguments of a command as a shell without variables would give them; what comes
// after it, a remark or another command, is left out.
func words(command string) (all []string) {
	for _, word := range strings.Fields(command) {
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

// Every command of the plugin that a page shows exists, and takes the flags that it is shown with.
func TestCommandsInTheDocsExist(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md", "../charts/loadline/README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range commandOf.FindAllStringSubmatch(string(text), -1) {
			root := newRoot()
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
