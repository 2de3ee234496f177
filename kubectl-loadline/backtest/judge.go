package backtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/sharing"
)

// NodeReport compares the node needs of recipes.
type NodeReport struct {
	Containers int // long enough to compare
	Short      int // too short to compare
	Pods       int
	Time, Step time.Duration // run time of the nodes, and its steps
	Draws      int
	Base       string            // recipe that others are compared with
	Rows       []nodes.Summary   // first requests, then the recipes
	Upstream   []nodes.Summary   // upstream settings that are not recipes
	Best       []backtest.Figure // best upstream with hindsight by level, empty: none
}

// CompareNodes places the containers of files, directories and servers on nodes and compares the
// node needs of recipes. The first recipe is the base. It fails if anything was skipped.
func CompareNodes(ctx context.Context, c *Config, args ...string) (*NodeReport, error) {
	own := *c
	own.Nodes.On = true
	p, err := own.plan()
	if err != nil {
		return nil, err
	}
	from, err := p.sources.Find(args)
	if err != nil {
		return nil, err
	}
	p.options.Kinds = nil // only the nodes
	o, err := replayAll(ctx, p, &own, from, func(int, int, int) {})
	if err != nil {
		return nil, err
	}
	j, err := compareNodes(ctx, p.nodes, c.Workers, o.courses)
	return j, errors.Join(append(o.failed(), err)...)
}

var errTooShort = errors.New("no recording is long enough for nodes: must have at least one step after the warm-up")

// fleet holds the containers of one draw, and the outcome of each row.
type fleet struct {
	pods     *nodes.Fleet
	base     func() nodes.Score // of the base row, unscaled
	outcomes []nodes.Outcome
}

func compareNodes(ctx context.Context, p *nodePlan, workers int, recorded [][]*nodes.Trace) (*NodeReport, error) {
	long := slices.DeleteFunc(slices.Clone(recorded), func(c []*nodes.Trace) bool { return c == nil })
	if len(long) == 0 {
		return nil, errTooShort
	}
	courses := make([][]*nodes.Trace, len(p.texts)) // by recipe and recording
	for text := range courses {
		for _, one := range long {
			courses[text] = append(courses[text], one[text])
		}
	}
	fleets := make([]fleet, 1+p.draws)
	for i, of := range draws(len(long), p.draws) {
		pods := nodes.NewFleet(courses[0], of, p.copies)
		base := sync.OnceValue(func() nodes.Score {
			return nodes.Run(pods, courses[p.recipeIndex[p.rows.BaseRow]], p.options, nodes.Variant{Factor: nodes.UnitFactors()})
		})
		fleets[i] = fleet{pods, base, make([]nodes.Outcome, len(p.recipeIndex))}
	}
	if err := runAll(ctx, p, workers, courses, fleets); err != nil {
		return nil, err
	}
	outcomes := make([][]nodes.Outcome, len(fleets))
	for i := range fleets {
		outcomes[i] = fleets[i].outcomes
	}
	first, all := fleets[0].pods, p.rows.Summarise(outcomes)
	j := &NodeReport{
		Containers: len(long), Short: len(recorded) - len(long), Pods: len(first.Pods), Time: time.Duration(first.Steps) * first.Step, Step: first.Step,
		Draws: p.draws, Base: p.rows.Rows[p.rows.BaseRow].Name, Rows: all[:p.shownRows], Upstream: all[p.shownRows:],
	}
	if slices.ContainsFunc(p.rows.Rows, func(r nodes.Row) bool { return r.Upstream }) {
		j.Best = p.rows.Best(outcomes)
	}
	return j, nil
}

// draws returns the indexes of all containers, and then the indexes of each draw.
func draws(n, number int) [][]int {
	dice := backtest.Random(backtest.Seed)
	all := make([][]int, 1+number)
	for i := range all {
		for at := range n {
			if i > 0 {
				at = dice.IntN(n)
			}
			all[i] = append(all[i], at)
		}
	}
	return all
}

func runAll(ctx context.Context, p *nodePlan, workers int, courses [][]*nodes.Trace, fleets []fleet) error {
	rules := make([]*sharing.Rule, len(p.recipeIndex))
	for row := range rules {
		if p.rows.Rows[row].Shared {
			made, err := recipe.Parse(p.texts[p.recipeIndex[row]])
			if err != nil {
				return err
			}
			rules[row] = made.Sharing
		}
	}
	workqueue.ParallelizeUntil(ctx, workers, len(fleets)*len(p.recipeIndex), func(task int) {
		f, row := &fleets[task/len(p.recipeIndex)], task%len(p.recipeIndex)
		sizes := nodes.SweepOptions{Factors: p.factors, Base: f.base(), EqualKills: p.equalKills}
		if row == p.rows.InitialRow {
			sizes.Factors = nil // no comparison with this row
		}
		f.outcomes[row] = nodes.Sweep(f.pods, courses[p.recipeIndex[row]], p.options, nodes.Variant{Rule: rules[row]}, sizes)
	})
	return ctx.Err()
}
