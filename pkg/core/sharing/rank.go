package sharing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Annotations of a workload, or of its pod template.
const (
	// RankAnnotation says in which order its pods leave a node: low, medium, high or
	// no-eviction.
	RankAnnotation = "loadline.dev/eviction-ranking"
	// OffAnnotation takes its pods out of sharing with the value "off". They are sized as the
	// pods of any other workload.
	OffAnnotation = "loadline.dev/sharing"
)

const on, off = "on", "off"

// Rank is in which order pods leave.
type Rank uint8

// The ranks.
const (
	Low    Rank = iota // leaves first
	Medium             // after those
	High               // last
	Never
)

var rankNames = [...]string{Low: "low", Medium: "medium", High: "high", Never: "no-eviction"}

// String returns the rank as RankAnnotation spells it.
func (r Rank) String() string { return rankNames[r] }

// RankNames returns the values of RankAnnotation, from Low to Never.
func RankNames() []string { return slices.Clone(rankNames[:]) }

// ParseRank returns the rank with a name.
func ParseRank(name string) (rank Rank, ok bool) {
	at := slices.Index(rankNames[:], name)
	return Rank(max(at, 0)), at >= 0 //nolint:gosec // there are four
}

// DefaultRank returns the rank of the pods of a workload that has no annotation: Medium where
// one is missed, in a StatefulSet or where there is no other, else Low. Replicas that are not
// known are below 0 and count as one.
func DefaultRank(kind string, replicas int) Rank {
	if kind == "StatefulSet" || replicas <= 1 {
		return Medium
	}
	return Low
}

// RankOf returns the rank of the pods of a workload by its annotations and those of its pod
// template, and what is wrong with them, if anything. The highest of several counts. A value
// that cannot be read counts as Never: who wrote it did not want the pods to be evicted.
func RankOf(kind string, replicas int, annotations ...map[string]string) (rank Rank, problem string) {
	annotated := false
	for _, of := range annotations {
		value, there := of[RankAnnotation]
		if !there {
			continue
		}
		asked, ok := ParseRank(value)
		if !ok {
			asked = Never
			problem = cmp.Or(problem, complaint(RankAnnotation, value, strings.Join(rankNames[:], ", "), Never.String()))
		}
		rank, annotated = max(rank, asked), true
	}
	if !annotated {
		rank = DefaultRank(kind, replicas)
	}
	return rank, problem
}

// OptedOut reports whether the annotations of a workload, or those of its pod template, take its
// pods out of sharing, and what is wrong with them, if anything. A value that cannot be read
// takes them out.
func OptedOut(annotations ...map[string]string) (out bool, problem string) {
	for _, of := range annotations {
		value, there := of[OffAnnotation]
		if !there || value == on {
			continue
		}
		out = true
		if value != off {
			problem = cmp.Or(problem, complaint(OffAnnotation, value, "on, "+off, off))
		}
	}
	return out, problem
}

// longestValue is how many characters of a wrong value are shown, of the 256 KiB that an
// annotation may have.
const longestValue = 40

func complaint(key, value, right, taken string) string {
	return fmt.Sprintf("annotation %s is %.*q: must be one of %s; it counts as %s", key, longestValue, value, right, taken)
}
