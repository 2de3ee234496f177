package replay

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Class is a usage pattern.
type Class string

// The classes. A recording has the first matching class in this order.
const (
	Growing Class = "growing-memory" // memory rises steadily by over 40% of its mean
	Idle    Class = "idle"           // 99th percentile of CPU below 20 millicores
	Batch   Class = "batch"          // quiet for most of the time, then busy
	Diurnal Class = "diurnal"        // similar to the same hour of the day before
	Bursty  Class = "bursty"         // rare peaks of five times the usual usage
	Steady  Class = "steady"         // varies by less than half of its mean
	Other   Class = "other"
)

// Classes lists all classes in report order.
func Classes() []Class { return []Class{Steady, Diurnal, Bursty, Batch, Growing, Idle, Other} }

// Classify returns the class of a recording. Each sample has the same weight.
func Classify(r *Recording) Class {
	cpu := sorted(r.Use[resources.CPU])
	if isGrowing(r) {
		return Growing
	}
	if len(cpu) == 0 {
		return Other
	}
	p99, p50 := nearest(cpu, 0.99), nearest(cpu, 0.5)
	below, _ := slices.BinarySearch(cpu, p99/10)
	switch mean, deviation := moments(cpu); {
	case p99 < 20:
		return Idle
	case p99 >= 150 && float64(below) > 0.7*float64(len(cpu)):
		return Batch
	case r.Span() >= 3*24*time.Hour && dailyCorrelation(r) > 0.4:
		return Diurnal
	case p99 >= 50 && p99 >= 5*p50:
		return Bursty
	case deviation < 0.5*mean:
		return Steady
	}
	return Other
}

func sorted(values []float64) []float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(known)
	return known
}

func nearest(ordered []float64, q float64) float64 {
	return ordered[min(max(int(math.Ceil(q*float64(len(ordered))))-1, 0), len(ordered)-1)]
}

func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation)
}

// isGrowing fits a line to the median memory of each day, or of each twelfth if under three days.
func isGrowing(r *Recording) bool {
	const leastMean, leastRise, leastFit = 32 << 20, 0.4, 0.5
	if len(r.At) == 0 || !r.Has(resources.Memory) {
		return false
	}
	width := int64(24 * time.Hour)
	if r.Span() < 3*24*time.Hour {
		width = max(int64(r.Span())/12, 1)
	}
	var x, y []float64
	for from := 0; from < len(r.At); {
		block := (r.At[from] - r.At[0]) / width
		to := from
		for to < len(r.At) && (r.At[to]-r.At[0])/width == block {
			to++
		}
		if values := sorted(r.Use[resources.Memory][from:to]); len(values) > 0 {
			x, y = append(x, float64(block)), append(y, nearest(values, 0.5))
		}
		from = to
	}
	if len(x) < 3 {
		return false
	}
	slope, fit := fitLine(x, y)
	mean, _ := moments(y)
	return mean > leastMean && fit > leastFit && slope*(x[len(x)-1]-x[0]) > leastRise*mean
}

// fitLine returns the slope of the least-squares line and the share of the variance it explains.
func fitLine(x, y []float64) (slope, fit float64) {
	meanX, deviationX := moments(x)
	meanY, deviationY := moments(y)
	both := 0.0
	for i := range x {
		both += (x[i] - meanX) * (y[i] - meanY) / float64(len(x))
	}
	if deviationX == 0 || deviationY == 0 {
		return 0, 0
	}
	correlation := both / (deviationX * deviationY)
	return both / (deviationX * deviationX), correlation * correlation
}

func dailyCorrelation(r *Recording) float64 {
	const hour, lag = int64(time.Hour), 24
	hours := make([]float64, (r.At[len(r.At)-1]-r.At[0])/hour+1)
	counts := make([]float64, len(hours))
	for i, v := range r.Use[resources.CPU] {
		if !math.IsNaN(v) {
			hours[(r.At[i]-r.At[0])/hour] += v
			counts[(r.At[i]-r.At[0])/hour]++
		}
	}
	var known []float64
	for i := range hours {
		hours[i] /= counts[i] // NaN for hours without samples
		if counts[i] > 0 {
			known = append(known, hours[i])
		}
	}
	mean, deviation := moments(known)
	sum, pairs := 0.0, 0.0
	for i := lag; i < len(hours); i++ {
		if product := (hours[i] - mean) * (hours[i-lag] - mean); !math.IsNaN(product) {
			sum, pairs = sum+product, pairs+1
		}
	}
	if pairs == 0 || deviation == 0 {
		return 0
	}
	return sum / pairs / (deviation * deviation)
}
