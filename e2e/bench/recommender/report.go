package recommender

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

type report struct {
	options
	filled  filled
	results []result
}

// markdown returns a table with a column for each recommender.
func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d VPAs, %d Deployments, %d pods in %d namespaces; checkpoints go back %s; a pass each %s, %d passes measured after %s to warm up; metrics-server scrapes each %s; %d processors.\n",
		r.vpas, r.vpas, r.pods, r.namespaces, r.history, r.interval, r.passes, r.warmUp, r.scrape, runtime.NumCPU())
	fmt.Fprintf(&b, "Deployments created after %.0f s, all pods ready after %.0f s, all in the metrics API after %.0f s.\n\n",
		r.filled.created.Seconds(), r.filled.running.Seconds(), r.filled.metered.Seconds())
	head, rule := "| per pass |", "|---|"
	for _, result := range r.results {
		head += " " + result.subject.name + " |"
		rule += "---|"
	}
	b.WriteString(head + "\n" + rule + "\n")
	row := func(label string, cell func(result) string) {
		b.WriteString("| " + label + " |")
		for _, result := range r.results {
			b.WriteString(" " + cell(result) + " |")
		}
		b.WriteString("\n")
	}
	for _, step := range steps {
		row(step+", mean (slowest)", func(x result) string { return seconds(x.mean[step]) + " (" + seconds(x.worst[step]) + ")" })
	}
	perPass := func(n int) string { return fmt.Sprintf("%.1f", float64(n)/float64(r.passes)) }
	row("status writes", func(x result) string { return perPass(x.calls.status) })
	row("checkpoint writes", func(x result) string { return perPass(x.calls.checkpoint) })
	row("requests for usage", func(x result) string { return perPass(x.calls.usage) })
	row("other requests", func(x result) string {
		sum := 0
		for _, n := range x.calls.other {
			sum += n
		}
		return perPass(sum)
	})
	row("processor time", func(x result) string { return seconds(x.cpu / time.Duration(r.passes)) })
	row("resident memory (most)", func(x result) string { return mebibytes(x.rss) + " (" + mebibytes(x.peak) + ")" })
	row("load average of the machine", func(x result) string { return fmt.Sprintf("%.1f", x.load) })
	row("all VPAs recommended after", func(x result) string { return fmt.Sprintf("%.0f s", x.recommended.Seconds()) })
	for _, x := range r.results {
		if len(x.calls.other) > 0 {
			fmt.Fprintf(&b, "\nOther requests of %s, all passes: %s.\n", x.subject.name, list(x.calls.other))
		}
	}
	return b.String()
}

func list(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}

func seconds(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func (r report) judge() error {
	for _, x := range r.results {
		if slowest := x.worst[total]; x.subject.name == ours && slowest > r.limit {
			return fmt.Errorf("the slowest pass took %s, it may take %s", seconds(slowest), r.limit)
		}
	}
	return nil
}
