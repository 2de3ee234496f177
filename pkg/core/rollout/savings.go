package rollout

import "loadline.dev/loadline/pkg/core/resources"

// Savings is what containers would request less, and more, with their recommendations. The
// two are apart: what one container needs more is no reason to show less of what others
// save. The zero value is that of no container.
type Savings struct {
	Requested resources.List // now
	Less      resources.List // of that, where a recommendation is below
	More      resources.List // in addition to it, where one is above
}

// Add returns the savings with those of a container that runs in so many pods. Kinds that
// are not requested or not recommended do not count.
func (s Savings) Add(requests, target resources.List, replicas int) Savings {
	for k := range resources.Kind(resources.Kinds) {
		request, requested := requests.Get(k)
		wanted, recommended := target.Get(k)
		if !requested || !recommended {
			continue
		}
		s.Requested = plus(k, s.Requested, request, replicas)
		switch {
		case wanted < request:
			s.Less = plus(k, s.Less, request-wanted, replicas)
		case wanted > request:
			s.More = plus(k, s.More, wanted-request, replicas)
		}
	}
	return s
}

func plus(k resources.Kind, list resources.List, a resources.Amount, replicas int) resources.List {
	times, _ := max(a, 0).Proportion(resources.Amount(max(replicas, 0)), 1)
	return list.With(k, list.Value(k).Add(times))
}

// Prices are what resources cost in an hour, in any currency.
type Prices struct {
	Core float64
	GiB  float64
}

// DefaultPrices are those of a cloud without discount, in US dollars.
var DefaultPrices = Prices{Core: 0.031, GiB: 0.004}

// hoursOfMonth is the mean number of hours of a month.
const hoursOfMonth = 730

// Monthly returns what resources cost in a month.
func (p Prices) Monthly(of resources.List) float64 {
	cores, gib := float64(of.Value(resources.CPU))/1000, float64(of.Value(resources.Memory))/(1<<30)
	return (cores*p.Core + gib*p.GiB) * hoursOfMonth
}
