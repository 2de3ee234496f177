package fleet

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
)

type has struct{ key, value string }

func (h has) Matches(labels map[string]string) bool { return labels[h.key] == h.value }

type lacks string

func (l lacks) Matches(labels map[string]string) bool { _, there := labels[string(l)]; return !there }

var deployments = []Match{{Group: "apps", Kind: "Deployment"}}

// policy selects all Deployments in mode Auto, changed by edit.
func policy(name string, edit ...func(*Policy)) Policy {
	p := Policy{Name: name, Namespaces: Namespaces{Names: []string{"*"}}, Workloads: deployments, GenerateVPAs: true, Mode: Auto}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func web(edit ...func(*Workload)) Workload {
	w := Workload{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", NamespaceLabels: map[string]string{"team": "shop"}}
	for _, e := range edit {
		e(&w)
	}
	return w
}

func priority(n int) func(*Policy)            { return func(p *Policy) { p.Priority = n } }
func mode(m Mode) func(*Policy)               { return func(p *Policy) { p.Mode = m } }
func inNamespaces(n Namespaces) func(*Policy) { return func(p *Policy) { p.Namespaces = n } }
func forWorkloads(m ...Match) func(*Policy)   { return func(p *Policy) { p.Workloads = m } }
func paused(p *Policy)                        { p.Paused = true }
func unusable(p *Policy)                      { p.Unusable = "recipe: no such recipe" }
func namespace(name string) func(*Workload)   { return func(w *Workload) { w.Namespace = name } }
func vpa(v VPA) func(*Workload)               { return func(w *Workload) { w.VPA = v } }

func withAnnotation(key, value string) func(*Workload) {
	return func(w *Workload) { w.Annotations = map[string]string{key: value} }
}

func names(s *Set, w Workload) (all []string) {
	for p := range s.Selecting(w) {
		all = append(all, p.Name)
	}
	return all
}

func TestSet_PolicyPrecedence(t *testing.T) {
	for name, c := range map[string]struct {
		policies []Policy
		want     []string // the first is responsible
	}{
		"none":                         {nil, nil},
		"the highest priority":         {[]Policy{policy("a", priority(100)), policy("b", priority(101))}, []string{"b", "a"}},
		"equal: the smaller name":      {[]Policy{policy("b", priority(7)), policy("a", priority(7))}, []string{"a", "b"}},
		"absent counts as 100":         {[]Policy{policy("b", priority(100)), policy("a"), policy("c", priority(99)), policy("d", priority(101))}, []string{"d", "a", "b", "c"}},
		"who does not select it":       {[]Policy{policy("a", priority(9), forWorkloads(Match{Group: "apps", Kind: "DaemonSet"})), policy("b", priority(8))}, []string{"b"}},
		"one that cannot be used":      {[]Policy{policy("a", priority(9), unusable), policy("b", priority(8))}, []string{"a", "b"}},
		"a paused one":                 {[]Policy{policy("a", priority(9), paused), policy("b", priority(8))}, []string{"a", "b"}},
		"one that excludes its place":  {[]Policy{policy("a", priority(9), inNamespaces(Namespaces{Names: []string{"*"}, Exclude: []string{"shop"}})), policy("b")}, []string{"b"}},
		"nobody selects the workload":  {[]Policy{policy("a", forWorkloads(Match{Group: "apps", Kind: "DaemonSet"}))}, nil},
		"one that selects no workload": {[]Policy{policy("a", forWorkloads())}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSet(c.policies, Options{})
			require.Equal(t, c.want, names(s, web()))
			d := s.Decide(web())
			if c.want == nil {
				require.Equal(t, Decision{}, d)
				return
			}
			require.Equal(t, c.want[0], d.Policy.Name)
		})
	}
}

func TestSelecting_StopsEarly(t *testing.T) {
	for p := range NewSet([]Policy{policy("a"), policy("b")}, Options{}).Selecting(web()) {
		require.Equal(t, "a", p.Name)
		break
	}
}

func TestPolicy_SelectsNamespaces(t *testing.T) {
	team := has{"team", "shop"}
	for name, c := range map[string]struct {
		n      Namespaces
		in     string
		labels map[string]string
		want   bool
	}{
		"by name":       {n: Namespaces{Names: []string{"shop"}}, in: "shop", want: true},
		"another name":  {n: Namespaces{Names: []string{"shop"}}, in: "shop2"},
		"all":           {n: Namespaces{Names: []string{"*"}}, in: "shop", want: true},
		"by label":      {n: Namespaces{Selector: team}, in: "shop", labels: map[string]string{"team": "shop"}, want: true},
		"another label": {n: Namespaces{Selector: team}, in: "shop", labels: map[string]string{"team": "pay"}},
		"by name or label": {
			n: Namespaces{Names: []string{"pay"}, Selector: team}, in: "shop",
			labels: map[string]string{"team": "shop"}, want: true,
		},
		"neither":                           {in: "shop", labels: map[string]string{"team": "shop"}},
		"by a label that must not be there": {n: Namespaces{Selector: lacks("prod")}, in: "shop", labels: map[string]string{}, want: true},
		"its labels are not known":          {n: Namespaces{Selector: lacks("prod")}, in: "shop", want: true},
		"all, excluded":                     {n: Namespaces{Names: []string{"*"}, Exclude: []string{"shop"}}, in: "shop"},
		"by name, excluded":                 {n: Namespaces{Names: []string{"shop"}, Exclude: []string{"shop"}}, in: "shop"},
		"by label, excluded": {
			n: Namespaces{Selector: team, Exclude: []string{"shop"}}, in: "shop",
			labels: map[string]string{"team": "shop"},
		},
		"all, another excluded":       {n: Namespaces{Names: []string{"*"}, Exclude: []string{"pay"}}, in: "shop", want: true},
		"all, of the system":          {n: Namespaces{Names: []string{"*"}}, in: "kube-system"},
		"all, of the system, public":  {n: Namespaces{Names: []string{"*"}}, in: "kube-public"},
		"all, of the system, leases":  {n: Namespaces{Names: []string{"*"}}, in: "kube-node-lease"},
		"all, the programs' own":      {n: Namespaces{Names: []string{"*"}}, in: "loadline"},
		"by label, of the system":     {n: Namespaces{Selector: team}, in: "kube-system", labels: map[string]string{"team": "shop"}},
		"by label, the programs' own": {n: Namespaces{Selector: team}, in: "loadline", labels: map[string]string{"team": "shop"}},
		"of the system, named":        {n: Namespaces{Names: []string{"kube-system"}}, in: "kube-system", want: true},
		"the programs' own, named":    {n: Namespaces{Names: []string{"*", "loadline"}}, in: "loadline", want: true},
		"of the system, named and excluded": {
			n: Namespaces{Names: []string{"kube-system"}, Exclude: []string{"kube-system"}}, in: "kube-system",
		},
		"a name that begins like the system": {n: Namespaces{Names: []string{"*"}}, in: "kube-system-tools", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSet([]Policy{policy("p", inNamespaces(c.n))}, Options{OwnNamespace: "loadline"})
			w := web(namespace(c.in))
			w.NamespaceLabels = c.labels
			require.Equal(t, c.want, s.Decide(w).Policy != nil)
		})
	}
}

func TestPolicy_HoldsWorkloadsWithUnknownLabels(t *testing.T) {
	team := has{"team", "shop"}
	for name, c := range map[string]struct {
		n    Namespaces
		want reason.Reason
	}{
		"by label":          {Namespaces{Selector: team}, reason.PolicyUnknown},
		"by name, or label": {Namespaces{Names: []string{"shop"}, Selector: team}, reason.RecommendOnly},
		"all, or label":     {Namespaces{Names: []string{"*"}, Selector: team}, reason.RecommendOnly},
		"by name":           {Namespaces{Names: []string{"shop"}}, reason.RecommendOnly},
	} {
		t.Run(name, func(t *testing.T) {
			w := web(namespace("shop"))
			w.NamespaceLabels = nil
			d := NewSet([]Policy{policy("p", inNamespaces(c.n), mode(Recommend))}, Options{}).Decide(w)
			require.Equal(t, c.want, d.Reason)
			require.Equal(t, c.want == reason.RecommendOnly, d.GenerateVPA)
		})
	}
}

func TestPolicy_SelectsWorkloads(t *testing.T) {
	front := web(func(w *Workload) { w.Labels = map[string]string{"tier": "front"} })
	rollout := web(func(w *Workload) { w.Group, w.Kind = "argoproj.io", "Rollout" })
	for name, c := range map[string]struct {
		match []Match
		w     Workload
		want  bool
	}{
		"kind":         {match: []Match{{Group: "apps", Kind: "Deployment"}}, w: web(), want: true},
		"another kind": {match: []Match{{Group: "apps", Kind: "StatefulSet"}}, w: web()},
		"one of two": {
			match: []Match{{Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "Deployment"}},
			w:     web(), want: true,
		},
		"an old group":            {match: []Match{{Group: "extensions", Kind: "Deployment"}}, w: web(), want: true},
		"no group":                {match: []Match{{Kind: "Deployment"}}, w: web(), want: true},
		"the kind of another":     {match: []Match{{Group: "example.com", Kind: "Deployment"}}, w: web()},
		"a custom kind":           {match: []Match{{Group: "argoproj.io", Kind: "Rollout"}}, w: rollout, want: true},
		"a custom kind, no group": {match: []Match{{Kind: "Rollout"}}, w: rollout},
		"name":                    {match: []Match{{Group: "apps", Kind: "Deployment", Name: "web"}}, w: web(), want: true},
		"another name":            {match: []Match{{Group: "apps", Kind: "Deployment", Name: "db"}}, w: web()},
		"label": {
			match: []Match{{Group: "apps", Kind: "Deployment", Selector: has{"tier", "front"}}},
			w:     front, want: true,
		},
		"another label": {match: []Match{{Group: "apps", Kind: "Deployment", Selector: has{"tier", "back"}}}, w: front},
		"label, not the name": {
			match: []Match{{Group: "apps", Kind: "Deployment", Name: "db", Selector: has{"tier", "front"}}},
			w:     front,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, NewSet([]Policy{policy("p", forWorkloads(c.match...))}, Options{}).Decide(c.w).Policy != nil)
		})
	}
}

func TestDecide_WithoutPolicyHoldsOnlyGeneratedVPAs(t *testing.T) {
	for name, s := range map[string]*Set{"nil": nil, "empty": NewSet(nil, Options{}), "another's": NewSet([]Policy{policy("p", forWorkloads())}, Options{})} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, Decision{}, s.Decide(web(withAnnotation(SkipAnnotation, "true"))))
			require.Equal(t, Decision{}, s.Decide(web(withAnnotation(ModeAnnotation, "Observe"), vpa(VPA{Origin: UserVPA}))))
			require.Equal(t, Decision{Mode: Recommend, Reason: reason.PolicyUnknown}, s.Decide(web(vpa(VPA{Origin: GeneratedVPA}))))
			require.Empty(t, names(s, web()))
		})
	}
}

type outcome struct {
	mode         Mode
	reason       reason.Reason
	makes, keeps bool
}

func decide(p Policy, w Workload) outcome {
	d := NewSet([]Policy{p}, Options{}).Decide(w)
	return outcome{mode: d.Mode, reason: d.Reason, makes: d.GenerateVPA, keeps: d.KeepVPA}
}

func TestDecide_PolicyMode(t *testing.T) {
	written, passive, made := VPA{Origin: UserVPA}, VPA{Origin: UserVPA, Passive: true}, VPA{Origin: GeneratedVPA}
	for name, c := range map[string]struct {
		policy Policy
		vpa    VPA
		want   outcome
	}{
		"no VPA, Inherit": {
			policy: policy("p", mode(Inherit)),
			want:   outcome{mode: Inherit, reason: reason.ModeOff, makes: true, keeps: true},
		},
		"no VPA, Observe": {
			policy: policy("p", mode(Observe)),
			want:   outcome{mode: Observe, reason: reason.Observing, makes: true, keeps: true},
		},
		"no VPA, Recommend": {
			policy: policy("p", mode(Recommend)),
			want:   outcome{mode: Recommend, reason: reason.RecommendOnly, makes: true, keeps: true},
		},
		"no VPA, OneShot":      {policy: policy("p", mode(OneShot)), want: outcome{mode: OneShot, makes: true, keeps: true}},
		"no VPA, none is made": {policy: policy("p", func(p *Policy) { p.GenerateVPAs = false }), want: outcome{mode: Auto, keeps: true}},

		"made, Inherit": {policy: policy("p", mode(Inherit)), vpa: made, want: outcome{mode: Inherit, reason: reason.ModeOff, keeps: true}},
		"made, Recommend": {
			policy: policy("p", mode(Recommend)), vpa: made,
			want: outcome{mode: Recommend, reason: reason.RecommendOnly, keeps: true},
		},
		"made, Canary": {policy: policy("p", mode(Canary)), vpa: made, want: outcome{mode: Canary, keeps: true}},
		"made, none is made": {
			policy: policy("p", func(p *Policy) { p.GenerateVPAs = false }), vpa: made,
			want: outcome{mode: Auto, keeps: true},
		},
		"made, paused": {policy: policy("p", paused), vpa: made, want: outcome{mode: Recommend, reason: reason.PolicyPaused, keeps: true}},
		"made, not usable": {
			policy: policy("p", unusable), vpa: made,
			want: outcome{mode: Recommend, reason: reason.PolicyUnknown, keeps: true},
		},
		"made, both of these": {
			policy: policy("p", unusable, paused), vpa: made,
			want: outcome{mode: Recommend, reason: reason.PolicyUnknown, keeps: true},
		},

		"a person's, Inherit": {policy: policy("p", mode(Inherit)), vpa: written, want: outcome{mode: Inherit}},
		"a person's, Observe": {policy: policy("p", mode(Observe)), vpa: written, want: outcome{mode: Observe, reason: reason.Observing}},
		"a person's, Recommend": {
			policy: policy("p", mode(Recommend)), vpa: written,
			want: outcome{mode: Recommend, reason: reason.RecommendOnly},
		},
		"a person's, Auto":   {policy: policy("p"), vpa: written, want: outcome{mode: Auto}},
		"a person's, paused": {policy: policy("p", paused), vpa: written, want: outcome{mode: Recommend, reason: reason.PolicyPaused}},
		"a person's, not usable": {
			policy: policy("p", unusable), vpa: written,
			want: outcome{mode: Recommend, reason: reason.PolicyUnknown},
		},
		"a person's Off, Inherit": {policy: policy("p", mode(Inherit)), vpa: passive, want: outcome{mode: Inherit, reason: reason.ModeOff}},
		"a person's Off, Observe": {policy: policy("p", mode(Observe)), vpa: passive, want: outcome{mode: Observe, reason: reason.ModeOff}},
		"a person's Off, Auto":    {policy: policy("p"), vpa: passive, want: outcome{mode: Recommend, reason: reason.ModeOff}},

		"no VPA, paused":     {policy: policy("p", paused), want: outcome{mode: Recommend, reason: reason.PolicyPaused, keeps: true}},
		"no VPA, not usable": {policy: policy("p", unusable), want: outcome{mode: Recommend, reason: reason.PolicyUnknown, keeps: true}},
		"Inherit, paused": {
			policy: policy("p", mode(Inherit), paused), vpa: written,
			want: outcome{mode: Recommend, reason: reason.PolicyPaused},
		},
		"Inherit, not usable": {
			policy: policy("p", mode(Inherit), unusable), vpa: written,
			want: outcome{mode: Recommend, reason: reason.PolicyUnknown},
		},
		"Observe, paused": {
			policy: policy("p", mode(Observe), paused), vpa: made,
			want: outcome{mode: Observe, reason: reason.PolicyPaused, keeps: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, decide(c.policy, web(vpa(c.vpa))))
		})
	}
}

// fleetOf50 is 49 policies that do not select web, and a low-priority one that does.
func fleetOf50() []Policy {
	all := []Policy{policy("weakest", priority(1))}
	for i := range 49 {
		name := "p" + strconv.Itoa(i)
		all = append(all, policy(name, priority(1+i), inNamespaces(Namespaces{Names: []string{name}, Selector: has{"team", name}, Exclude: []string{"shop2"}})))
	}
	return all
}

func TestDecide_DoesNotAllocate(t *testing.T) {
	s := NewSet(fleetOf50(), Options{OwnNamespace: "loadline", Foreign: true})
	w := web(withAnnotation(ModeAnnotation, "Canary"), vpa(VPA{Origin: GeneratedVPA, Annotations: map[string]string{SkipAnnotation: "false"}}))
	require.Equal(t, Canary, s.Decide(w).Mode)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Decide(w) }))
}

func TestNewSet_CopiesPolicies(t *testing.T) {
	all := fleetOf50()
	s := NewSet(all, Options{})
	slices.Reverse(all)
	all[len(all)-1].Mode = Observe
	require.Equal(t, Auto, s.Decide(web()).Mode)
}

func BenchmarkDecide_50Policies(b *testing.B) {
	s := NewSet(fleetOf50(), Options{OwnNamespace: "loadline"})
	w := web(withAnnotation(ModeAnnotation, "Canary"), vpa(VPA{Origin: GeneratedVPA}))
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(w)
	}
}

func BenchmarkDecide_NoPolicy(b *testing.B) {
	s := NewSet(nil, Options{})
	w := web(vpa(VPA{Origin: UserVPA}))
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(w)
	}
}

func TestSet_MayChangePods(t *testing.T) {
	team := func(p *Policy) { p.Namespaces = Namespaces{Selector: has{"team", "shop"}} }
	for _, tc := range []struct {
		name   string
		policy Policy
		labels map[string]string
		want   bool
	}{
		{name: "Auto", policy: policy("p"), want: true},
		{name: "OneShot", policy: policy("p", mode(OneShot)), want: true},
		{name: "Recommend", policy: policy("p", mode(Recommend))},
		{name: "Inherit", policy: policy("p", mode(Inherit))},
		{name: "paused policy", policy: policy("p", paused)},
		{name: "unusable policy", policy: policy("p", unusable)},
		{name: "other namespace", policy: policy("p", inNamespaces(Namespaces{Names: []string{"pay"}}))},
		{name: "namespace with the label", policy: policy("p", team), labels: map[string]string{"team": "shop"}, want: true},
		{name: "namespace without the label", policy: policy("p", team), labels: map[string]string{}},
		{name: "unknown labels", policy: policy("p", team), want: true},
		{name: "excluded namespace", policy: policy("p", inNamespaces(Namespaces{Names: []string{"*"}, Exclude: []string{"shop"}}))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewSet([]Policy{policy("a", inNamespaces(Namespaces{})), tc.policy}, Options{})
			require.Equal(t, tc.want, s.MayChangePods("shop", tc.labels))
		})
	}
	var none *Set
	require.False(t, none.MayChangePods("shop", nil))
}

// References to built-in kinds often have an old group or none.
func TestSet_NamesWorkload(t *testing.T) {
	s := NewSet([]Policy{{Name: "p", Workloads: []Match{
		{Group: "apps", Kind: "ReplicaSet", Name: "web"}, {Group: "example.com", Kind: "Fleet", Name: "web"}, {Group: "apps", Kind: "Deployment", Name: "web"},
	}}}, Options{})
	require.True(t, s.NamesWorkload("", "ReplicaSet", "web"))
	require.True(t, s.NamesWorkload("apps", "ReplicaSet", "web"))
	require.True(t, s.NamesWorkload("example.com", "Fleet", "web"))
	require.False(t, s.NamesWorkload("example.org", "Fleet", "web"))
	require.False(t, s.NamesWorkload("", "Fleet", "web"))
	require.False(t, s.NamesWorkload("", "ReplicaSet", "db"))
	require.False(t, s.NamesWorkload("apps", "Deployment", "web"), "it is listed")
	require.False(t, (*Set)(nil).NamesWorkload("", "ReplicaSet", "web"))
}

// For equal priorities the name decides. For different priorities there is no conflict to report.
func TestSet_ConflictingPolicy(t *testing.T) {
	byLabel := inNamespaces(Namespaces{Selector: has{"team", "shop"}})
	labelled := web()
	labelled.NamespaceLabels = map[string]string{"team": "shop"}
	unknown := web()
	unknown.NamespaceLabels = nil
	for _, tc := range []struct {
		name     string
		policies []Policy
		workload Workload
		want     string
	}{
		{name: "single policy", policies: []Policy{policy("a")}, workload: web()},
		{name: "same priority", policies: []Policy{policy("b"), policy("a"), policy("c", priority(100))}, workload: web(), want: "b"},
		{name: "lower priority", policies: []Policy{policy("a"), policy("b", priority(99))}, workload: web()},
		{name: "policy without workloads", policies: []Policy{policy("a"), policy("b", forWorkloads())}, workload: web()},
		{name: "selected by label", policies: []Policy{policy("a"), policy("b", byLabel)}, workload: labelled, want: "b"},
		{name: "unknown namespace labels", policies: []Policy{policy("a"), policy("b", byLabel)}, workload: unknown},
		{
			name:     "third policy selects despite unknown labels",
			policies: []Policy{policy("a"), policy("b", byLabel), policy("c")}, workload: unknown, want: "c",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			responsible := tc.policies[0]
			for _, p := range tc.policies {
				if p.Name == "a" {
					responsible = p
				}
			}
			responsible.Priority = 100
			// Also for a policy from another Set.
			require.Equal(t, tc.want, NewSet(tc.policies, Options{}).ConflictingPolicy(&responsible, tc.workload))
		})
	}
}
