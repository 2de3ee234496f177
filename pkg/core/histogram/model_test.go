package histogram

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dense is the reference model of Histogram, which must agree with it bit for bit.
type dense struct {
	scheme    *Scheme
	halfLife  time.Duration
	reference time.Time
	total     float64
	weights   []float64
	min, max  int
}

func newDense(s *Scheme, halfLife time.Duration) *dense {
	return &dense{scheme: s, halfLife: halfLife, weights: make([]float64, s.Buckets()), min: s.Buckets() - 1}
}

func (d *dense) find(v float64) int {
	s := d.scheme
	if v < s.first {
		return 0
	}
	quotient := v / s.first
	if s.ratio != 1 {
		quotient = math.Log(v*(s.ratio-1)/s.first+1) / math.Log(s.ratio)
	}
	if quotient >= float64(s.Buckets()-1) {
		return s.Buckets() - 1
	}
	return int(quotient)
}

func (d *dense) factor(at time.Time) float64 {
	if d.halfLife == 0 {
		return 1
	}
	if at.After(d.reference.Add(100 * d.halfLife)) {
		d.shift(at)
	}
	return math.Exp2(float64(at.Sub(d.reference)) / float64(d.halfLife))
}

func (d *dense) shift(to time.Time) {
	to = to.Round(d.halfLife)
	scale := math.Ldexp(1, int(math.Floor(float64(d.reference.Sub(to))/float64(d.halfLife)+0.5)))
	for i := d.min; i <= d.max; i++ {
		d.weights[i] *= scale
	}
	d.total *= scale
	d.reference = to
	d.trim()
}

func (d *dense) trim() {
	for d.min < len(d.weights)-1 && d.weights[d.min] < d.scheme.epsilon {
		d.min++
	}
	for d.max > 0 && d.weights[d.max] < d.scheme.epsilon {
		d.max--
	}
}

func (d *dense) add(v, w float64, at time.Time) {
	w *= d.factor(at)
	i := d.find(v)
	d.weights[i] += w
	d.total += w
	if d.weights[i] >= d.scheme.epsilon {
		d.min, d.max = min(d.min, i), max(d.max, i)
	}
}

func (d *dense) subtract(v, w float64, at time.Time) {
	w *= d.factor(at)
	for _, x := range []*float64{&d.total, &d.weights[d.find(v)]} {
		if *x -= w; *x < d.scheme.epsilon {
			*x = 0
		}
	}
	d.trim()
}

// mergeInto shifts d itself if d is older, as the reference VPA does.
func (d *dense) mergeInto(dst *dense) {
	if dst.reference.Before(d.reference) {
		dst.shift(d.reference)
	} else if d.reference.Before(dst.reference) {
		d.shift(dst.reference)
	}
	for i := d.min; i <= d.max; i++ {
		dst.weights[i] += d.weights[i]
	}
	dst.total += d.total
	dst.min, dst.max = min(dst.min, d.min), max(dst.max, d.max)
}

func (d *dense) clone() *dense {
	c := *d
	c.weights = append([]float64(nil), d.weights...)
	return &c
}

func (d *dense) quantile(q float64) float64 {
	if d.weights[d.min] < d.scheme.epsilon {
		return 0
	}
	i, sum := d.min, 0.0
	for ; i < d.max; i++ {
		if sum += d.weights[i]; sum >= q*d.total {
			break
		}
	}
	if i < len(d.weights)-1 {
		i++
	}
	return d.scheme.Start(i)
}

func (d *dense) image() Image {
	top := 0.0
	for _, w := range d.weights[min(d.min, d.max) : d.max+1] {
		top = max(top, w)
	}
	i := Image{Reference: d.reference, Total: d.total, Weights: map[int]uint32{}}
	for b := d.min; b <= d.max && top > 0; b++ {
		if w := uint32(math.Floor(d.weights[b]*(10000/top) + 0.5)); w > 0 {
			i.Weights[b] = w
		}
	}
	return i
}

// load accepts valid images only.
func (d *dense) load(i Image) {
	*d = *newDense(d.scheme, d.halfLife)
	if d.halfLife != 0 {
		d.reference = i.Reference
	}
	sum := 0.0
	for _, w := range i.Weights {
		sum += float64(w)
	}
	if sum == 0 {
		return
	}
	for b, w := range i.Weights {
		d.weights[b] += float64(w) * (i.Total / sum)
		d.min, d.max = min(d.min, b), max(d.max, b)
	}
	d.total = i.Total
	d.trim()
}

func requireSame(t require.TestingT, want *dense, got *Histogram) {
	for b, w := range want.weights {
		if math.Float64bits(w) != math.Float64bits(got.weight(int32(b))) {
			require.Equal(t, w, got.weight(int32(b)), "weight of bucket %d", b)
		}
	}
	require.Equal(t, math.Float64bits(want.total), math.Float64bits(got.total), "total %v, want %v", got.total, want.total)
	require.Equal(t, [2]int{want.min, want.max}, [2]int{int(got.min), int(got.max)}, "visible range")
	require.True(t, want.reference.Equal(Time(got.reference)), "reference %v, want %v", Time(got.reference), want.reference)
	for _, q := range []float64{0, 0.25, 0.5, 0.9, 0.95, 1} {
		require.Equal(t, want.quantile(q), got.Quantile(q), "quantile %v", q)
	}
	require.Equal(t, want.image().Weights, got.Image().Weights)
	require.LessOrEqual(t, cap(got.weights), want.scheme.Buckets()+4, "the window has no more than the dense array")
}

type twin struct {
	model *dense
	h     Histogram
}

// play decodes operations of four bytes each, applies them to two histograms and their models, and
// compares them.
func play(t require.TestingT, scheme *Scheme, halfLife time.Duration, script []byte) {
	origin := time.Date(2024, 5, 1, 3, 7, 0, 0, time.UTC)
	unit := halfLife / 8
	if halfLife == 0 {
		unit = time.Hour
	}
	twins := [2]twin{}
	for i := range twins {
		twins[i] = twin{newDense(scheme, halfLife), New(scheme, NewDecay(halfLife))}
	}
	now := origin
	for ; len(script) >= 4; script = script[4:] {
		this, other := &twins[script[0]&1], &twins[script[0]&1^1]
		now = now.Add(unit / 4 * time.Duration(script[1]>>4))
		if now.Year() < 1800 || now.Year() > 2150 { // nanoseconds since 1970 end in 2262
			now = origin
		}
		at := now.Add(unit * time.Duration(int8(script[1]<<4))) // up to 16 half-lives before and after
		value := scheme.Start(int(script[2]) % scheme.Buckets())
		value += scheme.first * float64(script[3]>>4) / 8
		weight := math.Exp2(-float64(script[3] & 15))
		switch script[0] >> 1 & 7 {
		case 0, 1, 2:
			this.model.add(value, weight, at)
			this.h.Add(value, weight, at)
		case 3, 4:
			this.model.subtract(value, weight, at)
			this.h.Subtract(value, weight, at)
		case 5:
			before := this.model.clone()
			this.model.clone().mergeInto(other.model)
			this.h.MergeInto(&other.h)
			requireSame(t, before, &this.h) // the source is unchanged
		case 6:
			image := this.h.Image()
			this.model.load(image)
			require.NoError(t, this.h.Load(image))
		case 7:
			if script[2] < 32 {
				*this.model = *newDense(scheme, halfLife)
				this.h.Reset()
			} else {
				now = now.Add(halfLife * time.Duration(script[2]))
			}
		}
		requireSame(t, this.model, &this.h)
		requireSame(t, other.model, &other.h)
	}
}

func FuzzWindowEqualsDense(f *testing.F) {
	schemes := []*Scheme{CPUScheme(), MemoryScheme(), NewExponentialScheme(0.25, 1, 20, 0.001)}
	halfLives := []time.Duration{24 * time.Hour, time.Hour, 0, 5*time.Minute + 7, 4 * 365 * 24 * time.Hour}
	f.Fuzz(func(t *testing.T, setup byte, script []byte) {
		play(t, schemes[int(setup)%3], halfLives[int(setup)/3%5], script[:min(len(script), 2000)])
	})
}
