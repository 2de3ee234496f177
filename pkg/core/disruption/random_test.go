package disruption

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

func drawResources(t *rapid.T, label string) amount.Resources {
	var r amount.Resources
	for k := range amount.Kind(amount.Kinds) {
		if v := rapid.Int64Range(-1, 4).Draw(t, label); v >= 0 {
			r = r.With(k, amount.Amount(v*100))
		}
	}
	return r
}

func drawContainer(t *rapid.T, i int) Container {
	name := fmt.Sprintf("c%d", i)
	c := Container{
		Observed: rapid.Bool().Draw(t, "observed"), Off: rapid.Bool().Draw(t, "off"),
		Current: policy.Container{Name: name, Requests: drawResources(t, "request"), Limits: drawResources(t, "limit")},
		Fitted:  policy.Fitted{Name: name, Requests: drawResources(t, "target"), Limits: drawResources(t, "new limit")},
	}
	c.Asked = c.Current
	if rapid.Bool().Draw(t, "asked") {
		c.Asked.Requests = c.Fitted.Requests
	}
	c.Fitted.Bounds = amount.Bounds{Lower: drawResources(t, "lower"), Target: c.Fitted.Requests, Upper: drawResources(t, "upper")}
	c.Restarts[amount.CPU] = rapid.Bool().Draw(t, "restarts")
	if rapid.Bool().Draw(t, "oom") {
		c.OOM = OOM{Started: noon.Add(-time.Hour), Ended: noon.Add(-time.Minute * time.Duration(rapid.IntRange(0, 70).Draw(t, "ended")))}
	}
	return c
}

func drawVPA(t *rapid.T, n int) VPA {
	v := VPA{Namespace: "shop", Name: fmt.Sprintf("v%d", n), Mode: Mode(rapid.IntRange(0, 4).Draw(t, "mode")),
		MinReplicas: rapid.IntRange(0, 3).Draw(t, "min")}
	for range rapid.IntRange(0, 3).Draw(t, "groups") {
		v.Groups = append(v.Groups, Group{rapid.IntRange(-1, 8).Draw(t, "replicas")})
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		p := Pod{Namespace: "shop", Name: fmt.Sprintf("p%d", i), UID: fmt.Sprintf("%d/%d", n, i),
			Group: rapid.IntRange(-1, 3).Draw(t, "group"), Pending: rapid.IntRange(0, 4).Draw(t, "pending") == 0,
			Started: noon.Add(-time.Duration(rapid.IntRange(0, 24).Draw(t, "age")) * time.Hour),
			Resize:  ResizeState(rapid.IntRange(0, 5).Draw(t, "state"))}
		p.Ready = !p.Pending && rapid.Bool().Draw(t, "ready")
		for c := range rapid.IntRange(0, 3).Draw(t, "containers") {
			p.Containers = append(p.Containers, drawContainer(t, c))
		}
		v.Pods = append(v.Pods, p)
	}
	return v
}

func TestRandomClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var view View
		for n := range rapid.IntRange(0, 3).Draw(t, "vpas") {
			view.VPAs = append(view.VPAs, drawVPA(t, n))
		}
		c := Config{
			MinReplicas: rapid.IntRange(0, 3).Draw(t, "least"), Tolerance: float64(rapid.IntRange(0, 10).Draw(t, "tolerance")) / 10,
			Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOM: 10 * time.Minute,
			FreeResizes: rapid.Bool().Draw(t, "free"), InPlaceMode: rapid.Bool().Draw(t, "gate"),
		}
		memory := Memory{}
		for pass := range 3 {
			now := noon.Add(time.Duration(pass) * 4 * time.Minute)
			r := Plan(view, memory, c, now)
			require.Equal(t, r, Plan(view, memory, c, now), "the same input gave another plan")
			checkPlan(t, view, c, r)
			memory = r.Memory
		}
	})
}

func checkPlan(t *rapid.T, view View, c Config, r Result) {
	decided := map[string]bool{}
	for _, s := range r.Skipped {
		require.False(t, decided[s.UID], "%s has two decisions", s.UID)
		decided[s.UID] = true
		require.Contains(t, Reasons(), s.Reason)
	}
	actions := map[string]Action{}
	for _, a := range r.Actions {
		require.False(t, decided[a.UID], "%s has two decisions", a.UID)
		decided[a.UID] = true
		actions[a.UID] = a
	}
	total := 0
	for i := range view.VPAs {
		v := &view.VPAs[i]
		total += len(v.Pods)
		checkActions(t, v, actions)
		checkBudget(t, v, c, actions)
	}
	require.Len(t, decided, total, "a pod without decision")
}

func checkActions(t *rapid.T, v *VPA, actions map[string]Action) {
	for i := range v.Pods {
		p := &v.Pods[i]
		a, acted := actions[p.UID]
		if !acted {
			continue
		}
		require.True(t, p.changed(), "%s is disrupted without a difference", p.UID)
		require.NotEmpty(t, a.Containers)
		if !a.Evict || p.Resize == NotResizing {
			require.True(t, p.asks(), "%s already asks for that", p.UID)
		}
		switch v.Mode {
		case Recreate:
			require.True(t, a.Evict)
		case InPlace:
			require.False(t, a.Evict || a.MayEvict, "mode InPlace evicts")
		case Off, Initial:
			require.Fail(t, "the mode changes no pods")
		}
	}
}

// checkBudget counts from scratch how many pods of each owner are disrupted.
func checkBudget(t *rapid.T, v *VPA, c Config, actions map[string]Action) {
	for g, group := range v.Groups {
		var live, running, ready, away, readyAway, evicted int
		for i := range v.Pods {
			p := &v.Pods[i]
			if p.Group != g {
				continue
			}
			live++
			if p.Pending {
				continue
			}
			running++
			if p.Ready {
				ready++
			}
			a, acted := actions[p.UID]
			free := !a.Evict && !a.MayEvict && (p.cured() || c.FreeResizes && !p.restarts())
			if !acted || free {
				continue
			}
			away++
			if p.Ready {
				readyAway++
			}
			if a.Evict || a.MayEvict {
				evicted++
			}
		}
		wanted, least := group.Replicas, max(v.MinReplicas, 0)
		if wanted == Unknown {
			wanted = live
		}
		if least == 0 {
			least = c.MinReplicas
		}
		if away == 0 {
			continue
		}
		require.Positive(t, wanted)
		require.GreaterOrEqual(t, live, least, "below the minimum")
		tolerated := int(float64(wanted) * c.Tolerance)
		if tolerated > 0 || away > 1 { // one pod may go although nothing is tolerated
			require.GreaterOrEqual(t, running-away, wanted-tolerated)
		}
		if readyAway > 1 || readyAway > 0 && tolerated > 0 {
			require.GreaterOrEqual(t, ready-readyAway, wanted-tolerated)
		}
	}
}
