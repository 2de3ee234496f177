package disruption_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// TestScenarios runs the scenarios of testdata/*.txt. README.txt there describes their language.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		lines := strings.Split(string(text), "\n")
		runScenario(t, file, lines, -1) // comments before the first scenario
		for i, line := range lines {
			if intent, begins := strings.CutPrefix(line, "scenario "); begins {
				t.Run(filepath.Base(file)+" "+intent, func(t *testing.T) { runScenario(t, file, lines, i) })
			}
		}
	}
}

// vpa has a VPA with the owner of its pods and its recommendation.
type vpa struct {
	disruption.VPA
	disruption.Group
	resources.Bounds
}

type pod struct {
	disruption.Pod
	Requests, Limits                resources.List // actual resources of its container
	RestartsOnCPU, RestartsOnMemory bool           // resizes that restart the container
	Age, KilledAfter                time.Duration  // age at creation, and at an out-of-memory kill

	added time.Time
	asked policy.Container // amounts that a resize in progress changes
	noted disruption.PersistedState
}

type runner struct {
	t       *testing.T
	at      string // file:line of the statement
	now     time.Time
	config  disruption.Config
	state   disruption.State
	vpas    map[string]*vpa
	pods    map[string]*pod
	nodes   map[string]*disruption.Node
	quota   disruption.Quota
	actions map[string]disruption.Action // of the last plan without outcome, by pod
	planned []string                     // the same without expect: actions in order, then skips by pod
}

var (
	words = map[string]struct {
		usage string
		run   func(r *runner, args []string)
	}{
		"config": {usage: "KEY=VALUE ...", run: func(r *runner, args []string) { r.set(&r.config, args) }},
		"vpa":    {usage: "NAME KEY=VALUE ...", run: func(r *runner, args []string) { change(r, r.vpas, vpa{}, args) }},
		"pod": {usage: "NAME KEY=VALUE ...", run: func(r *runner, args []string) {
			change(r, r.pods, pod{Pod: disruption.Pod{Ready: true}, Age: 24 * time.Hour, added: r.now}, args)
		}},
		"node": {usage: "NAME KEY=VALUE ...", run: func(r *runner, args []string) {
			change(r, r.nodes, disruption.Node{AcceptsPods: true}, args)
		}},
		"quota": {usage: "KEY=VALUE ...", run: func(r *runner, args []string) { r.set(&r.quota, args) }},
		"advance": {usage: "DURATION", run: func(r *runner, args []string) {
			by, err := time.ParseDuration(args[0])
			r.require(err == nil, "malformed duration: %v", err)
			r.now = r.now.Add(by)
		}},
		"restart": {run: func(r *runner, _ []string) { r.state = disruption.State{} }},
		"plan":    {run: (*runner).plan},
		"expect":  {usage: "VERB POD REASON ...", run: (*runner).expect},
		"outcome": {usage: "POD WORD", run: (*runner).outcome},
	}
	units = map[string]map[string]float64{"cpu": {"m": 1, "": 1000}, "memory": {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}}
	kinds = map[string]resources.Kind{"cpu": resources.CPU, "memory": resources.Memory}
	modes = map[string]disruption.Mode{"Off": disruption.Off, "Initial": disruption.Initial, "Recreate": disruption.Recreate,
		"InPlaceOrRecreate": disruption.InPlaceOrRecreate, "InPlace": disruption.InPlace}
	resizes = map[string]disruption.ResizeState{"None": disruption.NotResizing, "Deferred": disruption.ResizeDeferred,
		"Infeasible": disruption.ResizeInfeasible, "InProgress": disruption.ResizeInProgress, "Error": disruption.ResizeError}
	outcomes = map[string]disruption.Outcome{"done": disruption.Done, "accepted": disruption.Done, "unchanged": disruption.Done,
		"refused": disruption.Failed, "prevented": disruption.Prevented}
)

func runScenario(t *testing.T, file string, lines []string, start int) {
	r := &runner{t: t, now: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), config: disruption.DefaultConfig(),
		vpas: map[string]*vpa{}, pods: map[string]*pod{}, nodes: map[string]*disruption.Node{}}
	expects := start < 0
	for i := start + 1; i < len(lines) && !strings.HasPrefix(lines[i], "scenario "); i++ {
		r.at = fmt.Sprintf("%s:%d", file, i+1)
		text, _, _ := strings.Cut(lines[i], "#")
		if args := strings.Fields(text); len(args) > 0 {
			r.require(start >= 0, "want: scenario TEXT")
			w := pick(r, "word", args[0], words)
			usage, open := strings.CutSuffix(args[0]+" "+w.usage, " ...")
			n := len(strings.Fields(usage))
			r.require(len(args) == n || len(args) > n && open, "want: %s %s", args[0], w.usage)
			w.run(r, args[1:])
			expects = expects || args[0] == "expect"
		}
	}
	r.require(len(r.planned) == 0, "the last plan has no expect for\nactual:   %s", r.rest())
	r.at = fmt.Sprintf("%s:%d", file, start+1)
	r.require(expects, "the scenario has no expect")
}

func (r *runner) require(ok bool, format string, args ...any) {
	if r.t.Helper(); !ok {
		r.t.Fatalf("%s: %s", r.at, fmt.Sprintf(format, args...))
	}
}

func pick[T any](r *runner, what, name string, known map[string]T) T {
	r.t.Helper()
	value, ok := known[name]
	r.require(ok, "unknown %s %q, valid: %s", what, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	return value
}

// change sets fields of the named objects, and creates missing ones.
func change[T any](r *runner, all map[string]*T, fresh T, args []string) {
	for name := range strings.SplitSeq(args[0], ",") {
		if all[name] == nil {
			all[name] = new(fresh)
		}
		r.set(all[name], append([]string{"name=" + name}, args[1:]...))
	}
}

// set sets fields by name: minReplicas=2 sets MinReplicas.
func (r *runner) set(object any, args []string) {
	value, keys := reflect.ValueOf(object).Elem(), map[string]any{}
	for _, f := range reflect.VisibleFields(value.Type()) {
		if k := f.Type.Kind(); f.IsExported() && (k < reflect.Array || k == reflect.String || f.Type == reflect.TypeFor[resources.List]()) {
			keys[strings.ToLower(f.Name[:1])+f.Name[1:]] = value.FieldByIndex(f.Index).Addr().Interface()
		}
	}
	for _, arg := range args {
		var err error
		key, text, _ := strings.Cut(arg, "=")
		switch field := pick(r, "key", key, keys).(type) {
		case *resources.List:
			*field = r.resources(text)
		case *time.Duration:
			*field, err = time.ParseDuration(text)
		case *disruption.Mode:
			*field = pick(r, "mode", text, modes)
		case *disruption.ResizeState:
			*field = pick(r, "resize state", text, resizes)
		default:
			_, err = fmt.Sscan(text, field)
			r.require(fmt.Sprint(reflect.ValueOf(field).Elem()) == text, "malformed %s", arg) // Sscan accepts 2x as 2
		}
		r.require(err == nil, "malformed %s: %v", arg, err)
	}
}

func (r *runner) resources(text string) (list resources.List) {
	for part := range strings.SplitSeq(text, ",") {
		var amount float64
		var unit string
		name, quantity, _ := strings.Cut(part, ":")
		n, _ := fmt.Sscanf(quantity, "%f%s", &amount, &unit)
		r.require(n > 0, "malformed resources %s, want: cpu:250m,memory:1Gi", text)
		amount *= pick(r, "unit", unit, pick(r, "resource", name, units))
		list = list.With(kinds[name], resources.Amount(amount))
	}
	return list
}

func format(list resources.List) string {
	var parts []string
	for name, unit := range map[string]string{"cpu": "m", "memory": "Mi"} {
		if a, has := list.Get(kinds[name]); has {
			parts = append(parts, fmt.Sprintf("%s:%g%s", name, float64(a)/units[name][unit], unit))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// expect compares the next decision of the last plan.
func (r *runner) expect(args []string) {
	skips := pick(r, "verb", args[0], map[string]bool{"resize": false, "evict": false, "skip": true})
	known := slices.Contains(reason.SkipReasons(), reason.Reason(args[2]))
	r.require(known || !skips, "unknown reason %q, valid: %v", args[2], reason.SkipReasons())
	for name := range strings.SplitSeq(args[1], ",") {
		args[1] = name
		expected := strings.Join(args, " ")
		r.require(len(r.planned) > 0 && r.planned[0] == expected, "the plan differs\nexpected: %s\nactual:   %s", expected, r.rest())
		r.planned = r.planned[1:]
	}
}

// rest returns the decisions of the last plan without expectation.
func (r *runner) rest() string { return strings.Join(r.planned, "\n          ") }

func (r *runner) plan([]string) {
	r.require(len(r.planned) == 0, "the plan before has no expect for\nactual:   %s", r.rest())
	var view disruption.View
	for name, v := range r.vpas {
		planned := v.VPA
		planned.Groups = []disruption.Group{{Key: name, Replicas: v.Replicas, Rolling: v.Rolling}}
		for _, p := range r.pods {
			if strings.HasPrefix(p.Name, name+"-") {
				planned.Pods = append(planned.Pods, p.build(v.Bounds))
			}
		}
		view.VPAs = append(view.VPAs, planned)
	}
	var nodes []disruption.Node
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		nodes = append(nodes, *r.nodes[name])
	}
	view.Room = disruption.NewCapacity(nodes, map[string][]disruption.Quota{"": {r.quota}})
	result := disruption.Plan(view, r.state, r.config, r.now)
	r.require(len(result.Problems) == 0, "%v", result.Problems)
	r.state, r.actions = result.State, map[string]disruption.Action{}
	for _, b := range result.Backoffs {
		r.pods[b.Pod].noted.Backoff = b.Backoff
	}
	for _, a := range result.Actions {
		r.actions[a.Pod], r.planned = a, append(r.planned, describe(a))
	}
	for _, s := range result.Skipped {
		r.planned = append(r.planned, fmt.Sprintf("skip %s %s", s.Pod, s.Reason))
	}
	slices.Sort(r.planned[len(result.Actions):])
}

// describe omits options that are empty or false.
func describe(a disruption.Action) string {
	verb, target := map[bool]string{false: "resize", true: "evict"}[a.Evict], a.Containers[0]
	text := fmt.Sprintf("%s %s %s requests=%s limits=%s restarts=%t mayEvict=%t oom=%t",
		verb, a.Pod, a.Cause, format(target.Requests), format(target.Limits), a.Restarts, a.MayEvict, a.OOMResize)
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(option string) bool {
		return strings.HasSuffix(option, "=") || strings.HasSuffix(option, "=false")
	}), " ")
}

// build returns a pod with its targets, which policy.Fit computes as in the updater.
func (p *pod) build(recommended resources.Bounds) disruption.Pod {
	built, noted := p.Pod, p.noted
	built.UID, built.Persisted = p.Name+p.UID, &noted
	c := disruption.Container{
		Observed: true, Restarts: [resources.Kinds]bool{p.RestartsOnCPU, p.RestartsOnMemory},
		Actual: policy.Container{Name: "app", Requests: p.Requests, Limits: p.Limits},
		Spec:   policy.Container{Name: "app", Requests: p.Requests.Override(p.asked.Requests), Limits: p.Limits.Override(p.asked.Limits)},
	}
	sizing := policy.Pod{Containers: []policy.Container{c.Actual}}
	c.Target = policy.Fit(sizing, map[string]resources.Bounds{"app": recommended}, policy.Rules{}, policy.Ranges{}).Containers[0]
	built.Created = p.added.Add(-p.Age)
	built.Started = built.Created
	if p.KilledAfter > 0 {
		c.OOM = disruption.OOM{Started: built.Created, Ended: built.Created.Add(p.KilledAfter)}
	}
	if built.Footprint = c.Actual.Requests; p.Resize != disruption.ResizeInfeasible { // as convert.Footprints
		built.Footprint = built.Footprint.Larger(c.Spec.Requests)
	}
	built.Containers = []disruption.Container{c}
	return built
}

// outcome records the outcome of an action and changes its pod, or completes an accepted resize.
func (r *runner) outcome(args []string) {
	word, recorded := args[1], pick(r, "outcome", args[1], outcomes)
	for name := range strings.SplitSeq(args[0], ",") {
		p := pick(r, "pod", name, r.pods)
		a, acts := r.actions[name]
		delete(r.actions, name)
		r.require(acts || word == "done", "%s has no action without outcome", name)
		if acts && (recorded == disruption.Done || !a.Evict) { // the updater records no refused eviction
			r.state.Record(a, recorded, r.now)
		}
		if word == "unchanged" {
			p.asked = policy.Container{}
		} else if acts && recorded == disruption.Done {
			p.asked, p.noted.Restart = policy.Container{Requests: a.Containers[0].Requests, Limits: a.Containers[0].Limits}, a.Restart
		}
		if word == "done" {
			p.Requests, p.Limits = p.Requests.Override(p.asked.Requests), p.Limits.Override(p.asked.Limits)
			p.Resize, p.asked = disruption.NotResizing, policy.Container{}
		}
		if a.Evict && recorded == disruption.Done {
			p.UID, p.Age, p.added, p.KilledAfter = p.UID+"'", 0, r.now, 0
			p.Resize, p.noted = disruption.NotResizing, disruption.PersistedState{}
		}
	}
}
