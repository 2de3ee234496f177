package recipe

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

const (
	craneMinWeight = 0.00001 // minimum weight of a sample
	craneMaxCPU    = 100     // cores
	craneMaxMemory = 104857600000
)

const killAge = 7 * 24 * time.Hour

// crane is a quantile of a week's samples in buckets of equal size. The weight of a sample is its
// amount. Amounts are cores and bytes until the last step.
type crane struct {
	percentile, margin [resources.Kinds]float64
	utilisation        float64
	utilisations       [resources.Kinds]float64 // 0 = utilisation
	bucket             [resources.Kinds]float64 // cores, bytes
	days               float64
	daysOf             [resources.Kinds]float64 // 0 = days
	ignoreKills        bool                     // kills do not count
	killRatio          float64
	killBump           float64 // MiB
	killAge            time.Duration
	shapes             []MachineShape // nil = no rounding to machine shapes
}

func newCrane() *crane {
	return &crane{
		percentile: [resources.Kinds]float64{0.99, 0.99}, margin: [resources.Kinds]float64{0.15, 0.15}, utilisation: 1,
		bucket: [resources.Kinds]float64{0.1, 100 << 20}, days: 7, killRatio: 1.2, killBump: 100, killAge: killAge,
	}
}

func (c *crane) choices() []choice {
	return []choice{
		{name: "shapes", options: []string{"off", "default"}, apply: func(option string) {
			if c.shapes = nil; option == "default" {
				c.shapes = DefaultShapes()
			}
		}, valueHint: "a list of cores and GiB such as 0.5c1g+1c2g", parse: func(text string) (err error) {
			c.shapes, err = ParseShapes(strings.ReplaceAll(text, "+", ","))
			return err
		}},
		{name: "oom-protection", options: []string{"yes", "no"}, apply: func(option string) { c.ignoreKills = option == "no" }},
		{name: "oom-history-length", valueHint: "a time from 1h to 1440h", parse: func(text string) error {
			age, err := time.ParseDuration(text)
			if err != nil || age < time.Hour || age > 60*24*time.Hour {
				return errors.New("it is none")
			}
			c.killAge = age
			return nil
		}},
	}
}

func (c *crane) settings() []setting {
	list := []setting{
		{"target-utilisation", &c.utilisation, 0.01, 1}, {"days", &c.days, 1, 60},
		{"oom-bump-ratio", &c.killRatio, 1, 100}, {"oom-bump-mib", &c.killBump, 0, 1e6},
		{"cpu-bucket-cores", &c.bucket[resources.CPU], 0.001, 10}, {"memory-bucket-bytes", &c.bucket[resources.Memory], 1 << 20, 1 << 40},
	}
	for k := range resources.Kind(resources.Kinds) {
		list = append(list,
			setting{k.String() + "-percentile", &c.percentile[k], 0, 1}, setting{k.String() + "-margin", &c.margin[k], 0, 100},
			setting{k.String() + "-target-utilisation", &c.utilisations[k], 0.01, 1}, setting{k.String() + "-days", &c.daysOf[k], 1, 60})
	}
	return list
}

func (c *crane) build() Recipe {
	var window [resources.Kinds]time.Duration
	for k := range window {
		window[k] = time.Duration(cmp.Or(c.daysOf[k], c.days)) * 24 * time.Hour
	}
	shape := sketch.NewWeightedShape(c.bucket, [resources.Kinds]float64{craneMaxCPU, craneMaxMemory}, craneMinWeight, window)
	r := Recipe{Needs: sketch.Needs{Weighted: shape, Kills: !c.ignoreKills}}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = Chain{
			WeightedQuantile(k, c.percentile[k]), AddFraction(c.margin[k]),
			Utilisation(cmp.Or(c.utilisations[k], c.utilisation)), Truncated(k),
		}
	}
	if !c.ignoreKills {
		r.Target[resources.Memory] = append(r.Target[resources.Memory], AfterKill(c.killBump*(1<<20), c.killRatio, c.killAge))
	}
	if c.shapes != nil {
		both := r.Target
		for k := range resources.Kind(resources.Kinds) {
			r.Target[k] = append(slices.Clip(both[k]), ToShape(k, c.shapes, both))
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = append(r.Target[k], Floor(k))
	}
	setDefaultBounds(&r, defaultLower, defaultUpper)
	return r
}

// WeightedQuantile begins a chain with a quantile of the samples weighted by their amount.
func WeightedQuantile(k resources.Kind, q float64) Step {
	return Step{Name: fmt.Sprintf("%s quantile %g by weight", k, q), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Weighted[k].Quantile(q)
	}}
}

// Utilisation divides by the target utilization of a request.
func Utilisation(u float64) Step {
	return Step{Name: fmt.Sprintf("/ utilisation %g", u), Apply: func(_ Subject, in float64) float64 { return in / u }}
}

// Truncated converts cores to millicores and drops fractions.
func Truncated(k resources.Kind) Step {
	return Step{Name: "whole " + map[resources.Kind]string{resources.CPU: "millicores", resources.Memory: "bytes"}[k], Apply: func(_ Subject, in float64) float64 {
		if k == resources.CPU {
			in *= 1000
		}
		return math.Floor(in)
	}}
}

// AfterKill raises the amount to the largest request at a kill within an age, + bump or x ratio.
func AfterKill(bump, ratio float64, age time.Duration) Step {
	name := fmt.Sprintf("request at a kill + %g or x %g", bump, ratio)
	return Step{Name: name, Apply: func(s Subject, in float64) float64 {
		had, killed := s.Sketch.Kills.LargestRequest(s.Sketch.Now, age)
		if !killed {
			return in
		}
		return max(in, math.Floor(max(float64(had)+bump, float64(had)*ratio)))
	}}
}
