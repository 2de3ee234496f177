package recipe

import (
	"fmt"
	"time"

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

// HourOfDay begins a chain: the highest use at this hour of the day in a week.
func HourOfDay(k resources.Kind) Step {
	return Step{Name: k.String() + " peak of this hour of the day", Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Hours[k].SameHour()
	}}
}

// OrLastHour raises to the highest use of the last hour.
func OrLastHour(k resources.Kind) Step {
	return Step{Name: "or of the last hour", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].LastHour())
	}}
}

// Lately begins a chain: a quantile of the use of the last minutes.
func Lately(k resources.Kind, minutes int64, q float64) Step {
	return Step{Name: fmt.Sprintf("%s quantile %g of %d minutes", k, q, minutes), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Hours[k].Recent(minutes, q)
	}}
}

// UnderPressure raises to what there would have been had CPU work never waited: of is
// the same of that as of the use. Where nobody knows how long it waited, as with the
// metrics API, the amount stays.
func UnderPressure(of func(*sketch.Hours) float64) Step {
	return Step{Name: "or with the time that work waited for CPU", Apply: func(s Subject, in float64) float64 {
		if s.Sketch.Pressed == nil {
			return in
		}
		return max(in, of(s.Sketch.Pressed))
	}}
}

// AtKill raises to the memory at which the container was killed within an age.
func AtKill(age time.Duration) Step {
	return Step{Name: fmt.Sprintf("or limit at a kill, else use, for %gh", age.Hours()), Apply: func(s Subject, in float64) float64 {
		return max(in, float64(s.Sketch.Kills.Reached(s.Sketch.Now, age)))
	}}
}
