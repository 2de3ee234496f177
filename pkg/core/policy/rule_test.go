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
	for _, tc := range []struct {
		name         string
		boost        Boost
		requestsOnly bool
		container    Container
		fitted       resources.List
		most         resources.Amount
		request      resources.Amount
		limit        resources.Amount
	}{
		{
			name:  "factor keeps the proportion of the limit",
			boost: factor(3), container: pair("c", 100, 150, 0, 0), fitted: some(121, 0),
			request: 363, limit: 544,
		},
		{name: "factor of the original request", boost: factor(2), container: pair("c", 100, 200, 0, 0), request: 200, limit: 400},
		{name: "quantity is added", boost: quantity(700), container: pair("c", 100, 0, 0, 0), fitted: some(120, 0), request: 820},
		{
			name:  "boost stays just below a fixed limit",
			boost: quantity(700), requestsOnly: true, container: pair("c", 100, 500, 0, 0), fitted: some(120, 0),
			request: 499,
		},
		{
			name:  "boost reaches a fixed limit of one",
			boost: quantity(700), requestsOnly: true, container: pair("c", 1, 1, 0, 0), fitted: some(1, 0),
			request: 1,
		},
		{
			name:  "boost below a fixed limit",
			boost: quantity(100), requestsOnly: true, container: pair("c", 100, 500, 0, 0), fitted: some(120, 0),
			request: 220,
		},
		{
			name:  "maximum of the process",
			boost: factor(4), container: pair("c", 400, 0, 0, 0), fitted: some(500, 0), most: 900,
			request: 900,
		},
		{name: "no request to start from", boost: factor(4), container: pair("c", 0, 300, 0, 0)},
		{name: "factor saturates", boost: factor(1 << 40), container: pair("c", 1<<40, 0, 0, 0), request: 1<<63 - 1},
		{name: "requests only without a limit", boost: factor(2), requestsOnly: true, container: pair("c", 100, 0, 0, 0), request: 200},
		{
			name:  "namespace default does not count",
			boost: factor(2), container: pair("c", 100, 0, 0, 0), fitted: some(150, 0),
			request: 300,
		},
		{
			name:  "limit follows without an original request",
			boost: factor(2), container: pair("c", 0, 300, 0, 0), fitted: some(100, 0),
			request: 200, limit: 200,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Default()
			r.Boost, r.RequestsOnly = tc.boost, tc.requestsOnly
			got, err := r.ApplyBoost(tc.container, ContainerTarget{Name: "c", Requests: tc.fitted}, tc.most)
			require.NoError(t, err)
			require.True(t, got.Requests.Has(resources.CPU))
			require.Equal(t, tc.request, got.Requests.Value(resources.CPU))
			require.Equal(t, tc.limit, got.Limits.Value(resources.CPU))
		})
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
