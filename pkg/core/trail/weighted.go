package trail

import (
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/histogram"
)

// WeightedShape is what the week of histograms of containers have in common: for
// each kind buckets of equal size, in cores and bytes.
type WeightedShape struct {
	schemes [amount.Kinds]*histogram.Scheme
	never   *histogram.Decay
	least   float64
	window  time.Duration
}

// NewWeightedShape returns the shape of histograms with buckets of a size up to a
// most. A sample weighs what it is, but at least least; after window, in whole
// days, it counts no more.
func NewWeightedShape(size, most [amount.Kinds]float64, least float64, window time.Duration) *WeightedShape {
	s := &WeightedShape{never: histogram.NewDecay(0), least: least, window: window}
	for k := range s.schemes {
		s.schemes[k] = histogram.Linear(size[k], most[k], least/1000)
	}
	return s
}

// Weighted is the past of one kind, a histogram for each day.
type Weighted struct {
	shape *WeightedShape
	kind  amount.Kind
	days  []weightedDay // the oldest first
}

type weightedDay struct {
	number int64
	uses   histogram.Histogram
}

// NewWeighted returns an empty one.
func NewWeighted(shape *WeightedShape, k amount.Kind) *Weighted {
	return &Weighted{shape: shape, kind: k}
}

// Observe takes a use in millicores or bytes.
func (w *Weighted) Observe(at int64, use float64) {
	if w.kind == amount.CPU {
		use /= 1000
	}
	number := at / int64(24*time.Hour)
	if n := len(w.days); n == 0 || w.days[n-1].number < number {
		w.days = append(w.days, weightedDay{number, histogram.New(w.shape.schemes[w.kind], w.shape.never)})
	}
	for w.days[0].number < number-int64(w.shape.window/(24*time.Hour)) {
		w.days = w.days[1:]
	}
	w.days[len(w.days)-1].uses.AddAt(use, max(use, w.shape.least), at)
}

// Quantile returns a quantile of the weight, in cores or bytes: the end of the
// bucket in which it is reached.
func (w *Weighted) Quantile(q float64) float64 {
	all := histogram.New(w.shape.schemes[w.kind], w.shape.never)
	for i := range w.days {
		w.days[i].uses.MergeInto(&all)
	}
	return all.Quantile(q)
}
