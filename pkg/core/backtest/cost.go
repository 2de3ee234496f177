package backtest

import (
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
