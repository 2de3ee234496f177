package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScopesCover(t *testing.T) {
	class := func(o ScopeOperator, names ...string) []ScopeRule { return []ScopeRule{{ScopePriorityClass, o, names}} }
	only := func(names ...ScopeName) (rules []ScopeRule) {
		for _, name := range names {
			rules = append(rules, ScopeRule{Scope: name, Operator: ScopeExists})
		}
		return rules
	}
	plain, job, high, abroad := PodTraits{}, PodTraits{Terminating: true}, PodTraits{Class: "high"}, PodTraits{CrossNamespace: true}
	all := []PodTraits{plain, job, high, abroad}
	for name, c := range map[string]struct {
		rules  []ScopeRule
		counts []PodTraits // of all
	}{
		"none":                      {nil, all},
		"BestEffort":                {only(ScopeBestEffort), nil},
		"NotBestEffort":             {only(ScopeNotBestEffort), all},
		"Terminating":               {only(ScopeTerminating), []PodTraits{job}},
		"NotTerminating":            {only(ScopeNotTerminating), []PodTraits{plain, high, abroad}},
		"two":                       {only(ScopeNotTerminating, ScopeNotBestEffort), []PodTraits{plain, high, abroad}},
		"two that exclude":          {only(ScopeNotTerminating, ScopeBestEffort), nil},
		"CrossNamespacePodAffinity": {only(ScopeCrossNamespacePodAffinity), []PodTraits{abroad}},
		"any class":                 {only(ScopePriorityClass), []PodTraits{high}},
		"In":                        {class(ScopeIn, "low", "high"), []PodTraits{high}},
		"In another":                {class(ScopeIn, "low"), nil},
		"In an empty name":          {class(ScopeIn, ""), nil},
		"NotIn":                     {class(ScopeNotIn, "high"), []PodTraits{plain, job, abroad}},
		"NotIn another":             {class(ScopeNotIn, "low"), all},
		"Exists":                    {class(ScopeExists), []PodTraits{high}},
		"DoesNotExist":              {class(ScopeDoesNotExist), []PodTraits{plain, job, abroad}},
		"an unknown operator":       {class("Gt", "1"), nil},
		"an unknown scope":          {only("VolumeAttributesClass"), nil},
		"one known, one unknown":    {only(ScopeNotBestEffort, "Future"), nil},
	} {
		var counts []PodTraits
		for _, traits := range all {
			if ScopesCover(c.rules, traits) {
				counts = append(counts, traits)
			}
		}
		require.Equal(t, c.counts, counts, name)
	}
}
