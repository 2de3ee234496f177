package histogram

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Image is a histogram as a checkpoint stores it: light buckets are dropped.
type Image struct {
	Reference time.Time      // which Total refers to; zero if nothing was added or nothing decays
	Total     float64        // sum of all weights
	Weights   map[int]uint32 // bucket to weight, 1 to 10000; the heaviest has 10000
}

// Image returns the stored form of h.
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

// Load replaces the content of h by an image. It refuses, naming all problems, a
// total that is negative or no number, and buckets that the scheme does not
// have; h then stays as it was.
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
	h.cover(int32(low), int32(high))
	for bucket, weight := range i.Weights {
		h.weights[bucket-low] = float64(weight) * (i.Total / sum)
	}
	h.total, h.min, h.max = i.Total, int32(low), int32(high)
	h.trim()
	return nil
}
