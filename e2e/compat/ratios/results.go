package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// results are all measured values by benchmark and unit, in the order of rounds.
type results map[[2]string][]float64

// add records the values of a line. It strips the suffixes of the name for the number of processors
// and, after the first round, for the round.
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

// median returns the median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// requirement is a required ratio or maximum of two benchmarks.
type requirement struct {
	name               string
	subject, reference string // benchmarks
	unit               string
	minRatio           float64  // minimum of reference / subject, 0 = no requirement
	max                *float64 // maximum of the subject, nil = no requirement
	isOwn              bool     // not from the issue
}

// row returns a row of the table, and whether the requirement is met. Each round of the reference
// is divided by the paired round of the subject, because both ran under the same conditions.
func (q requirement) row(r results) (string, bool) {
	reference, subject := r[[2]string{q.reference, q.unit}], r[[2]string{q.subject, q.unit}]
	if len(subject) == 0 || len(reference) != len(subject) {
		return fmt.Sprintf("%s\t\t\t%s\t\t%s\tNOT MEASURED", q.name, q.unit, q.required()), false
	}
	ratios := make([]float64, len(subject))
	for i := range ratios {
		ratios[i] = quotient(reference[i], subject[i])
	}
	ratio, shown := median(ratios), "-"
	if !math.IsInf(ratio, 1) {
		shown = fmt.Sprintf("%.2f", ratio)
	}
	met := ratio >= q.minRatio && (q.max == nil || median(subject) <= *q.max)
	verdict := "pass"
	if !met {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", q.name, number(median(reference)), number(median(subject)), q.unit, shown, q.required(), verdict), met
}

// quotient returns reference / subject, infinite if subject is 0.
func quotient(reference, subject float64) float64 {
	if subject == 0 {
		return math.Inf(1)
	}
	return reference / subject
}

func (q requirement) required() string {
	text := "ratio " + strconv.FormatFloat(q.minRatio, 'g', 3, 64)
	if q.max != nil {
		text = "at most " + number(*q.max)
	}
	if q.isOwn {
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
