package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/histogram"
)

// pair holds two histograms of the same samples that decay at different speeds, in little memory.
//
//	bucket   0                                               last
//	         .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
//	                    +-----------------------+
//	weights             | #  #  .  #  #  #  .  #|     at most pairShape.maxWeights
//	                    +-----------------------+
//	                    base
//
// Where samples spread over more buckets than fit, neighboring buckets are merged until distant
// samples are forgotten.
type pair struct {
	weights   [][2]float32
	base      int32 // number of weights[0], in coarse buckets
	coarse    uint8 // each coarse bucket is 1<<coarse buckets of the scheme
	reference int64 // ns since 1970: time at which a sample has weight 1
}

type pairShape struct {
	scheme     *histogram.Scheme
	halfLives  [2]time.Duration
	maxWeights int32
}

const (
	maxLoadWeights    = 80
	maxTrackedWeights = 48   // for loads of large containers
	minWeight         = 1e-4 // of a sample, lighter buckets are dropped
	maxReferenceAge   = 32   // in half-lives, then weights get a new reference time
)

func (s *pairShape) factor(i int, age int64) float64 {
	return math.Exp2(float64(age) / float64(s.halfLives[i]))
}

func (p *pair) add(s *pairShape, at int64, use float64) {
	if len(p.weights) == 0 {
		p.reference = at
	}
	if age := at - p.reference; age > maxReferenceAge*int64(min(s.halfLives[0], s.halfLives[1])) {
		p.shift(s, at)
	}
	w := p.bucket(s, int32(s.scheme.Find(use)), at)
	for i := range w {
		w[i] += float32(s.factor(i, at-p.reference))
	}
}

// bucket returns the weights of a bucket of the scheme, extending the window if needed.
func (p *pair) bucket(s *pairShape, number int32, at int64) *[2]float32 {
	if low, high := p.span(number); high-low >= s.maxWeights {
		p.shift(s, max(at, p.reference))
	}
	for low, high := p.span(number); high-low >= s.maxWeights; low, high = p.span(number) {
		p.coarsen()
	}
	low, high := p.span(number)
	if size := int(high - low + 1); size != len(p.weights) {
		wider := make([][2]float32, size, min((size+7)/8*8, int(s.maxWeights)))
		if len(p.weights) > 0 {
			copy(wider[p.base-low:], p.weights)
		}
		p.weights, p.base = wider, low
	}
	return &p.weights[number>>p.coarse-p.base]
}

func (p *pair) span(number int32) (low, high int32) {
	number >>= p.coarse
	if len(p.weights) == 0 {
		return number, number
	}
	return min(number, p.base), max(number, p.base+int32(len(p.weights))-1)
}

// shift changes the reference time of the weights, and drops light buckets at both ends.
func (p *pair) shift(s *pairShape, to int64) {
	scale := [2]float64{s.factor(0, p.reference-to), s.factor(1, p.reference-to)}
	first, end := len(p.weights), 0
	for b := range p.weights {
		for i := range scale {
			w := float64(p.weights[b][i]) * scale[i]
			if w < minWeight {
				w = 0
			}
			p.weights[b][i] = float32(w)
			if w > 0 {
				first, end = min(first, b), b+1
			}
		}
	}
	p.reference = to
	if first >= end {
		*p = pair{reference: to}
		return
	}
	p.weights, p.base = p.weights[first:end:end], p.base+int32(first)
	for p.coarse > 0 && 2*len(p.weights) <= int(s.maxWeights) {
		p.refine()
	}
}

func (p *pair) coarsen() {
	base := p.base >> 1
	half := make([][2]float32, (p.base+int32(len(p.weights))-1)>>1-base+1)
	for b, w := range p.weights {
		to := &half[(p.base+int32(b))>>1-base]
		to[0], to[1] = to[0]+w[0], to[1]+w[1]
	}
	p.weights, p.base, p.coarse = half, base, p.coarse+1
}

// refine splits each bucket in two. The whole weight goes to the upper one, to be safe.
func (p *pair) refine() {
	double := make([][2]float32, 2*len(p.weights))
	for b, w := range p.weights {
		double[2*b+1] = w
	}
	p.weights, p.base, p.coarse = double, 2*p.base, p.coarse-1
}

func (p *pair) end(s *pairShape, b int) float64 {
	return s.scheme.Start(min(int(p.base+int32(b)+1)<<p.coarse, s.scheme.Buckets()-1))
}

// share returns the end of the bucket at which a share of the time, or of the usage with byLoad, is
// reached. If less than part of the time lies in it and above, it returns a lower one.
func (p *pair) share(s *pairShape, i int, share float64, byLoad bool, part float64) float64 {
	weight := func(b int) float64 {
		if w := float64(p.weights[b][i]); byLoad {
			return w * p.end(s, b)
		} else {
			return w
		}
	}
	total, sum := 0.0, 0.0
	for b := range p.weights {
		total += weight(b)
	}
	last := -1
	for b := range p.weights {
		if p.weights[b][i] == 0 {
			continue
		}
		last = b
		if sum += weight(b); sum >= share*total {
			break
		}
	}
	if last < 0 {
		return 0
	}
	return p.end(s, p.lower(i, last, part))
}

// lower returns the highest bucket, from a given one downwards, with at least a part of the weight
// in it and above, else the lowest bucket with weight.
func (p *pair) lower(i, from int, part float64) int {
	if part == 0 {
		return from
	}
	total, above := 0.0, 0.0
	for b := range p.weights {
		w := float64(p.weights[b][i])
		if total += w; b > from {
			above += w
		}
	}
	least := from
	for b := from; b >= 0 && above < part*total; b-- {
		if w := float64(p.weights[b][i]); w > 0 {
			above, least = above+w, b
		}
	}
	return least
}

func (p *pair) mean(s *pairShape, i int) float64 {
	sum, total := 0.0, 0.0
	for b := range p.weights {
		w := float64(p.weights[b][i])
		sum, total = sum+w*p.end(s, b), total+w
	}
	if total == 0 {
		return 0
	}
	return sum / total
}

func (p *pair) merge(s *pairShape, o *pair) {
	if len(o.weights) == 0 {
		return
	}
	to := o.reference
	if len(p.weights) > 0 && p.reference >= to {
		to = p.reference
	}
	p.shift(s, to)
	for b, theirs := range o.weights {
		if theirs == [2]float32{} {
			continue
		}
		w := p.bucket(s, (o.base+int32(b)+1)<<o.coarse-1, to)
		for i := range w {
			w[i] += float32(float64(theirs[i]) * s.factor(i, o.reference-to))
		}
	}
}

func (p *pair) write(w *imageWriter) {
	w.Int(int64(p.coarse))
	w.Int(int64(p.base))
	w.Int(p.reference)
	w.Int(int64(len(p.weights)))
	for _, weights := range p.weights {
		w.Short(weights[0])
		w.Short(weights[1])
	}
}

func (p *pair) read(s *pairShape, r *imageReader) {
	const mostCoarse = 8
	*p = pair{coarse: uint8(r.Within(0, mostCoarse)), base: int32(r.Within(0, int64(s.scheme.Buckets()))), reference: r.Within(0, math.MaxInt64)}
	n := r.Within(0, int64(s.maxWeights))
	if last := (int64(p.base) + n - 1) << p.coarse; last >= int64(s.scheme.Buckets()) {
		r.Fail()
		return
	}
	p.weights = make([][2]float32, n)
	for b := range p.weights {
		p.weights[b] = [2]float32{r.Short(), r.Short()}
	}
}
