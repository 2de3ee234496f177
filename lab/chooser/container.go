package main

import (
	"fmt"
	"hash/fnv"
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// price is the cost of events in unused core-hours or GiB-hours.
type price struct {
	missing      float64 // per core-hour or GiB-hour above the request
	change, kill float64
	own          bool // change and kill are in hours of the container's mean usage
}

func (p price) String() string {
	of := "core-hours"
	if p.own {
		of = "h of its use"
	}
	if p.kill > 0 {
		return fmt.Sprintf("kill %g %s", p.kill, of)
	}
	return fmt.Sprintf("starved %g, change %g %s", p.missing, p.change, of)
}

// tally sums unused and starved core-hours or GiB-hours, and counts changes and kills.
type tally struct{ over, missing, changes, kills float64 }

func (t *tally) add(o tally) {
	t.over, t.missing, t.changes, t.kills = t.over+o.over, t.missing+o.missing, t.changes+o.changes, t.kills+o.kills
}

// container is a recording with its replays under all presets.
type container struct {
	tunes, short bool
	kind         resources.Kind
	begin        int64 // of hour 0, so that the scored phase begins on an hour
	warm         int   // hours before the scored phase
	start        int64
	first        float64
	own          float64 // cores or GiB
	used, ran    float64
	samples      []replay.Sample
	presets      []*preset
}

// preset is the replay of a container under one preset.
type preset struct {
	of     *container
	hours  []tally
	advice []resources.Bounds // recommendation after each sample
	keeps  bool               // whether to record the samples of the container
}

func newContainer(r *replay.Recording, p *plane) *container {
	span, warm := r.Span(), backtest.WarmUp
	c := &container{kind: p.kind, start: r.At[0], tunes: tunes(r), short: span < 2*warm}
	if c.short {
		warm = span / 4
	}
	c.warm = int((int64(warm) + hour - 1) / hour)
	c.begin = c.start + int64(warm) - int64(c.warm)*hour
	for range p.presets {
		c.presets = append(c.presets, &preset{of: c, hours: make([]tally, c.hour(c.start+int64(span))+1)})
	}
	c.presets[0].keeps = true
	return c
}

// isTuningHalf selects the same half of the recordings as --part of the backtester.
func tunes(r *replay.Recording) bool {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", r.Dataset, r.Workload)
	return h.Sum32()&(1<<7) == 0
}

func (c *container) hour(at int64) int { return int((at - c.begin) / hour) }

func (c *container) replay(r *replay.Recording, p *plane, made []backtest.Candidate) {
	setup := replay.DefaultSetup(p.kind)
	setup.Limits = [resources.Kinds]replay.Limit{}
	setup.Limits[p.kind] = p.limit
	c.first = float64(replay.First(r, setup).Value(p.kind))
	for i, candidate := range made {
		replay.Run(r, setup, candidate.Make(backtest.Case{Recording: r, Kind: p.kind, Setup: setup}), c.presets[i])
	}
	c.own = c.used / c.ran
}

// tallySample returns the unused and starved hours of a sample under a request.
func (c *container) taken(s replay.Sample, request float64) tally {
	hours := float64(s.Hold-s.Down) / float64(hour) / backtest.Unit(c.kind)
	return tally{over: max(request-s.Use, 0) * hours, missing: max(s.Use-request, 0) * hours}
}

// Sample implements replay.Observer.
func (p *preset) Sample(s replay.Sample) {
	c := p.of
	if s.Kind != c.kind {
		return
	}
	p.hours[c.hour(s.At)].add(c.taken(s, float64(s.Request)))
	var before resources.Bounds
	if n := len(p.advice); n > 0 {
		before = p.advice[n-1]
	}
	p.advice = append(p.advice, before)
	if p.keeps {
		c.samples = append(c.samples, s)
		c.used += s.Use * float64(s.Hold) / backtest.Unit(c.kind)
		c.ran += float64(s.Hold)
	}
}

// Advised implements replay.Observer.
func (p *preset) Advised(a replay.Advice) {
	if n := len(p.advice); n > 0 {
		p.advice[n-1] = a.Bounds
	}
}

// Changed implements replay.Observer.
func (p *preset) Changed(c replay.Change) {
	if c.Kind == p.of.kind {
		p.hours[p.of.hour(c.At)].changes++
	}
}

// Killed implements replay.Observer.
func (p *preset) Killed(k replay.Kill) { p.hours[p.of.hour(k.At)].kills++ }

func (c *container) cost(t tally, p price) float64 {
	unit := 1.0
	if p.own {
		unit = c.own
	}
	return t.over + p.missing*t.missing + unit*(p.change*t.changes+p.kill*t.kills)
}

// presetCost returns the cost of one preset in the scored phase.
func (c *container) alone(preset int, p price) float64 {
	var sum tally
	for _, t := range c.presets[preset].hours[c.warm:] {
		sum.add(t)
	}
	return c.cost(sum, p)
}

// The updater's thresholds, as in replay.DefaultSetup.
const (
	lifetime  = int64(12 * time.Hour)
	threshold = 0.1
)

// applyRecommendation returns the request after a recommendation, and whether it changed.
func follows(kind resources.Kind, request float64, b resources.Bounds, age int64) (float64, bool) {
	target, known := b.Target.Get(kind)
	to := float64(target)
	if !known || to == request {
		return request, false
	}
	outside := request < float64(b.Lower.Value(kind)) || request > float64(b.Upper.Value(kind))
	if !outside && (max(to-request, request-to) < threshold*request || age < lifetime) {
		return request, false
	}
	return to, true
}

// tallyChoices returns the tally of the scored phase if the preset changes every hour as in
// choices. CPU requests change as an updater would change them: after a switch the request stays
// until it is outside the new bounds or older than lifetime. Memory switches at once and free of
// cost, so its result is too good: kills under the intermediate requests are not replayed.
func (c *container) chosen(choices []int) tally {
	var sum tally
	if c.kind == resources.Memory {
		for h := c.warm; h < len(choices); h++ {
			sum.add(c.presets[choices[h]].hours[h])
		}
		return sum
	}
	request, since := c.first, c.start
	for i, s := range c.samples {
		scored := c.hour(s.At) >= c.warm
		if scored {
			sum.add(c.taken(s, request))
		}
		now := s.At + s.Hold
		advice := c.presets[choices[min(c.hour(now), len(choices)-1)]].advice[i]
		to, changed := follows(c.kind, request, advice, now-since)
		if !changed {
			continue
		}
		if request, since = to, now; scored {
			sum.changes++
		}
	}
	return sum
}
