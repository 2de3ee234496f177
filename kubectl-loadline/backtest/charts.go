package backtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// frames is how many points a chart has.
const frames = 480

// Chart is one container under one candidate over time.
type Chart struct {
	Title    string
	Timeline *replay.Timeline
}

// charts replays the containers that are drawn once more, under all recipes, in the
// order in which the document has them. Baselines are not drawn.
func (c *Config) charts(ctx context.Context, p plan, from []Source, d *Report) ([]Chart, error) {
	if c.Output != "html" || c.Charts == 0 || len(p.candidates) == 0 {
		return nil, nil
	}
	keys := d.Worst(p.candidates[len(p.candidates)-1].Name, c.Charts)
	recipes := slices.DeleteFunc(slices.Clone(p.candidates), func(one backtest.Candidate) bool { return !slices.Contains(c.Recipes, one.Name) })
	found := make([][]Chart, len(keys))
	for _, one := range from {
		if slices.ContainsFunc(keys, func(k Key) bool { return k.Dataset == one.Dataset }) {
			chartsOf(ctx, one, p, keys, recipes, found)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for i, charts := range found {
		if len(charts) == 0 && len(recipes) > 0 {
			return nil, fmt.Errorf("%s %s/%s could be read once, but not again", keys[i].Dataset, keys[i].Workload, keys[i].Container)
		}
	}
	return slices.Concat(found...), nil
}

func chartsOf(ctx context.Context, from Source, p plan, keys []Key, recipes []backtest.Candidate, found [][]Chart) {
	drawn := func(workload, container string) bool {
		return slices.ContainsFunc(keys, func(k Key) bool {
			return k.Dataset == from.Dataset && k.Workload == workload && k.Container == container
		})
	}
	for r, problem := range from.Read(ctx, drawn) {
		if r == nil || problem != nil && !problem.Warning {
			continue // it was reported when the containers were scored
		}
		for k := range resources.Kind(resources.Kinds) {
			at := slices.Index(keys, keyOf(r, k))
			if at < 0 {
				continue
			}
			for _, one := range recipes {
				title := fmt.Sprintf("%s %s/%s (%s): %s, %s", r.Dataset, r.Workload, r.Container, r.Class, k, one.Name)
				found[at] = append(found[at], Chart{Title: title, Timeline: backtest.RunTimeline(r, k, p.options, one, frames)})
			}
		}
	}
}

func keyOf(r *replay.Recording, k resources.Kind) Key {
	return Key{Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Kind: k}
}

// Key names a container and a kind.
type Key struct {
	Dataset, Workload, Container string
	Kind                         resources.Kind
}

// Worst returns the containers that cost most under a candidate, at most so many
// of each kind, the most expensive first.
func (d *Report) Worst(candidate string, most int) []Key {
	var all []Key
	for k := range resources.Kind(resources.Kinds) {
		var results []*backtest.Result
		for i := range d.Results {
			if r := &d.Results[i]; r.Candidate == candidate && r.Kind == k {
				results = append(results, r)
			}
		}
		slices.SortStableFunc(results, func(a, b *backtest.Result) int { return cmp.Compare(price(b), price(a)) })
		for _, r := range results[:min(most, len(results))] {
			all = append(all, Key{r.Dataset, r.Workload, r.Container, k})
		}
	}
	return all
}

// price is the cost of a result per container-day, so that long recordings do not
// come first for being long.
func price(r *backtest.Result) float64 {
	t := &r.Scored
	sum := float64(t.Evictions)*backtest.EvictionPrice + float64(t.Kills)*backtest.KillPrice + starvedHours(r)*backtest.StarvedCoreHour
	if r.Kind == resources.Memory {
		sum += hours(r, t.Over) * backtest.GiBHour
	} else {
		sum += hours(r, t.Over)
	}
	return sum / max(t.Days, 1)
}
