package replay_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// forms are the lines of the scenarios in testdata/*.txt, where # begins a comment. The expect lines
// before the next load are complete: they list all changes and kills since the last load, in order,
// and each target that differs from the last one listed. Memory is rounded up to Mi.
var forms = []string{
	"scenario NAME: INTENT",                  // begins on a Monday at 00:00 UTC
	"recipe TEXT",                            // as in the flag --recipe
	"container KIND QUANTITY",                // sizes a resource, with its initial request
	"container KIND QUANTITY limit QUANTITY", // the limit keeps its ratio to the request
	"set (mode=evict|after-oom=afresh|startup=true|raise-after-oom=false)", // flags of kubectl loadline backtest
	"set (new-pod-after|stabilization-window)=LENGTH",                      // the window is a flag of the updater
	"set max-KIND=QUANTITY",
	"load KIND RANGE for LENGTH", // one sample a minute, 1..2 changes steadily from 1 to 2
	"load KIND RANGE KIND RANGE for LENGTH",
	"advance LENGTH", // time without samples
	"repeat NUMBER",  // runs the load and advance lines since the last expect line this often in total
	"expect (resize|evict|create) KIND AMOUNT to AMOUNT (Changed|OutOfBounds|OutOfMemory|NewPod)",
	"expect oom memory AMOUNT",                      // a kill at this limit
	"expect (target|lower|upper|limit) KIND AMOUNT", // limit of the last sample, none = absent
	"expect nothing",                                // no further change or kill
}

var placeholders = strings.NewReplacer("NAME", `([a-z0-9-]+)`, "INTENT", `(.+)`, "TEXT", `(\S+)`, "KIND", `(cpu|memory)`,
	"QUANTITY", `(\d\S*)`, "RANGE", `(\d\S*)`, "LENGTH", `(\d\S*)`, "NUMBER", `(\d+)`, "AMOUNT", `(none|\d+m|\d+Mi)`)

var settings = map[string]func(s *scenario, value string){
	"mode=evict":            func(s *scenario, _ string) { s.setup.Update.Mode = disruption.Recreate },
	"after-oom=afresh":      func(s *scenario, _ string) { s.setup.MemoryFromStart = true },
	"startup=true":          func(s *scenario, _ string) { s.setup.Startup = true },
	"raise-after-oom=false": func(s *scenario, _ string) { s.setup.Update.AfterKill = false },
	"new-pod-after":         func(s *scenario, v string) { s.setup.NewPod = s.length(v) },
	"stabilization-window":  func(s *scenario, v string) { s.setup.Update.Planner.StabilizationWindow = s.length(v) },
}

var kinds = map[string]resources.Kind{"cpu": resources.CPU, "memory": resources.Memory}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		parts := regexp.MustCompile(`\n[ \t]*scenario\b`).Split("\n"+string(text), -1)
		require.Regexp(t, `^(\s|#.*\n)*$`, parts[0]+"\n", "%s: the first line must be a scenario", file)
		next := strings.Count(parts[0], "\n") + 1
		for _, part := range parts[1:] {
			name, _, _ := strings.Cut(part, ":")
			first := next
			next += strings.Count(part, "\n") + 1
			t.Run(strings.TrimSpace(name), func(t *testing.T) {
				s := &scenario{T: t, setup: replay.DefaultSetup(), now: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), last: map[string]string{}}
				for i, line := range strings.Split("scenario"+part, "\n") {
					line, _, _ = strings.Cut(line, "#")
					if words := strings.Fields(line); len(words) > 0 {
						s.line = fmt.Sprintf("%s:%d", file, first+i)
						s.run(strings.Join(words, " "))
					}
				}
				s.require(s.recording.At != nil && s.loads == nil, "a scenario must end with an expect line")
				s.complete()
			})
		}
	}
}

type scenario struct { // a replay.Observer
	*testing.T
	line      string // file:line of the current line
	recipe    recipe.Recipe
	recording replay.Recording
	setup     replay.Setup
	now       time.Time
	loads     []string          // load and advance lines since the last expect line
	last      map[string]string // expect lines by their first two words
	listed    int               // number of actions in expect lines
	actions   []string          // up to the last expect line, as bounds and limit
	bounds    resources.Bounds
	limit     resources.List
}

func (s *scenario) require(ok bool, format string, args ...any) {
	if !ok {
		s.Fatalf("%s: %s", s.line, fmt.Sprintf(format, args...))
	}
}

func (s *scenario) run(line string) {
	var v []string // values in the line
	for _, form := range forms {
		if v = regexp.MustCompile("^" + placeholders.Replace(form) + "$").FindStringSubmatch(line); v != nil {
			break
		}
	}
	s.require(v != nil, "%q must be one of these, with KIND cpu or memory, AMOUNT none, 250m or 1Mi:\n\t%s", line, strings.Join(forms, "\n\t"))
	word, text, _ := strings.Cut(line, " ")
	if v = v[1:]; s.loads == nil && word != "expect" {
		s.complete()
	}
	s.require(s.recording.At == nil || word != "recipe" && word != "container" && word != "set", "%q must be above the first load", line)
	switch word {
	case "recipe":
		var err error
		s.recipe, err = recipe.Parse(text)
		s.require(err == nil, "%v", err)
	case "container":
		k := kinds[v[0]]
		s.setup.Sized[k], s.setup.Limits[k], s.last["target "+v[0]] = true, replay.Limit{}, "target "+v[0]+" none"
		s.recording.Requests = s.recording.Requests.With(k, s.amount(k, v[1]))
		if len(v) > 2 {
			s.setup.Limits[k].Policy = replay.KeepRatio
			s.recording.Limits = s.recording.Limits.With(k, s.amount(k, v[2]))
		}
	case "set":
		if apply := settings[v[0]]; apply != nil {
			apply(s, v[len(v)-1])
		} else {
			s.setup.Rule.Max = s.setup.Rule.Max.With(kinds[v[0]], s.amount(kinds[v[0]], v[1]))
		}
	case "load":
		s.load(v[:len(v)-1], s.length(v[len(v)-1]))
		s.loads = append(s.loads, line)
	case "advance":
		s.now = s.now.Add(s.length(text))
		s.loads = append(s.loads, line)
	case "repeat":
		for _, again := range slices.Repeat(s.loads, max(int(s.amount(resources.Memory, text))-1, 0)) {
			s.run(again)
		}
	case "expect":
		s.expect(text)
	}
}

func (s *scenario) load(v []string, length time.Duration) {
	for i, steps := 0.0, length.Minutes()-1; i <= steps; i++ {
		use := [resources.Kinds]float64{math.NaN(), math.NaN()}
		for pair := range slices.Chunk(v, 2) {
			k := kinds[pair[0]]
			ends := strings.Split(pair[1], "..")
			from, to := float64(s.amount(k, ends[0])), float64(s.amount(k, ends[len(ends)-1]))
			use[k] = from + (to-from)*i/max(steps, 1)
		}
		s.recording.At, s.now = append(s.recording.At, s.now.UnixNano()), s.now.Add(time.Minute)
		s.recording.Use[0], s.recording.Use[1] = append(s.recording.Use[0], use[0]), append(s.recording.Use[1], use[1])
	}
}

func (s *scenario) length(text string) time.Duration {
	d, err := time.ParseDuration(text)
	s.require(err == nil && d > 0 && d%time.Minute == 0, "length %q: must be whole minutes such as 90m or 24h", text)
	return d
}

func (s *scenario) amount(k resources.Kind, text string) resources.Amount {
	q, err := resource.ParseQuantity(text)
	s.require(err == nil, "quantity %q: must be an amount such as 250m or 1Gi", text)
	return resources.Amount(q.ScaledValue([resources.Kinds]resource.Scale{resources.CPU: resource.Milli}[k]))
}

// expect compares a line with the next action or the current state.
func (s *scenario) expect(line string) {
	s.require(s.recipe.Target[0] != nil && s.setup.Validate() == nil && len(s.recording.At) > 1, "no recipe, container or load of 2m above")
	if s.loads != nil {
		before := s.actions
		s.loads, s.actions = nil, nil
		replay.Run(&s.recording, s.setup, backtest.Recommender(&s.recipe, usage.DefaultConfig(), &s.recording, s.setup), s)
		s.require(slices.Equal(before, s.actions[:min(s.listed, len(s.actions))]), "the last load changed earlier actions")
	}
	words := append(strings.Fields(line), "")
	actual := s.actions[s.listed:]
	if state := s.state(words[0], words[1]); state != "" {
		actual = []string{state}
	} else if len(actual) == 0 {
		actual = []string{"nothing"}
	} else {
		s.listed++
	}
	s.require(actual[0] == line, "expected:\n\t%s\nactual:\n\t%s", line, strings.Join(actual, "\n\t"))
	s.last[words[0]+" "+words[1]] = line
}

// complete fails if there are changes, kills or targets that no expect line lists.
func (s *scenario) complete() {
	expected, actual := "nothing", slices.Clone(s.actions[s.listed:])
	for _, kind := range []string{"cpu", "memory"} {
		if now := s.state("target", kind); s.setup.Sized[kinds[kind]] && now != s.last["target "+kind] {
			expected, actual = s.last["target "+kind]+"\n\t"+expected, append(actual, now)
		}
	}
	s.require(len(actual) == 0, "expected:\n\t%s\nactual:\n\t%s", expected, strings.Join(actual, "\n\t"))
}

// state returns the expect line of the current state, empty for other words.
func (s *scenario) state(word, kind string) string {
	list, known := map[string]resources.List{
		"target": s.bounds.Target, "lower": s.bounds.Lower, "upper": s.bounds.Upper, "limit": s.limit,
	}[word]
	if !known {
		return ""
	}
	amount := "none"
	if a, some := list.Get(kinds[kind]); some {
		amount = show(kinds[kind], a)
	}
	return word + " " + kind + " " + amount
}

func show(k resources.Kind, a resources.Amount) string {
	return [...]string{resources.CPU: fmt.Sprintf("%dm", a), resources.Memory: fmt.Sprintf("%dMi", a.RoundUp(1<<20)>>20)}[k]
}

func (s *scenario) Advised(a replay.Advice) { s.bounds = a.Bounds }
func (s *scenario) Killed(k replay.Kill) {
	s.actions = append(s.actions, "oom memory "+show(resources.Memory, k.Limit))
}

func (s *scenario) Sample(of replay.Sample) {
	if s.limit = s.limit.Without(of.Kind); of.Limit > 0 {
		s.limit = s.limit.With(of.Kind, of.Limit)
	}
}

func (s *scenario) Changed(c replay.Change) {
	word := map[[2]bool]string{{false, false}: "resize", {true, false}: "evict", {false, true}: "create"}[[2]bool{c.Evicted, c.AtCreation}]
	s.actions = append(s.actions, fmt.Sprintf("%s %s %s to %s %s", word, c.Kind, show(c.Kind, c.From), show(c.Kind, c.To), c.Cause))
}
