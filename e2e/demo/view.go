package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

type view interface {
	update(s snapshot, happened []string)
}

// table redraws itself in place, followed by the latest changes.
type table struct {
	out    io.Writer
	drawn  int // number of lines of the last drawing
	recent []string
}

const maxRecent = 8

func (t *table) update(s snapshot, happened []string) {
	t.recent = append(t.recent, happened...)
	t.recent = t.recent[max(0, len(t.recent)-maxRecent):]
	rows := slices.Concat(tableRows(s), []string{""}, rolloutRows(s), []string{""}, t.recent)
	// Without line wrapping, each row is one line on a narrow terminal too.
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

// lines prints only the changes, for logs.
type lines struct{ out io.Writer }

func (l *lines) update(s snapshot, happened []string) {
	for _, line := range happened {
		fmt.Fprintln(l.out, line)
	}
}

// diary collects the changes of one moment.
type diary struct {
	seconds float64 // since the start
	lines   []string
}

func (d *diary) say(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf("%4.0fs  ", d.seconds)+fmt.Sprintf(format, args...))
}

func changes(before, after snapshot, started time.Time) []string {
	d := diary{seconds: after.at.Sub(started).Seconds()}
	for _, w := range workloads() {
		if b, ok := after.vpas[w.Name]; ok {
			if _, had := before.vpas[w.Name]; !had {
				d.say("%s: first recommendation: target %s, CPU bounds %s to %s", w.Name, pair(b.target), cpuText(b.lower.cpu), cpuText(b.upper.cpu))
			}
		}
	}
	d.pods(before.pods, after.pods)
	return d.lines
}

func (d *diary) pods(before, after []podState) {
	old := map[types.UID]podState{}
	for _, p := range before {
		old[p.uid] = p
	}
	for _, p := range after {
		was, there := old[p.uid]
		switch {
		case !there:
			d.say("%s: new pod, requests %s", p.name, pair(p.request))
			continue
		case p.restarts > was.restarts && p.oomKilled:
			d.say("%s: OOM-killed at a memory limit of %s", p.name, memoryText(was.limit.memory))
		case p.restarts > was.restarts:
			d.say("%s: restarted", p.name)
		}
		if p.request != was.request {
			d.say("%s: resized in place: %s -> %s", p.name, pair(was.request), pair(p.request))
		}
		delete(old, p.uid)
	}
	for _, p := range before {
		if _, gone := old[p.uid]; gone {
			d.say("%s: gone", p.name)
		}
	}
}
