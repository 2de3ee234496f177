package disruption

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func restartingDeployment(n int, change func(int, *Pod)) *VPA {
	v := deployment(InPlaceOrRecreate, n, pods(n, func(i int, p *Pod) {
		p.Containers[0].Restarts[resources.Memory] = true
		if change != nil {
			change(i, p)
		}
	})...)
	v.Groups[0].Key = "shop/ReplicaSet/web"
	return v
}

func recordRestart(m *State, uid string, r Restart) {
	m.Record(Action{Subject: Subject{UID: uid}, Restart: r}, Done, r.At)
}

func acceptResize(p *Pod) { p.Containers[0].Spec = p.Containers[0].After() }

func completeRestart(p *Pod) {
	p.Containers[0].Actual = p.Containers[0].Spec
	p.Resize = NotResizing
	p.Restarts++
}

func TestRestart_OnePodAtATime(t *testing.T) {
	v := restartingDeployment(5, nil)
	v.MinReplicas = 1
	c := defaults()
	c.Tolerance = 1
	r := planAtNoon(t, v, c)
	require.Equal(t, []string{"resize or evict p0: OutOfBounds", "skip p1: RestartInProgress", "skip p2: RestartInProgress", "skip p3: RestartInProgress", "skip p4: RestartInProgress"}, formatPlan(r))
	require.Equal(t, Restart{At: noon}, r.Actions[0].Restart)

	p := &v.Pods[0]
	memory := r.State
	recordRestart(&memory, p.UID, r.Actions[0].Restart)
	next := func(what string, after time.Duration, acts int) {
		t.Helper()
		seen := planAt(v, memory, c, noon.Add(after))
		require.Len(t, seen.Actions, acts, "%s: %v", what, formatPlan(seen))
		require.True(t, slices.ContainsFunc(seen.Skipped, func(s Skip) bool { return s.Reason == reason.RestartInProgress }), "%s: %v", what, formatPlan(seen))
		if acts == 1 {
			require.Equal(t, "p1", seen.Actions[0].Pod)
		}
		fresh := planAt(v, State{}, c, noon.Add(after))
		require.Len(t, fresh.Actions, acts, "%s, for another process: %v", what, formatPlan(fresh))
	}
	p.Persisted = &PersistedState{Restart: r.Actions[0].Restart} // as the actuator annotates the pod
	next("the cache does not show the resize", time.Minute, 0)
	acceptResize(p)
	p.Resize = ResizeInProgress
	next("the node is at it", 2*time.Minute, 0)
	next("the node is at it for long", 50*time.Minute, 0)
	p.Ready = false
	completeRestart(p)
	next("not ready", 3*time.Minute, 0)
	next("not ready for long", 59*time.Minute, 0)
	next("never ready again: every budget counts it as away", time.Hour, 1)
	p.Ready = true
	next("ready again", 4*time.Minute, 1)
	p.Restarts = 0
	next("it may be about to restart", 4*time.Minute, 0)
	next("the node needed no restart", 5*time.Minute, 1)
}

func TestRestart_EndsWithoutUnreadyObservation(t *testing.T) {
	v := restartingDeployment(3, nil)
	r := planAtNoon(t, v, defaults())
	recordRestart(&r.State, "uid-p0", r.Actions[0].Restart)
	acceptResize(&v.Pods[0])
	completeRestart(&v.Pods[0])
	again := planAt(v, r.State, defaults(), noon.Add(time.Minute))
	require.Equal(t, "resize or evict p1: OutOfBounds", formatPlan(again)[0])

	recordRestart(&again.State, "uid-p1", again.Actions[0].Restart)
	v.Pods[0].Ready = false // for another reason, minutes later
	acceptResize(&v.Pods[1])
	completeRestart(&v.Pods[1])
	c := defaults()
	c.Tolerance = 1
	require.Equal(t, []string{"resize or evict p2: OutOfBounds"}, formatPlan(planAt(v, again.State, c, noon.Add(2*time.Minute)))[:1], "what is over stays over")
	v.Pods = v.Pods[1:]
	require.NotContains(t, planAt(v, again.State, defaults(), noon.Add(2*time.Minute)).State.Recommended.Restarts, "uid-p0", "a pod that is gone")
}

func TestRestart_SharedBudgetSpansOwners(t *testing.T) {
	of := func(name string, budgets ...string) VPA {
		v := restartingDeployment(3, func(_ int, p *Pod) { p.Name, p.Budgets = name+p.Name, budgets; p.UID = "uid-" + p.Name })
		v.Name, v.Groups[0].Key = name, name
		return *v
	}
	acts := func(vpas ...VPA) (names []string) {
		for _, a := range Plan(View{VPAs: vpas}, State{}, defaults(), noon).Actions {
			names = append(names, a.Pod)
		}
		return names
	}
	require.Equal(t, []string{"ap0", "bp0"}, acts(of("a", "x"), of("b", "y")))
	require.Equal(t, []string{"ap0"}, acts(of("a", "x", "y"), of("b", "y", "z"), of("c", "x")))
	require.Equal(t, []string{"ap0", "bp0"}, acts(of("a"), of("b")), "without a budget the owner counts")
	orphans := func(name string) VPA {
		v := of(name)
		v.Groups[0].Key = ""
		return v
	}
	require.Equal(t, []string{"ap0", "bp0"}, acts(orphans("a"), orphans("b")), "pods without a known owner share nothing with those of another VPA")

	evicting := of("b", "x")
	evicting.Mode = Recreate
	require.Equal(t, []string{"ap0"}, acts(of("a", "x"), evicting), "the API server would not know yet that a pod of a is away")
	for i := range evicting.Pods {
		evicting.Pods[i].Ready = false
	}
	require.Equal(t, []string{"ap0", "bp0"}, acts(of("a", "x"), evicting), "pods that are not ready take nothing from it")
	other := of("b", "x")
	other.Namespace = "bank"
	for i := range other.Pods {
		other.Pods[i].Namespace = "bank"
	}
	require.Equal(t, []string{"bp0", "ap0"}, acts(of("a", "x"), other), "budgets are of one namespace")
}

// Pods about to restart are still ready, but the budget of the owner must count them as
// unavailable.
func TestRestart_PendingPodCountsAsUnavailable(t *testing.T) {
	v := restartingDeployment(4, func(i int, p *Pod) { p.Containers[0].Restarts[resources.Memory] = i == 0 })
	acceptResize(&v.Pods[0])
	v.Pods[0].Resize, v.Pods[0].ResizeSince = ResizeInProgress, noon
	require.Equal(t, []string{"resize or evict p1: OutOfBounds", "skip p0: WaitingForNode", "skip p2: BudgetSpent", "skip p3: BudgetSpent"}, formatPlan(planAtNoon(t, v, defaults())))
	one := restartingDeployment(2, nil)
	acceptResize(&one.Pods[0])
	one.Pods[0].Resize, one.Pods[0].ResizeSince = ResizeDeferred, noon.Add(-time.Hour)
	require.Equal(t, "evict p0: ResizeStuck", formatPlan(planAtNoon(t, one, defaults()))[0], "it does not stand in its own way")
	one.Pods[0].Resize = ResizeInfeasible
	require.False(t, one.Pods[0].RestartPending(), "it does not come by itself")
}

func TestRestart_DoesNotBlockOOMResize(t *testing.T) {
	v := restartingDeployment(4, func(i int, p *Pod) {
		if i == 3 {
			p.Ready, p.Containers[0].OOM = false, OOM{Started: noon.Add(-time.Hour), Ended: noon.Add(-time.Minute)}
		}
	})
	acceptResize(&v.Pods[0])
	v.Pods[0].Resize = ResizeInProgress
	r := planAtNoon(t, v, defaults())
	require.Len(t, r.Actions, 1)
	require.Equal(t, "p3", r.Actions[0].Pod)
	require.Zero(t, r.Actions[0].Restart, "it was not ready, so nobody has to wait until it is again")
}

// A pod whose disruption the API server refuses must not block the others.
func TestRestart_RefusedPodYields(t *testing.T) {
	v := restartingDeployment(4, nil)
	memory, order := State{}, []string{}
	for minute := range 5 {
		now := noon.Add(time.Duration(minute) * time.Minute)
		r := planAt(v, memory, defaults(), now)
		require.Len(t, r.Actions, 1)
		require.Len(t, r.Skipped, 3)
		memory = r.State
		put(&memory.Recommended.Protected, r.Actions[0].UID, now)
		order = append(order, r.Actions[0].Pod)
	}
	require.Equal(t, []string{"p0", "p1", "p2", "p3", "p0"}, order)
	for i := range v.Pods {
		v.Pods[i].Containers[0].Actual = v.Pods[i].Containers[0].After()
	}
	require.Empty(t, planAt(v, memory, defaults(), noon.Add(time.Hour)).State.Recommended.Protected, "there is nothing left to refuse")
}

// A pod that was refused before needs budget left over by the others.
func TestRestart_YieldingPodUsesRemainingBudget(t *testing.T) {
	v, memory := deployment(InPlaceOrRecreate, 3, pods(3, nil)...), State{}
	put(&memory.Recommended.Protected, "uid-p0", noon.Add(-time.Minute))
	require.Equal(t, []string{"resize or evict p1: OutOfBounds", "skip p2: BudgetSpent", "skip p0: BudgetSpent"}, formatPlan(planAt(v, memory, defaults(), noon)))
	v.Pods[1].Containers[0].Actual = v.Pods[1].Containers[0].After()
	v.Pods[2].Containers[0].Actual = v.Pods[2].Containers[0].After()
	require.Equal(t, "resize or evict p0: OutOfBounds", formatPlan(planAt(v, memory, defaults(), noon))[0])
}

// simulatedCluster applies resizes with a delay. The view of the planner may be one step old.
type simulatedCluster struct {
	random *rand.Rand
	vpas   []VPA
	phase  map[string]int // by UID
}

const (
	idle = iota
	accepted
	down
)

func newSimulatedCluster(random *rand.Rand) *simulatedCluster {
	s := &simulatedCluster{random: random, phase: map[string]int{}}
	for n := range 2 + random.IntN(3) {
		name := fmt.Sprintf("v%d", n)
		v := restartingDeployment(1+random.IntN(5), func(_ int, p *Pod) {
			p.Name = name + p.Name
			p.UID = p.Name
			if random.IntN(3) > 0 {
				p.Budgets = []string{fmt.Sprintf("b%d", random.IntN(2))}
			}
		})
		v.Name, v.Groups[0].Key, v.MinReplicas = name, name, 1
		s.vpas = append(s.vpas, *v)
	}
	return s
}

func (s *simulatedCluster) each(do func(v *VPA, p *Pod)) {
	for i := range s.vpas {
		for j := range s.vpas[i].Pods {
			do(&s.vpas[i], &s.vpas[i].Pods[j])
		}
	}
}

func (s *simulatedCluster) seen() View {
	var v View
	for _, vpa := range s.vpas {
		vpa.Pods = slices.Clone(vpa.Pods)
		for i := range vpa.Pods {
			vpa.Pods[i].Containers = slices.Clone(vpa.Pods[i].Containers)
		}
		v.VPAs = append(v.VPAs, vpa)
	}
	return v
}

func (s *simulatedCluster) step() {
	s.each(func(_ *VPA, p *Pod) {
		if s.random.IntN(2) == 0 {
			return
		}
		switch s.phase[p.UID] {
		case accepted:
			p.Resize = ResizeInProgress
			if s.random.IntN(2) == 0 {
				completeRestart(p)
				p.Ready = s.random.IntN(3) == 0 // so fast that no iteration sees it unready
				s.phase[p.UID] = down
			}
		case down:
			p.Ready = true
			s.phase[p.UID] = idle
		}
		if s.phase[p.UID] == down && p.Ready {
			s.phase[p.UID] = idle
		}
	})
}

func (s *simulatedCluster) check(t *testing.T) {
	t.Helper()
	busy := map[string]string{}
	s.each(func(v *VPA, p *Pod) {
		if s.phase[p.UID] == idle {
			return
		}
		for _, key := range append(slices.Clone(p.Budgets), v.Name) {
			require.Empty(t, busy[key], "%s is restarted beside, both of %s", p.UID, key)
			busy[key] = p.UID
		}
	})
}

func TestRestart_NeverConcurrent(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 14))
		s := newSimulatedCluster(random)
		memory, view := State{}, s.seen()
		c := defaults()
		c.Tolerance = float64(random.IntN(3)) / 2
		pass, behind := 0, 0
		for ; pass < 400; pass++ {
			now := noon.Add(time.Duration(pass) * time.Minute)
			switch behind++; {
			case random.IntN(6) == 0 && behind < 4: // the cache is stale
			case random.IntN(6) == 0: // the process was replaced
				memory = State{}
				fallthrough
			default:
				view, behind = s.seen(), 0
			}
			r := Plan(view, memory, c, now)
			memory = r.State
			for _, a := range r.Actions {
				require.False(t, a.Evict)
				s.each(func(_ *VPA, p *Pod) {
					switch {
					case p.UID != a.UID:
					case random.IntN(5) == 0:
						put(&memory.Recommended.Protected, p.UID, now)
					default:
						acceptResize(p)
						p.Persisted, s.phase[p.UID] = &PersistedState{Restart: a.Restart}, accepted
						recordRestart(&memory, p.UID, a.Restart)
					}
				})
			}
			s.check(t)
			s.step()
			s.check(t)
			left := 0
			s.each(func(_ *VPA, p *Pod) {
				if p.NeedsChange() {
					left++
				}
			})
			if left == 0 {
				break
			}
		}
		require.Less(t, pass, 400, "seed %d: not all pods were changed", seed)
	}
}

func deferResize(p *Pod, since time.Time) {
	acceptResize(p)
	p.Resize, p.ResizeSince = ResizeDeferred, since
}

// A restart that never happens must not block the other pods forever. If it happens after all, they
// wait until the pod is ready again.
func TestRestart_PendingRestartTimesOut(t *testing.T) {
	for _, tc := range []struct {
		name  string
		since time.Time
	}{
		{name: "node reports the start", since: noon},
		{name: "node does not report the start", since: time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := restartingDeployment(4, nil)
			v.Mode, v.MinReplicas = InPlace, 1
			c := defaults()
			c.Tolerance = 1
			c.InPlaceMode = true
			deferResize(&v.Pods[0], tc.since)
			memory := State{}
			minute := 0
			pass := func(until int) (acts []string) {
				t.Helper()
				for ; minute <= until; minute++ {
					r := planAt(v, memory, c, noon.Add(time.Duration(minute)*time.Minute))
					memory, acts = r.State, nil
					for _, a := range r.Actions {
						acts = append(acts, a.Pod)
					}
					if minute == 30 { // a new target does not restart the timeout
						recordRestart(&memory, v.Pods[0].UID, Restart{At: noon.Add(30 * time.Minute)})
					}
				}
				return acts
			}
			require.Empty(t, pass(59))
			require.Equal(t, []string{"p1"}, pass(60))
			asking := memory
			asking.Recommended.Restarts = maps.Clone(memory.Recommended.Restarts)
			recordRestart(&asking, v.Pods[0].UID, Restart{At: noon.Add(60 * time.Minute)})
			require.Empty(t, planAt(v, asking, c, noon.Add(61*time.Minute)).Actions, "what was asked for a moment ago may be granted")
			require.Equal(t, []string{"p1"}, pass(120))
			completeRestart(&v.Pods[0])
			v.Pods[0].Ready = false
			require.Empty(t, pass(121), "it is away now, however long it waited before")
			v.Pods[0].Ready = true
			require.Equal(t, []string{"p1"}, pass(122))
		})
	}
}

func TestRestartState_OnlyProgressExtendsTimeout(t *testing.T) {
	r := RestartState{Restart: Restart{At: noon}, PendingSince: noon}
	for resize, is := range map[ResizeState]bool{ResizeDeferred: true, ResizeInfeasible: true, ResizeInProgress: false} {
		p := Pod{Resize: resize, ResizeSince: noon.Add(59 * time.Minute)}
		require.False(t, r.stuck(&p, noon.Add(59*time.Minute)))
		require.Equal(t, is, r.stuck(&p, noon.Add(time.Hour)), resize)
	}
}

func TestContainer_RestartsFor(t *testing.T) {
	c := container(100, 1000, 200, 2000)
	memory := policy.ContainerTarget{Requests: resources.List{}.With(resources.Memory, 2000)}
	require.False(t, c.RestartsFor(memory))
	c.Restarts[resources.Memory] = true
	require.True(t, c.RestartsFor(memory))
	require.False(t, c.RestartsFor(policy.ContainerTarget{Requests: resources.List{}.With(resources.CPU, 200)}))
	c.Spec.Requests = c.Spec.Requests.With(resources.Memory, 2000)
	require.False(t, c.RestartsFor(memory))
	require.True(t, c.RestartsFor(policy.ContainerTarget{Limits: resources.List{}.With(resources.Memory, 4000)}))
}

func TestRestart_PodWithoutVPABlocksItsBudget(t *testing.T) {
	v := restartingDeployment(2, func(_ int, p *Pod) { p.Budgets = []string{"b"} })
	v.MinReplicas = 1
	other := restartingDeployment(1, func(_ int, p *Pod) { p.UID, p.Budgets = "other", []string{"b"} }).Pods[0]
	view, memory := View{VPAs: []VPA{*v}, Others: []Pod{other}}, State{}
	require.Len(t, Plan(view, memory, defaults(), noon).Actions, 1, "it is not being restarted")
	acceptResize(&view.Others[0])
	for minute := range 60 {
		r := Plan(view, memory, defaults(), noon.Add(time.Duration(minute)*time.Minute))
		require.Equal(t, []string{"skip p0: RestartInProgress", "skip p1: RestartInProgress"}, formatPlan(r), minute)
		memory = r.State
	}
	require.Len(t, Plan(view, memory, defaults(), noon.Add(time.Hour)).Actions, 1, "its node never carries it out")
	view.Others[0].Resize = ResizeInfeasible
	require.Len(t, Plan(view, State{}, defaults(), noon).Actions, 1)
	view.Others[0].Budgets, view.Others[0].Resize = []string{"another"}, NotResizing
	require.Len(t, Plan(view, State{}, defaults(), noon).Actions, 1)
}

func TestRestart_DeferredPodsAreEvictedSequentially(t *testing.T) {
	v := restartingDeployment(2, func(_ int, p *Pod) { p.Budgets = []string{"b"} })
	deferResize(&v.Pods[0], noon.Add(-20*time.Minute))
	deferResize(&v.Pods[1], noon.Add(-30*time.Minute))
	require.Equal(t, []string{"evict p1: ResizeStuck"}, formatPlan(planAtNoon(t, v, defaults()))[:1])
	v.Pods[0].ResizeSince = noon.Add(-40 * time.Minute)
	require.Equal(t, []string{"evict p0: ResizeStuck"}, formatPlan(planAtNoon(t, v, defaults()))[:1])
	v.Pods[1].Resize, v.Pods[1].ResizeSince = ResizeInProgress, noon.Add(-time.Minute)
	require.Equal(t, []string{"evict p0: ResizeStuck"}, formatPlan(planAtNoon(t, v, defaults()))[:1], "the other waits for its node, too")
	v.Pods[1].Ready = false
	completeRestart(&v.Pods[1])
	v.Pods[1].Persisted = &PersistedState{Restart: Restart{At: noon.Add(-time.Minute)}}
	require.Empty(t, planAtNoon(t, v, defaults()).Actions, "the other is away")
}
