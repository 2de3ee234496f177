package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func deploymentWithOwner(mode Mode, n int, change func(i int, p *Pod)) *VPA {
	v := deployment(mode, n, pods(n, func(i int, p *Pod) {
		p.Created = noon.Add(-24 * time.Hour)
		if change != nil {
			change(i, p)
		}
	})...)
	v.Groups[0].Key = "shop/ReplicaSet/web"
	return v
}

func planAt(v *VPA, m State, c Config, now time.Time) Result {
	return Plan(View{VPAs: []VPA{*v}}, m, c, now)
}

func recordDone(m *State, a Action, now time.Time) {
	m.Record(Action{Evict: true, Owner: a.Owner, Change: a.Change, Newest: a.Newest}, Done, now)
}

// evictions runs one iteration a minute. Each evicted pod returns at once, unchanged or modified by
// comes.
func evictions(v *VPA, passes int, comes ...func(*Pod)) (n int) {
	memory := State{}
	for pass := range passes {
		now := noon.Add(time.Duration(pass) * time.Minute)
		r := planAt(v, memory, defaults(), now)
		memory = r.State
		for _, a := range r.Actions {
			recordDone(&memory, a, now)
			n++
			for i := range v.Pods {
				if v.Pods[i].UID == a.UID {
					v.Pods[i].UID += "'"
					v.Pods[i].Created = now.Add(30 * time.Second)
					for _, change := range comes {
						change(&v.Pods[i])
					}
				}
			}
		}
	}
	return n
}

func TestEviction_BacksOffForUnchangedPods(t *testing.T) {
	require.LessOrEqual(t, evictions(deploymentWithOwner(Recreate, 2, nil), 24*60), 10, "one a minute without back-off")
	forgotten := deploymentWithOwner(Recreate, 2, nil)
	forgotten.Groups[0].Key = ""
	require.Equal(t, 24*60, evictions(forgotten, 24*60))

	left := resources.Amount(0)
	cut := func(p *Pod) { // cut to the quota, which depends on the old pod
		left = 400 - left
		p.Containers[0].Spec.Requests = resources.NewList(left+90, (left+90)<<20)
		p.Containers[0].Actual = p.Containers[0].Spec
	}
	require.LessOrEqual(t, evictions(deploymentWithOwner(Recreate, 2, nil), 24*60, cut), 10, "one a minute without back-off")

	v := deploymentWithOwner(Recreate, 2, nil)
	memory := planAt(v, State{}, defaults(), noon).State
	recordDone(&memory, planAt(v, State{}, defaults(), noon).Actions[0], noon)
	v.Pods[0].UID, v.Pods[0].Created = "new", noon.Add(time.Second)
	r := planAt(v, memory, defaults(), noon.Add(time.Minute))
	require.Equal(t, []string{"skip p0: BackingOff", "skip p1: BackingOff"}, formatPlan(r))

	v.Mode = InPlaceOrRecreate
	require.Equal(t, []string{"resize p0: OutOfBounds", "skip p1: BudgetSpent"}, formatPlan(planAt(v, memory, defaults(), noon.Add(time.Minute))),
		"a resize needs no webhook")
}

func TestBackoff_IsPersistedOnPods(t *testing.T) {
	v := deploymentWithOwner(Recreate, 2, nil)
	var memory State
	recordDone(&memory, planAt(v, State{}, defaults(), noon).Actions[0], noon)
	v.Pods[0].UID, v.Pods[0].Created = "new", noon.Add(time.Second)
	r := planAt(v, memory, defaults(), noon.Add(time.Minute))
	want := Backoff{Ineffective: 1, Until: noon.Add(6 * time.Minute)}
	require.Equal(t, []PodBackoff{{Subject{Namespace: "shop", VPA: "web", Pod: "p0", UID: "new"}, want}}, r.Backoffs)
	require.Empty(t, planAt(v, r.State, defaults(), noon.Add(2*time.Minute)).Backoffs, "once")

	v.Pods[0].Persisted = &PersistedState{Backoff: want}
	r = planAt(v, State{}, defaults(), noon.Add(2*time.Minute))
	require.Equal(t, []string{"skip p0: BackingOff", "skip p1: BackingOff"}, formatPlan(r), "another process knows it, too")
	require.Empty(t, r.Backoffs)
	r = planAt(v, State{}, defaults(), noon.Add(6*time.Minute))
	require.Equal(t, []string{"evict p0: OutOfBounds", "skip p1: BudgetSpent"}, formatPlan(r))
	memory = r.State
	recordDone(&memory, r.Actions[0], noon.Add(6*time.Minute))
	v.Pods[0].UID, v.Pods[0].Created, v.Pods[0].Persisted = "newer", noon.Add(6*time.Minute+time.Second), nil
	r = planAt(v, memory, defaults(), noon.Add(7*time.Minute))
	require.Equal(t, Backoff{Ineffective: 2, Until: noon.Add(17 * time.Minute)}, r.Backoffs[0].Backoff, "the next one is twice as long")

	v.Pods[0].Persisted, v.Groups[0].Key = &PersistedState{Backoff: want}, ""
	require.NotEmpty(t, planAt(v, State{}, defaults(), noon.Add(time.Minute)).Actions, "an owner that is not known is not remembered")
	v = deploymentWithOwner(Recreate, 2, func(_ int, p *Pod) {
		p.Persisted = &PersistedState{Backoff: want}
		p.Containers[0].Spec.Requests, p.Containers[0].Actual.Requests = p.Containers[0].Target.Requests, p.Containers[0].Target.Requests
	})
	require.Empty(t, planAt(v, State{}, defaults(), noon.Add(time.Minute)).State.Owners, "a pod that has its size tells nothing any more")
}

func TestBackoff_IgnoresStartupBoost(t *testing.T) {
	v := deploymentWithOwner(Recreate, 2, func(_ int, p *Pod) { p.Containers[0] = container(2500, 100, 1000, 1000) })
	var memory State
	recordDone(&memory, planAt(v, State{}, defaults(), noon).Actions[0], noon)
	fresh := &v.Pods[0]
	fresh.UID, fresh.Created = "new", noon.Add(time.Second)
	for _, tc := range []struct {
		name        string
		boosted     bool
		cpu, memory resources.Amount
		backoffs    int
	}{
		{name: "boosted pod with the recommended memory", boosted: true, cpu: 3000, memory: 1000},
		{name: "boosted pod with less than the recommended memory", boosted: true, cpu: 3000, memory: 500, backoffs: 1},
		{name: "CPU above the recommendation without boost", cpu: 3000, memory: 1000, backoffs: 1},
		{name: "recommended requests without boost", cpu: 1000, memory: 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fresh.Boosted, fresh.Containers[0] = tc.boosted, container(tc.cpu, tc.memory, 1000, 1000)
			r := planAt(v, memory, defaults(), noon.Add(time.Minute))
			require.Len(t, r.Backoffs, tc.backoffs)
		})
	}
	fresh.Boosted, fresh.Containers[0] = true, container(3000, 1000, 1000, 1000)
	memory = planAt(v, memory, defaults(), noon.Add(time.Minute)).State
	fresh.Boosted, fresh.Containers[0] = false, container(2000, 1000, 1000, 1000)
	require.Len(t, planAt(v, memory, defaults(), noon.Add(2*time.Minute)).Backoffs, 1, "it shows when the boost is over")
}

func TestResize_RetriesWithBackoff(t *testing.T) {
	v := deployment(InPlaceOrRecreate, 2, pods(2, nil)...)
	memory, asked := State{}, 0
	for minute := range 120 {
		now := noon.Add(time.Duration(minute) * time.Minute)
		r := planAt(v, memory, defaults(), now)
		memory = r.State
		for _, a := range r.Actions {
			if a.Pod == "p0" {
				asked++
				memory.Recommended.recordAttempt(a.UID, a.Containers, now)
			}
		}
	}
	require.Equal(t, 9, asked, "after 0, 1, 2, 4, 8, 16 and then each 30 minutes")

	other := v.Pods[0]
	other.Containers = []Container{container(100, 100, 2000, 1000)}
	v.Pods[0] = other
	require.Contains(t, formatPlan(planAt(v, memory, defaults(), noon.Add(2*time.Hour))), "resize or evict p0: OutOfBounds", "another target")
}

// The state must not grow with the number of owners that ever existed.
func TestState_DropsOwnersAfterADay(t *testing.T) {
	v, memory := deploymentWithOwner(Off, 1, nil), State{}
	recordDone(&memory, Action{Owner: "shop/ReplicaSet/gone", Newest: noon}, noon)
	require.Contains(t, planAt(v, memory, defaults(), noon.Add(24*time.Hour)).State.Owners, "shop/ReplicaSet/gone")
	require.Empty(t, planAt(v, memory, defaults(), noon.Add(24*time.Hour+time.Second)).State.Owners)
}

func TestState_DropsAttemptsOfGrantedResizes(t *testing.T) {
	v, memory := deployment(InPlaceOrRecreate, 1, pods(1, nil)...), State{}
	memory.Recommended.recordAttempt("uid-p0", v.Pods[0].Targets(), noon)
	require.Contains(t, planAt(v, memory, defaults(), noon).State.Recommended.Attempts, "uid-p0")
	v.Pods[0].Containers[0].Actual = v.Pods[0].Containers[0].After()
	v.Pods[0].Containers[0].Spec = v.Pods[0].Containers[0].Actual
	require.Empty(t, planAt(v, memory, defaults(), noon).State.Recommended.Attempts)
	v = deployment(InPlaceOrRecreate, 1, pods(1, nil)...)
	require.Empty(t, planAt(v, State{}, defaults(), noon).State.Recommended.Attempts, "it was never asked for")
}

// twoNodes sizes are cores and GiB.
func twoNodes(free1, free2 resources.Amount, quotas ...Quota) *Capacity {
	of := func(name string, size, free resources.Amount) Node {
		return Node{Name: name, AcceptsPods: true, Allocatable: resources.NewList(size*1000, size<<30), Free: resources.NewList(free*1000, free<<30)}
	}
	return NewCapacity([]Node{of("n1", 4, free1), of("n2", 16, free2)}, map[string][]Quota{"shop": quotas})
}

func deploymentOnNode(mode Mode, n int) *VPA {
	return deployment(mode, n, pods(n, func(_ int, p *Pod) { p.Node, p.Footprint = "n1", p.Containers[0].Actual.Requests })...)
}

func allRequested(v *VPA) (m State) {
	for i := range v.Pods {
		m.Recommended.recordAttempt(v.Pods[i].UID, v.Pods[i].Targets(), noon.Add(-time.Hour))
	}
	return m
}

// The kubelet retries a deferred resize when room becomes free.
func TestResize_IsSentOnceToFullNode(t *testing.T) {
	plan := func(v *VPA, r *Capacity, m State) Result {
		return Plan(View{VPAs: []VPA{*v}, Room: r}, m, defaults(), noon)
	}
	for _, mode := range []Mode{InPlace, InPlaceOrRecreate} {
		v := deploymentOnNode(mode, 2)
		first := plan(v, twoNodes(0, 0), State{})
		require.Equal(t, []string{"resize p0: OutOfBounds", "skip p1: BudgetSpent"}, formatPlan(first), "and it is not evicted if that is refused")
		first.State.Recommended.recordAttempt("uid-p0", v.Pods[0].Targets(), noon)
		require.Equal(t, []string{"resize p1: OutOfBounds", "skip p0: NodeFull"}, formatPlan(plan(v, twoNodes(0, 0), first.State)), "once")
		v.Pods[0].Containers[0] = container(100, 100, 1200, 1000)
		require.Equal(t, "resize p0: OutOfBounds", formatPlan(plan(v, twoNodes(0, 0), first.State))[0], "another target")

		v = deploymentOnNode(mode, 2)
		for i := range v.Pods {
			v.Pods[i].Containers[0].Restarts[resources.CPU] = true
		}
		require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, formatPlan(plan(v, twoNodes(0, 0), State{})), "what restarts waits")
		v = deploymentOnNode(mode, 2)
		for i := range v.Pods {
			v.Pods[i].Containers[0] = container(100, 100, 17000, 100)
		}
		require.Equal(t, "skip p0: TooLargeForNode", formatPlan(plan(v, twoNodes(0, 0), State{}))[0], "what the node can never grant is not asked for")
	}
	v := deploymentOnNode(InPlace, 4)
	v.Pods[1].Containers[0] = container(100, 100, 300, 300)
	tight := NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Allocatable: resources.NewList(9000, 9<<30), Free: resources.NewList(500, 500<<20)}},
		map[string][]Quota{"shop": {{Requests: resources.NewList(1000, 9<<30)}}})
	c := defaults()
	c.Tolerance = 1
	require.Equal(t, []string{"resize p0: OutOfBounds", "skip p2: QuotaFull", "skip p3: QuotaFull", "skip p1: QuotaFull"}, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: tight}, State{}, c, noon)),
		"the API server takes it from the quota")
	roomy := NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Allocatable: resources.NewList(9000, 9<<30), Free: resources.NewList(200, 200<<20)}}, nil)
	r := Plan(View{VPAs: []VPA{*v}, Room: roomy}, allRequested(&VPA{Pods: v.Pods[1:2]}), c, noon)
	require.Contains(t, formatPlan(r), "resize p1: OutOfBounds", "what it does not get yet it takes from nobody")
}

// Kubelets with the static CPU manager policy refuse CPU changes of Guaranteed pods.
func TestResize_RespectsStaticCPUPolicy(t *testing.T) {
	sized := func(cpu, wantCPU resources.Amount, static bool) func(int, *Pod) {
		return func(_ int, p *Pod) {
			c := container(cpu, 100, wantCPU, 1000)
			c.Spec.Limits = c.Spec.Requests
			c.Actual, c.Target.Limits = c.Spec, c.Target.Requests
			p.StaticCPU, p.Containers = static, []Container{c}
		}
	}
	burstable := func(i int, p *Pod) {
		sized(2000, 4000, true)(i, p)
		c := &p.Containers[0]
		c.Spec.Limits = resources.NewList(9000, 9<<30)
		c.Actual.Limits, c.Target.Limits = c.Spec.Limits, c.Spec.Limits
	}
	oneOf := func(i int, p *Pod) { // the QoS class depends on all containers
		sized(2000, 4000, true)(i, p)
		p.FixedContainers = []policy.Container{{Requests: resources.NewList(1, 1)}}
	}
	left, evicted, resized := []string{"skip p0: StaticCPU", "skip p1: StaticCPU"}, []string{"evict p0: OutOfBounds", "skip p1: BudgetSpent"}, "resize"
	for _, tc := range []struct {
		name   string
		pod    func(int, *Pod)
		pinned bool
	}{
		{name: "whole CPUs of a Guaranteed pod", pod: sized(2000, 4000, true), pinned: true},
		{name: "fraction of a CPU of a Guaranteed pod", pod: sized(500, 1500, true), pinned: true},
		{name: "node without static CPU policy", pod: sized(2000, 4000, false)},
		{name: "only memory changes", pod: sized(2000, 2000, true)},
		{name: "Burstable pod", pod: burstable},
		{name: "Burstable because of another container", pod: oneOf},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for mode, want := range map[Mode][]string{InPlace: left, InPlaceOrRecreate: evicted} {
				got := formatPlan(planAtNoon(t, deployment(mode, 2, pods(2, tc.pod)...), defaults()))
				if tc.pinned {
					require.Equal(t, want, got)
				} else {
					require.Contains(t, got[0], resized)
				}
			}
		})
	}
	t.Run("budgets hold", func(t *testing.T) {
		v := deployment(InPlaceOrRecreate, 1, pods(1, sized(2000, 4000, true))...)
		c := defaults()
		c.FreeResizes = true
		require.Equal(t, []string{"skip p0: BelowMinReplicas"}, formatPlan(planAtNoon(t, v, c)))
	})
	t.Run("back to what the node gave", func(t *testing.T) {
		v := deployment(InPlace, 2, pods(2, sized(2000, 2000, true))...)
		for i := range v.Pods {
			p := &v.Pods[i]
			p.Resize = ResizeInfeasible
			p.Containers[0].Spec.Requests = p.Containers[0].Spec.Requests.With(resources.CPU, 4000)
			p.Containers[0].Spec.Limits = p.Containers[0].Spec.Requests
		}
		require.Equal(t, "resize p0: Retry", formatPlan(planAtNoon(t, v, defaults()))[0])
	})
	t.Run("memory for a pod that dies of it", func(t *testing.T) {
		for _, mode := range []Mode{InPlace, InPlaceOrRecreate} {
			v := deployment(mode, 1, pods(1, sized(2000, 4000, true))...)
			v.Pods[0].Ready, v.Pods[0].Containers[0].OOM = false, OOM{Started: noon.Add(-time.Hour), Ended: noon}
			r := planAtNoon(t, v, defaults())
			require.Equal(t, []string{"resize p0: OutOfBounds"}, formatPlan(r))
			require.Equal(t, resources.NewList(2000, 1000<<20), r.Actions[0].Containers[0].Requests)
			require.Equal(t, r.Actions[0].Containers[0].Requests, r.Actions[0].Containers[0].Limits)
			require.True(t, r.Actions[0].OOMResize)
		}
	})
}

func TestAction_Disrupts(t *testing.T) {
	v := deployment(InPlaceOrRecreate, 1, small("p0"))
	v.MinReplicas = 1
	require.True(t, planAtNoon(t, v, defaults()).Actions[0].Disrupts, "it may come to an eviction")
	v.Mode = InPlace
	require.False(t, planAtNoon(t, v, defaults()).Actions[0].Disrupts)
	v.Pods[0].Containers[0].Restarts[resources.Memory] = true
	require.True(t, planAtNoon(t, v, defaults()).Actions[0].Disrupts)
	v.Pods[0].Ready, v.Mode = false, Recreate
	require.False(t, planAtNoon(t, v, defaults()).Actions[0].Disrupts)
}

// The memory must arrive whether or not the pod is ready, boosted, or had a CPU change refused.
func TestOOMResize_StaticCPUPodGetsMemory(t *testing.T) {
	for _, mode := range []Mode{InPlaceOrRecreate, InPlace} {
		for i := range 8 {
			has := policy.Container{Name: "c", Requests: resources.NewList(1000, 1000), Limits: resources.NewList(1000, 1000)}
			c := Container{Observed: true, Actual: has, Spec: has, OOM: OOM{Started: noon.Add(-time.Hour), Ended: noon.Add(-time.Minute)}}
			c.Target = policy.ContainerTarget{Name: "c", Requests: resources.NewList(500, 2000), Limits: resources.NewList(500, 2000),
				Bounds: resources.Bounds{Target: resources.NewList(500, 2000), Lower: resources.NewList(400, 1900), Upper: resources.NewList(600, 2100)}}
			p := Pod{Namespace: "n", Name: "p", UID: "p", Node: "s", StaticCPU: true, Created: noon.Add(-48 * time.Hour), Started: noon.Add(-48 * time.Hour),
				Ready: i&1 != 0, Boosted: i&2 != 0, Containers: []Container{c}}
			if i&4 != 0 && mode == InPlace && !p.Boosted { // otherwise evicted or not resized
				p.Containers[0].Spec = policy.Container{Name: "c", Requests: resources.NewList(500, 1000), Limits: resources.NewList(500, 1000)}
				p.Resize, p.ResizeSince = ResizeInfeasible, noon.Add(-time.Hour)
			}
			v := VPA{Namespace: "n", Name: "v", Mode: mode, Groups: []Group{{Replicas: 1, Key: "k"}}, Pods: []Pod{p}}
			config := Config{MinReplicas: 1, Tolerance: 0.5, Threshold: 0.1, Lifetime: time.Hour, QuickOOMTime: 10 * time.Minute, InPlaceMode: true, FreeResizes: true}
			before := State{}
			if i&4 != 0 && mode == InPlace { // even if the refusal is no longer visible
				put(&before.Recommended.Refused, p.UID, requests(p.Targets()))
				p.Resize = NotResizing
				v.Pods[0] = p
			}
			r := Plan(View{VPAs: []VPA{v}}, before, config, noon)
			require.Len(t, r.Actions, 1, "mode %d, case %d: %v", mode, i, r.Skipped)
			require.False(t, r.Actions[0].Evict || r.Actions[0].MayEvict)
			require.Equal(t, resources.NewList(1000, 2000), r.Actions[0].Containers[0].Requests, "mode %d, case %d", mode, i)
		}
	}
}
