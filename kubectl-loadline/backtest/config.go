package backtest

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/nodes"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
)

// Config holds the flags of the command.
type Config struct {
	Recipes   []string
	Baselines bool
	Kinds     []string
	Part      string

	CPULimit, MemoryLimit string
	Mode                  string
	LifetimeFrom          string
	Carry                 bool
	AfterOOM              string
	WarmUp                time.Duration
	Setup                 replay.Setup // fields that flags set directly
	FirstCPU, FirstMemory flags.Quantity
	MostCPU, MostMemory   flags.Quantity
	MinMemory             flags.Quantity
	Servers               Servers
	Nodes                 Nodes

	Output  string
	File    string
	Classes bool
	Charts  int
	Every   time.Duration
	Workers int
	Quiet   bool
}

// maxCharts keeps the HTML page small enough to open.
const maxCharts = 100

var outputs = []string{"table", "json", "csv", "html", "events"}

// Default returns the default configuration.
func Default() *Config {
	c := &Config{
		Recipes: []string{"vpa"}, Baselines: true, Kinds: []string{"cpu", "memory"}, Part: "all",
		CPULimit: "none", MemoryLimit: "1.2", Mode: "in-place", LifetimeFrom: "change", AfterOOM: "recorded",
		WarmUp: backtest.WarmUp, Setup: replay.DefaultSetup(), Servers: DefaultServers(), Nodes: DefaultNodes(), Output: "table", Charts: 6, Workers: runtime.GOMAXPROCS(0),
	}
	if err := c.MinMemory.Set("1Mi"); err != nil {
		panic(err) // a constant
	}
	return c
}

// AddFlags binds every flag.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&c.Recipes, "recipe", c.Recipes, "Recipe to replay, as `NAME[:SETTING=VALUE,...]`; repeat it to compare several.")
	fs.BoolVar(&c.Baselines, "baselines", c.Baselines, "Also replay baselines that every recipe should beat: the first request, a static oracle, moving maxima, a decaying 95th percentile.")
	fs.StringSliceVar(&c.Kinds, "kinds", c.Kinds, "Resources to replay, each apart.")
	fs.StringVar(&c.Part, "part", c.Part, "Containers to replay: all, or one half, tune or report, split by a hash of file and workload.")
	fs.StringVar(&c.CPULimit, "cpu-limit", c.CPULimit, "Limit that goes with a CPU request: none, keep-ratio, or a factor of the request.")
	fs.StringVar(&c.MemoryLimit, "memory-limit", c.MemoryLimit, "The same for memory.")
	fs.StringVar(&c.Mode, "mode", c.Mode, "How changes are applied: in-place, or evict, which restarts the pod.")
	fs.StringVar(&c.LifetimeFrom, "lifetime-from", c.LifetimeFrom, "What the age of a pod within its bounds counts from: its last change, or its start.")
	fs.BoolVar(&c.Carry, "carry", c.Carry, "CPU work that a limit leaves undone is done later; else it is dropped.")
	fs.DurationVar(&c.WarmUp, "warm-up", c.WarmUp, "Start of each recording that is scored apart; a quarter of a recording that is not twice as long.")
	fs.Var(&c.FirstCPU, "first-cpu", "CPU request that each container starts with, in place of the recorded one.")
	fs.Var(&c.FirstMemory, "first-memory", "Memory request that each container starts with, in place of the recorded one.")
	fs.Var(&c.MostCPU, "max-cpu", "Most CPU that is requested, as maxAllowed of a VPA bounds it.")
	fs.Var(&c.MostMemory, "max-memory", "Most memory that is requested.")
	fs.Float64Var(&c.Setup.Guess, "first-factor", c.Setup.Guess, "First request as a multiple of the highest use in the first hour, where none is recorded.")
	fs.Var(&c.MinMemory, "min-memory", "Lower samples of memory are raised to this.")
	planner := &c.Setup.Update.Planner
	fs.Float64Var(&planner.Threshold, "pod-update-threshold", planner.Threshold, "Minimum relative change for which a pod within its recommended bounds is updated.")
	fs.DurationVar(&planner.Lifetime, "in-recommendation-bounds-eviction-lifetime-threshold", planner.Lifetime, "Minimum age at which a pod within its recommended bounds is updated.")
	fs.BoolVar(&c.Setup.Update.AfterKill, "raise-after-oom", c.Setup.Update.AfterKill, "A larger memory target is applied before the restart after an out-of-memory kill.")
	fs.StringVar(&c.AfterOOM, "after-oom", c.AfterOOM, "Memory usage of a container after an OOM kill: recorded continues the recording, afresh restarts it from the start of the pod.")
	fs.DurationVar(&c.Setup.Scrape, "scrape", c.Setup.Scrape, "How often use is measured: CPU as a mean since the time before, memory as it is then. 0: each sample is seen that lasts until the recommender looks.")
	fs.DurationVar(&c.Setup.NewPod, "new-pod-after", c.Setup.NewPod, "A gap of this length ends a pod, and the next one starts with the current recommendation, like the runs of a job. 0: a single pod.")
	fs.BoolVar(&c.Setup.Startup, "startup", c.Setup.Startup, "Each recording begins when its container starts. Otherwise only pods after a gap and restarts are known to start.")
	fs.StringVarP(&c.Output, "output", "o", c.Output, "Form of the result: table, json, csv, html, a page that needs no network, or events, a line of JSON for each change, kill and recommendation.")
	fs.StringVar(&c.File, "file", c.File, "File to write the result to, in place of the standard output.")
	fs.BoolVar(&c.Classes, "classes", c.Classes, "Table: a row for each class of load, too.")
	fs.IntVar(&c.Charts, "charts", c.Charts, "HTML page: number of containers with a chart for each resource, most expensive under the last recipe first.")
	fs.DurationVar(&c.Every, "every", c.Every, "Events: minimum time between two reported recommendations. 0: only the last one of each recording.")
	fs.IntVar(&c.Workers, "workers", c.Workers, "Containers that are replayed side by side; each is in memory as a whole.")
	fs.BoolVarP(&c.Quiet, "quiet", "q", c.Quiet, "No progress and no warnings.")
	c.Servers.AddFlags(fs)
	c.Nodes.AddFlags(fs)
}

type plan struct {
	options    backtest.Options
	candidates []backtest.Candidate
	sources    Sources
	setup      [resources.Kinds]replay.Setup
	nodes      *nodePlan // nil: no nodes
}

func (c *Config) plan() (plan, error) {
	var p plan
	var problems []error
	base := c.Setup
	base.CarryBacklog, base.MemoryFromStart = c.Carry, c.AfterOOM == "afresh"
	problems = append(problems, c.limits(&base), c.update(&base), c.first(&base),
		flags.Check(c.WarmUp >= 0, "warm-up", c.WarmUp, "must not be negative"),
		flags.Check(c.Charts >= 0 && c.Charts <= maxCharts, "charts", c.Charts, fmt.Sprintf("must be from 0 to %d", maxCharts)),
		flags.Check(base.MemoryFromStart || c.AfterOOM == "recorded", "after-oom", c.AfterOOM, "must be recorded or afresh"),
		flags.Check(c.Every >= 0, "every", c.Every, "must not be negative"),
		flags.Check(c.Workers > 0, "workers", c.Workers, "must be 1 or more"),
		flags.Check(slices.Contains(outputs, c.Output), "output", c.Output, "must be table, json, csv, html or events"),
		flags.Check(slices.Contains([]string{"all", "tune", "report"}, c.Part), "part", c.Part, "must be all, tune or report"),
		flags.Check(len(c.Kinds) > 0, "kinds", c.Kinds, "must be cpu, memory or both"))
	for k := range resources.Kind(resources.Kinds) {
		p.setup[k] = base
		p.setup[k].Sized[k] = true
	}
	problems = append(problems, p.setup[resources.CPU].Validate())
	p.options = backtest.Options{Setup: func(k resources.Kind) replay.Setup { return p.setup[k] }, WarmUp: c.WarmUp}
	for _, name := range c.Kinds {
		k := slices.Index([]string{resources.CPU.String(), resources.Memory.String()}, name)
		if k < 0 {
			problems = append(problems, flags.Problem("kinds", name, "must be cpu or memory"))
			continue
		}
		p.options.Kinds = append(p.options.Kinds, resources.Kind(k))
	}
	var pressure bool
	var err error
	p.candidates, pressure, err = c.candidates()
	problems = append(problems, err, c.MinMemory.Check("min-memory"))
	p.sources.Servers = c.Servers
	p.sources.Query, err = p.sources.Servers.Query(time.Now())
	p.sources.Files.MinMemory = c.MinMemory.Value.AsApproximateFloat64()
	if !pressure {
		p.sources.Query.Waiting = ""
	}
	p.sources.Query.MinMemory = p.sources.Files.MinMemory
	onNodes, wrong := c.Nodes.plan(c, &p)
	if c.Nodes.On {
		p.nodes = onNodes
		wrong = errors.Join(wrong, flags.Check(c.Output != "events", "output", c.Output, "must be another one with --nodes"))
	}
	return p, errors.Join(append(problems, err, wrong)...)
}

func (c *Config) limits(s *replay.Setup) error {
	var problems []error
	for k, value := range [resources.Kinds]string{c.CPULimit, c.MemoryLimit} {
		factor, err := strconv.ParseFloat(value, 64)
		switch {
		case value == "none":
			s.Limits[k] = replay.Limit{Policy: replay.NoLimit}
		case value == "keep-ratio":
			s.Limits[k] = replay.Limit{Policy: replay.KeepRatio}
		case err == nil && factor >= 1:
			s.Limits[k] = replay.Limit{Policy: replay.Proportional, Factor: factor}
		default:
			problems = append(problems, flags.Problem(resources.Kind(k).String()+"-limit", value, "must be none, keep-ratio, or a number from 1 up"))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) update(s *replay.Setup) error {
	modes := map[string]disruption.Mode{"in-place": disruption.InPlaceOrRecreate, "evict": disruption.Recreate}
	mode, known := modes[c.Mode]
	s.Update.Mode = mode
	s.Update.FromChange = c.LifetimeFrom == "change"
	return errors.Join(
		flags.Check(known, "mode", c.Mode, "must be in-place or evict"),
		flags.Check(c.LifetimeFrom == "change" || c.LifetimeFrom == "start", "lifetime-from", c.LifetimeFrom, "must be change or start"))
}

func (c *Config) first(s *replay.Setup) error {
	if c.FirstCPU.IsSet {
		s.Initial = s.Initial.With(resources.CPU, convert.Amount(resources.CPU, c.FirstCPU.Value))
	}
	if c.FirstMemory.IsSet {
		s.Initial = s.Initial.With(resources.Memory, convert.Amount(resources.Memory, c.FirstMemory.Value))
	}
	if c.MostCPU.IsSet {
		s.Rule.Max = s.Rule.Max.With(resources.CPU, convert.Amount(resources.CPU, c.MostCPU.Value))
	}
	if c.MostMemory.IsSet {
		s.Rule.Max = s.Rule.Max.With(resources.Memory, convert.Amount(resources.Memory, c.MostMemory.Value))
	}
	return errors.Join(c.FirstCPU.Check("first-cpu"), c.FirstMemory.Check("first-memory"), c.MostCPU.Check("max-cpu"), c.MostMemory.Check("max-memory"))
}

// candidates also reports whether a recipe requires the time spent waiting for CPU.
func (c *Config) candidates() (all []backtest.Candidate, pressure bool, err error) {
	store := usage.DefaultConfig()
	var problems []error
	if c.Baselines {
		all = backtest.Baselines(store)
	}
	for i, text := range c.Recipes {
		made, err := recipe.Parse(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("--recipe: %w", err))
			continue
		}
		if slices.Contains(c.Recipes[:i], text) {
			problems = append(problems, flags.Problem("recipe", text, "is named twice"))
		}
		pressure = pressure || made.Needs.Pressure
		all = append(all, backtest.Recipe(text, &made, store))
	}
	problems = append(problems, flags.Check(len(all) > 0 || len(c.Recipes) > 0, "recipe", "", "must name a recipe, without --baselines"))
	return all, pressure, errors.Join(problems...)
}

// Nodes holds the flags of the comparison on nodes.
type Nodes struct {
	On          bool
	CPU, Memory flags.Quantity // allocatable of a node
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

// Maxima of flags that cost time and memory, and of factors.
const (
	maxCopies = 1000
	maxDraws  = 1000
	maxFactor = 1000
)

// DefaultNodes returns the defaults: nodes of 16 cores and 64 GiB, and unscaled recordings.
func DefaultNodes() Nodes {
	n := Nodes{
		Copies: 1, Time: 7 * 24 * time.Hour, Step: 5 * time.Minute, ScaleCPU: 1, ScaleMemory: 1, Placing: 24 * time.Hour, Consolidate: time.Hour,
		Share: []string{"cpu"}, Factors: []float64{0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1, 1.1, 1.2, 1.35, 1.5, 1.7}, EqualKills: true, Draws: 20,
	}
	for _, share := range []float64{0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1} {
		n.Upstream = append(n.Upstream, fmt.Sprintf("vpa:target-cpu=%g", share))
	}
	if err := errors.Join(n.CPU.Set("16"), n.Memory.Set("64Gi")); err != nil {
		panic(err) // constants
	}
	return n
}

// AddFlags binds every flag.
func (n *Nodes) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&n.On, "nodes", n.On, "Place the containers on nodes by their requests, replay their usage there, and compare how many nodes recipes need, with and without sharing node headroom.")
	fs.Var(&n.CPU, "node-cpu", "CPU of a node that pods can have.")
	fs.Var(&n.Memory, "node-memory", "Memory of a node that pods can have.")
	fs.IntVar(&n.Copies, "node-copies", n.Copies, "Pods for each recorded container. They begin at other times of the recording: other days, if it has two or more.")
	fs.BoolVar(&n.Apart, "node-apart", n.Apart, "Start each pod at a different time. Otherwise one copy of all containers of a file or server starts at the same time, which preserves common peaks.")
	fs.DurationVar(&n.Time, "node-time", n.Time, "Time that the nodes run, unless all recordings are shorter. The warm-up is excluded.")
	fs.DurationVar(&n.Step, "node-step", n.Step, "Step of the nodes: use of CPU is averaged over it, of memory the highest counts.")
	fs.Float64Var(&n.ScaleCPU, "node-scale-cpu", n.ScaleCPU, "Factor for recorded CPU usage and requests, to turn recorded machines into pods.")
	fs.Float64Var(&n.ScaleMemory, "node-scale-memory", n.ScaleMemory, "The same for memory.")
	fs.DurationVar(&n.Placing, "node-placing", n.Placing, "Time from one placing of all pods from scratch, the largest first, to the next. 0: only at the start.")
	fs.DurationVar(&n.Consolidate, "node-consolidate", n.Consolidate, "Least time between two nodes that are emptied because their pods, as they are, fit elsewhere. Shares on a node shrink at most that often. 0: none is emptied, and shares shrink once an hour, or where a pod came that is to give something of its peak.")
	fs.BoolVar(&n.Settle, "node-settle", n.Settle, "Shares on a node are computed anew when a pod comes to it, too. Otherwise several that come between two rounds, 5 minutes apart, need room for all of their peaks.")
	fs.BoolVar(&n.Stay, "node-stay", n.Stay, "Never move pods between two placements: changes that do not fit in place wait. Only kubelets evict.")
	fs.StringSliceVar(&n.Share, "node-share", n.Share, "Resources that recipes made for it share.")
	fs.Float64SliceVar(&n.Factors, "node-factors", n.Factors, "Factors of the CPU requests, so that recipes can be compared where they leave the same work undone. Those that lead beyond that are left out.")
	fs.StringArrayVar(&n.Upstream, "node-upstream", n.Upstream, "Recipe with upstream settings, repeatable. The best one is chosen with hindsight. Empty: none.")
	fs.BoolVar(&n.EqualKills, "node-equal-kills", n.EqualKills, "With these factors, scale memory requests and limits until OOM kills and memory evictions do not exceed those of the first recipe.")
	fs.IntVar(&n.Draws, "node-draws", n.Draws, "Fleets of drawn containers for the intervals; 0: there are none.")
}

type nodePlan struct {
	playing     nodes.PlayOptions
	options     nodes.Options
	copies      nodes.FleetOptions
	rows        nodes.Comparison
	texts       []string // recipes to replay, first empty: first requests
	recipeIndex []int    // recipe index by row
	shownRows   int      // rows to show, without pure upstream settings
	factors     []float64
	draws       int
	equalKills  bool // compare at equal kills
}

// plan returns the comparison on nodes, or all problems of its flags joined.
func (n *Nodes) plan(c *Config, p *plan) (*nodePlan, error) {
	o := &nodePlan{factors: slices.Sorted(slices.Values(n.Factors)), draws: n.Draws, equalKills: n.EqualKills}
	o.options = nodes.Options{PlacementInterval: n.Placing, ConsolidationInterval: n.Consolidate, ShareOnArrival: n.Settle, NoMoves: n.Stay}
	o.options.Allocatable[resources.CPU] = float64(convert.Amount(resources.CPU, n.CPU.Value))
	o.options.Allocatable[resources.Memory] = float64(convert.Amount(resources.Memory, n.Memory.Value))
	o.copies = nodes.FleetOptions{Step: n.Step, MaxDuration: n.Time, Copies: n.Copies, Unaligned: n.Apart, Seed: backtest.Seed}
	o.playing = nodes.PlayOptions{Setup: p.setup[resources.CPU], Store: usage.DefaultConfig(), WarmUp: c.WarmUp, Step: n.Step, Scale: [resources.Kinds]float64{n.ScaleCPU, n.ScaleMemory}}
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

func (n *Nodes) check() error {
	factor := fmt.Sprintf("must be more than 0 and at most %d", maxFactor)
	problems := []error{
		flags.Check(n.CPU.Value.Sign() > 0, "node-cpu", n.CPU.String(), "must be more than 0"),
		flags.Check(n.Memory.Value.Sign() > 0, "node-memory", n.Memory.String(), "must be more than 0"),
		flags.Check(n.Copies > 0 && n.Copies <= maxCopies, "node-copies", n.Copies, fmt.Sprintf("must be from 1 to %d", maxCopies)),
		flags.Check(n.Step >= time.Second, "node-step", n.Step, "must be 1s or longer"),
		flags.Check(n.Time >= n.Step, "node-time", n.Time, fmt.Sprintf("must be at least --node-step=%v", n.Step)),
		flags.Check(isFactor(n.ScaleCPU), "node-scale-cpu", n.ScaleCPU, factor),
		flags.Check(isFactor(n.ScaleMemory), "node-scale-memory", n.ScaleMemory, factor),
		flags.Check(n.Placing == 0 || n.Placing >= n.Step, "node-placing", n.Placing, fmt.Sprintf("must be 0, or at least --node-step=%v", n.Step)),
		flags.Check(n.Consolidate == 0 || n.Consolidate >= n.Step, "node-consolidate", n.Consolidate, fmt.Sprintf("must be 0, or at least --node-step=%v", n.Step)),
		flags.Check(n.Draws >= 0 && n.Draws <= maxDraws, "node-draws", n.Draws, fmt.Sprintf("must be from 0 to %d", maxDraws)),
		flags.Check(len(n.Factors) > 0, "node-factors", "", "must have a number"),
	}
	for _, f := range n.Factors {
		problems = append(problems, flags.Check(isFactor(f), "node-factors", f, factor))
	}
	return errors.Join(problems...)
}

func isFactor(f float64) bool { return f > 0 && f <= maxFactor && !math.IsNaN(f) }

// choose creates the rows: first requests, each recipe, a second row for a recipe that shares, and
// the upstream settings. Recipes that do not parse are reported elsewhere.
func (o *nodePlan) choose(recipes, upstream []string) error {
	o.texts, o.recipeIndex = []string{""}, []int{0}
	o.rows = nodes.Comparison{Rows: []nodes.Row{{Name: "first request"}}, BaseRow: 1}
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
	o.shownRows = len(o.recipeIndex)
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

func (o *nodePlan) row(r nodes.Row) {
	o.rows.Rows, o.recipeIndex = append(o.rows.Rows, r), append(o.recipeIndex, len(o.texts)-1)
}

// methods returns copies for one worker: CPUs that share a recipe's cache wait for each other.
func (o *nodePlan) methods() []nodes.Method {
	all := []nodes.Method{{Name: o.rows.Rows[0].Name}}
	for _, text := range o.texts[1:] {
		made, err := recipe.Parse(text)
		if err != nil {
			panic(err) // parsed before
		}
		all = append(all, nodes.Method{Name: text, Recipe: &made})
	}
	return all
}
