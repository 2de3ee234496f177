package backtest

import (
	"fmt"
	"math"

	"loadline.dev/loadline/pkg/core/resources"
)

// Prices of what a candidate causes, for one number where one is wanted. A
// core-hour that is reserved and not used is the unit.
const (
	GiBHour         = 0.125
	KillPrice       = 20
	EvictionPrice   = 1
	StarvedCoreHour = 4
)

// Cost is what one candidate caused in the scored phase of all containers.
type Cost struct {
	Candidate        string
	CoreHours        float64 // reserved and not used
	GiBHours         float64 // reserved and not used
	Kills            int
	Evictions        int
	StarvedCoreHours float64
	Total            float64 // all of them by their prices
}

// CostOf returns the cost of a candidate.
func CostOf(results []Result, candidate string) Cost {
	c := Cost{Candidate: candidate}
	for i := range results {
		r := &results[i]
		if r.Candidate != candidate {
			continue
		}
		hours := r.Scored.Over / 3600 / Unit(r.Kind)
		if r.Kind == resources.Memory {
			c.GiBHours += hours
		} else {
			c.CoreHours += hours
			c.StarvedCoreHours += r.Scored.StarvedWork / 3600 / Unit(r.Kind)
		}
		c.Kills += r.Scored.Kills
		c.Evictions += r.Scored.Evictions
	}
	c.Total = c.CoreHours + GiBHour*c.GiBHours + KillPrice*float64(c.Kills) + EvictionPrice*float64(c.Evictions) + StarvedCoreHour*c.StarvedCoreHours
	return c
}

// worse is the growth of a cost that Gate lets pass.
const worse = 0.02

// Gate returns why a cost is worse than it was, nothing if it is not: a growth of
// the total or of a part by more than 2 %, or more kills than chance explains.
func Gate(was, is Cost) []string {
	var reasons []string
	grown := func(name string, before, now float64) {
		if now > before*(1+worse)+1e-9 {
			reasons = append(reasons, fmt.Sprintf("%s: %s: %.6g, was %.6g: more than 2 %% worse", is.Candidate, name, now, before))
		}
	}
	grown("total cost", was.Total, is.Total)
	grown("unused core-hours", was.CoreHours, is.CoreHours)
	grown("unused GiB-hours", was.GiBHours, is.GiBHours)
	grown("starved core-hours", was.StarvedCoreHours, is.StarvedCoreHours)
	grown("evictions", float64(was.Evictions), float64(is.Evictions))
	if most := float64(was.Kills) + 2*math.Sqrt(float64(was.Kills)); float64(is.Kills) > most {
		reasons = append(reasons, fmt.Sprintf("%s: kills for want of memory: %d, were %d: more than chance explains", is.Candidate, is.Kills, was.Kills))
	}
	return reasons
}
