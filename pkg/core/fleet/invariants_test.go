package fleet

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
)

var (
	someNamespaces  = []string{"shop", "pay", "kube-system", "loadline"}
	someKinds       = []string{"Deployment", "StatefulSet"}
	someNames       = []string{"web", "db"}
	someModes       = []Mode{Inherit, Observe, Recommend, OneShot, Canary, Auto}
	someAnnotations = []map[string]string{
		nil, nil, nil, {SkipAnnotation: "true"}, {SkipAnnotation: "false"}, {SkipAnnotation: "?"}, {ModeAnnotation: "?"},
		{ModeAnnotation: "Inherit"}, {ModeAnnotation: "Observe"}, {ModeAnnotation: "Recommend"}, {ModeAnnotation: "OneShot"},
		{ModeAnnotation: "Canary"}, {ModeAnnotation: "Auto"}, {"attune.io/skip": "true"}, {sharing.SharingAnnotation: "off"}, {sharing.RankAnnotation: "high"},
	}
)

func drawPolicy(t *rapid.T, name string) Policy {
	p := Policy{Name: name, Priority: rapid.IntRange(0, 4).Draw(t, "priority"), Mode: rapid.SampledFrom(someModes).Draw(t, "mode")}
	p.Paused = rapid.IntRange(0, 4).Draw(t, "paused") == 0
	p.GenerateVPAs = rapid.Bool().Draw(t, "make")
	p.Sharing.Mode = SharingMode(rapid.IntRange(0, int(SharingOn)).Draw(t, "sharing"))
	if rapid.IntRange(0, 4).Draw(t, "unusable") == 0 {
		p.Unusable = "broken"
	}
	p.Namespaces.Names = rapid.SliceOfN(rapid.SampledFrom(append([]string{"*"}, someNamespaces...)), 0, 2).Draw(t, "names")
	p.Namespaces.Exclude = rapid.SliceOfN(rapid.SampledFrom(someNamespaces), 0, 1).Draw(t, "exclude")
	if rapid.Bool().Draw(t, "by label") {
		p.Namespaces.Selector = has{"team", "shop"}
	}
	for range rapid.IntRange(1, 2).Draw(t, "matches") {
		m := Match{Group: "apps", Kind: rapid.SampledFrom(someKinds).Draw(t, "kind"), Name: rapid.SampledFrom([]string{"", "", "web"}).Draw(t, "name")}
		if rapid.Bool().Draw(t, "selector") {
			m.Selector = has{"tier", "front"}
		}
		p.Workloads = append(p.Workloads, m)
	}
	return p
}

func drawPolicies(t *rapid.T) (all []Policy) {
	for _, name := range []string{"a", "b", "c", "d", "e", "f"}[:rapid.IntRange(0, 6).Draw(t, "policies")] {
		all = append(all, drawPolicy(t, name))
	}
	return all
}

func drawWorkload(t *rapid.T) Workload {
	w := Workload{
		Group: "apps", Kind: rapid.SampledFrom(someKinds).Draw(t, "kind"),
		Namespace: rapid.SampledFrom(someNamespaces).Draw(t, "namespace"), Name: rapid.SampledFrom(someNames).Draw(t, "name"),
		Annotations:         rapid.SampledFrom(someAnnotations).Draw(t, "annotations"),
		TemplateAnnotations: rapid.SampledFrom(someAnnotations).Draw(t, "template"),
		NamespaceLabels:     rapid.SampledFrom([]map[string]string{nil, {}, {"team": "shop"}}).Draw(t, "namespace labels"),
		Labels:              rapid.SampledFrom([]map[string]string{nil, {"tier": "front"}}).Draw(t, "labels"),
	}
	w.VPA.Origin = rapid.SampledFrom([]VPAOrigin{NoVPA, UserVPA, GeneratedVPA}).Draw(t, "author")
	if w.VPA.Origin != NoVPA {
		w.VPA.Passive = rapid.Bool().Draw(t, "passive")
		w.VPA.Annotations = rapid.SampledFrom(someAnnotations).Draw(t, "of the VPA")
	}
	return w
}

func drawOptions(t *rapid.T) Options {
	return Options{OwnNamespace: "loadline", Foreign: rapid.Bool().Draw(t, "foreign")}
}

func requireSame(t require.TestingT, want, got Decision) {
	require.Equal(t, want.Policy == nil, got.Policy == nil)
	if want.Policy != nil {
		require.Equal(t, *want.Policy, *got.Policy)
	}
	want.Policy, got.Policy = nil, nil
	require.Equal(t, want, got)
}

func TestDecide_IgnoresPolicyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies, w, o := drawPolicies(t), drawWorkload(t), drawOptions(t)
		want := NewSet(policies, o).Decide(w)
		requireSame(t, want, NewSet(rapid.Permutation(policies).Draw(t, "order"), o).Decide(w))
	})
}

func TestDecide_IgnoresLowerPriorityPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies, w, o := drawPolicies(t), drawWorkload(t), drawOptions(t)
		want := NewSet(policies, o).Decide(w)
		if want.Policy == nil {
			t.Skip("nobody is responsible")
		}
		weaker := drawPolicy(t, "z")
		weaker.Priority = rapid.IntRange(1, want.Policy.Priority).Draw(t, "weaker")
		requireSame(t, want, NewSet(append(slices.Clone(policies), weaker), o).Decide(w))
	})
}

// With Inherit, a user VPA that is not Off can be restricted to any mode.
var allowedModes = map[Mode][]Mode{
	Inherit:   {Inherit, Observe, Recommend},
	Observe:   {Observe},
	Recommend: {Observe, Recommend},
	OneShot:   {Observe, Recommend, OneShot},
	Canary:    {Observe, Recommend, OneShot, Canary},
	Auto:      {Observe, Recommend, OneShot, Canary, Auto},
}

func TestDecide_NeverExceedsPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, w := drawPolicy(t, "p"), drawWorkload(t)
		p.Namespaces, p.Workloads = Namespaces{Names: []string{w.Namespace}}, []Match{{Group: w.Group, Kind: w.Kind}}
		d := NewSet([]Policy{p}, drawOptions(t)).Decide(w)
		require.Equal(t, "p", d.Policy.Name)
		may := allowedModes[p.Mode]
		if p.Mode == Inherit && w.VPA.Origin == UserVPA && !w.VPA.Passive {
			may = someModes[:Auto]
		}
		require.Contains(t, may, d.Mode)

		acts := d.Mode > Recommend || d.Mode == Inherit && w.VPA.Origin == UserVPA && !w.VPA.Passive
		require.Equal(t, acts, d.Reason == "", "a reason where nothing is changed, and only there")
		if p.Paused || p.Unusable != "" || w.VPA.Origin == UserVPA && w.VPA.Passive {
			require.False(t, acts)
		}
		shared, _ := d.SharingMode(rapid.Bool().Draw(t, "everywhere"))
		require.LessOrEqual(t, shared, p.Sharing.Mode)
		require.False(t, shared == SharingOn && (!acts || d.Mode < Canary), "pods share only where all of them may be changed")
		require.False(t, shared != SharingOff && (d.Reason == reason.OptedOut || p.Paused || p.Unusable != ""))
		if d.GenerateVPA {
			require.True(t, d.KeepVPA && w.VPA.Origin == NoVPA && p.GenerateVPAs && !p.Paused && p.Unusable == "")
		}
	})
}
