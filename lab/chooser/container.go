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
	starved      float64 // per core-hour or GiB-hour above the request
	change, kill float64
	perMeanUsage bool // change and kill are in hours of the container's mean usage
}

func (p price) String() string {
	of := "core-hours"
	if p.perMeanUsage {
		of = "h of its use"
	}
	if p.kill > 0 {
		return fmt.Sprintf("kill %g %s", p.kill, of)
	}
	return fmt.Sprintf("starved %g, change %g %s", p.starved, p.change, of)
}

// tally sums unused and starved core-hours or GiB-hours, and counts changes and kills.
type tally struct{ unused, starved, changes, kills float64 }

func (t *tally) add(o tally) {
	t.unused, t.starved, t.changes, t.kills = t.unused+o.unused, t.starved+o.starved, t.changes+o.changes, t.kills+o.kills
}

// container is a recording with its replays under all presets.
type container struct {
	inTuningHalf, short bool
	kind                resources.Kind
	firstHour           int64 // of hour 0, so that the scored phase begins on an hour
	warmUpHours         int   // hours before the scored phase
	start               int64
	initialRequest      float64
	meanUsage           float64 // cores or GiB
	usageTime, runTime  float64
	samples             []replay.Sample
	presets             []*preset
}

// preset is the replay of a container under one preset.
type preset struct {
	container       *container
	hours           []tally
	recommendations []resources.Bounds // recommendation after each sample
	recordsSamples  bool               // whether to record the samples of the container
}

func newContainer(r *replay.Recording, p *experiment) *container {
	span, warm := r.Span(), backtest.WarmUp
	c := &container{kind: p.kind, start: r.At[0], inTuningHalf: isTuningHalf(r), short: span < 2*warm}
	if c.short {
		warm = span / 4
	}
	c.warmUpHours = int((int64(warm) + hour - 1) / hour)
	c.firstHour = c.start + int64(warm) - int64(c.warmUpHours)*hour
	for range p.presets {
		c.presets = append(c.presets, &preset{container: c, hours: make([]tally, c.hour(c.start+int64(span))+1)})
	}
	c.presets[0].recordsSamples = true
	return c
}

// isTuningHalf selects the same half of the recordings as --part of the backtester.
func isTuningHalf(r *replay.Recording) bool {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", r.Dataset, r.Workload)
	return h.Sum32()&(1<<7) == 0
}

func (c *container) hour(at int64) int { return int((at - c.firstHour) / hour) }

func (c *container) replay(r *replay.Recording, p *experiment, candidates []backtest.Candidate) {
	setup := replay.DefaultSetup(p.kind)
	setup.Limits = [resources.Kinds]replay.Limit{}
	setup.Limits[p.kind] = p.limit
	c.initialRequest = float64(replay.InitialRequests(r, setup).Value(p.kind))
	for i, candidate := range candidates {
		replay.Run(r, setup, candidate.Make(backtest.Case{Recording: r, Kind: p.kind, Setup: setup}), c.presets[i])
	}
	c.meanUsage = c.usageTime / c.runTime
}

// tallySample returns the unused and starved hours of a sample under a request.
func (c *container) tallySample(s replay.Sample, request float64) tally {
	hours := float64(s.Duration-s.Down) / float64(hour) / backtest.Unit(c.kind)
	return tally{unused: max(request-s.Use, 0) * hours, starved: max(s.Use-request, 0) * hours}
}

// Sample implements replay.Observer.
func (p *preset) Sample(s replay.Sample) {
	c := p.container
	if s.Kind != c.kind {
		return
	}
	p.hours[c.hour(s.At)].add(c.tallySample(s, float64(s.Request)))
	var before resources.Bounds
	if n := len(p.recommendations); n > 0 {
		before = p.recommendations[n-1]
	}
	p.recommendations = append(p.recommendations, before)
	if p.recordsSamples {
		c.samples = append(c.samples, s)
		c.usageTime += s.Use * float64(s.Duration) / backtest.Unit(c.kind)
		c.runTime += float64(s.Duration)
	}
}

// Advised implements replay.Observer.
func (p *preset) Advised(a replay.Advice) {
	if n := len(p.recommendations); n > 0 {
		p.recommendations[n-1] = a.Bounds
	}
}

// Changed implements replay.Observer.
func (p *preset) Changed(c replay.Change) {
	if c.Kind == p.container.kind {
		p.hours[p.container.hour(c.At)].changes++
	}
}

// Killed implements replay.Observer.
func (p *preset) Killed(k replay.Kill) { p.hours[p.container.hour(k.At)].kills++ }

func (c *container) cost(t tally, p price) float64 {
	unit := 1.0
	if p.perMeanUsage {
		unit = c.meanUsage
	}
	return t.unused + p.starved*t.starved + unit*(p.change*t.changes+p.kill*t.kills)
}

// presetCost returns the cost of one preset in the scored phase.
func (c *container) presetCost(preset int, p price) float64 {
	var sum tally
	for _, t := range c.presets[preset].hours[c.warmUpHours:] {
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
func applyRecommendation(kind resources.Kind, request float64, b resources.Bounds, age int64) (float64, bool) {
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
func (c *container) tallyChoices(choices []int) tally {
	var sum tally
	if c.kind == resources.Memory {
		for h := c.warmUpHours; h < len(choices); h++ {
			sum.add(c.presets[choices[h]].hours[h])
		}
		return sum
	}
	request, since := c.initialRequest, c.start
	for i, s := range c.samples {
		scored := c.hour(s.At) >= c.warmUpHours
		if scored {
			sum.add(c.tallySample(s, request))
		}
		now := s.At + s.Duration
		advice := c.presets[choices[min(c.hour(now), len(choices)-1)]].recommendations[i]
		to, changed := applyRecommendation(c.kind, request, advice, now-since)
		if !changed {
			continue
		}
		if request, since = to, now; scored {
			sum.changes++
		}
	}
	return sum
}
