package backtest

import (
	"math"

	"loadline.dev/loadline/pkg/core/replay"
)

const (
	undone = 0.10 // a change is undone when the request is as near to what it was
	moved  = 0.10 // a target moved when it is farther from where it was
)

// calm counts changes.
type calm struct {
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

// enter goes over to another phase. Changes before it are not told apart in it.
func (c *calm) enter(t *Tally) { c.tally, c.last, c.recent = t, 0, c.recent[:0] }

func (c *calm) change(n replay.Change) {
	t := c.tally
	step := math.Log(float64(n.To) / float64(n.From))
	t.Changes++
	t.Evictions += count(n.Evicted)
	t.Churn += math.Abs(step)
	t.Reversals += count(c.sign*step < 0)
	if c.last != 0 {
		t.Between = append(t.Between, float64(n.At-c.last)/1e9)
	}
	c.last, c.sign = n.At, math.Copysign(1, step)
	kept := c.recent[:0]
	for _, r := range c.recent {
		if n.At-r.at > day {
			continue
		}
		if r.sign*step < 0 && math.Abs(float64(n.To)/r.from-1) <= undone {
			t.Pointless++
			continue
		}
		kept = append(kept, r)
	}
	c.recent = append(kept, recent{n.At, float64(n.From), c.sign})
}

func (c *calm) target(level float64) {
	if c.level == 0 {
		c.level = level
	}
	if math.Abs(level-c.level) > moved*c.level {
		c.tally.Moves++
		c.level = level
	}
}
