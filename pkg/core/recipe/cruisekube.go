package recipe

import (
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// cruiseKube requests the peak that a pod is given when it is created: the highest
// use at this hour of the day in a week, or of the last hour, with the time that work
// waited for CPU counted as use where it is known. Its base, a quantile
// of the last minutes, is the lower bound; sharing what is between the two on a
// node is for sharing what a node has to spare.
type cruiseKube struct {
	none
	unfloored
	base        float64
	cpuMinutes  float64
	memMinutes  float64
	memoryUpper float64
	cpuUpper    float64
}

func newCruiseKube() *cruiseKube {
	return &cruiseKube{base: 0.75, cpuMinutes: 10, memMinutes: 30, cpuUpper: upper[resources.CPU], memoryUpper: upper[resources.Memory]}
}

func (c *cruiseKube) settings() []setting {
	return []setting{
		{"base", &c.base, 0, 1}, {"cpu-minutes", &c.cpuMinutes, 1, 30}, {"memory-minutes", &c.memMinutes, 1, 30},
		{"cpu-upper", &c.cpuUpper, 1, 100}, {"memory-upper", &c.memoryUpper, 1, 100},
	}
}

func (c *cruiseKube) make() Recipe {
	r := Recipe{Needs: sketch.Needs{Hours: true, Pressure: true, Kills: true}}
	least := [resources.Kinds]float64{1, 16e6} // millicores, bytes
	for k, minutes := range [resources.Kinds]float64{c.cpuMinutes, c.memMinutes} {
		k := resources.Kind(k)
		target, lower := Chain{HourOfDay(k), OrLastHour(k)}, Chain{Lately(k, int64(minutes), c.base)}
		if k == resources.Memory {
			target, lower = append(target, AtKill(killAge)), append(lower, AtKill(killAge))
		} else {
			target = append(target, UnderPressure((*sketch.Hours).Peak))
			lower = append(lower, UnderPressure(func(h *sketch.Hours) float64 { return h.Recent(int64(minutes), c.base) }))
		}
		r.Target[k] = append(target, AtLeast(least[k]), Floor(k))
		r.Lower[k] = append(lower, AtLeast(least[k]), Floor(k))
	}
	r.Upper[resources.CPU] = append(r.Target[resources.CPU][:len(r.Target[resources.CPU]):len(r.Target[resources.CPU])], Factor(c.cpuUpper))
	r.Upper[resources.Memory] = append(r.Target[resources.Memory][:len(r.Target[resources.Memory]):len(r.Target[resources.Memory])], Factor(c.memoryUpper))
	return r
}
