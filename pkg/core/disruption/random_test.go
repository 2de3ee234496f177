package disruption

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// dice draws random clusters, from a seed or from the bytes of a fuzzer.
type dice struct {
	random *rand.Rand
	bytes  []byte
}

func (d *dice) roll(n int) int {
	if d.random != nil {
		return d.random.IntN(n)
	}
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func (d *dice) yes() bool { return d.roll(2) == 1 }

func (d *dice) resources() (r resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if v := d.roll(6) - 1; v >= 0 {
			r = r.With(k, resources.Amount(v*100))
		}
	}
	return r
}

func (d *dice) container(i int) Container {
	name := strconv.Itoa(i)
	c := Container{
		Observed: d.roll(4) > 0, Off: d.roll(4) == 0,
		Actual: policy.Container{Name: name, Requests: d.resources(), Limits: d.resources()},
		Target: policy.ContainerTarget{Name: name, Requests: d.resources(), Limits: d.resources()},
	}
	c.Spec = c.Actual
	if d.roll(4) == 0 {
		c.Spec.Requests = c.Target.Requests
	}
	c.Target.Bounds = resources.Bounds{Lower: d.resources(), Target: c.Target.Requests, Upper: d.resources()}
	c.Restarts[resources.CPU] = d.roll(4) == 0
	if d.roll(4) == 0 {
		c.OOM = OOM{Started: noon.Add(-time.Hour), Ended: noon.Add(-time.Minute * time.Duration(d.roll(71)))}
	}
	return c
}

func (d *dice) pod(n, i int) Pod {
	p := Pod{Namespace: "shop", Name: "p" + strconv.Itoa(i), UID: strconv.Itoa(n) + "/" + strconv.Itoa(i),
		Group: d.roll(4) - 1, Pending: d.roll(5) == 0, Boosted: d.roll(20) == 0,
		Created: noon.Add(-time.Duration(d.roll(24)) * time.Hour), Started: noon.Add(-time.Duration(d.roll(24)) * time.Hour),
		Node: "n" + strconv.Itoa(d.roll(3)), NodeBound: d.roll(8) == 0, Footprint: resources.NewList(200, 200)}
	if d.roll(3) == 0 {
		p.Resize = ResizeState(d.roll(6))
	}
	if d.roll(12) == 0 {
		p.Persisted = &PersistedState{Backoff: Backoff{Ineffective: d.roll(5), Until: noon.Add(time.Duration(d.roll(20)-5) * time.Minute)}}
	}
	p.Ready = !p.Pending && d.roll(4) > 0
	p.SizedByVPA = d.yes()
	if d.roll(6) == 0 {
		p.Protected = [...]reason.Reason{reason.ProtectedFromEviction, reason.CountsAsFailure, reason.OlderRevision}[d.roll(3)]
	}
	p.StaticCPU, p.Traits.Terminating = d.roll(4) == 0, d.roll(8) == 0
	guaranteed := d.roll(3) == 0
	for i := range 1 + d.roll(3) {
		c := d.container(i)
		if guaranteed {
			c.Actual.Requests = resources.NewList(resources.Amount(100+d.roll(5)*100), resources.Amount(100+d.roll(5)*100))
			c.Actual.Limits, c.Spec, c.Target.Limits = c.Actual.Requests, c.Actual, c.Target.Requests
			c.Spec.Limits = c.Spec.Requests
		}
		p.Containers = append(p.Containers, c)
	}
	if d.roll(3) == 0 {
		p.Share = d.share(&p)
	}
	return p
}

// share moves some resources from the recommendation to a random share.
func (d *dice) share(p *Pod) *Share {
	s := &Share{Kinds: [resources.Kinds]bool{d.yes(), d.yes()}, Cause: [...]Cause{ShareReverted, ShareEnded, Shared}[d.roll(3)],
		Shrinks: d.yes(), MayEvict: d.roll(4) == 0, Leaves: d.roll(8) == 0}
	if d.roll(4) == 0 {
		s.Skip = [...]reason.Reason{reason.ChangedOutside, reason.NodeFull, reason.Deferred}[d.roll(3)]
	}
	if d.roll(6) == 0 {
		s.Held = [...]reason.Reason{reason.OutsideWindow, reason.UnderObservation}[d.roll(2)]
	}
	for i := range p.Containers {
		f := &p.Containers[i].Target
		s.Peak = append(s.Peak, *f)
		target := policy.ContainerTarget{Name: f.Name}
		for k, shared := range s.Kinds {
			if k := resources.Kind(k); shared {
				f.Requests, f.Limits = f.Requests.Without(k), f.Limits.Without(k)
				f.Bounds = resources.Bounds{Lower: f.Bounds.Lower.Without(k), Target: f.Bounds.Target.Without(k), Upper: f.Bounds.Upper.Without(k)}
				target.Requests = target.Requests.With(k, resources.Amount(100*d.roll(6)))
				target.Bounds.Target = target.Requests
			}
		}
		s.Target = append(s.Target, target)
	}
	if d.roll(3) == 0 {
		s.Target = nil
	}
	return s
}

func (d *dice) vpa(n int) VPA {
	v := VPA{Namespace: "shop", Name: "v" + strconv.Itoa(n), Mode: Mode(d.roll(5)), MinReplicas: d.roll(3)}
	if d.roll(4) == 0 {
		v.Requirements = []Requirement{{Kinds: [resources.Kinds]bool{d.yes(), d.yes()}, Higher: d.yes()}}
	}
	for g := range d.roll(4) {
		v.Groups = append(v.Groups, Group{Replicas: d.roll(10) - 1, Rolling: d.roll(6) == 0, Key: fmt.Sprintf("%d/%d", n, g)})
	}
	for i := range d.roll(9) {
		v.Pods = append(v.Pods, d.pod(n, i))
	}
	return v
}

func (d *dice) view() (view View) {
	for n := range d.roll(4) {
		view.VPAs = append(view.VPAs, d.vpa(n))
	}
	if d.yes() {
		nodes := make([]Node, d.roll(4))
		for i := range nodes {
			nodes[i] = Node{Name: "n" + strconv.Itoa(i), AcceptsPods: d.roll(4) > 0,
				Allocatable: resources.NewList(resources.Amount(d.roll(20)*100), 2000), Free: resources.NewList(resources.Amount(d.roll(10)*100-200), resources.Amount(d.roll(10)*100))}
		}
		var quotas map[string][]Quota
		if d.roll(3) == 0 {
			quotas = map[string][]Quota{"shop": {{Requests: d.resources(), Limits: d.resources()}, {Requests: d.resources(), Scopes: []ScopeRule{{Scope: ScopeTerminating, Operator: ScopeExists}}}}}
		}
		view.Room = NewCapacity(nodes, quotas)
	}
	return view
}

func (d *dice) config() Config {
	return Config{MinReplicas: d.roll(4), Tolerance: float64(d.roll(11)) / 10, Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOMTime: 10 * time.Minute,
		FreeResizes: d.yes(), InPlaceMode: d.yes(), StabilizationWindow: 10 * time.Minute, Autoscaled: d.roll(4) == 0, CapToRoom: d.roll(3) == 0}
}

// runCluster plans one cluster three times. In between, pods get their planned resources, or are
// recreated without them.
func runCluster(t testing.TB, d *dice) (plans int) {
	view, c := d.view(), d.config()
	memory := State{}
	for pass := range 3 {
		now := noon.Add(time.Duration(pass) * 4 * time.Minute)
		r := Plan(view, memory, c, now)
		if pass == 0 && !reflect.DeepEqual(r, Plan(view, memory, c, now)) {
			t.Fatal("the same input gave another plan")
		}
		if pass == 0 {
			checkBackoffs(t, view, r)
			checkRecommended(t, view, c, r)
		}
		checkPlan(t, view, c, r)
		checkShares(t, view, r)
		memory = r.State
		plans++
		for _, a := range r.Actions {
			outcome := [...]Outcome{Failed, Infeasible, Done, Done}[d.roll(4)]
			before := fmt.Sprint(memory.Recommended, memory.Owners, memory.LastCrowdEviction)
			memory.Record(a, outcome, now)
			if a.SharesOnly() && before != fmt.Sprint(memory.Recommended, memory.Owners, memory.LastCrowdEviction) {
				t.Fatalf("%s: a share is remembered as a recommendation", a.UID)
			}
			if outcome == Done {
				applyAction(&view, a, now, d.yes())
			}
		}
	}
	return plans
}

func applyAction(view *View, a Action, now time.Time, effect bool) {
	for i := range view.VPAs {
		for j := range view.VPAs[i].Pods {
			p := &view.VPAs[i].Pods[j]
			if p.UID != a.UID {
				continue
			}
			if a.Evict {
				p.UID += "'"
				p.Created, p.Started = now.Add(time.Second), now.Add(time.Second)
			}
			for k := range p.Containers {
				if !effect {
					break
				}
				c := &p.Containers[k]
				for one := &a; one != nil; one = one.Share {
					for _, f := range one.Containers {
						if f.Name == c.Actual.Name {
							gets := *c
							gets.Target = f
							c.Spec = gets.After()
						}
					}
				}
				c.Actual = c.Spec
			}
		}
	}
}

// TestRandomClusters runs 3,000 plans, or LOADLINE_PLANS of them. `make property` runs a million.
func TestRandomClusters(t *testing.T) {
	wanted := 3_000
	if text := os.Getenv("LOADLINE_PLANS"); text != "" {
		var err error
		wanted, err = strconv.Atoi(text)
		require.NoError(t, err, "LOADLINE_PLANS")
	}
	begin := time.Now()
	plans, seed := 0, uint64(0)
	for ; plans < wanted; seed++ {
		func() {
			defer func() {
				if cause := recover(); cause != nil {
					t.Fatalf("seed %d: %v", seed, cause)
				}
			}()
			plans += runCluster(t, &dice{random: rand.New(rand.NewPCG(seed, 0))})
		}()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d plans of %d clusters in %s", plans, seed, time.Since(begin).Round(time.Millisecond))
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) { runCluster(t, &dice{bytes: data}) })
}

func checkPlan(t testing.TB, view View, c Config, r Result) {
	t.Helper()
	decided := map[string]bool{}
	decide := func(uid string) {
		if decided[uid] {
			t.Fatalf("%s has two decisions", uid)
		}
		decided[uid] = true
	}
	for _, s := range r.Skipped {
		decide(s.UID)
		if !knownReasons[s.Reason] {
			t.Fatalf("%s: reason %q is in no list", s.UID, s.Reason)
		}
	}
	actions, shares := map[string]Action{}, map[string]bool{}
	for _, a := range r.Actions {
		if !a.SharesOnly() {
			decide(a.UID)
			actions[a.UID] = a
		}
	}
	for _, a := range r.Actions {
		if !a.SharesOnly() {
			continue
		}
		if first, two := actions[a.UID]; two && (!first.Evict && !first.Restarts || shares[a.UID]) {
			t.Fatalf("%s: both of its parts could be one resize", a.UID)
		} else if !two {
			decide(a.UID)
		}
		shares[a.UID] = true
	}
	total := 0
	for i := range view.VPAs {
		v := &view.VPAs[i]
		total += len(v.Pods)
		checkActions(t, v, actions)
		checkBudget(t, v, c, actions)
	}
	if len(decided) != total {
		t.Fatalf("%d of %d pods have a decision", len(decided), total)
	}
}

var knownReasons = func() map[reason.Reason]bool {
	all := map[reason.Reason]bool{}
	for _, r := range reason.SkipReasons() {
		all[r] = true
	}
	return all
}()

func checkActions(t testing.TB, v *VPA, actions map[string]Action) {
	t.Helper()
	for i := range v.Pods {
		p := &v.Pods[i]
		a, acted := actions[p.UID]
		if !acted {
			continue
		}
		switch {
		case a.Cause.Shares() && (p.Share == nil || !a.Evict):
			t.Fatalf("%s does not share", p.UID)
		case !a.Cause.Shares() && (!p.NeedsChange() || len(a.Containers) == 0):
			t.Fatalf("%s is disrupted without a difference", p.UID)
		case !a.Evict && !p.ChangesSpec():
			t.Fatalf("%s already asks for that", p.UID)
		case !a.Cause.Shares() && p.Boosted && (!p.WantsOOMResize() || !p.CPURefused()):
			t.Fatalf("%s is boosted", p.UID)
		case v.Mode == Off || v.Mode == Initial:
			t.Fatalf("%s: the mode changes no pods", p.UID)
		case v.Mode == Recreate && !a.Evict:
			t.Fatalf("%s: the mode resizes no pods", p.UID)
		case v.Mode == InPlace && (a.Evict || a.MayEvict):
			t.Fatalf("%s: mode InPlace evicts", p.UID)
		case !a.Evict && changesStaticCPU(p, a):
			t.Fatalf("%s: its node would not give it other CPU", p.UID)
		case !towardsTarget(p, a):
			t.Fatalf("%s would get neither what is recommended nor a part of it", p.UID)
		case (a.Evict || a.Restarts || a.MayEvict) && p.Ready != a.Disrupts:
			t.Fatalf("%s: who is disrupted must be told", p.UID)
		case (a.Evict || a.MayEvict) && (p.Protected != "" || !v.Admits(p)):
			t.Fatalf("%s is protected and evicted", p.UID)
		case a.Restarts && !a.OOMResize && (p.Protected != "" && p.Protected != reason.OlderRevision || !v.Admits(p)):
			t.Fatalf("%s is protected and restarted", p.UID)
		case (a.Evict || a.MayEvict) && p.Ready && v.GroupOf(p).Rolling:
			t.Fatalf("%s is evicted during a rollout", p.UID)
		}
	}
}

func changesStaticCPU(p *Pod, a Action) bool {
	other := false
	for i := range p.Containers {
		c := &p.Containers[i]
		asks := c.Spec
		for k := range resources.Kind(resources.Kinds) {
			if request, limit := asks.Requests.Value(k), asks.Limits.Value(k); limit == 0 || request != limit && asks.Requests.Has(k) {
				return false
			}
		}
		for _, f := range a.Containers {
			if cpu, ok := f.Requests.Get(resources.CPU); ok && f.Name == asks.Name {
				asks.Requests = asks.Requests.With(resources.CPU, cpu)
			}
		}
		other = other || asks.Requests.Value(resources.CPU) != c.Actual.Requests.Value(resources.CPU)
	}
	return p.StaticCPU && other
}

// towardsTarget reports whether an action gives a pod its target, or part of it if it is capped to
// the free room.
func towardsTarget(p *Pod, a Action) bool {
	full := p.Targets()
	asked := map[string]resources.List{}
	for _, c := range p.Containers {
		asked[c.Target.Name] = c.Spec.Requests
	}
	for i, part := range a.Containers {
		for k := range resources.Kind(resources.Kinds) {
			has, wants, gets := asked[part.Name].Value(k), full[i].Requests.Value(k), part.Requests.Value(k)
			if full[i].Requests.Has(k) && (gets < min(has, wants) || gets > max(has, wants) || a.Evict && gets != wants) {
				return false
			}
		}
	}
	return len(full) == len(a.Containers)
}

func checkShares(t testing.TB, view View, r Result) {
	t.Helper()
	room, kept := view.Room.Clone(), false
	keepOthers := func() { // recommendations come after reverts
		for i := range view.VPAs {
			for j := range view.VPAs[i].Pods {
				pod := &view.VPAs[i].Pods[j]
				if at := slices.IndexFunc(r.Actions, func(a Action) bool { return a.UID == pod.UID && !a.SharesOnly() }); at >= 0 && !kept {
					room.Reserve(pod.Need(), r.Actions[at].Evict)
				}
			}
		}
		kept = true
	}
	var shares []*Action
	for i := range r.Actions {
		a := &r.Actions[i]
		if i > 0 && a.Stage < r.Actions[i-1].Stage {
			t.Fatal("the actions are not in order")
		}
		if a.SharesOnly() {
			shares = append(shares, a)
		} else if a.Share != nil {
			shares = append(shares, a.Share)
		}
	}
	if len(shares) > 0 && room == nil {
		t.Fatal("nobody knows what there is to share")
	}
	inOrder := func(a, b *Action) int { return int(a.Stage) - int(b.Stage) }
	slices.SortStableFunc(shares, inOrder)
	for _, a := range shares {
		pod := podOf(view, a.UID)
		if a.Evict || a.MayEvict || a.Cause != pod.Share.Cause || pod.Share.Skip != "" || pod.Share.Target == nil {
			t.Fatalf("%s does not move so", a.UID)
		}
		if a.Stage != StageRevert && !kept {
			keepOthers()
		}
		gets := *pod
		gets.Share, gets.Containers = nil, slices.Clone(pod.Containers)
		for c := range gets.Containers {
			gets.Containers[c].Target = pod.Share.Target[c]
		}
		need := gets.Need()
		if answer := room.CheckResize(need); answer != RoomFits {
			t.Fatalf("%s gets more than there is: %d", a.UID, answer)
		}
		room.Reserve(need, false)
	}
}

func podOf(view View, uid string) *Pod {
	for i := range view.VPAs {
		for j := range view.VPAs[i].Pods {
			if pod := &view.VPAs[i].Pods[j]; pod.UID == uid {
				return pod
			}
		}
	}
	return nil
}

func checkRecommended(t testing.TB, view View, c Config, r Result) {
	t.Helper()
	view.VPAs = slices.Clone(view.VPAs)
	for i := range view.VPAs {
		v := &view.VPAs[i]
		v.Pods = slices.Clone(v.Pods)
		for j := range v.Pods {
			if share := v.Pods[j].Share; share != nil && share.Cause != ShareReverted {
				rests := *share
				rests.Target, v.Pods[j].Share = nil, &rests
			}
		}
	}
	recommended := func(r Result) (all []Action) {
		for _, a := range r.Actions {
			if !a.SharesOnly() {
				a.Share, a.Stage, a.Skip = nil, 0, ""
				all = append(all, a)
			}
		}
		slices.SortFunc(all, func(a, b Action) int { return strings.Compare(a.UID, b.UID) })
		return all
	}
	without := Plan(view, State{}, c, noon)
	if !reflect.DeepEqual(r.State.Recommended, without.State.Recommended) || !reflect.DeepEqual(r.State.Owners, without.State.Owners) ||
		!reflect.DeepEqual(recommended(r), recommended(without)) || !reflect.DeepEqual(r.Backoffs, without.Backoffs) {
		t.Fatal("shares change what is recommended")
	}
}

func checkBackoffs(t testing.TB, view View, r Result) {
	t.Helper()
	paused := map[string]bool{}
	for i := range view.VPAs {
		v := &view.VPAs[i]
		for j := range v.Pods {
			if p := &v.Pods[j]; p.persisted().Backoff.Ineffective > 0 && p.persisted().Backoff.Until.After(noon) && p.NeedsChange() {
				paused[v.GroupOf(p).Key] = true
			}
		}
	}
	for _, a := range r.Actions {
		if paused[a.Owner] && a.Owner != "" && (a.Evict || a.MayEvict || a.Restarts && !a.OOMResize) {
			t.Fatalf("%s is disrupted although that has had no effect", a.UID)
		}
	}
}

type disruptionCount struct {
	live, running, ready int
	gone, goneReady      int
}

func (w *disruptionCount) add(p *Pod, a Action, acted bool, c Config) {
	w.live++
	if p.Pending {
		return
	}
	w.running++
	if p.Ready {
		w.ready++
	}
	free := !a.Evict && !a.MayEvict && (p.IsOOMResize() || c.FreeResizes && !p.WouldRestart())
	if !acted || free {
		return
	}
	w.gone++
	if p.Ready {
		w.goneReady++
	}
}

func checkBudget(t testing.TB, v *VPA, c Config, actions map[string]Action) {
	t.Helper()
	for g, group := range v.Groups {
		var w disruptionCount
		for i := range v.Pods {
			if p := &v.Pods[i]; p.Group == g {
				a, acted := actions[p.UID]
				w.add(p, a, acted, c)
			}
		}
		wanted, least := group.Replicas, v.MinReplicas
		if wanted == Unknown {
			wanted = w.live
		}
		if least == 0 {
			least = c.MinReplicas
		}
		if w.gone == 0 {
			continue
		}
		tolerated := int(float64(wanted) * c.Tolerance)
		switch {
		case wanted <= 0:
			t.Fatal("disrupted without an owner that wants pods")
		case w.live < least:
			t.Fatal("disrupted below the minimum")
		case (tolerated > 0 || w.gone > 1) && w.running-w.gone < wanted-tolerated:
			t.Fatal("too many pods are away")
		case (w.goneReady > 1 || w.goneReady > 0 && tolerated > 0) && w.ready-w.goneReady < wanted-tolerated:
			t.Fatal("too many ready pods are away")
		case w.goneReady > 0 && w.goneReady == w.ready && c.Tolerance < 1 && wanted > 1:
			t.Fatal("the last ready pod goes, and nobody allowed it")
		}
	}
}
