package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// view shows snapshots to people.
type view interface {
	update(s snapshot, happened []string)
}

// table redraws itself in place, with the last things that happened below.
type table struct {
	out    io.Writer
	drawn  int // lines of the last drawing
	recent []string
}

const remembered = 8

func (t *table) update(s snapshot, happened []string) {
	t.recent = append(t.recent, happened...)
	t.recent = t.recent[max(0, len(t.recent)-remembered):]
	rows := append(tableRows(s), "")
	rows = append(rows, t.recent...)
	// Without line wrapping a row is one line on a narrow terminal, too.
	fmt.Fprint(t.out, "\x1b[?7l")
	if t.drawn > 0 {
		fmt.Fprintf(t.out, "\x1b[%dA", t.drawn)
	}
	for _, row := range rows {
		fmt.Fprintf(t.out, "\x1b[2K%s\n", row)
	}
	fmt.Fprint(t.out, "\x1b[?7h")
	t.drawn = len(rows)
}

func tableRows(s snapshot) []string {
	const form = "%-24s %15s %15s %15s %15s %15s %8v  %s"
	rows := []string{fmt.Sprintf(form, "POD", "REQUEST", "USAGE", "TARGET", "CPU BOUNDS", "MEMORY BOUNDS", "RESTARTS", "DONE")}
	for _, p := range s.pods {
		usage, target, cpu, memory := "-", "-", "-", "-"
		if p.usage != nil {
			usage = pair(*p.usage)
		}
		if b, ok := s.vpas[p.workload]; ok {
			target = pair(b.target)
			cpu = cpuText(b.lower.cpu) + ".." + cpuText(b.upper.cpu)
			memory = memoryText(b.lower.memory) + ".." + memoryText(b.upper.memory)
		}
		rows = append(rows, fmt.Sprintf(form, p.name, pair(p.request), usage, target, cpu, memory, p.restarts, done(p)))
	}
	return rows
}

func pair(a amounts) string { return cpuText(a.cpu) + " / " + memoryText(a.memory) }

func done(p podState) string {
	var words []string
	if p.resized {
		words = append(words, "resized in place")
	}
	if p.oomKilled {
		words = append(words, "was OOM-killed")
	}
	return strings.Join(words, ", ")
}

// lines prints what happened and nothing else, for logs.
type lines struct{ out io.Writer }

func (l *lines) update(s snapshot, happened []string) {
	for _, line := range happened {
		fmt.Fprintln(l.out, line)
	}
}

// changes says in words what happened between two snapshots.
func changes(before, after snapshot, started time.Time) []string {
	var happened []string
	say := func(format string, args ...any) {
		happened = append(happened, fmt.Sprintf("%4.0fs  ", after.at.Sub(started).Seconds())+fmt.Sprintf(format, args...))
	}
	old := map[types.UID]podState{}
	for _, p := range before.pods {
		old[p.uid] = p
	}
	for _, w := range workloads() {
		if b, ok := after.vpas[w.Name]; ok {
			if _, had := before.vpas[w.Name]; !had {
				say("%s: first recommendation: target %s, CPU bounds %s to %s", w.Name, pair(b.target), cpuText(b.lower.cpu), cpuText(b.upper.cpu))
			}
		}
	}
	for _, p := range after.pods {
		was, there := old[p.uid]
		switch {
		case !there:
			say("%s: new pod, requests %s", p.name, pair(p.request))
			continue
		case p.restarts > was.restarts && p.oomKilled:
			say("%s: OOM-killed at a memory limit of %s", p.name, memoryText(was.limit.memory))
		case p.restarts > was.restarts:
			say("%s: restarted", p.name)
		}
		if p.request != was.request {
			say("%s: resized in place: %s -> %s", p.name, pair(was.request), pair(p.request))
		}
		delete(old, p.uid)
	}
	for _, p := range before.pods {
		if _, gone := old[p.uid]; gone {
			say("%s: gone", p.name)
		}
	}
	return happened
}
