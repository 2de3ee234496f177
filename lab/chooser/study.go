package main

import (
	"fmt"
	"math"

	"loadline.dev/loadline/pkg/core/backtest"
)

// chooser picks a preset for each hour.
type chooser struct {
	candidates  []int
	warmUpHours int     // hours with preset vpa at the beginning
	halfLife    float64 // hours, of the preset costs
	margin      float64 // minimum relative saving that justifies a switch
}

// choose returns the preset of each hour from the costs by preset and hour. It switches to the
// candidate with the lowest decayed cost if that is lower by the margin.
func (c *chooser) choose(costs [][]float64) []int {
	sums, decay := make([]float64, len(costs)), math.Exp2(-1/c.halfLife)
	choices, now := make([]int, len(costs[0])), 0
	for h := range choices {
		if h >= c.warmUpHours {
			best := now
			for _, candidate := range c.candidates {
				if sums[candidate] < sums[best] {
					best = candidate
				}
			}
			if sums[best] < (1-c.margin)*sums[now] {
				now = best
			}
		}
		choices[h] = now
		for i := range sums {
			sums[i] = sums[i]*decay + costs[i][h]
		}
	}
	return choices
}

// study compares presets under one price, weighted by container or by cost.
type study struct {
	experiment      *experiment
	price           price
	byContainer     bool
	tuned, reported []*container
	halfLives       []float64
}

// costs returns the costs of a container by preset and hour.
func (s *study) costs(c *container) [][]float64 {
	var all [][]float64
	for _, p := range c.presets {
		hours := make([]float64, len(p.hours))
		for h, t := range p.hours {
			hours[h] = c.cost(t, s.price)
		}
		all = append(all, hours)
	}
	return all
}

// chooserCosts returns the cost of a chooser for each container. The chooser stays with vpa during
// the warm-up.
func (s *study) chooserCosts(set []*container, ch chooser) []float64 {
	var all []float64
	for _, c := range set {
		ch.warmUpHours = c.warmUpHours
		all = append(all, c.cost(c.tallyChoices(ch.choose(s.costs(c))), s.price))
	}
	return all
}

func (s *study) presetCosts(set []*container, preset int) []float64 {
	var all []float64
	for _, c := range set {
		all = append(all, c.presetCost(preset, s.price))
	}
	return all
}

// aggregate returns the sum of the costs, or of their logarithms if containers weigh the same.
// Lower is better.
func (s *study) aggregate(costs []float64) float64 {
	sum := 0.0
	for _, cost := range costs {
		if s.byContainer {
			cost = math.Log(max(cost, minCost))
		}
		sum += cost
	}
	return sum
}

// minCost replaces zero, which has no logarithm.
const minCost = 1e-9

func (s *study) bestPreset(set []*container) int {
	best, lowest := 0, math.Inf(1)
	for preset := range s.experiment.presets {
		if cost := s.aggregate(s.presetCosts(set, preset)); cost < lowest {
			best, lowest = preset, cost
		}
	}
	return best
}

// tuneChooser returns the chooser with the lowest aggregate cost on the tuning half.
func (s *study) tuneChooser() chooser {
	var best chooser
	lowest := math.Inf(1)
	for _, family := range s.experiment.families {
		for _, halfLife := range s.halfLives {
			for _, margin := range []float64{0.05, 0.1, 0.2} {
				ch := chooser{candidates: append([]int{0}, family...), halfLife: halfLife, margin: margin}
				if cost := s.aggregate(s.chooserCosts(s.tuned, ch)); cost < lowest {
					best, lowest = ch, cost
				}
			}
		}
	}
	return best
}

// relativeSaving returns the relative saving of own against other over the containers with the
// given indexes: from the geometric mean of the ratios per container, or from the ratio of the
// sums.
func (s *study) relativeSaving(own, other []float64, indexes []int) float64 {
	a, b := 0.0, 0.0
	for _, i := range indexes {
		x, y := own[i], other[i]
		if s.byContainer {
			x, y = math.Log(max(x, minCost)), math.Log(max(y, minCost))
		}
		a, b = a+x, b+y
	}
	if s.byContainer {
		return 1 - math.Exp((a-b)/float64(len(indexes)))
	}
	return 1 - a/b
}

func (s *study) row() string {
	fixed := s.bestPreset(s.tuned)
	ch := s.tuneChooser()
	own := s.chooserCosts(s.reported, ch)
	var presets [][]float64
	for preset := range s.experiment.presets {
		presets = append(presets, s.presetCosts(s.reported, preset))
	}
	lowest := append([]float64(nil), presets[0]...)
	for _, costs := range presets {
		for i, cost := range costs {
			lowest[i] = min(lowest[i], cost)
		}
	}
	figures := backtest.Intervals(len(own), []backtest.Formula{
		{Name: "chooser", Value: func(of []int) float64 { return s.relativeSaving(own, presets[fixed], of) }},
		{Name: "hindsight", Value: func(of []int) float64 {
			least := math.Inf(1)
			for _, costs := range presets {
				least = min(least, s.relativeSaving(own, costs, of))
			}
			return least
		}},
		{Name: "each", Value: func(of []int) float64 { return s.relativeSaving(lowest, presets[fixed], of) }},
	})
	of := map[bool]string{true: "by container", false: "fleet"}[s.byContainer]
	row := []string{s.price.String(), of, s.experiment.presets[fixed]}
	for _, f := range figures {
		row = append(row, fmt.Sprintf("%.1f [%.1f, %.1f]", 100*f.Value, 100*f.Low, 100*f.High))
	}
	constants := fmt.Sprintf("%g h, %g", ch.halfLife, ch.margin)
	if last := ch.candidates[len(ch.candidates)-1]; len(s.experiment.families) > 1 {
		constants += ", with " + s.experiment.presets[last]
	}
	return cells(append(row, constants)...)
}
