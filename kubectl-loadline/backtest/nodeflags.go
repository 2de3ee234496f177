package backtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
)

// Nodes are the flags of the comparison on nodes.
type Nodes struct {
	On          bool
	CPU, Memory flags.Quantity // of a node
	Copies      int
	Apart       bool
	Time, Step  time.Duration
	ScaleCPU    float64
	ScaleMemory float64
	Placing     time.Duration
	Consolidate time.Duration
	Settle      bool
	Stay        bool
	Share       []string
	Factors     []float64
	Upstream    []string
	EqualKills  bool
	Draws       int
}

// Bounds of the flags: of what takes time and memory, and of factors.
const (
	mostCopies = 1000
	mostDraws  = 1000
	mostFactor = 1000
)

// DefaultNodes returns the defaults: nodes of 16 cores and 64 GiB, and the recordings
// as they are.
func DefaultNodes() Nodes {
	n := Nodes{
		Copies: 1, Time: 7 * 24 * time.Hour, Step: 5 * time.Minute, ScaleCPU: 1, ScaleMemory: 1, Placing: 24 * time.Hour, Consolidate: time.Hour,
		Share: []string{"cpu"}, Factors: []float64{0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1, 1.1, 1.2, 1.35, 1.5, 1.7}, EqualKills: true, Draws: 20,
	}
	for _, share := range []float64{0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1} {
		n.Upstream = append(n.Upstream, fmt.Sprintf("vpa:target-cpu=%g", share))
	}
	if err := errors.Join(n.CPU.Set("16"), n.Memory.Set("64Gi")); err != nil {
		panic(err) // they are constants
	}
	return n
}

// AddFlags binds every flag.
func (n *Nodes) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&n.On, "nodes", n.On, "Place the containers on nodes by their requests, let their use run there, and compare how many nodes recipes need, with and without sharing what a node has left.")
	fs.Var(&n.CPU, "node-cpu", "CPU of a node that pods can have.")
	fs.Var(&n.Memory, "node-memory", "Memory of a node that pods can have.")
	fs.IntVar(&n.Copies, "node-copies", n.Copies, "Pods for each recorded container. They begin at other times of the recording: other days, if it has two or more.")
	fs.BoolVar(&n.Apart, "node-apart", n.Apart, "Each pod begins at a time of its own. Otherwise one copy of all containers of a file or server begins at the same time, so that what peaked together does.")
	fs.DurationVar(&n.Time, "node-time", n.Time, "Time for which the nodes run, unless all recordings are shorter. The warm-up is left out.")
	fs.DurationVar(&n.Step, "node-step", n.Step, "Step of the nodes: use of CPU is averaged over it, of memory the highest counts.")
	fs.Float64Var(&n.ScaleCPU, "node-scale-cpu", n.ScaleCPU, "Factor of recorded CPU and what was requested for it, so that recorded machines become pods.")
	fs.Float64Var(&n.ScaleMemory, "node-scale-memory", n.ScaleMemory, "The same for memory.")
	fs.DurationVar(&n.Placing, "node-placing", n.Placing, "Time from one placing of all pods from scratch, the largest first, to the next. 0: only at the start.")
	fs.DurationVar(&n.Consolidate, "node-consolidate", n.Consolidate, "Least time between two nodes that are emptied because their pods, as they are, fit elsewhere. Shares on a node shrink at most that often. 0: none is emptied, and shares shrink once an hour, or where a pod came that is to give something of its peak.")
	fs.BoolVar(&n.Settle, "node-settle", n.Settle, "Shares on a node are computed anew when a pod comes to it, too. Otherwise several that come between two rounds, 5 minutes apart, need room for all of their peaks.")
	fs.BoolVar(&n.Stay, "node-stay", n.Stay, "Between two placings pods do not move: what does not fit in place waits. Only kubelets evict.")
	fs.StringSliceVar(&n.Share, "node-share", n.Share, "Resources that recipes made for it share.")
	fs.Float64SliceVar(&n.Factors, "node-factors", n.Factors, "Factors of the CPU requests, so that recipes can be compared where they leave the same work undone. Those that lead beyond that are left out.")
	fs.StringArrayVar(&n.Upstream, "node-upstream", n.Upstream, "Recipe with settings of upstream, of which the best is taken with hindsight; repeat it. Given empty: there are none.")
	fs.BoolVar(&n.EqualKills, "node-equal-kills", n.EqualKills, "With these factors, scale memory requests and limits so that there are no more OOM kills and evictions for want of memory than with the first recipe.")
	fs.IntVar(&n.Draws, "node-draws", n.Draws, "Fleets of drawn containers for the intervals; 0: there are none.")
}

// nodePlan is the valid comparison on nodes.
type nodePlan struct {
	playing nodes.Playing
	options nodes.Options
	copies  nodes.Copies
	rows    nodes.Comparison
	texts   []string // of the recipes to replay; the first is empty, and means first requests
	of      []int    // by row, the number of its recipe
	asked   int      // rows that are shown: all but those of upstream that are no recipes
	factors []float64
	draws   int
	equal   bool // kills
}

// plan returns the comparison on nodes, with all problems of its flags joined. Kinds are those
// that count.
func (n *Nodes) plan(c *Config, p *plan) (*nodePlan, error) {
	o := &nodePlan{factors: slices.Sorted(slices.Values(n.Factors)), draws: n.Draws, equal: n.EqualKills}
	o.options = nodes.Options{Placing: n.Placing, Consolidate: n.Consolidate, Settle: n.Settle, Stay: n.Stay}
	o.options.Allocatable[resources.CPU] = float64(convert.Amount(resources.CPU, n.CPU.Value))
	o.options.Allocatable[resources.Memory] = float64(convert.Amount(resources.Memory, n.Memory.Value))
	o.copies = nodes.Copies{Step: n.Step, Most: n.Time, Number: n.Copies, Apart: n.Apart, Seed: backtest.Seed}
	o.playing = nodes.Playing{Setup: p.setup[resources.CPU], Store: usage.DefaultConfig(), WarmUp: c.WarmUp, Step: n.Step, Scale: [resources.Kinds]float64{n.ScaleCPU, n.ScaleMemory}}
	for _, k := range p.options.Kinds {
		o.options.Kinds[k] = true
	}
	o.playing.Setup.Sized = o.options.Kinds
	problems := []error{n.check(), n.CPU.Check("node-cpu"), n.Memory.Check("node-memory")}
	for _, name := range n.Share {
		k := slices.Index([]string{resources.CPU.String(), resources.Memory.String()}, name)
		if k < 0 {
			problems = append(problems, flags.Problem("node-share", name, "must be cpu or memory"))
			continue
		}
		o.options.Share[k] = true
	}
	return o, errors.Join(append(problems, o.choose(c.Recipes, n.Upstream))...)
}

// check returns the problems of the flags that are numbers.
func (n *Nodes) check() error {
	factor := fmt.Sprintf("must be more than 0 and at most %d", mostFactor)
	problems := []error{
		flags.Check(n.CPU.Value.Sign() > 0, "node-cpu", n.CPU.String(), "must be more than 0"),
		flags.Check(n.Memory.Value.Sign() > 0, "node-memory", n.Memory.String(), "must be more than 0"),
		flags.Check(n.Copies > 0 && n.Copies <= mostCopies, "node-copies", n.Copies, fmt.Sprintf("must be from 1 to %d", mostCopies)),
		flags.Check(n.Step >= time.Second, "node-step", n.Step, "must be 1s or longer"),
		flags.Check(n.Time >= n.Step, "node-time", n.Time, fmt.Sprintf("must be at least --node-step=%v", n.Step)),
		flags.Check(isFactor(n.ScaleCPU), "node-scale-cpu", n.ScaleCPU, factor),
		flags.Check(isFactor(n.ScaleMemory), "node-scale-memory", n.ScaleMemory, factor),
		flags.Check(n.Placing == 0 || n.Placing >= n.Step, "node-placing", n.Placing, fmt.Sprintf("must be 0, or at least --node-step=%v", n.Step)),
		flags.Check(n.Consolidate == 0 || n.Consolidate >= n.Step, "node-consolidate", n.Consolidate, fmt.Sprintf("must be 0, or at least --node-step=%v", n.Step)),
		flags.Check(n.Draws >= 0 && n.Draws <= mostDraws, "node-draws", n.Draws, fmt.Sprintf("must be from 0 to %d", mostDraws)),
		flags.Check(len(n.Factors) > 0, "node-factors", "", "must have a number"),
	}
	for _, f := range n.Factors {
		problems = append(problems, flags.Check(isFactor(f), "node-factors", f, factor))
	}
	return errors.Join(problems...)
}

func isFactor(f float64) bool { return f > 0 && f <= mostFactor && !math.IsNaN(f) }

// choose makes the rows: first requests, each recipe, once more if it shares, and the settings
// of upstream. What cannot be parsed in recipes is told elsewhere.
func (o *nodePlan) choose(recipes, upstream []string) error {
	o.texts, o.of = []string{""}, []int{0}
	o.rows = nodes.Comparison{Rows: []nodes.Row{{Name: "first request"}}, Base: 1}
	var problems []error
	for _, text := range recipes {
		made, err := recipe.Parse(text)
		if err != nil || slices.Contains(o.texts[1:], text) {
			continue
		}
		o.texts = append(o.texts, text)
		o.row(nodes.Row{Name: text, Upstream: slices.Contains(upstream, text)})
		if made.Sharing != nil {
			o.row(nodes.Row{Name: text, Shared: true})
		}
	}
	o.asked = len(o.of)
	for _, text := range upstream {
		if text == "" || slices.Contains(o.texts[1:], text) {
			continue
		}
		if _, err := recipe.Parse(text); err != nil {
			problems = append(problems, fmt.Errorf("--node-upstream: %w", err))
			continue
		}
		o.texts = append(o.texts, text)
		o.row(nodes.Row{Name: text, Upstream: true})
	}
	return errors.Join(problems...)
}

// row adds a row of the recipe that was added last.
func (o *nodePlan) row(r nodes.Row) {
	o.rows.Rows, o.of = append(o.rows.Rows, r), append(o.of, len(o.texts)-1)
}

// methods returns the recipes to replay, which belong to the caller alone: they remember powers
// of two, and processors that share a memory wait for each other.
func (o *nodePlan) methods() []nodes.Method {
	all := []nodes.Method{{Name: o.rows.Rows[0].Name}}
	for _, text := range o.texts[1:] {
		made, err := recipe.Parse(text)
		if err != nil {
			panic(err) // it was parsed before
		}
		all = append(all, nodes.Method{Name: text, Recipe: &made})
	}
	return all
}
