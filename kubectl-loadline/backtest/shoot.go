package backtest

import (
	"context"
	"fmt"
	"slices"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// frames is how many points a chart has.
const frames = 480

// shoot replays the containers that are drawn once more, under all recipes, in the
// order in which the document has them. Baselines are not drawn.
func (c *Config) shoot(ctx context.Context, p plan, from []Source, d *Document) ([]Chart, error) {
	if c.Output != "html" || c.Charts == 0 || len(p.candidates) == 0 {
		return nil, nil
	}
	keys := d.Worst(p.candidates[len(p.candidates)-1].Name, c.Charts)
	recipes := slices.DeleteFunc(slices.Clone(p.candidates), func(one backtest.Candidate) bool { return !slices.Contains(c.Recipes, one.Name) })
	found := make([][]Chart, len(keys))
	for _, one := range from {
		if slices.ContainsFunc(keys, func(k Key) bool { return k.Dataset == one.Dataset }) {
			shootOne(ctx, one, p, keys, recipes, found)
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

func shootOne(ctx context.Context, from Source, p plan, keys []Key, recipes []backtest.Candidate, found [][]Chart) {
	drawn := func(workload, container string) bool {
		return slices.ContainsFunc(keys, func(k Key) bool {
			return k.Dataset == from.Dataset && k.Workload == workload && k.Container == container
		})
	}
	for r, problem := range from.Read(ctx, drawn) {
		if r == nil || problem != nil && !problem.Warning {
			continue // it was told when the containers were scored
		}
		for k := range resources.Kind(resources.Kinds) {
			at := slices.Index(keys, keyOf(r, k))
			if at < 0 {
				continue
			}
			for _, one := range recipes {
				title := fmt.Sprintf("%s %s/%s (%s): %s, %s", r.Dataset, r.Workload, r.Container, r.Class, k, one.Name)
				found[at] = append(found[at], Chart{Title: title, Film: backtest.RunTimeline(r, k, p.options, one, frames)})
			}
		}
	}
}

func keyOf(r *replay.Recording, k resources.Kind) Key {
	return Key{Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Kind: k}
}
