package main

import (
	"fmt"
	"math"
	"strings"

	"loadline.dev/loadline/pkg/core/resources"
)

func amount(k resources.Kind, v float64) string {
	switch {
	case k == resources.CPU && v < 999.5:
		return fmt.Sprintf("%.0fm", v)
	case k == resources.CPU:
		return fmt.Sprintf("%.3g", v/1000)
	case v/mib < 1023.5:
		return fmt.Sprintf("%.0f MiB", v/mib)
	}
	return fmt.Sprintf("%.3g GiB", v/mib/1024)
}

func section(s *Scenario, names []string, outcomes []*Outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n![%s](images/closed-loop/%s.svg)\n\n", s.Title, s.Description, s.Title, s.Name)
	risk := "starved work"
	if s.Kind == resources.Memory {
		risk = "kills"
	}
	fmt.Fprintf(&b, "| | mean request | of the expert's | lowest, highest | %s | changes a pod and day |\n|---|---|---|---|---|---|\n", risk)
	for i, o := range outcomes {
		harm := fmt.Sprintf("%.1f %%", 100*o.Starved())
		if s.Kind == resources.Memory {
			harm = fmt.Sprint(o.kills())
		}
		fmt.Fprintf(&b, "| %s | %s | %s x | %s, %s | %s | %.1f |\n", names[i], amount(s.Kind, o.Mean()), times(o.Reserved()),
			amount(s.Kind, o.minRequest), amount(s.Kind, o.maxRequest), harm, o.ChangesPerDay())
	}
	fmt.Fprintf(&b, "\nThe expert sets %s: %s. %s\n\n", amount(s.Kind, float64(s.Expert)), s.Rationale, s.Verdict)
	return b.String()
}

// times formats a ratio with two digits, or as a whole number.
func times(ratio float64) string {
	if ratio >= 9.95 {
		return fmt.Sprint(math.Round(ratio))
	}
	return fmt.Sprintf("%.2g", ratio)
}
