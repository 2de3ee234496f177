package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// results are all values measured, by benchmark and unit, in the order of rounds.
type results map[[2]string][]float64

// add notes the values of a line. The name ends with the number of its round, if
// it is not the first, and of processors.
func (r results) add(name string, pairs []string) {
	name = strings.TrimPrefix(name, "Benchmark")
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		name = name[:at]
	}
	name, _, _ = strings.Cut(name, "#")
	for i := 0; i+1 < len(pairs); i += 2 {
		if value, err := strconv.ParseFloat(pairs[i], 64); err == nil {
			key := [2]string{name, pairs[i+1]}
			r[key] = append(r[key], value)
		}
	}
}

// median returns the value in the middle, the mean of two if their number is even.
// There must be one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// requirement says how two benchmarks must compare.
type requirement struct {
	what               string
	subject, reference string // benchmarks
	unit               string
	faster             float64  // the reference divided by the subject must be at least this; 0: not asked
	most               *float64 // the subject must be at most this; nil: not asked
	own                bool     // set by us, not by the issue
}

// line returns a row of the table, and whether the requirement is met. Every round
// of the reference is divided by the round of the subject that was measured with
// it, as only those two met the same processor.
func (q requirement) line(r results) (string, bool) {
	reference, subject := r[[2]string{q.reference, q.unit}], r[[2]string{q.subject, q.unit}]
	if len(subject) == 0 || len(reference) != len(subject) {
		return fmt.Sprintf("%s\t\t\t%s\t\t%s\tNOT MEASURED", q.what, q.unit, q.required()), false
	}
	ratios := make([]float64, len(subject))
	for i := range ratios {
		ratios[i] = quotient(reference[i], subject[i])
	}
	ratio, shown := median(ratios), "-"
	if !math.IsInf(ratio, 1) {
		shown = fmt.Sprintf("%.2f", ratio)
	}
	met := ratio >= q.faster && (q.most == nil || median(subject) <= *q.most)
	verdict := "pass"
	if !met {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", q.what, number(median(reference)), number(median(subject)), q.unit, shown, q.required(), verdict), met
}

// quotient returns how often the subject goes into the reference; what costs
// nothing does so without end.
func quotient(reference, subject float64) float64 {
	if subject == 0 {
		return math.Inf(1)
	}
	return reference / subject
}

func (q requirement) required() string {
	text := "ratio " + strconv.FormatFloat(q.faster, 'g', 3, 64)
	if q.most != nil {
		text = "at most " + number(*q.most)
	}
	if q.own {
		text += " (ours)"
	}
	return text
}

func number(x float64) string {
	if x < 1 && x > 0 {
		return strconv.FormatFloat(x, 'f', 3, 64)
	}
	if x < 100 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}
