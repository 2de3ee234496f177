// Command closedloop simulates workloads with a known right size under several recipes, and writes
// docs/closed-loop.md and its drawings. Run it in the folder lab.
//
// A Scenario creates the pods. Each pod is replayed like a recording of pkg/core/replay, with its
// planner and its OOM kills. All pods share one recommender, and new pods start with its
// recommendation. The loop is closed: resizes change which pods are killed, and the observed usage
// then changes the recommendation.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The generated sections of the page are between these lines.
const (
	beginMarker = "<!-- made by go run ./closedloop -->\n"
	endMarker   = "<!-- end -->\n"
)

func main() {
	if err := updateDocs("docs"); err != nil {
		fmt.Fprintln(os.Stderr, "closedloop:", err)
		os.Exit(1)
	}
}

func updateDocs(docs string) error {
	sections, drawings := renderPage()
	page := filepath.Join(docs, "closed-loop.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(old), beginMarker)
	_, tail, closed := strings.Cut(rest, endMarker)
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", page, beginMarker, endMarker)
	}
	if err := writeIfChanged(page, head+beginMarker+sections+endMarker+tail); err != nil {
		return err
	}
	images := filepath.Join(docs, "images", "closed-loop")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	for _, s := range scenarios() {
		if err := writeIfChanged(filepath.Join(images, s.Name+".svg"), drawings[s.Name]); err != nil {
			return err
		}
	}
	return nil
}

func writeIfChanged(name, content string) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, []byte(content)) {
		return nil
	}
	return os.WriteFile(name, []byte(content), 0o644)
}

func renderPage() (sections string, drawings map[string]string) {
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
