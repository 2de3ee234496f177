package scope

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCovers(t *testing.T) {
	class := func(o Operator, names ...string) []Rule { return []Rule{{PriorityClass, o, names}} }
	only := func(names ...Name) (rules []Rule) {
		for _, name := range names {
			rules = append(rules, Rule{Scope: name, Operator: Exists})
		}
		return rules
	}
	plain, job, high, abroad := Traits{}, Traits{Terminating: true}, Traits{Class: "high"}, Traits{CrossNamespace: true}
	all := []Traits{plain, job, high, abroad}
	for name, c := range map[string]struct {
		rules  []Rule
		counts []Traits // of all
	}{
		"none":                      {nil, all},
		"BestEffort":                {only(BestEffort), nil},
		"NotBestEffort":             {only(NotBestEffort), all},
		"Terminating":               {only(Terminating), []Traits{job}},
		"NotTerminating":            {only(NotTerminating), []Traits{plain, high, abroad}},
		"two":                       {only(NotTerminating, NotBestEffort), []Traits{plain, high, abroad}},
		"two that exclude":          {only(NotTerminating, BestEffort), nil},
		"CrossNamespacePodAffinity": {only(CrossNamespacePodAffinity), []Traits{abroad}},
		"any class":                 {only(PriorityClass), []Traits{high}},
		"In":                        {class(In, "low", "high"), []Traits{high}},
		"In another":                {class(In, "low"), nil},
		"In an empty name":          {class(In, ""), nil},
		"NotIn":                     {class(NotIn, "high"), []Traits{plain, job, abroad}},
		"NotIn another":             {class(NotIn, "low"), all},
		"Exists":                    {class(Exists), []Traits{high}},
		"DoesNotExist":              {class(DoesNotExist), []Traits{plain, job, abroad}},
		"an unknown operator":       {class("Gt", "1"), nil},
		"an unknown scope":          {only("VolumeAttributesClass"), nil},
		"one known, one unknown":    {only(NotBestEffort, "Future"), nil},
	} {
		var counts []Traits
		for _, traits := range all {
			if Covers(c.rules, traits) {
				counts = append(counts, traits)
			}
		}
		require.Equal(t, c.counts, counts, name)
	}
}
