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

// Judgement is what recipes need on nodes.
type Judgement struct {
	Containers int // recorded ones that are long enough
	Short      int // others
	Pods       int
	Time, Step time.Duration // for which nodes ran, and its steps
	Draws      int
	Base       string            // recipe that others are compared with
	Rows       []nodes.Summary   // first requests, then the recipes
	Upstream   []nodes.Summary   // settings of upstream that are no recipes themselves
	Best       []backtest.Figure // of upstream with hindsight, at each level; empty = there is none
}

// Judge places the containers of files, directories and servers on nodes as a configuration says, and compares what its
// recipes need there. The first recipe is the base. It fails if anything had to be left out.
func Judge(ctx context.Context, c *Config, args ...string) (*Judgement, error) {
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
	p.options.Kinds = nil // nothing but nodes
	o, err := replayAll(ctx, p, &own, from, func(int, int, int) {})
	if err != nil {
		return nil, err
	}
	j, err := judge(ctx, p.nodes, c.Workers, o.courses)
	return j, errors.Join(append(o.failed(), err)...)
}

var errTooShort = errors.New("no recording is long enough for nodes: want at least one step after the warm-up")

// fleet is the containers of one draw, and what came out for each row.
type fleet struct {
	pods     *nodes.Fleet
	base     func() nodes.Score // of the row that others are compared with, as it is
	outcomes []nodes.Outcome
}

// judge runs the courses of recordings, by recording and recipe, under each row.
func judge(ctx context.Context, p *nodePlan, workers int, recorded [][]*nodes.Course) (*Judgement, error) {
	long := slices.DeleteFunc(slices.Clone(recorded), func(c []*nodes.Course) bool { return c == nil })
	if len(long) == 0 {
		return nil, errTooShort
	}
	courses := make([][]*nodes.Course, len(p.texts)) // by recipe and recording
	for text := range courses {
		for _, one := range long {
			courses[text] = append(courses[text], one[text])
		}
	}
	fleets := make([]fleet, 1+p.draws)
	for i, of := range draws(len(long), p.draws) {
		pods := nodes.NewFleet(courses[0], of, p.copies)
		base := sync.OnceValue(func() nodes.Score {
			return nodes.Run(pods, courses[p.of[p.rows.Base]], p.options, nodes.Variant{Factor: nodes.AsIs()})
		})
		fleets[i] = fleet{pods, base, make([]nodes.Outcome, len(p.of))}
	}
	if err := runAll(ctx, p, workers, courses, fleets); err != nil {
		return nil, err
	}
	outcomes := make([][]nodes.Outcome, len(fleets))
	for i := range fleets {
		outcomes[i] = fleets[i].outcomes
	}
	first, all := fleets[0].pods, p.rows.Summarise(outcomes)
	j := &Judgement{
		Containers: len(long), Short: len(recorded) - len(long), Pods: len(first.Pods), Time: time.Duration(first.Steps) * first.Step, Step: first.Step,
		Draws: p.draws, Base: p.rows.Rows[p.rows.Base].Name, Rows: all[:p.asked], Upstream: all[p.asked:],
	}
	if slices.ContainsFunc(p.rows.Rows, func(r nodes.Row) bool { return r.Upstream }) {
		j.Best = p.rows.Best(outcomes)
	}
	return j, nil
}

// draws returns the numbers of all containers, and then of those of each draw.
func draws(n, number int) [][]int {
	dice := backtest.Dice(backtest.Seed)
	all := make([][]int, 1+number)
	for i := range all {
		for at := range n {
			if i > 0 {
				at = dice.Below(n)
			}
			all[i] = append(all[i], at)
		}
	}
	return all
}

// runAll runs every fleet under every row.
func runAll(ctx context.Context, p *nodePlan, workers int, courses [][]*nodes.Course, fleets []fleet) error {
	rules := make([]*sharing.Rule, len(p.of))
	for row := range rules {
		if p.rows.Rows[row].Shared {
			made, err := recipe.Parse(p.texts[p.of[row]])
			if err != nil {
				return err
			}
			rules[row] = made.Sharing
		}
	}
	workqueue.ParallelizeUntil(ctx, workers, len(fleets)*len(p.of), func(task int) {
		f, row := &fleets[task/len(p.of)], task%len(p.of)
		sizes := nodes.Sizes{Factors: p.factors, Base: f.base(), EqualKills: p.equal}
		if row == p.rows.First {
			sizes.Factors = nil // nothing is compared with it
		}
		f.outcomes[row] = nodes.Sweep(f.pods, courses[p.of[row]], p.options, nodes.Variant{Rule: rules[row]}, sizes)
	})
	return ctx.Err()
}
