package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"loadline.dev/loadline/kubectl-loadline/report"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/backtest/tape"
	"loadline.dev/loadline/pkg/source/trace"
)

// frames is how many points a chart has.
const frames = 480

// shoot replays the containers that are drawn once more, under all recipes, in the
// order in which the document has them. Baselines are not drawn.
func (c *Config) shoot(ctx context.Context, p plan, files []string, d *report.Document) ([]report.Chart, error) {
	if c.Output != "html" || c.Charts == 0 || len(p.candidates) == 0 {
		return nil, nil
	}
	keys := d.Worst(p.candidates[len(p.candidates)-1].Name, c.Charts)
	recipes := slices.DeleteFunc(slices.Clone(p.candidates), func(one backtest.Candidate) bool { return !slices.Contains(c.Recipes, one.Name) })
	found := make([][]report.Chart, len(keys))
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(keys, func(k report.Key) bool { return k.Dataset == filepath.Base(name) }) {
			continue
		}
		if err := shootFile(name, p, keys, recipes, found); err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

func shootFile(name string, p plan, keys []report.Key, recipes []backtest.Candidate, found [][]report.Chart) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	for r, problem := range trace.Read(file, filepath.Base(name), p.reading) {
		if problem != nil && !problem.Warning {
			continue // it was told when the containers were scored
		}
		for k := range amount.Kind(amount.Kinds) {
			at := slices.Index(keys, keyOf(r, k))
			if at < 0 {
				continue
			}
			for _, one := range recipes {
				title := fmt.Sprintf("%s %s/%s (%s): %s, %s", r.Dataset, r.Workload, r.Container, r.Class, k, one.Name)
				found[at] = append(found[at], report.Chart{Title: title, Film: backtest.Shoot(r, k, p.options, one, frames)})
			}
		}
	}
	return nil
}

func keyOf(r *tape.Recording, k amount.Kind) report.Key {
	return report.Key{Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Kind: k}
}
