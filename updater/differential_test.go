//go:build !race

package updater

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/updater/internal/olddisruption"
	"loadline.dev/loadline/updater/internal/oldview"
	"loadline.dev/loadline/updater/policies"
)

// The differential test plans sequences of iterations over random clusters twice: with the updater, and with the frozen
// planning of package oldview. It requires equal outcomes. This file has the outcomes and one adapter for each side,
// differential_cluster_test.go draws clusters and their changes. It goes with package oldview.
//
// An adapter (side) plans an iteration and turns the result into an outcome, which is text only: types of a side never
// reach the test. When the updater changes a type, only newSide changes, by these rules:
//
//   - View: VPAs with pods that are planned for. VPAs whose pods are all skipped before the plan are left out, as are
//     VPAs without pods. A pod that shares appears without the recommended resources that sharing decides.
//     Zero values are left out, so a field that one side lacks is equal to a zero one. Fields of the share itself
//     (oldOnly) are not compared in the view: actions and marks show them.
//   - Held and MemoryOnly of a pod are the hold of its rollout. MemoryOnly of a pod that is not held is left out: the old
//     planning did not ask rollouts of workloads at rest, so it did not change the mode of their VPAs either. Stored has the rollouts whose record is written in this
//     iteration without a change of a pod, and those of pods with an observed action.
//   - Actions: in the order in which they are carried out, by stage. Stage 1: reverted shares and what is resized with
//     them. Stage 2: recommendations, joined with their share. Stage 3: all other shares. Not the cursor, rate limits and
//     turns of namespaces: they belong to the execution. The share of a pod that is evicted is left out.
//   - Skipped: the last reason of each pod without an action.
//   - Marks: written before anything is changed. Ended: pods whose mark is removed. Backoffs: written on pods.

// outcome is the normal form of a planned iteration.
type outcome struct {
	View    map[string]string // by VPA, pod and field
	Stored  map[string]string // state of rollouts, by VPA
	Actions []string
	Skipped map[string]string // by pod
	Marks   []string
	Ended   []string
	Backoff []string
}

// actionKey identifies an action in an iteration.
type actionKey struct {
	uid   string
	share bool // a share alone
}

// result is what comes of an action.
type result int

const (
	untried result = iota
	done
	prevented
	failed
	tooMuch
)

// side plans with one implementation.
type side interface {
	// plan plans an iteration. An early one plans resizes after out-of-memory kills only.
	plan(ctx context.Context, now time.Time, early bool) outcome
	// record takes over the result of an action of the last plan. Node is the node of its pod.
	record(key actionKey, node string, r result, now time.Time)
	// end ends an iteration. The records of the given VPAs are written.
	end(ctx context.Context, stored map[cache.ObjectName]bool)
}

// oldOnly are fields of pods in a view that are not compared, see above.
var oldOnly = []string{"Shares", "Share", "Group"}

// describeValue adds the fields of a value that are not zero.
func describeValue(to map[string]string, path string, v reflect.Value) {
	if v.IsZero() {
		return
	}
	if at, is := v.Interface().(time.Time); is {
		to[path] = at.UTC().Format(time.RFC3339Nano)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		describeValue(to, path, v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			describeValue(to, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			describeValue(to, fmt.Sprintf("%s[%v]", path, key), v.MapIndex(key))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				to[path] = fmt.Sprintf("%+v", v.Interface())
				return
			}
		}
		for i := range v.NumField() {
			describeValue(to, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	default:
		to[path] = fmt.Sprint(v.Interface())
	}
}

// describePod adds a pod of a view. Group is its owner.
func describePod(to map[string]string, path string, pod, group any) {
	v := reflect.ValueOf(pod)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !slices.Contains(oldOnly, name) {
			describeValue(to, path+"."+name, v.Field(i))
		}
	}
	if _, held := to[path+".Held"]; !held {
		delete(to, path+".MemoryOnly")
	}
	if group != nil {
		describeValue(to, path+".Owner", reflect.ValueOf(group))
	}
}

// describeVPA adds a VPA of a view without its pods and owners.
func describeVPA(to map[string]string, path string, vpa any) {
	v := reflect.ValueOf(vpa)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Pods" && name != "Groups" {
			describeValue(to, path+"."+name, v.Field(i))
		}
	}
}

// text prints the fields of values that are not zero, sorted.
func text(values ...any) string {
	to := map[string]string{}
	for i, v := range values {
		if v != nil {
			describeValue(to, fmt.Sprint(i), reflect.ValueOf(v))
		}
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(to)) {
		lines = append(lines, key+"="+to[key])
	}
	return strings.Join(lines, " ")
}

// finish sorts lists without order, and drops what the rules above leave out.
func (o *outcome) finish(acted map[string]bool) {
	slices.Sort(o.Marks)
	slices.Sort(o.Ended)
	slices.Sort(o.Backoff)
	maps.DeleteFunc(o.Skipped, func(uid, _ string) bool { return acted[uid] })
}

// differences lists how two outcomes differ.
func differences(was, is outcome) (all []string) {
	a, b := reflect.ValueOf(was), reflect.ValueOf(is)
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		x, y := map[string]string{}, map[string]string{}
		describeValue(x, name, a.Field(i))
		describeValue(y, name, b.Field(i))
		for _, key := range slices.Sorted(maps.Keys(x)) {
			if x[key] != y[key] {
				all = append(all, fmt.Sprintf("%s: old %q, new %q", key, x[key], y[key]))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(y)) {
			if _, known := x[key]; !known {
				all = append(all, fmt.Sprintf("%s: old nothing, new %q", key, y[key]))
			}
		}
	}
	return all
}

// oldSide is the adapter of package oldview.
type oldSide struct {
	planner *oldview.Planner
	it      *oldview.Iteration
}

// newOldSide returns the frozen planning on the caches of a program.
func newOldSide(p *program) *oldSide {
	c, config := p.caches, p.config
	planning := config.planning()
	nodes, nodesSynced := c.surroundings.Core().V1().Nodes().Lister(), c.surroundings.Core().V1().Nodes().Informer().HasSynced
	quotas, budgets := c.surroundings.Core().V1().ResourceQuotas(), c.surroundings.Policy().V1().PodDisruptionBudgets()
	vpas, pods := c.vpas.Autoscaling().V1().VerticalPodAutoscalers(), c.pods.Core().V1().Pods().Lister()
	growth := func() *oldview.Growth { return &oldview.Growth{Kube: c.kube, Nodes: nodes, Synced: nodesSynced} }
	shared := oldview.CapacityReader{Pods: pods, Nodes: nodes, NodesSynced: nodesSynced, Quotas: quotas.Lister(), QuotasSynced: quotas.Informer().HasSynced}
	if config.Room == roomAuto {
		shared.Growth = growth()
	}
	capacity := shared
	if config.Room == roomAuto {
		capacity.Growth = growth()
	}
	if config.Room == roomOff {
		capacity = oldview.CapacityReader{}
	}
	return &oldSide{planner: &oldview.Planner{
		Config: olddisruption.Config{
			MinReplicas: planning.MinReplicas, Tolerance: planning.Tolerance, Threshold: planning.Threshold, Lifetime: planning.Lifetime,
			QuickOOM: planning.QuickOOM, FreeResizes: planning.FreeResizes, InPlaceMode: config.Gates.InPlace,
			StabilizationWindow: planning.StabilizationWindow, Autoscaled: config.Room == roomSize, CapToRoom: planning.CapToRoom,
		},
		Reader: &oldview.Reader{
			VPAs: vpas.Lister(), VPAIndex: vpas.Informer().GetIndexer(), Pods: pods,
			LimitRanges: c.controllers.Core().V1().LimitRanges().Lister(), Targets: c.targets, Serves: config.Kube.Serves,
			PerVPAConfig: config.Gates.PerVPAConfig, Generations: &c.generations, Policies: c.policies, Records: c.records, HPAs: c.hpas,
			Quotas: quotas.Lister(), Measures: config.Evidence.Address != "", SharingMinAge: config.SharingMinAge,
			Nodes: nodes, NodesSynced: nodesSynced,
		},
		Records: c.records, Capacity: capacity, Shared: shared,
		Nodes:    &oldview.StaticCPUNodes{Selector: c.static, Lister: nodes, Synced: nodesSynced},
		Budgets:  &oldview.Budgets{Pods: pods, Budgets: budgets.Lister(), Synced: budgets.Informer().HasSynced},
		Interval: config.SharingInterval,
		Cluster:  &oldview.Cluster{Policies: c.policies, Nodes: nodesSynced, Growth: growth()},
	}}
}

func (s *oldSide) plan(ctx context.Context, now time.Time, early bool) outcome {
	it, err := s.planner.Plan(ctx, now, early)
	if err != nil {
		return outcome{View: map[string]string{"error": err.Error()}}
	}
	s.it = it
	o := outcome{View: map[string]string{}, Stored: map[string]string{}, Skipped: map[string]string{}}
	for i := range it.Snapshot.View.VPAs {
		v := &it.Snapshot.View.VPAs[i]
		path := v.Namespace + "/" + v.Name
		describeVPA(o.View, path, *v)
		for j := range v.Pods {
			describePod(o.View, path+"/"+v.Pods[j].UID, v.Pods[j], v.GroupOf(&v.Pods[j]))
		}
	}
	for i := range it.Snapshot.View.Others {
		p := it.Snapshot.View.Others[i]
		describePod(o.View, "others/"+p.UID, p, nil)
	}
	acted := map[string]bool{}
	for i := range it.Actions {
		a := &it.Actions[i]
		acted[a.UID] = true
		line := []any{a.Subject, string(a.Cause), a.Evict, a.Containers, a.Restarts, a.Restart, a.MayEvict, a.Disrupts, a.OOMResize, a.Observed, nil, nil}
		if a.Share != nil {
			line[10] = a.Share.Containers
		}
		if a.Mark != nil {
			line[11] = *a.Mark
		}
		o.Actions = append(o.Actions, fmt.Sprint(a.Stage, " ", text(line...)))
		if name := cache.NewObjectName(a.Namespace, a.VPA); a.Observed {
			o.Stored[name.String()] = text(it.Rollouts[name].State)
		}
	}
	for name, h := range it.Rollouts {
		if h.Turned() {
			o.Stored[name.String()] = text(h.State)
		}
	}
	for _, skip := range it.Skipped {
		o.Skipped[skip.UID] = skip.VPA + " " + string(skip.Reason)
	}
	for _, m := range it.Marks {
		o.Marks = append(o.Marks, text(m.Of, m.Mark))
	}
	for _, of := range it.Ended {
		o.Ended = append(o.Ended, text(of))
	}
	for _, b := range it.Backoffs {
		o.Backoff = append(o.Backoff, text(b.Subject, b.Backoff))
	}
	o.finish(acted)
	return o
}

// resting returns the VPAs whose rollout was not asked.
func (s *oldSide) resting() (vpas []string) {
	for i := range s.it.Snapshot.View.VPAs {
		v := &s.it.Snapshot.View.VPAs[i]
		name := cache.NewObjectName(v.Namespace, v.Name)
		if s.it.Snapshot.RolloutAt(i) != nil && s.it.Rollouts[name] == nil {
			vpas = append(vpas, name.String())
		}
	}
	return vpas
}

func (s *oldSide) record(key actionKey, node string, r result, _ time.Time) {
	for i := range s.it.Actions {
		a := &s.it.Actions[i]
		if (actionKey{a.UID, a.Cause.Shares() && !a.Evict}) == key {
			s.it.Record(a, node, olddisruption.Outcome(r-done))
		}
	}
}

func (s *oldSide) end(context.Context, map[cache.ObjectName]bool) { s.it.End() }

// newSide is the adapter of the updater.
type newSide struct {
	loop    *Loop
	it      *iteration
	planned disruption.Result // before an early iteration leaves out actions
	result  disruption.Result
	actions map[actionKey]*newAction
}

// newAction is an action of the updater with the share that is written with it.
type newAction struct {
	disruption.Action
	share   *disruption.Action
	mark    *sharing.Mark
	shrinks bool
}

func (s *newSide) plan(ctx context.Context, now time.Time, early bool) outcome {
	l := s.loop
	it, err := l.read(ctx, now, func(string) {})
	if err != nil {
		return outcome{View: map[string]string{"error": err.Error()}}
	}
	if !early {
		l.rounds.Run(ctx, it.input(), now)
	}
	l.decide(ctx, it, now)
	s.it, s.result, s.planned = it, it.plan, it.plan
	o := outcome{View: map[string]string{}, Stored: map[string]string{}, Skipped: map[string]string{}}
	s.describeView(&o, &it.view.View)
	skipped := it.skipped(nil)
	if early {
		s.result, it.shares.Ended = s.result.OnlyOOM(), nil
		it.plan = s.result
	}
	s.actions = map[actionKey]*newAction{}
	s.order(&o)
	for i := range it.view.VPAs {
		name := cache.NewObjectName(it.view.VPAs[i].Namespace, it.view.VPAs[i].Name)
		if h := it.holds.Of(disruption.Subject{Namespace: name.Namespace, VPA: name.Name}); h != nil && h.Turned() {
			o.Stored[name.String()] = text(h.State)
		}
	}
	acted := map[string]bool{}
	for key := range s.actions {
		acted[key.uid] = true
	}
	for _, skip := range skipped {
		o.Skipped[skip.UID] = skip.VPA + " " + string(skip.Reason)
	}
	for _, m := range s.it.shares.Marks {
		o.Marks = append(o.Marks, text(m.Of, m.Mark))
	}
	for _, of := range s.it.shares.Ended {
		o.Ended = append(o.Ended, text(of))
	}
	for _, b := range s.result.Backoffs {
		o.Backoff = append(o.Backoff, text(b.Subject, b.Backoff))
	}
	o.finish(acted)
	return o
}

func (s *newSide) describeView(o *outcome, view *disruption.View) {
	moved := map[string]bool{}
	for i := range s.result.Actions {
		a := &s.result.Actions[i]
		moved[a.UID] = moved[a.UID] || a.SharesOnly() || a.Share != nil
	}
	for i := range view.VPAs {
		v := &view.VPAs[i]
		if v.Held != "" {
			continue
		}
		path := v.Namespace + "/" + v.Name
		describeVPA(o.View, path, *v)
		for j := range v.Pods {
			pod := v.Pods[j]
			if pod.Leaves() {
				o.View[path+"/"+pod.UID+".Leaves"] = "true"
			}
			// The old planning held pods that leave, or are refused memory, in place of their evictions.
			if pod.Leaving() && (pod.Leaves() || !moved[pod.UID]) && pod.Share.Held != "" && pod.Held != reason.EvictionNotAllowed {
				pod.Held = pod.Share.Held
			}
			describePod(o.View, path+"/"+pod.UID, pod, v.GroupOf(&pod))
		}
	}
	for i := range view.Others {
		p := view.Others[i]
		describePod(o.View, "others/"+p.UID, p, nil)
	}
}

// order lists the actions as carryOut does.
func (s *newSide) order(o *outcome) {
	marks, resized, evicted := s.it.shares.Moves, map[string]bool{}, map[string]bool{}
	for _, m := range s.it.shares.Marks {
		delete(marks, m.Of.UID)
	}
	joined, reverts, others, shares := byStage(s.result.Actions)
	for _, a := range others {
		evicted[a.UID] = evicted[a.UID] || a.Evict
	}
	add := func(stage int, actions []disruption.Action) {
		for _, a := range actions {
			one := &newAction{Action: a, share: a.Share}
			alone := a.SharesOnly()
			switch {
			case alone && (resized[a.UID] || evicted[a.UID]):
				continue
			case alone:
				one.mark, one.shrinks, resized[a.UID] = marks[a.UID], a.Shrinks, true
			case a.Share != nil:
				one.mark, one.shrinks, resized[a.UID] = marks[a.UID], a.Share.Shrinks, true
			}
			s.actions[actionKey{a.UID, alone}] = one
			observed := !alone && s.it.holds.Observes(a.Subject)
			line := []any{a.Subject, string(a.Cause), a.Evict, a.Containers, a.Restarts, a.Restart, a.MayEvict, a.Disrupts, a.OOMResize, observed, nil, nil}
			if one.share != nil {
				line[10] = one.share.Containers
			}
			if one.mark != nil {
				line[11] = *one.mark
			}
			o.Actions = append(o.Actions, fmt.Sprint(stage, " ", text(line...)))
			if name := vpaOf(a.Subject); observed {
				o.Stored[name.String()] = text(s.it.holds.Of(a.Subject).State)
			}
		}
	}
	add(1, joined)
	add(1, reverts)
	add(2, others)
	add(3, shares)
}

func (s *newSide) record(key actionKey, node string, r result, now time.Time) {
	a := s.actions[key]
	if r == done && a.shrinks {
		s.loop.runner.Sharing.Shrank(node, now)
	}
	s.loop.state.Record(a.Action, disruption.Outcome(r-done), now)
}

func (s *newSide) end(ctx context.Context, stored map[cache.ObjectName]bool) {
	s.it.holds.MarkStored(stored)
	s.it.holds.Save(ctx, s.planned.Actions)
}

// TestPlanEqualsOld compares the plans of the updater with the ones of package oldview over sequences of iterations.
// DIFFERENTIAL_TIME=1h makes it run for that time, 15 seconds by default.
func TestPlanEqualsOld(t *testing.T) {
	begin, atLeast := time.Now(), 15*time.Second
	if value := os.Getenv("DIFFERENTIAL_TIME"); value != "" {
		var err error
		atLeast, err = time.ParseDuration(value)
		require.NoError(t, err)
	}
	reached := map[string]int{}
	defer func() {
		for _, what := range slices.Sorted(maps.Keys(reached)) {
			t.Logf("%6d %s", reached[what], what)
		}
	}()
	for again := true; again && !t.Failed(); again = time.Since(begin) < atLeast {
		rapid.Check(t, func(rt *rapid.T) {
			var problem any // a panic of rapid must not end the bubble
			synctest.Test(t, func(t *testing.T) {
				defer func() { problem = recover() }()
				compareSequence(t, rt, reached)
			})
			switch {
			case problem == nil:
			case fmt.Sprintf("%T", problem) == "rapid.invalidData": // no failure: rapid tells panics apart by their line
				panic(problem)
			default:
				panic(problem)
			}
		})
	}
}

// compareSequence compares the plans of a sequence of iterations over one random cluster.
func compareSequence(t *testing.T, rt *rapid.T, reached map[string]int) {
	c := newRandomCluster(t, rt)
	defer c.stop()
	was, is := newOldSide(c.program), &newSide{loop: c.program.loop}
	for iteration := range 3 + c.n(8) {
		if iteration > 0 {
			c.change()
		}
		early := iteration > 0 && c.oneIn(7)
		expected := was.plan(c.ctx, c.now, early)
		found := is.plan(c.ctx, c.now, early)
		for _, vpa := range was.resting() {
			for _, o := range []outcome{expected, found} {
				maps.DeleteFunc(o.View, func(key, _ string) bool {
					return key == vpa+".Mode" || key == vpa+".Ungated" || strings.HasPrefix(key, vpa+"/") && strings.HasSuffix(key, ".MemoryOnly")
				})
			}
		}
		if all := differences(expected, found); len(all) > 0 {
			rt.Fatalf("iteration %d at %s, early %v: %d differences:\n%s\nin this cluster:\n%s", iteration, c.now.Format(time.RFC3339), early, len(all),
				strings.Join(all[:min(len(all), 20)], "\n"), c.describe())
		}
		was.count(reached)
		c.carryOut(was, is)
	}
	reached["sequences"]++
}

// count counts what an iteration has.
func (s *oldSide) count(reached map[string]int) {
	reached["iterations"]++
	for i := range s.it.Actions {
		a := &s.it.Actions[i]
		reached[fmt.Sprintf("action: stage %d, %s, evict %v, with share %v, observed %v", a.Stage, a.Cause, a.Evict, a.Share != nil, a.Observed)]++
	}
	for _, skip := range s.it.Skipped {
		reached["skip: "+string(skip.Reason)]++
	}
	for _, h := range s.it.Rollouts {
		reached[fmt.Sprintf("rollout: %s, %d rounds, turned %v", h.Mode, min(len(h.State.Rounds), 3), h.Turned())]++
	}
	reached["marks"] += len(s.it.Marks)
	reached["marks removed"] += len(s.it.Ended)
	reached["backoffs"] += len(s.it.Backoffs)
}

// programFor returns a program on the objects of a cluster. It writes no conditions and no events.
func programFor(ctx context.Context, config *Config, clients clients, replaced overrides) (*program, error) {
	config.Heartbeat.Required, config.Pace, config.Election.Enabled = false, disruption.RateLimits{}, true
	replaced.events = &record.FakeRecorder{}
	p, err := newProgram(ctx, config, dependencies{metrics: newMetrics(prometheus.NewRegistry()), clients: clients}, replaced)
	if err != nil {
		return nil, err
	}
	p.loop.rounds.Conditions.Status = policies.Status{}
	return p, p.start(ctx)
}

// byStage splits actions by the time when they run: recommendations joined with a reverted share, reverted shares,
// all other recommendations, all other shares. A share that is part of a recommendation is also listed by itself, in
// case the recommendation is not carried out.
func byStage(actions []disruption.Action) (joined, reverts, others, shares []disruption.Action) {
	for _, a := range actions {
		share := a.Share
		switch {
		case a.SharesOnly():
			share = &a
		case a.Stage == disruption.StageRevert:
			joined = append(joined, a)
		default:
			others = append(others, a)
		}
		switch {
		case share == nil:
		case share.Stage == disruption.StageRevert:
			reverts = append(reverts, *share)
		default:
			shares = append(shares, *share)
		}
	}
	slices.SortStableFunc(shares, func(a, b disruption.Action) int { return cmp.Compare(a.Stage, b.Stage) })
	return joined, reverts, others, shares
}
