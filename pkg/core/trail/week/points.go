package week

import (
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/trail/ring"
)

// The points of a week, five minutes each.
const (
	pointWidth = int64(5 * time.Minute)
	points     = 7 * 24 * 12
)

// Points are the uses in each five minutes of a week: means of CPU, maxima of
// memory. Make it with NewPoints.
type Points struct {
	kind    amount.Kind
	uses    [points]uint16 // coded, in thousandths; 0 = none; by number, modulo the ring
	running int64          // number of the point that is open, since 1970
	sum     float64        // of the uses in it
	count   float64
	read    int64  // number of points that habits were taken of
	habits  Habits // as they were then
}

// NewPoints returns an empty one.
func NewPoints(k amount.Kind) *Points { return &Points{kind: k} }

// Observe takes a use in millicores or bytes.
func (p *Points) Observe(at int64, use float64) {
	if number := at / pointWidth; number != p.running {
		ring.Advance(&p.running, number, p.uses[:])
		p.sum, p.count = 0, 0
	}
	slot := &p.uses[p.running%points]
	if p.kind == amount.Memory {
		*slot = max(*slot, ring.Encode(use*1000))
		return
	}
	p.sum, p.count = p.sum+use, p.count+1
	*slot = ring.Encode(p.sum / p.count * 1000)
}

// Habits returns those of the points that are complete. They are taken anew with
// each of them.
func (p *Points) Habits() *Habits {
	if p.read == p.running {
		return &p.habits
	}
	var at []int64
	var uses []float64
	for number := max(p.running-points+1, 0); number < p.running; number++ {
		if code := p.uses[number%points]; code != 0 {
			at, uses = append(at, number*pointWidth/1e9), append(uses, ring.Decode(code)/1000)
		}
	}
	p.habits, p.read = NewHabits(at, uses), p.running
	return &p.habits
}

// Merge adds another one of the same kind, where both know a point the higher use.
func (p *Points) Merge(o *Points) {
	switch {
	case o.running > p.running:
		p.sum, p.count = o.sum, o.count
	case o.running == p.running:
		p.sum, p.count = p.sum+o.sum, p.count+o.count
	}
	ring.Merge(&p.running, p.uses[:], o.running, o.uses[:])
	p.read = 0
}

// Write adds the points to an image.
func (p *Points) Write(w *ring.Writer) {
	w.Int(p.running)
	w.Float(p.sum)
	w.Float(p.count)
	w.Codes(p.uses[:])
}

// Read takes them from one.
func (p *Points) Read(r *ring.Reader) {
	*p = Points{kind: p.kind, running: r.Within(0, ring.MostNumber), sum: r.Float(), count: r.Float()}
	r.Codes(p.uses[:])
}
