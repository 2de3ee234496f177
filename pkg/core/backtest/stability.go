package backtest

import (
	"math"

	"loadline.dev/loadline/pkg/core/replay"
)

const (
	undone = 0.10 // a change is undone when the request is as near to what it was
	moved  = 0.10 // a target moved when it is farther from where it was
)

// stability counts changes of the request and moves of the target.
type stability struct {
	tally  *Tally
	last   int64   // when the last change was; 0 = none in this phase
	sign   float64 // of the last change; 0 = none yet
	recent []recent
	level  float64 // target that the next move is measured against; 0 = none yet
}

// recent is a change that may still turn out to be pointless.
type recent struct {
	at   int64
	from float64
	sign float64 // of its step
}

// enter goes over to another phase. No time since an earlier change counts in it.
func (s *stability) enter(t *Tally) { s.tally, s.last, s.recent = t, 0, s.recent[:0] }

func (s *stability) change(n replay.Change) {
	t := s.tally
	step := math.Log(float64(n.To) / float64(n.From))
	t.Changes++
	t.Evictions += count(n.Evicted)
	t.Churn += math.Abs(step)
	t.Reversals += count(s.sign*step < 0)
	if s.last != 0 {
		t.Between = append(t.Between, float64(n.At-s.last)/1e9)
	}
	s.last = n.At
	if step == 0 { // of a limit alone
		return
	}
	s.sign = math.Copysign(1, step)
	kept := s.recent[:0]
	for _, r := range s.recent {
		if n.At-r.at > day {
			continue
		}
		if r.sign*step < 0 && math.Abs(float64(n.To)/r.from-1) <= undone {
			t.Pointless++
			continue
		}
		kept = append(kept, r)
	}
	s.recent = append(kept, recent{n.At, float64(n.From), s.sign})
}

func (s *stability) target(level float64) {
	if s.level == 0 {
		s.level = level
	}
	if math.Abs(level-s.level) > moved*s.level {
		s.tally.Moves++
		s.level = level
	}
}
