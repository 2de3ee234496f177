package replay

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// peakWindow is the window of one peak: unused requests could have been released for all of it.
var peakWindow = [resources.Kinds]time.Duration{time.Hour, 24 * time.Hour}

const day = int64(24 * time.Hour)

// Hindsight holds the best requests for a segment, given full knowledge of it. For CPU they cover
// 95% of the time, for memory the maximum plus a margin. Blocks are counted from the start of the
// segment, and require 0 without samples.
type Hindsight struct {
	Static float64   // one request for the whole segment
	Daily  []float64 // one request for each day
	Peaks  []float64 // requirement of each window, without margin
	Window int64     // length of a window in nanoseconds

	OverStatic, OverDaily float64 // unused part of these requests, amount times seconds
}

// NewHindsight computes the hindsight for a resource in a time range, with a margin for memory.
func NewHindsight(r *Recording, k resources.Kind, holds []int64, from, to int64, margin float64) Hindsight {
	h := Hindsight{Window: int64(peakWindow[k])}
	if k == resources.CPU {
		margin = 0
	}
	s := segment{r, k, holds, from, to}
	need := s.requirement
	h.Daily, h.Peaks = make([]float64, s.blocks(day)), make([]float64, s.blocks(h.Window))
	for block, parts := range s.splitBlocks(day) {
		h.Daily[block] = need(parts) * (1 + margin)
		h.OverDaily += unusedAmount(parts, h.Daily[block])
	}
	for block, parts := range s.splitBlocks(h.Window) {
		h.Peaks[block] = need(parts)
	}
	for _, parts := range s.splitBlocks(max(to-from, 1)) {
		h.Static = need(parts) * (1 + margin)
		h.OverStatic = unusedAmount(parts, h.Static)
	}
	return h
}

// Static returns only Hindsight.Static.
func Static(r *Recording, k resources.Kind, holds []int64, from, to int64, margin float64) float64 {
	if k == resources.CPU {
		margin = 0
	}
	s := segment{r, k, holds, from, to}
	for _, parts := range s.splitBlocks(max(to-from, 1)) {
		return s.requirement(parts) * (1 + margin)
	}
	return 0
}

type usagePart struct {
	use  float64
	hold int64
}

func byUse(a, b usagePart) int { return cmp.Compare(a.use, b.use) }

type segment struct {
	recording *Recording
	kind      resources.Kind
	holds     []int64
	from, to  int64
}

func (s segment) requirement(parts []usagePart) float64 {
	if s.kind == resources.Memory {
		return slices.MaxFunc(parts, byUse).use
	}
	return quantile(parts, cpuCoverage)
}

const cpuCoverage = 0.95

func (s segment) blocks(width int64) int64 { return max(s.to-s.from+width-1, 0) / width }

// splitBlocks yields number and parts of each block with samples, valid until the next iteration.
func (s segment) splitBlocks(width int64) iter.Seq2[int64, []usagePart] {
	return func(yield func(int64, []usagePart) bool) {
		at, _ := slices.BinarySearch(s.recording.At, s.from)
		end, _ := slices.BinarySearch(s.recording.At, s.to)
		var parts []usagePart
		for at < end {
			block := (s.recording.At[at] - s.from) / width
			parts = parts[:0]
			for ; at < end && (s.recording.At[at]-s.from)/width == block; at++ {
				if s.holds[at] > 0 {
					parts = append(parts, usagePart{s.recording.Use[s.kind][at], s.holds[at]})
				}
			}
			if len(parts) > 0 && !yield(block, parts) {
				return
			}
		}
	}
}

// quantile returns the lowest usage not exceeded for the share q of the time. It sorts the parts.
func quantile(parts []usagePart, q float64) float64 {
	slices.SortFunc(parts, byUse)
	total, sum := 0.0, 0.0
	for _, p := range parts {
		total += float64(p.hold)
	}
	for _, p := range parts {
		if sum += float64(p.hold); sum >= q*total {
			return p.use
		}
	}
	return parts[len(parts)-1].use
}

// unusedAmount returns amount times seconds.
func unusedAmount(parts []usagePart, request float64) (sum float64) {
	for _, p := range parts {
		sum += max(0, request-p.use) * float64(p.hold) / 1e9
	}
	return sum
}
