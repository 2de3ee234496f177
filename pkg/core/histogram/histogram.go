// Package histogram counts values in buckets with weights that decay over time, and computes
// quantiles.
//
// Only used buckets are stored, but results equal a dense array bit for bit. Old weights do not
// change over time. Instead, new weights are heavier, and all are scaled down once per hundred
// half-lives.
//
// Buckets below epsilon at both ends count in the total, but quantiles, images, merges and scaling
// ignore them until they gain weight. The reference recommender does the same, and its results
// depend on it.
//
// Concurrent reads are safe without a concurrent write.
package histogram

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Histogram counts values in the buckets of a scheme. Create it with New.
//
//	bucket   0                                               last
//	         .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
//	                    +-----------------------+
//	weights             |  ~  #  #  .  #  ~  #  |
//	                    +-----------------------+
//	                    base  min            max
//
// Only the window of weights is stored. Buckets outside weigh exactly 0. [min,max] spans the first
// to the last bucket of at least epsilon (#). Without any, min is the last bucket and max the
// first. Lighter buckets (~) outside of [min,max] count only in the total.
type Histogram struct {
	scheme    *Scheme
	decay     *Decay
	reference int64   // time at which a sample has its nominal weight, or Never
	total     float64 // sum of weights, may drift after Subtract
	weights   []float64
	base      int32 // bucket of weights[0]
	min, max  int32
}

// New returns an empty histogram.
func New(scheme *Scheme, decay *Decay) Histogram {
	h := Histogram{scheme: scheme, decay: decay}
	h.Reset()
	return h
}

// Reset empties h but keeps its memory for reuse.
func (h *Histogram) Reset() {
	h.reference, h.total, h.weights = Never, 0, h.weights[:0]
	h.min, h.max = int32(h.scheme.Buckets()-1), 0
}

// Add counts a value with a weight at a time.
func (h *Histogram) Add(value, weight float64, at time.Time) {
	h.AddAt(value, weight, Nanoseconds(at))
}

// AddAt is Add with a time from Nanoseconds, optimized because it runs for every sample.
func (h *Histogram) AddAt(value, weight float64, at int64) {
	bucket := h.scheme.Find(value)
	age := at - h.reference
	factor, known := h.decay.lookup(age)
	if !known || age > h.decay.maxAge || (age < 0) != (at < h.reference) {
		factor = h.factor(at)
	}
	weight = float64(weight * factor) // the conversion prevents a fused multiply-add
	i := bucket - int(h.base)
	if uint(i) >= uint(len(h.weights)) {
		h.widen(int32(bucket), int32(bucket))
		i = bucket - int(h.base)
	}
	h.total += weight
	weight += h.weights[i]
	h.weights[i] = weight
	if weight >= h.scheme.epsilon {
		h.min, h.max = min(h.min, int32(bucket)), max(h.max, int32(bucket))
	}
}

// Subtract reverses Add. A remainder below epsilon becomes 0.
func (h *Histogram) Subtract(value, weight float64, at time.Time) {
	weight *= h.factor(Nanoseconds(at))
	h.subtract(weight, &h.total)
	if bucket := int32(h.scheme.Find(value)); h.weight(bucket) != 0 {
		h.subtract(weight, &h.weights[bucket-h.base])
	}
	h.trim()
}

func (h *Histogram) subtract(weight float64, from *float64) {
	if *from -= weight; *from < h.scheme.epsilon {
		*from = 0
	}
}

// Empty reports whether no bucket weighs epsilon or more.
func (h *Histogram) Empty() bool { return h.weight(h.min) < h.scheme.epsilon }

// Quantile returns the end of the bucket in which the share q (0 to 1) of the total is reached, the
// start for the last bucket of the scheme, and 0 if h is empty. It does not interpolate.
func (h *Histogram) Quantile(q float64) float64 {
	if h.Empty() {
		return 0
	}
	bucket, threshold, sum := h.min, q*h.total, 0.0
	for ; bucket < h.max; bucket++ {
		if sum += h.weights[bucket-h.base]; sum >= threshold {
			break
		}
	}
	return h.scheme.Start(min(int(bucket)+1, h.scheme.Buckets()-1))
}

// MergeInto adds h to dst at the later reference. It panics if schemes or half-lives differ.
func (h *Histogram) MergeInto(dst *Histogram) {
	if h.decay.halfLife != dst.decay.halfLife || !h.scheme.equal(dst.scheme) {
		panic("histogram: merge of different schemes or half-lives")
	}
	scale := 1.0
	if h.reference > dst.reference {
		dst.shift(h.reference)
	} else if h.reference < dst.reference {
		_, scale = h.shifted(dst.reference)
	}
	dst.total += float64(h.total * scale)
	low, high := h.significantRange(scale)
	if low > high {
		return
	}
	dst.widen(low, high)
	for bucket := low; bucket <= high; bucket++ {
		dst.weights[bucket-dst.base] += float64(h.weights[bucket-h.base] * scale)
	}
	dst.min, dst.max = min(dst.min, low), max(dst.max, high)
}

func (h *Histogram) significantRange(scale float64) (low, high int32) {
	low, high = h.min, h.max
	for int(low) < h.scheme.Buckets()-1 && h.weight(low)*scale < h.scheme.epsilon {
		low++
	}
	for high > 0 && h.weight(high)*scale < h.scheme.epsilon {
		high--
	}
	return low, high
}

func (h *Histogram) weight(bucket int32) float64 {
	if i := int(bucket - h.base); i >= 0 && i < len(h.weights) {
		return h.weights[i]
	}
	return 0
}

func (h *Histogram) widen(low, high int32) {
	old := h.weights
	if len(old) == 0 {
		h.base = low
	}
	base, end := min(low, h.base), max(high+1, h.base+int32(len(old)))
	size, lead := int(end-base), int(h.base-base)
	if size == len(old) {
		return
	} else if size <= cap(old) {
		h.weights = old[:size]
	} else {
		h.weights = make([]float64, size, (size+3)/4*4) // rounded up to avoid an allocation for each new bucket
	}
	copy(h.weights[lead:], old)
	clear(h.weights[:lead])
	clear(h.weights[lead+len(old):])
	h.base = base
}

// trim updates min and max after a decrease of weights, and drops zero weights at the ends.
func (h *Histogram) trim() {
	h.min, h.max = h.significantRange(1)
	first, end := 0, len(h.weights)
	for end > 0 && h.weights[end-1] == 0 {
		end--
	}
	for first < end && h.weights[first] == 0 {
		first++
	}
	h.weights = h.weights[:copy(h.weights, h.weights[first:end])]
	h.base += int32(first)
}

// Image is the checkpoint form of a histogram, without light buckets.
type Image struct {
	Reference time.Time      // reference of Total, zero without samples or decay
	Total     float64        // sum of all weights
	Weights   map[int]uint32 // weights by bucket, 1 to 10000, the maximum is 10000
}

// Image returns the checkpoint form of h.
func (h *Histogram) Image() Image {
	i := Image{Reference: Time(h.reference), Total: h.total, Weights: map[int]uint32{}}
	top := 0.0
	for bucket := h.min; bucket <= h.max; bucket++ {
		top = max(top, h.weights[bucket-h.base])
	}
	for bucket := h.min; bucket <= h.max; bucket++ {
		if w := math.Floor(float64(h.weights[bucket-h.base]*(10000/top)) + 0.5); w > 0 {
			i.Weights[int(bucket)] = uint32(w)
		}
	}
	return i
}

// Load replaces the content of h with an image. It rejects a total that is negative or not a
// number, and buckets outside of the scheme. The error lists all problems, and h is unchanged then.
func (h *Histogram) Load(i Image) (err error) {
	if !(i.Total >= 0 && i.Total <= math.MaxFloat64) {
		err = fmt.Errorf("total weight %v: must be a number from 0 up", i.Total)
	}
	last, sum := len(h.scheme.starts)-1, 0.0
	low, high := last, 0
	for bucket, weight := range i.Weights {
		low, high, sum = min(low, bucket), max(high, bucket), sum+float64(weight)
	}
	if low < 0 || high > last {
		err = errors.Join(err, fmt.Errorf("buckets from %d to %d: must be from 0 to %d", low, high, last))
	}
	if err != nil {
		return err
	}
	h.Reset()
	if h.decay.halfLife != 0 {
		h.reference = Nanoseconds(i.Reference)
	}
	if sum == 0 {
		return nil
	}
	h.widen(int32(low), int32(high))
	for bucket, weight := range i.Weights {
		h.weights[bucket-low] = float64(weight) * (i.Total / sum)
	}
	h.total, h.min, h.max = i.Total, int32(low), int32(high)
	h.trim()
	return nil
}
