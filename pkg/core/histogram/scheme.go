package histogram

import "math"

// logTolerance is some hundred times the relative error of the logarithm in Find.
const logTolerance = 1e-12

// Scheme defines the boundaries of buckets. It is immutable and may be shared.
type Scheme struct {
	first, ratio float64 // size of the first bucket, growth factor, 1 is linear
	growth       float64
	epsilon      float64   // smaller weights count as empty
	starts       []float64 // start of each bucket
	edges        []edge    // of each bucket
	cells        []uint16  // bucket at each cell start, empty for linear or fine schemes
}

// edge is the start of a bucket, minus and plus the error of its logarithm.
type edge struct{ below, above float64 }

// cellBits are the leading fraction bits of a cell: 64 cells per power of two, up to 1.6 % wide.
const cellBits = 6

// CPUScheme returns the reference recommender's 176 buckets of cores, the first of size 0.01.
func CPUScheme() *Scheme { return NewExponentialScheme(0.01, 1.05, 1000, 0.001*0.1) }

// MemoryScheme returns the reference recommender's 176 buckets of bytes, the first of 10 MB.
func MemoryScheme() *Scheme { return NewExponentialScheme(1e7, 1.05, 1e12, 0.001*0.1) }

// NewExponentialScheme returns a scheme up to limit. Each bucket is ratio, at least 1, times as
// large as the one before. Weights below epsilon count as empty. Sizes and epsilon must be above 0.
func NewExponentialScheme(first, ratio, limit, epsilon float64) *Scheme {
	s := &Scheme{first: first, ratio: ratio, growth: (ratio - 1) / first, epsilon: epsilon}
	s.starts = make([]float64, int(math.Ceil(s.position(limit)))+1)
	s.edges = make([]edge, len(s.starts)+1)
	for i := range s.starts {
		s.starts[i] = float64(i) * first
		if ratio != 1 {
			s.starts[i] = first * (math.Pow(ratio, float64(i)) - 1) / (ratio - 1)
		}
		s.edges[i] = edge{s.starts[i] * (1 - logTolerance), s.starts[i] * (1 + logTolerance)}
	}
	last := len(s.starts) - 1
	s.edges[last+1] = edge{math.NaN(), math.NaN()} // no value lies beyond the last bucket
	s.fillCells()
	return s
}

// fillCells fills the table of cells, unless more than one bucket may start in one cell.
func (s *Scheme) fillCells() {
	if s.ratio-1 < 2./(1<<cellBits) {
		return
	}
	last := len(s.starts) - 1
	s.cells = make([]uint16, s.cell(s.starts[last])+1)
	for c, bucket := 0, 0; c < len(s.cells); c++ {
		start := math.Float64frombits(math.Float64bits(1)+uint64(c)<<(52-cellBits)) - 1
		// The start of the bucket, including the tolerance, lies before the cell.
		for bucket < last && s.starts[bucket+1]*s.growth < start*(1-3*logTolerance) {
			bucket++
		}
		s.cells[c] = uint16(bucket)
	}
}

// cell returns the cell of v, counted from the cell of 0. Negative values and NaN have a cell
// beyond every scheme. The leading bits of a float64 increase with its logarithm.
func (s *Scheme) cell(v float64) uint64 {
	return (math.Float64bits(v*s.growth+1) - math.Float64bits(1)) >> (52 - cellBits)
}

// position returns the fractional number of buckets below v, slightly low at some bucket starts.
func (s *Scheme) position(v float64) float64 {
	if s.ratio == 1 {
		return v / s.first
	}
	return math.Log(v*(s.ratio-1)/s.first+1) / math.Log(s.ratio)
}

// Buckets returns the number of buckets.
func (s *Scheme) Buckets() int { return len(s.starts) }

// Start returns the start value of bucket i.
func (s *Scheme) Start(i int) float64 { return s.starts[i] }

// Find returns the bucket of v: the last for larger values, the first for NaN. It uses the table,
// and computes the logarithm if v has no cell or is too close to the start of a bucket.
func (s *Scheme) Find(v float64) int {
	if cell := s.cell(v); cell < uint64(len(s.cells)) {
		// Branch-free: the choice between both buckets of a cell is unpredictable.
		bucket := int(s.cells[cell])
		next := &s.edges[bucket+1]
		if over := atLeast(v, next.above); over == atLeast(v, next.below) {
			return bucket + over
		}
	}
	return s.findByLogarithm(v)
}

// findByLogarithm returns the bucket of v by the definition of the reference recommender.
func (s *Scheme) findByLogarithm(v float64) int {
	if !(v >= s.first) {
		return 0
	}
	return int(min(s.position(v), float64(len(s.starts)-1)))
}

func atLeast(v, edge float64) int {
	n := 0
	if v >= edge {
		n = 1
	}
	return n
}

func (s *Scheme) equal(t *Scheme) bool {
	return s.first == t.first && s.ratio == t.ratio && s.epsilon == t.epsilon && len(s.starts) == len(t.starts)
}
