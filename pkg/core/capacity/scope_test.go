package capacity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCovers(t *testing.T) {
	class := func(o ScopeOperator, names ...string) []ScopeRule { return []ScopeRule{{PriorityClass, o, names}} }
	only := func(names ...ScopeName) (rules []ScopeRule) {
		for _, name := range names {
			rules = append(rules, ScopeRule{Scope: name, Operator: Exists})
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
		"BestEffort":                {only(BestEffort), nil},
		"NotBestEffort":             {only(NotBestEffort), all},
		"Terminating":               {only(Terminating), []PodTraits{job}},
		"NotTerminating":            {only(NotTerminating), []PodTraits{plain, high, abroad}},
		"two":                       {only(NotTerminating, NotBestEffort), []PodTraits{plain, high, abroad}},
		"two that exclude":          {only(NotTerminating, BestEffort), nil},
		"CrossNamespacePodAffinity": {only(CrossNamespacePodAffinity), []PodTraits{abroad}},
		"any class":                 {only(PriorityClass), []PodTraits{high}},
		"In":                        {class(In, "low", "high"), []PodTraits{high}},
		"In another":                {class(In, "low"), nil},
		"In an empty name":          {class(In, ""), nil},
		"NotIn":                     {class(NotIn, "high"), []PodTraits{plain, job, abroad}},
		"NotIn another":             {class(NotIn, "low"), all},
		"Exists":                    {class(Exists), []PodTraits{high}},
		"DoesNotExist":              {class(DoesNotExist), []PodTraits{plain, job, abroad}},
		"an unknown operator":       {class("Gt", "1"), nil},
		"an unknown scope":          {only("VolumeAttributesClass"), nil},
		"one known, one unknown":    {only(NotBestEffort, "Future"), nil},
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
