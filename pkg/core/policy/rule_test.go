package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestRulesFor_Precedence(t *testing.T) {
	named := func(name string, cpu resources.Amount) Entry {
		return Entry{Container: name, Rule: bounded(some(cpu, 0), some(0, 0))}
	}
	r := Rules{Entries: []Entry{named(Wildcard, 1), named("a", 2), named("a", 3), named(Wildcard, 4)}}
	require.Equal(t, some(2, 0), r.For("a").Min, "the first entry with the name wins")
	require.Equal(t, some(4, 0), r.For("b").Min, "the last wildcard wins")
	require.Equal(t, Default(), Rules{}.For("b"))
	require.Equal(t, [resources.Kinds]bool{true, true}, Default().Controlled)
}

func TestRulesLookup_MatchesFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rules{Boost: Boost{Type: BoostFactor, Factor: 2}}
		for range rapid.IntRange(0, 3*linearSearchMax).Draw(t, "entries") {
			e := Entry{Container: rapid.SampledFrom([]string{Wildcard, "a", "b", "c", "d"}).Draw(t, "container"), OwnBoost: rapid.Bool().Draw(t, "own")}
			e.Rule = bounded(some(resources.Amount(rapid.Int64Range(1, 1000).Draw(t, "min")), 0), some(0, 0))
			r.Entries = append(r.Entries, e)
		}
		lookup := r.Lookup()
		for _, container := range []string{"a", "b", "c", "d", "e"} {
			require.Equal(t, r.For(container), lookup(container))
		}
	})
}

func TestRules_OuterMaximumBoundsMinimumAndMaximum(t *testing.T) {
	outer := &Rules{Entries: []Entry{{Container: Wildcard, Rule: bounded(some(0, 0), some(1000, 0))}}}
	for _, tc := range []struct {
		name     string
		own      Rule
		min, max resources.Amount // CPU
	}{
		{name: "none of its own", own: Default(), max: 1000},
		{name: "lower maximum", own: bounded(some(100, 0), some(500, 0)), min: 100, max: 500},
		{name: "higher maximum", own: bounded(some(100, 0), some(5000, 0)), min: 100, max: 1000},
		{name: "higher minimum", own: bounded(some(2000, 0), some(0, 0)), min: 1000, max: 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Rules{Entries: []Entry{{Container: Wildcard, Rule: tc.own}}, Outer: outer}
			for _, rule := range []Rule{r.For("a"), r.Lookup()("a")} {
				require.Equal(t, tc.min, rule.Min.Value(resources.CPU))
				require.Equal(t, tc.max, rule.Max.Value(resources.CPU))
				require.Equal(t, tc.own.Max.Value(resources.Memory), rule.Max.Value(resources.Memory), "memory is not bounded")
			}
		})
	}
}

func TestRulesFor_OwnBoostReplacesPodBoost(t *testing.T) {
	podBoost, own := Boost{Type: BoostFactor, Factor: 2}, Boost{Type: BoostQuantity, Quantity: 100}
	ruled := Default()
	ruled.Boost = own
	r := Rules{Boost: podBoost, Entries: []Entry{{Container: "own", Rule: ruled, OwnBoost: true}, {Container: "plain", Rule: Default()}}}
	require.Equal(t, own, r.For("own").Boost)
	require.Equal(t, podBoost, r.For("plain").Boost)
	require.Equal(t, podBoost, r.For("other").Boost)
}

func TestCap(t *testing.T) {
	b := resources.Bounds{Lower: some(100, 512*mi), Target: some(1100, 1024*mi), Upper: some(6300, 9216*mi)}
	got := Cap(b, bounded(some(500, 3072*mi), some(2000, 0)).WithDefaultMax(some(3000, 2048*mi)))
	require.Equal(t, resources.Bounds{Lower: some(500, 2048*mi), Target: some(1100, 2048*mi), Upper: some(2000, 2048*mi)}, got,
		"the own maximum shadows the global one; the maximum beats the minimum")
	require.Equal(t, b, Cap(b, Default()))
	require.Equal(t, b, Cap(b, bounded(resources.NewList(0, 0), resources.NewList(0, 0))), "a zero bound is none")
	require.Equal(t, resources.Bounds{}, Cap(resources.Bounds{}, bounded(some(1, 1), some(0, 0))), "nothing is added")
}

func TestRange_Combine(t *testing.T) {
	a := Range{Min: some(10, 0), Max: some(1000, 900), Default: some(500, 0)}
	b := Range{Min: some(5, 7), Max: some(1500, 800), Default: some(400, 300)}
	want := Range{Min: some(10, 7), Max: some(1000, 800), Default: some(400, 300)}
	require.Equal(t, want, a.Combine(b))
	require.Equal(t, want, b.Combine(a))
	require.Equal(t, a, a.Combine(Range{Max: resources.NewList(0, 0)}), "a zero maximum is none")
}

func TestApplyBoost(t *testing.T) {
	factor := func(n int64) Boost { return Boost{Type: BoostFactor, Factor: n} }
	quantity := func(a resources.Amount) Boost { return Boost{Type: BoostQuantity, Quantity: a} }
	for name, c := range map[string]struct {
		boost     Boost
		only      bool
		container Container
		fitted    resources.List
		most      resources.Amount
		request   resources.Amount
		limit     resources.Amount
	}{
		"factor keeps the limit's proportion":    {factor(3), false, pair("c", 100, 150, 0, 0), some(121, 0), 0, 363, 544},
		"from the pod's own request":             {factor(2), false, pair("c", 100, 200, 0, 0), some(0, 0), 0, 200, 400},
		"quantity":                               {quantity(700), false, pair("c", 100, 0, 0, 0), some(120, 0), 0, 820, 0},
		"just below a limit that stays":          {quantity(700), true, pair("c", 100, 500, 0, 0), some(120, 0), 0, 499, 0},
		"the limit itself when it is one":        {quantity(700), true, pair("c", 1, 1, 0, 0), some(1, 0), 0, 1, 0},
		"below a limit that stays":               {quantity(100), true, pair("c", 100, 500, 0, 0), some(120, 0), 0, 220, 0},
		"process-wide maximum":                   {factor(4), false, pair("c", 400, 0, 0, 0), some(500, 0), 900, 900, 0},
		"nothing to start from":                  {factor(4), false, pair("c", 0, 300, 0, 0), some(0, 0), 0, 0, 0},
		"a factor cannot overflow":               {factor(1 << 40), false, pair("c", 1<<40, 0, 0, 0), some(0, 0), 0, 1<<63 - 1, 0},
		"requests only without a limit":          {factor(2), true, pair("c", 100, 0, 0, 0), some(0, 0), 0, 200, 0},
		"namespace default does not count":       {factor(2), false, pair("c", 100, 0, 0, 0), some(150, 0), 0, 300, 0},
		"no request: the limit follows directly": {factor(2), false, pair("c", 0, 300, 0, 0), some(100, 0), 0, 200, 200},
	} {
		r := Default()
		r.Boost, r.RequestsOnly = c.boost, c.only
		got, err := r.ApplyBoost(c.container, ContainerTarget{Name: "c", Requests: c.fitted}, c.most)
		require.NoError(t, err, name)
		require.True(t, got.Requests.Has(resources.CPU), name)
		require.Equal(t, c.request, got.Requests.Value(resources.CPU), name)
		require.Equal(t, c.limit, got.Limits.Value(resources.CPU), name)
	}
}

func TestApplyBoost_RejectsInvalidFactor(t *testing.T) {
	r := Default()
	r.Boost = Boost{Type: BoostFactor}
	_, err := r.ApplyBoost(pair("web", 1, 1, 1, 1), ContainerTarget{}, 0)
	require.ErrorIs(t, err, ErrBoost)
	require.ErrorContains(t, err, `container "web": startup boost cannot be computed: factor is 0, must be at least 1`)
}

func TestApplyBoost_IgnoresContainersWithModeOff(t *testing.T) {
	r := Rule{Off: true, Boost: Boost{Type: BoostFactor, Factor: 2}}
	got, err := r.ApplyBoost(pair("c", 1, 1, 1, 1), ContainerTarget{Name: "c"}, 0)
	require.NoError(t, err)
	require.Equal(t, ContainerTarget{Name: "c"}, got)
}
