package histogram

import "math"

// band is the relative distance from the start of a bucket in which Find asks
// for the logarithm. It is some hundred times the error of that.
const band = 1e-12

// Scheme says where buckets begin. It never changes, so it may be shared.
type Scheme struct {
	first, ratio float64   // size of the first bucket; growth from one to the next, 1 = none
	growth       float64   // (ratio-1)/first
	epsilon      float64   // what weighs less counts as empty
	starts       []float64 // where each bucket begins
	edges        []edge    // of each bucket
	cells        []uint16  // bucket at the start of each cell; none if the scheme is linear or finer than its cells
}

// edge is the start of a bucket, less and plus what its logarithm may be wrong by.
type edge struct{ below, above float64 }

// cellBits is the number of leading bits of a float64's fraction that name its
// cell: 64 cells from one power of two to the next, each 1.6 % wide at most.
const cellBits = 6

// CPUScheme returns a scheme for cores: 176 buckets, the first of 0.01. Like that
// for memory it has the constants of the reference recommender.
func CPUScheme() *Scheme { return Exponential(0.01, 1.05, 1000, 0.001*0.1) }

// MemoryScheme returns a scheme for bytes: 176 buckets, the first of 10 MB.
func MemoryScheme() *Scheme { return Exponential(1e7, 1.05, 1e12, 0.001*0.1) }

// Exponential returns a scheme up to most in which each bucket is ratio (1 or above) times as large as the one before;
// with 1 all are equal. A bucket that weighs less than epsilon counts as empty. Sizes and epsilon must be above 0.
func Exponential(first, ratio, most, epsilon float64) *Scheme {
	s := &Scheme{first: first, ratio: ratio, growth: (ratio - 1) / first, epsilon: epsilon}
	s.starts = make([]float64, int(math.Ceil(s.position(most)))+1)
	s.edges = make([]edge, len(s.starts)+1)
	for i := range s.starts {
		s.starts[i] = float64(i) * first
		if ratio != 1 {
			s.starts[i] = first * (math.Pow(ratio, float64(i)) - 1) / (ratio - 1)
		}
		s.edges[i] = edge{s.starts[i] * (1 - band), s.starts[i] * (1 + band)}
	}
	last := len(s.starts) - 1
	s.edges[last+1] = edge{math.NaN(), math.NaN()} // nothing is beyond the last
	s.fillCells()
	return s
}

// fillCells makes the table of cells, unless more than one bucket may begin in one.
func (s *Scheme) fillCells() {
	if s.ratio-1 < 2./(1<<cellBits) {
		return
	}
	last := len(s.starts) - 1
	s.cells = make([]uint16, s.cell(s.starts[last])+1)
	for c, bucket := 0, 0; c < len(s.cells); c++ {
		start := math.Float64frombits(math.Float64bits(1)+uint64(c)<<(52-cellBits)) - 1
		// The bucket's own start, with the band around it, lies before the cell.
		for bucket < last && s.starts[bucket+1]*s.growth < start*(1-3*band) {
			bucket++
		}
		s.cells[c] = uint16(bucket)
	}
}

// cell returns in which cell v lies, counted from that of 0; for less than 0 and for what is no number it is one that
// no scheme has. The leading bits of a float64 grow with its logarithm.
func (s *Scheme) cell(v float64) uint64 {
	return (math.Float64bits(v*s.growth+1) - math.Float64bits(1)) >> (52 - cellBits)
}

// position returns how many buckets lie below v. At the very start of a bucket
// the quotient of logarithms may be slightly too low.
func (s *Scheme) position(v float64) float64 {
	if s.ratio == 1 {
		return v / s.first
	}
	return math.Log(v*(s.ratio-1)/s.first+1) / math.Log(s.ratio)
}

// Buckets returns the number of buckets.
func (s *Scheme) Buckets() int { return len(s.starts) }

// Start returns the value at which bucket i begins.
func (s *Scheme) Start(i int) float64 { return s.starts[i] }

// Find returns the bucket of v: the last for values beyond it, the first for
// what is no number. It looks into the table, and asks for the definition where v
// has no cell or lies so near to the start of a bucket that the definition errs.
func (s *Scheme) Find(v float64) int {
	if cell := s.cell(v); cell < uint64(len(s.cells)) {
		// Whether v lies in the cell's first or second bucket no processor can foresee; this way it need not.
		bucket := int(s.cells[cell])
		next := &s.edges[bucket+1]
		if over := beyond(v, next.above); over == beyond(v, next.below) {
			return bucket + over
		}
	}
	return s.define(v)
}

// define returns what Find does, as the reference recommender defines it.
func (s *Scheme) define(v float64) int {
	if !(v >= s.first) {
		return 0
	}
	return int(min(s.position(v), float64(len(s.starts)-1)))
}

// beyond returns 1 if v is at least the edge, and otherwise 0.
func beyond(v, edge float64) int {
	n := 0
	if v >= edge {
		n = 1
	}
	return n
}

func (s *Scheme) equal(t *Scheme) bool {
	return s.first == t.first && s.ratio == t.ratio && s.epsilon == t.epsilon && len(s.starts) == len(t.starts)
}
