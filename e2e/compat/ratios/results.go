package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// results are all values measured, by benchmark and unit.
type results map[[2]string][]float64

// add notes the values of a line. The name ends with the number of processors.
func (r results) add(name string, pairs []string) {
	name = strings.TrimPrefix(name, "Benchmark")
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		name = name[:at]
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value, err := strconv.ParseFloat(pairs[i], 64); err == nil {
			key := [2]string{name, pairs[i+1]}
			r[key] = append(r[key], value)
		}
	}
}

// least returns the least of the values measured, and whether there are any. What
// else runs on the machine can only make a run slower.
func (r results) least(name, unit string) (float64, bool) {
	values := r[[2]string{name, unit}]
	if len(values) == 0 {
		return 0, false
	}
	return slices.Min(values), true
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

// line returns a row of the table, and whether the requirement is met.
func (q requirement) line(r results) (string, bool) {
	reference, known := r.least(q.reference, q.unit)
	subject, measured := r.least(q.subject, q.unit)
	if !known || !measured {
		return fmt.Sprintf("%s\t\t\t%s\t\t%s\tNOT MEASURED", q.what, q.unit, q.required()), false
	}
	ratio := "-"
	if subject > 0 {
		ratio = fmt.Sprintf("%.2f", reference/subject)
	}
	met := reference >= q.faster*subject && (q.most == nil || subject <= *q.most)
	verdict := "pass"
	if !met {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", q.what, number(reference), number(subject), q.unit, ratio, q.required(), verdict), met
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
