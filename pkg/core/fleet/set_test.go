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
		"by name":                            {Namespaces{Names: []string{"shop"}}, "shop", nil, true},
		"another name":                       {Namespaces{Names: []string{"shop"}}, "shop2", nil, false},
		"all":                                {Namespaces{Names: []string{"*"}}, "shop", nil, true},
		"by label":                           {Namespaces{Selector: team}, "shop", map[string]string{"team": "shop"}, true},
		"another label":                      {Namespaces{Selector: team}, "shop", map[string]string{"team": "pay"}, false},
		"by name or label":                   {Namespaces{Names: []string{"pay"}, Selector: team}, "shop", map[string]string{"team": "shop"}, true},
		"neither":                            {Namespaces{}, "shop", map[string]string{"team": "shop"}, false},
		"by a label that must not be there":  {Namespaces{Selector: lacks("prod")}, "shop", map[string]string{}, true},
		"its labels are not known":           {Namespaces{Selector: lacks("prod")}, "shop", nil, true},
		"all, excluded":                      {Namespaces{Names: []string{"*"}, Exclude: []string{"shop"}}, "shop", nil, false},
		"by name, excluded":                  {Namespaces{Names: []string{"shop"}, Exclude: []string{"shop"}}, "shop", nil, false},
		"by label, excluded":                 {Namespaces{Selector: team, Exclude: []string{"shop"}}, "shop", map[string]string{"team": "shop"}, false},
		"all, another excluded":              {Namespaces{Names: []string{"*"}, Exclude: []string{"pay"}}, "shop", nil, true},
		"all, of the system":                 {Namespaces{Names: []string{"*"}}, "kube-system", nil, false},
		"all, of the system, public":         {Namespaces{Names: []string{"*"}}, "kube-public", nil, false},
		"all, of the system, leases":         {Namespaces{Names: []string{"*"}}, "kube-node-lease", nil, false},
		"all, the programs' own":             {Namespaces{Names: []string{"*"}}, "loadline", nil, false},
		"by label, of the system":            {Namespaces{Selector: team}, "kube-system", map[string]string{"team": "shop"}, false},
		"by label, the programs' own":        {Namespaces{Selector: team}, "loadline", map[string]string{"team": "shop"}, false},
		"of the system, named":               {Namespaces{Names: []string{"kube-system"}}, "kube-system", nil, true},
		"the programs' own, named":           {Namespaces{Names: []string{"*", "loadline"}}, "loadline", nil, true},
		"of the system, named and excluded":  {Namespaces{Names: []string{"kube-system"}, Exclude: []string{"kube-system"}}, "kube-system", nil, false},
		"a name that begins like the system": {Namespaces{Names: []string{"*"}}, "kube-system-tools", nil, true},
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
		"kind":                    {[]Match{{Group: "apps", Kind: "Deployment"}}, web(), true},
		"another kind":            {[]Match{{Group: "apps", Kind: "StatefulSet"}}, web(), false},
		"one of two":              {[]Match{{Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "Deployment"}}, web(), true},
		"an old group":            {[]Match{{Group: "extensions", Kind: "Deployment"}}, web(), true},
		"no group":                {[]Match{{Kind: "Deployment"}}, web(), true},
		"the kind of another":     {[]Match{{Group: "example.com", Kind: "Deployment"}}, web(), false},
		"a custom kind":           {[]Match{{Group: "argoproj.io", Kind: "Rollout"}}, rollout, true},
		"a custom kind, no group": {[]Match{{Kind: "Rollout"}}, rollout, false},
		"name":                    {[]Match{{Group: "apps", Kind: "Deployment", Name: "web"}}, web(), true},
		"another name":            {[]Match{{Group: "apps", Kind: "Deployment", Name: "db"}}, web(), false},
		"label":                   {[]Match{{Group: "apps", Kind: "Deployment", Selector: has{"tier", "front"}}}, front, true},
		"another label":           {[]Match{{Group: "apps", Kind: "Deployment", Selector: has{"tier", "back"}}}, front, false},
		"label, not the name":     {[]Match{{Group: "apps", Kind: "Deployment", Name: "db", Selector: has{"tier", "front"}}}, front, false},
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
	return outcome{d.Mode, d.Reason, d.GenerateVPA, d.KeepVPA}
}

func TestDecide_PolicyMode(t *testing.T) {
	written, passive, made := VPA{Origin: UserVPA}, VPA{Origin: UserVPA, Passive: true}, VPA{Origin: GeneratedVPA}
	for name, c := range map[string]struct {
		policy Policy
		vpa    VPA
		want   outcome
	}{
		"no VPA, Inherit":      {policy("p", mode(Inherit)), VPA{}, outcome{Inherit, reason.ModeOff, true, true}},
		"no VPA, Observe":      {policy("p", mode(Observe)), VPA{}, outcome{Observe, reason.Observing, true, true}},
		"no VPA, Recommend":    {policy("p", mode(Recommend)), VPA{}, outcome{Recommend, reason.RecommendOnly, true, true}},
		"no VPA, OneShot":      {policy("p", mode(OneShot)), VPA{}, outcome{OneShot, "", true, true}},
		"no VPA, none is made": {policy("p", func(p *Policy) { p.GenerateVPAs = false }), VPA{}, outcome{Auto, "", false, true}},

		"made, Inherit":       {policy("p", mode(Inherit)), made, outcome{Inherit, reason.ModeOff, false, true}},
		"made, Recommend":     {policy("p", mode(Recommend)), made, outcome{Recommend, reason.RecommendOnly, false, true}},
		"made, Canary":        {policy("p", mode(Canary)), made, outcome{Canary, "", false, true}},
		"made, none is made":  {policy("p", func(p *Policy) { p.GenerateVPAs = false }), made, outcome{Auto, "", false, true}},
		"made, paused":        {policy("p", paused), made, outcome{Recommend, reason.PolicyPaused, false, true}},
		"made, not usable":    {policy("p", unusable), made, outcome{Recommend, reason.PolicyUnknown, false, true}},
		"made, both of these": {policy("p", unusable, paused), made, outcome{Recommend, reason.PolicyUnknown, false, true}},

		"a person's, Inherit":     {policy("p", mode(Inherit)), written, outcome{Inherit, "", false, false}},
		"a person's, Observe":     {policy("p", mode(Observe)), written, outcome{Observe, reason.Observing, false, false}},
		"a person's, Recommend":   {policy("p", mode(Recommend)), written, outcome{Recommend, reason.RecommendOnly, false, false}},
		"a person's, Auto":        {policy("p"), written, outcome{Auto, "", false, false}},
		"a person's, paused":      {policy("p", paused), written, outcome{Recommend, reason.PolicyPaused, false, false}},
		"a person's, not usable":  {policy("p", unusable), written, outcome{Recommend, reason.PolicyUnknown, false, false}},
		"a person's Off, Inherit": {policy("p", mode(Inherit)), passive, outcome{Inherit, reason.ModeOff, false, false}},
		"a person's Off, Observe": {policy("p", mode(Observe)), passive, outcome{Observe, reason.ModeOff, false, false}},
		"a person's Off, Auto":    {policy("p"), passive, outcome{Recommend, reason.ModeOff, false, false}},

		"no VPA, paused":      {policy("p", paused), VPA{}, outcome{Recommend, reason.PolicyPaused, false, true}},
		"no VPA, not usable":  {policy("p", unusable), VPA{}, outcome{Recommend, reason.PolicyUnknown, false, true}},
		"Inherit, paused":     {policy("p", mode(Inherit), paused), written, outcome{Recommend, reason.PolicyPaused, false, false}},
		"Inherit, not usable": {policy("p", mode(Inherit), unusable), written, outcome{Recommend, reason.PolicyUnknown, false, false}},
		"Observe, paused":     {policy("p", mode(Observe), paused), made, outcome{Observe, reason.PolicyPaused, false, true}},
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
	for name, c := range map[string]struct {
		policy Policy
		labels map[string]string
		want   bool
	}{
		"Auto":               {policy("p"), nil, true},
		"OneShot":            {policy("p", mode(OneShot)), nil, true},
		"Recommend":          {policy("p", mode(Recommend)), nil, false},
		"Inherit":            {policy("p", mode(Inherit)), nil, false},
		"paused":             {policy("p", paused), nil, false},
		"unusable":           {policy("p", unusable), nil, false},
		"elsewhere":          {policy("p", inNamespaces(Namespaces{Names: []string{"pay"}})), nil, false},
		"by label":           {policy("p", team), map[string]string{"team": "shop"}, true},
		"by another label":   {policy("p", team), map[string]string{}, false},
		"labels not known":   {policy("p", team), nil, true},
		"excluded namespace": {policy("p", inNamespaces(Namespaces{Names: []string{"*"}, Exclude: []string{"shop"}})), nil, false},
	} {
		require.Equal(t, c.want, NewSet([]Policy{policy("a", inNamespaces(Namespaces{})), c.policy}, Options{}).MayChangePods("shop", c.labels), name)
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
	for name, c := range map[string]struct {
		policies []Policy
		of       Workload
		want     string
	}{
		"alone":                    {[]Policy{policy("a")}, web(), ""},
		"the same priority":        {[]Policy{policy("b"), policy("a"), policy("c", priority(100))}, web(), "b"},
		"a weaker one":             {[]Policy{policy("a"), policy("b", priority(99))}, web(), ""},
		"it does not select it":    {[]Policy{policy("a"), policy("b", forWorkloads())}, web(), ""},
		"by label":                 {[]Policy{policy("a"), policy("b", byLabel)}, labelled, "b"},
		"its labels are not known": {[]Policy{policy("a"), policy("b", byLabel)}, unknown, ""},
		"a third one surely does":  {[]Policy{policy("a"), policy("b", byLabel), policy("c")}, unknown, "c"},
	} {
		responsible := c.policies[0]
		for _, p := range c.policies {
			if p.Name == "a" {
				responsible = p
			}
		}
		responsible.Priority = 100
		require.Equal(t, c.want, NewSet(c.policies, Options{}).ConflictingPolicy(&responsible, c.of), name) // also for a policy from another Set
	}
}
