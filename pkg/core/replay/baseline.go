package replay

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Fixed recommends one size for ever, and nothing for a kind that it lacks.
type Fixed struct{ Size resources.List }

// Observe implements Advisor.
func (f Fixed) Observe(time.Time, resources.Kind, resources.Amount, resources.Amount) {}

// Killed implements Advisor.
func (f Fixed) Killed(time.Time, resources.Amount, resources.Amount) {}

// Advise implements Advisor.
func (f Fixed) Advise(time.Time, resources.List) resources.Bounds {
	return resources.Bounds{Lower: f.Size, Target: f.Size, Upper: f.Size}
}

// Bounds of a moving maximum, as multiples of its target.
const (
	maxLower, maxUpper = 0.95, 1.3
	killRatio          = 1.2 // a kill counts as a use of this multiple of the limit
)

// MovingMax recommends the highest use of a time and a margin. Make it with
// NewMovingMax.
type MovingMax struct {
	window time.Duration
	margin float64
	peaks  [resources.Kinds][]peak // falling; the first is the highest of the window
}

type peak struct {
	at  int64
	use resources.Amount
}

// NewMovingMax returns one over a window, with a margin as a fraction.
func NewMovingMax(window time.Duration, margin float64) *MovingMax {
	return &MovingMax{window: window, margin: margin}
}

// Observe implements Advisor.
func (m *MovingMax) Observe(at time.Time, k resources.Kind, use, _ resources.Amount) {
	peaks := m.peaks[k]
	for len(peaks) > 0 && peaks[len(peaks)-1].use <= use {
		peaks = peaks[:len(peaks)-1]
	}
	m.peaks[k] = append(peaks, peak{at.UnixNano(), use})
}

// Killed implements Advisor.
func (m *MovingMax) Killed(at time.Time, _, limit resources.Amount) {
	m.Observe(at, resources.Memory, limit.Scale(killRatio), limit)
}

// Advise implements Advisor.
func (m *MovingMax) Advise(now time.Time, _ resources.List) resources.Bounds {
	var b resources.Bounds
	for k := range resources.Kind(resources.Kinds) {
		peaks := m.peaks[k]
		for len(peaks) > 0 && peaks[0].at <= now.UnixNano()-int64(m.window) {
			peaks = peaks[1:]
		}
		m.peaks[k] = peaks
		if len(peaks) == 0 {
			continue
		}
		target := max(peaks[0].use.Scale(1+m.margin), 1)
		b.Target = b.Target.With(k, target)
		b.Lower = b.Lower.With(k, target.Scale(maxLower))
		b.Upper = b.Upper.With(k, target.Scale(maxUpper))
	}
	return b
}
