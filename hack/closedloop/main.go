// Command closedloop plays workloads whose right size a person can tell against the
// recipes, and writes docs/closed-loop.md and its drawings.
//
// A Scenario makes the pods. Each pod is replayed as pkg/core/replay replays a recording,
// with its planner and the kills of its kubelet, but all share one recommender, and what
// that recommends decides what the next pods begin with. So the loop is closed: the size
// changes who is killed, and what is seen then changes the size.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The sections stand between these lines of the page.
const (
	beginning = "<!-- made by go run ./hack/closedloop -->\n"
	end       = "<!-- end -->\n"
)

func main() {
	if err := update("docs"); err != nil {
		fmt.Fprintln(os.Stderr, "closedloop:", err)
		os.Exit(1)
	}
}

// update writes what is stale in a directory of docs.
func update(docs string) error {
	sections, drawings := document()
	page := filepath.Join(docs, "closed-loop.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(old), beginning)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", page, beginning, end)
	}
	if err := replace(page, head+beginning+sections+end+tail); err != nil {
		return err
	}
	images := filepath.Join(docs, "images", "closed-loop")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	for _, s := range scenarios() {
		if err := replace(filepath.Join(images, s.Name+".svg"), drawings[s.Name]); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file unless it has the content already.
func replace(name, content string) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, []byte(content)) {
		return nil
	}
	return os.WriteFile(name, []byte(content), 0o644)
}

// document returns the sections of the page, and the drawings by scenario.
func document() (sections string, drawings map[string]string) {
	drawings = map[string]string{}
	for _, s := range scenarios() {
		var names []string
		var outcomes []*Outcome
		for _, c := range candidates(s) {
			names, outcomes = append(names, c.name), append(outcomes, run(s, c.candidate))
		}
		sections += section(s, names, outcomes)
		drawings[s.Name] = draw(s, names, outcomes)
	}
	return sections, drawings
}
