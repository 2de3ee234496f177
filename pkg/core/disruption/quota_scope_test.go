package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScopesCover(t *testing.T) {
	class := func(o ScopeOperator, names ...string) []ScopeRule {
		return []ScopeRule{{Scope: ScopePriorityClass, Operator: o, Values: names}}
	}
	only := func(names ...ScopeName) (rules []ScopeRule) {
		for _, name := range names {
			rules = append(rules, ScopeRule{Scope: name, Operator: ScopeExists})
		}
		return rules
	}
	plain, job, high, abroad := PodTraits{}, PodTraits{Terminating: true}, PodTraits{Class: "high"}, PodTraits{CrossNamespace: true}
	all := []PodTraits{plain, job, high, abroad}
	for _, tc := range []struct {
		name   string
		rules  []ScopeRule
		counts []PodTraits // of all
	}{
		{name: "no scopes", counts: all},
		{name: "BestEffort", rules: only(ScopeBestEffort)},
		{name: "NotBestEffort", rules: only(ScopeNotBestEffort), counts: all},
		{name: "Terminating", rules: only(ScopeTerminating), counts: []PodTraits{job}},
		{name: "NotTerminating", rules: only(ScopeNotTerminating), counts: []PodTraits{plain, high, abroad}},
		{name: "two scopes", rules: only(ScopeNotTerminating, ScopeNotBestEffort), counts: []PodTraits{plain, high, abroad}},
		{name: "two scopes that exclude each other", rules: only(ScopeNotTerminating, ScopeBestEffort)},
		{name: "CrossNamespacePodAffinity", rules: only(ScopeCrossNamespacePodAffinity), counts: []PodTraits{abroad}},
		{name: "any priority class", rules: only(ScopePriorityClass), counts: []PodTraits{high}},
		{name: "In with the class of a pod", rules: class(ScopeIn, "low", "high"), counts: []PodTraits{high}},
		{name: "In with another class", rules: class(ScopeIn, "low")},
		{name: "In with an empty class", rules: class(ScopeIn, "")},
		{name: "NotIn with the class of a pod", rules: class(ScopeNotIn, "high"), counts: []PodTraits{plain, job, abroad}},
		{name: "NotIn with another class", rules: class(ScopeNotIn, "low"), counts: all},
		{name: "Exists", rules: class(ScopeExists), counts: []PodTraits{high}},
		{name: "DoesNotExist", rules: class(ScopeDoesNotExist), counts: []PodTraits{plain, job, abroad}},
		{name: "unknown operator", rules: class("Gt", "1")},
		{name: "unknown scope", rules: only("VolumeAttributesClass")},
		{name: "known and unknown scope", rules: only(ScopeNotBestEffort, "Future")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var counts []PodTraits
			for _, traits := range all {
				if ScopesCover(tc.rules, traits) {
					counts = append(counts, traits)
				}
			}
			require.Equal(t, tc.counts, counts)
		})
	}
}
