package backtest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
)

// Config are the flags of the command.
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
	Setup                 replay.Setup // what flags set directly
	FirstCPU, FirstMemory flags.Quantity
	MostCPU, MostMemory   flags.Quantity
	LeastMemory           flags.Quantity
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

// mostCharts keeps a page small enough to be opened.
const mostCharts = 100

// outputs are the forms of the result.
var outputs = []string{"table", "json", "csv", "html", "events"}

// Default returns the default configuration.
func Default() *Config {
	c := &Config{
		Recipes: []string{"vpa"}, Baselines: true, Kinds: []string{"cpu", "memory"}, Part: "all",
		CPULimit: "none", MemoryLimit: "1.2", Mode: "in-place", LifetimeFrom: "change", AfterOOM: "recorded",
		WarmUp: backtest.WarmUp, Setup: replay.DefaultSetup(), Servers: DefaultServers(), Nodes: DefaultNodes(), Output: "table", Charts: 6, Workers: runtime.GOMAXPROCS(0),
	}
	if err := c.LeastMemory.Set("1Mi"); err != nil {
		panic(err) // it is a constant
	}
	return c
}

// AddFlags binds every flag.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&c.Recipes, "recipe", c.Recipes, "Recipe to replay, as `NAME[:SETTING=VALUE,...]`; repeat it to compare several.")
	fs.BoolVar(&c.Baselines, "baselines", c.Baselines, "Replay what every recipe should beat, too: the first request, a static oracle, moving maxima, a decaying 95th percentile.")
	fs.StringSliceVar(&c.Kinds, "kinds", c.Kinds, "Resources to replay, each apart.")
	fs.StringVar(&c.Part, "part", c.Part, "Containers to replay: all, or those of one half, tune or report, told apart by a hash of file and workload.")
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
	fs.Var(&c.LeastMemory, "least-memory", "Lower samples of memory are raised to this.")
	planner := &c.Setup.Update.Planner
	fs.Float64Var(&planner.Threshold, "pod-update-threshold", planner.Threshold, "Least relative change for which a pod within its recommended bounds is updated.")
	fs.DurationVar(&planner.Lifetime, "in-recommendation-bounds-eviction-lifetime-threshold", planner.Lifetime, "Least age at which a pod within its recommended bounds is updated.")
	fs.BoolVar(&c.Setup.Update.AfterKill, "raise-after-oom", c.Setup.Update.AfterKill, "A larger memory target is applied before the restart after an out-of-memory kill.")
	fs.StringVar(&c.AfterOOM, "after-oom", c.AfterOOM, "Memory of a container that was killed for want of it: recorded, what the recording has for that time, or afresh, what it has from the start of the pod on.")
	fs.DurationVar(&c.Setup.Scrape, "scrape", c.Setup.Scrape, "How often use is measured: CPU as a mean since the time before, memory as it is then. 0: each sample is seen that lasts until the recommender looks.")
	fs.DurationVar(&c.Setup.NewPod, "new-pod-after", c.Setup.NewPod, "A gap this long ends a pod, and the next one starts with what is recommended then, as the runs of a job do. 0: there is one pod.")
	fs.BoolVar(&c.Setup.Startup, "startup", c.Setup.Startup, "Each recording begins when its container starts. Otherwise only pods after a gap and restarts are known to start.")
	fs.StringVarP(&c.Output, "output", "o", c.Output, "Form of the result: table, json, csv, html, a page that needs no network, or events, a line of JSON for each change, kill and recommendation.")
	fs.StringVar(&c.File, "file", c.File, "File to write the result to, in place of the standard output.")
	fs.BoolVar(&c.Classes, "classes", c.Classes, "Table: a row for each class of load, too.")
	fs.IntVar(&c.Charts, "charts", c.Charts, "Page: containers of each resource that are drawn over time, those that cost most under the last recipe.")
	fs.DurationVar(&c.Every, "every", c.Every, "Events: time from one recommendation that is told to the next. 0: only the one at the end of each recording is.")
	fs.IntVar(&c.Workers, "workers", c.Workers, "Containers that are replayed side by side; each is in memory as a whole.")
	fs.BoolVarP(&c.Quiet, "quiet", "q", c.Quiet, "No progress and no warnings.")
	c.Servers.AddFlags(fs)
	c.Nodes.AddFlags(fs)
}

// plan is a valid configuration in the form in which it is used.
type plan struct {
	options    backtest.Options
	candidates []backtest.Candidate
	sources    Sources
	setup      [resources.Kinds]replay.Setup
	nodes      *nodePlan // nil = nothing is placed on nodes
}

// plan returns all problems of the configuration joined.
func (c *Config) plan() (plan, error) {
	var p plan
	var problems []error
	base := c.Setup
	base.Carry, base.Afresh = c.Carry, c.AfterOOM == "afresh"
	problems = append(problems, c.limits(&base), c.update(&base), c.first(&base),
		flags.Check(c.WarmUp >= 0, "warm-up", c.WarmUp, "must not be negative"),
		flags.Check(c.Charts >= 0 && c.Charts <= mostCharts, "charts", c.Charts, fmt.Sprintf("must be from 0 to %d", mostCharts)),
		flags.Check(base.Afresh || c.AfterOOM == "recorded", "after-oom", c.AfterOOM, "must be recorded or afresh"),
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
	problems = append(problems, err, c.LeastMemory.Check("least-memory"))
	p.sources.Servers = c.Servers
	p.sources.Query, err = p.sources.Servers.Query(time.Now())
	p.sources.Files.LeastMemory = c.LeastMemory.Value.AsApproximateFloat64()
	if !pressure {
		p.sources.Query.Waiting = ""
	}
	p.sources.Query.LeastMemory = p.sources.Files.LeastMemory
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
	if c.FirstCPU.Given {
		s.Flat = s.Flat.With(resources.CPU, convert.Amount(resources.CPU, c.FirstCPU.Value))
	}
	if c.FirstMemory.Given {
		s.Flat = s.Flat.With(resources.Memory, convert.Amount(resources.Memory, c.FirstMemory.Value))
	}
	if c.MostCPU.Given {
		s.Rule.Max = s.Rule.Max.With(resources.CPU, convert.Amount(resources.CPU, c.MostCPU.Value))
	}
	if c.MostMemory.Given {
		s.Rule.Max = s.Rule.Max.With(resources.Memory, convert.Amount(resources.Memory, c.MostMemory.Value))
	}
	return errors.Join(c.FirstCPU.Check("first-cpu"), c.FirstMemory.Check("first-memory"), c.MostCPU.Check("max-cpu"), c.MostMemory.Check("max-memory"))
}

// candidates returns the baselines and the recipes, and whether one of them wants to
// know how long work waited for CPU.
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
