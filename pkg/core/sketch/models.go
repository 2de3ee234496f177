package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// ModelShape is what the ensembles of models of containers have in common. It does
// not change once made; make one for a recipe and share it.
type ModelShape struct {
	pairShape
	kind    resources.Kind
	Costs   Costs
	margins []float64
}

// Costs are what a model pays, as multiples of an amount that is unused.
type Costs struct {
	Overrun  float64 // for an amount that is used and not there
	Change   float64 // for a change of its limit, as a share of the mean use
	Switch   float64 // for another choice of model, in the same way
	Learning float64 // share of the last five minutes in the cost of a model, 0 to 1
}

// NewModelShape returns the shape of an ensemble with a model for each of two decays, a share of what is known that is
// forgotten in five minutes, and each of some margins, as fractions.
func NewModelShape(k resources.Kind, decays [2]float64, margins []float64, costs Costs) *ModelShape {
	s := &ModelShape{kind: k, Costs: costs, margins: margins}
	s.scheme, s.most = schemes[k], mostWeights
	for i, d := range decays {
		s.halfLives[i] = time.Duration(math.Ln2 / -math.Log1p(-d) * float64(slotWidth))
	}
	return s
}

// Models are an ensemble of models for one kind of a container: each has the limit that would have cost least, and the
// one whose limits cost least is chosen. Make it with newModels.
type Models struct {
	shape   *ModelShape
	uses    pair
	models  []model
	chosen  int8
	number  int64   // of the slot that is open, of five minutes
	samples float32 // in it
	peak    float64 // the highest in it: of memory only that counts
}

// model is one of them. Amounts are cores or bytes.
type model struct {
	limit       float32 // 0 = none yet
	cost        float32
	over, under float32 // in the open slot: sums of what was missing and unused
}

// newModels returns an ensemble that has seen nothing.
func newModels(shape *ModelShape) *Models {
	return &Models{shape: shape, models: make([]model, len(shape.halfLives)*len(shape.margins))}
}

// Observe takes a use in millicores or bytes.
func (m *Models) Observe(at int64, use float64) {
	if number := at / slotWidth; number > m.number {
		m.close()
		m.number = number
	}
	use /= units[m.shape.kind]
	m.peak = max(m.peak, use)
	if m.shape.kind == resources.CPU {
		m.take(at, use)
	}
	m.samples++
}

// take lets a use count.
func (m *Models) take(at int64, use float64) {
	m.uses.add(&m.shape.pairShape, at, use)
	for i := range m.models {
		a := &m.models[i]
		a.over += float32(max(use-float64(a.limit), 0))
		a.under += float32(max(float64(a.limit)-use, 0))
	}
}

// close ends a slot: every model pays, has its limit anew, and one is chosen.
func (m *Models) close() {
	if m.samples == 0 {
		return
	}
	samples := float64(m.samples)
	if m.shape.kind == resources.Memory {
		m.take((m.number+1)*slotWidth-1, m.peak)
		samples = 1
	}
	m.samples, m.peak = 0, 0
	c, best, least := m.shape.Costs, 0, math.Inf(1)
	mean := m.uses.mean(&m.shape.pairShape, 0)
	for i := range m.models {
		a := &m.models[i]
		paid := (c.Overrun*float64(a.over) + float64(a.under)) / samples
		if limit := m.limit(i, mean); float32(limit) != a.limit {
			a.limit = float32(limit)
			paid += c.Change * mean
		}
		a.cost = float32(c.Learning*paid + (1-c.Learning)*float64(a.cost))
		a.over, a.under = 0, 0
		cost := float64(a.cost)
		if i != int(m.chosen) {
			cost += (c.Switch + c.Change) * mean
		}
		if cost < least {
			best, least = i, cost
		}
	}
	m.chosen = int8(best)
}

// limit returns what a model would have, with its margin. The limit of least cost is a quantile: the share of the
// overrun among the costs. It stays where moving costs more than it saves.
func (m *Models) limit(i int, mean float64) float64 {
	shape, speed, margin := m.shape, i%2, 1+m.shape.margins[i/2]
	best := m.uses.share(&shape.pairShape, speed, shape.Costs.Overrun/(shape.Costs.Overrun+1), false, 0)
	if former := float64(m.models[i].limit) / margin; former > 0 && m.cost(speed, former) <= m.cost(speed, best)+shape.Costs.Change*mean {
		return float64(m.models[i].limit)
	}
	return best * margin
}

// cost returns what a limit would have cost, by weight, for each sample.
func (m *Models) cost(speed int, limit float64) float64 {
	sum, total := 0.0, 0.0
	for b := range m.uses.weights {
		w, use := float64(m.uses.weights[b][speed]), m.uses.end(&m.shape.pairShape, b)
		sum += w * max(m.shape.Costs.Overrun*(use-limit), limit-use)
		total += w
	}
	if total == 0 {
		return 0
	}
	return sum / total
}

// Limit returns the limit of the model that is chosen, in millicores or bytes; 0 in the first five minutes.
func (m *Models) Limit() float64 {
	return float64(m.models[m.chosen].limit) * units[m.shape.kind]
}

// adapt keeps what has the same decays and as many margins.
func (m *Models) adapt(shape *ModelShape) *Models {
	switch {
	case shape == nil:
		return nil
	case m == nil || m.shape.halfLives != shape.halfLives || len(m.shape.margins) != len(shape.margins):
		return newModels(shape)
	}
	m.shape = shape
	return m
}

// merge adds the uses of another one. What the models cost is that of the later.
func (m *Models) merge(o *Models) {
	if o.number > m.number {
		copy(m.models, o.models)
		m.chosen, m.number, m.samples, m.peak = o.chosen, o.number, o.samples, o.peak
	}
	m.uses.merge(&m.shape.pairShape, &o.uses)
}

func (m *Models) write(w *imageWriter) {
	w.Int(int64(m.shape.halfLives[0]))
	w.Int(int64(m.shape.halfLives[1]))
	w.Int(int64(len(m.models)))
	m.uses.write(w)
	for _, a := range m.models {
		for _, f := range []float32{a.limit, a.cost, a.over, a.under} {
			w.Short(f)
		}
	}
	w.Int(int64(m.chosen))
	w.Int(m.number)
	w.Short(m.samples)
	w.Float(m.peak)
}

func (m *Models) read(r *imageReader) {
	r.other = [2]time.Duration{time.Duration(r.Int()), time.Duration(r.Int())} != m.shape.halfLives
	if r.other = r.Int() != int64(len(m.models)) || r.other; r.other {
		return
	}
	m.uses.read(&m.shape.pairShape, r)
	for i := range m.models {
		m.models[i] = model{r.Short(), r.Short(), r.Short(), r.Short()}
	}
	m.chosen = int8(r.Within(0, int64(len(m.models))-1))
	m.number = r.Within(0, mostNumber)
	m.samples, m.peak = r.Short(), r.Float()
}
