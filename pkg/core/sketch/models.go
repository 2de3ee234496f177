package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// ModelShape holds the parameters that all ensembles of a recipe share. It is immutable.
type ModelShape struct {
	pairShape
	kind    resources.Kind
	Costs   Costs
	margins []float64
}

// Costs are the costs of a model, relative to the cost of the same amount of unused resources.
type Costs struct {
	Overrun  float64 // usage above the limit
	Change   float64 // change of the limit, as a share of the mean usage
	Switch   float64 // change of the chosen model, as a share of the mean usage
	Learning float64 // weight of the last five minutes in the cost, 0 to 1
}

// NewModelShape returns the shape of an ensemble with one model per decay and margin. A decay is
// the share of the history that is forgotten in five minutes.
func NewModelShape(k resources.Kind, decays [2]float64, margins []float64, costs Costs) *ModelShape {
	s := &ModelShape{kind: k, Costs: costs, margins: margins}
	s.scheme, s.maxWeights = schemes[k], maxLoadWeights
	for i, d := range decays {
		s.halfLives[i] = time.Duration(math.Ln2 / -math.Log1p(-d) * float64(slotWidth))
	}
	return s
}

// Models is an ensemble of models for one resource of a container. Each model has the limit with
// the lowest past cost, and the model with the lowest cost is chosen.
type Models struct {
	shape    *ModelShape
	uses     pair
	models   []model
	chosen   int8
	openSlot int64   // of five minutes, number since 1970
	samples  float32 // samples in the open slot
	peak     float64 // peak in the open slot, the only value used for memory
}

// model amounts are cores or bytes.
type model struct {
	limit       float32 // 0 = none yet
	cost        float32
	over, under float32 // sums of missing and unused resources in the open slot
}

func newModels(shape *ModelShape) *Models {
	return &Models{shape: shape, models: make([]model, len(shape.halfLives)*len(shape.margins))}
}

// Observe adds a sample in millicores or bytes.
func (m *Models) Observe(at int64, use float64) {
	if number := at / slotWidth; number > m.openSlot {
		m.close()
		m.openSlot = number
	}
	use /= units[m.shape.kind]
	m.peak = max(m.peak, use)
	if m.shape.kind == resources.CPU {
		m.count(at, use)
	}
	m.samples++
}

func (m *Models) count(at int64, use float64) {
	m.uses.add(&m.shape.pairShape, at, use)
	for i := range m.models {
		a := &m.models[i]
		a.over += float32(max(use-float64(a.limit), 0))
		a.under += float32(max(float64(a.limit)-use, 0))
	}
}

// close ends a slot: it updates the cost and the limit of each model, and chooses one.
func (m *Models) close() {
	if m.samples == 0 {
		return
	}
	samples := float64(m.samples)
	if m.shape.kind == resources.Memory {
		m.count((m.openSlot+1)*slotWidth-1, m.peak)
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

// limit returns the limit of a model. The limit of lowest cost is the quantile Overrun / (Overrun +
// 1), plus a margin. The old limit remains where a change costs more than it saves.
func (m *Models) limit(i int, mean float64) float64 {
	shape, speed, margin := m.shape, i%2, 1+m.shape.margins[i/2]
	best := m.uses.share(&shape.pairShape, speed, shape.Costs.Overrun/(shape.Costs.Overrun+1), false, 0)
	if former := float64(m.models[i].limit) / margin; former > 0 && m.cost(speed, former) <= m.cost(speed, best)+shape.Costs.Change*mean {
		return float64(m.models[i].limit)
	}
	return best * margin
}

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

// Limit returns the limit of the chosen model in millicores or bytes, 0 in the first five minutes.
func (m *Models) Limit() float64 {
	return float64(m.models[m.chosen].limit) * units[m.shape.kind]
}

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

// merge adds the usage of another ensemble, and takes the costs of the later one.
func (m *Models) merge(o *Models) {
	if o.openSlot > m.openSlot {
		copy(m.models, o.models)
		m.chosen, m.openSlot, m.samples, m.peak = o.chosen, o.openSlot, o.samples, o.peak
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
	w.Int(m.openSlot)
	w.Short(m.samples)
	w.Float(m.peak)
}

func (m *Models) read(r *imageReader) {
	r.mismatch = [2]time.Duration{time.Duration(r.Int()), time.Duration(r.Int())} != m.shape.halfLives
	if r.mismatch = r.Int() != int64(len(m.models)) || r.mismatch; r.mismatch {
		return
	}
	m.uses.read(&m.shape.pairShape, r)
	for i := range m.models {
		m.models[i] = model{r.Short(), r.Short(), r.Short(), r.Short()}
	}
	m.chosen = int8(r.Within(0, int64(len(m.models))-1))
	m.openSlot = r.Within(0, maxSlotNumber)
	m.samples, m.peak = r.Short(), r.Float()
}
