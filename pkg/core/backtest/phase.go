package backtest

import (
	"loadline.dev/loadline/pkg/core/replay"
)

// Share of starved time that makes a day starved.
const starvedDay = 0.05

type scoredPhase struct {
	tally     *Tally
	hindsight *replay.Hindsight
	start     int64

	date          int64 // current day, from the start of the phase
	seen          bool  // the day has samples
	time, starved float64
	kills         int

	window           int64 // current peak window
	reserved, length float64

	run     float64 // seconds of continuous starvation
	lastEnd int64   // of the previous sample
}

func newScoredPhase(t *Tally, h *replay.Hindsight, start int64) *scoredPhase {
	t.OverStatic, t.OverDaily = h.OverStatic, h.OverDaily
	return &scoredPhase{tally: t, hindsight: h, start: start}
}

func (p *scoredPhase) sample(s replay.Sample, first float64) {
	t := p.tally
	p.day(s.At)
	p.peak(s.At)
	p.seen = true
	t.Days += float64(s.Duration) / float64(day)
	t.Backlog = max(t.Backlog, s.Backlog)
	if s.At > p.lastEnd || s.Down == s.Duration {
		p.run = 0
	}
	p.lastEnd = s.At + s.Duration
	seconds, request := float64(s.Duration-s.Down)/1e9, float64(s.Request)
	t.Seconds += seconds
	t.Reserved += request * seconds
	t.Initial += first * seconds
	t.Used += s.Use * seconds
	p.time += seconds
	p.length += seconds
	p.reserved += request * seconds
	if limit := float64(s.Limit); limit > 0 && s.Use > limit {
		t.Throttled += seconds
		t.Unserved += (s.Use - limit) * seconds
	}
	if s.Use <= request {
		t.Over += (request - s.Use) * seconds
		p.run = 0
		return
	}
	t.Starved += seconds
	t.StarvedWork += (s.Use - request) * seconds
	p.starved += seconds
	p.run += seconds
	t.Longest = max(t.Longest, p.run)
}

func (p *scoredPhase) kill(k replay.Kill) {
	p.day(k.At)
	p.seen = true
	p.kills++
	p.tally.Kills++
	p.tally.Excess = append(p.tally.Excess, k.Use/float64(k.Limit)-1)
}

func (p *scoredPhase) day(at int64) {
	if date := (at - p.start) / day; date != p.date {
		p.closeDay()
		p.date = date
	}
}

func (p *scoredPhase) closeDay() {
	if p.seen {
		p.tally.Dates++
		p.tally.StarvedDays += count(p.starved > starvedDay*p.time)
		p.tally.KillDays += count(p.kills > 0)
		p.tally.SevereDays += count(p.kills >= severeKills)
	}
	p.seen, p.time, p.starved, p.kills = false, 0, 0, 0
}

func count(holds bool) int {
	if holds {
		return 1
	}
	return 0
}

func (p *scoredPhase) peak(at int64) {
	if window := (at - p.start) / p.hindsight.Window; window != p.window {
		p.closeWindow()
		p.window = window
	}
}

func (p *scoredPhase) closeWindow() {
	if p.length > 0 {
		p.tally.PeakReserved += p.reserved
		p.tally.PeakOver += max(0, p.reserved-p.hindsight.Peaks[p.window]*p.length)
	}
	p.reserved, p.length = 0, 0
}

func (p *scoredPhase) close() {
	p.closeDay()
	p.closeWindow()
}
