package quota

import (
	"slices"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

// Change is what became of one kind of one container.
type Change struct {
	Container string
	Kind      amount.Kind
	From, To  amount.Amount // request; equal if no cut makes the pod fit
}

// all is the whole of what is wanted, as a share.
const all amount.Amount = 1 << 20

// Cut returns what the containers of a pod get: what is wanted if it fits, else
// as much of it as fits, but not less than what is least. Where not even that
// fits, they get what is least, for it is nearest. Wanted and least have an
// entry for each container of the pod, in its order. Limits keep their proportion
// to the requests.
func (r Room) Cut(pod policy.Pod, least, wanted []policy.Fitted) ([]policy.Fitted, []Change) {
	if r == (Room{}) {
		return wanted, nil
	}
	cut := slices.Clone(wanted)
	var changes []Change
	for k := range amount.Kind(amount.Kinds) {
		share := r.share(pod, least, wanted, k)
		if share == all {
			continue
		}
		for i := range cut {
			from, ok := wanted[i].Requests.Get(k)
			if !ok {
				continue
			}
			to := between(least[i].Requests, wanted[i].Requests, k, max(share, 0))
			cut[i].Requests = cut[i].Requests.With(k, to)
			if cut[i].Limits.Has(k) {
				cut[i].Limits = cut[i].Limits.With(k, limit(wanted[i], k, to))
			}
			switch {
			case share < 0:
				changes = append(changes, Change{wanted[i].Name, k, to, to})
			case to != from:
				changes = append(changes, Change{wanted[i].Name, k, from, to})
			}
		}
	}
	return cut, changes
}

// share returns the largest part of the way from least to wanted that fits, and
// -1 if not even least does.
func (r Room) share(pod policy.Pod, least, wanted []policy.Fitted, k amount.Kind) amount.Amount {
	fits := func(share amount.Amount) bool {
		var requests, limits amount.Amount
		for i, c := range pod.Containers {
			request, most := max(c.Requests.Value(k), 0), max(c.Limits.Value(k), 0)
			if wanted[i].Requests.Has(k) {
				request = between(least[i].Requests, wanted[i].Requests, k, share)
			}
			if wanted[i].Limits.Has(k) {
				most = limit(wanted[i], k, request)
			}
			requests, limits = requests.Add(request), limits.Add(most)
		}
		return within(requests, r.Requests, k) && within(limits, r.Limits, k)
	}
	if fits(all) {
		return all
	}
	if !fits(0) {
		return -1
	}
	low, high := amount.Amount(0), all // fits, and does not
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

func within(sum amount.Amount, room amount.Resources, k amount.Kind) bool {
	most, bounded := room.Get(k)
	return !bounded || sum <= most
}

// limit returns the limit that is to a request what the wanted one is to its own.
func limit(wanted policy.Fitted, k amount.Kind, request amount.Amount) amount.Amount {
	whole, of := wanted.Limits.Value(k), wanted.Requests.Value(k)
	if of <= 0 {
		return whole
	}
	part, _ := whole.Proportion(request, of)
	return part
}

// between returns the amount at a share of the way from least to wanted. An
// amount that is not more than the least stays as it is.
func between(least, wanted amount.Resources, k amount.Kind, share amount.Amount) amount.Amount {
	low, ok := least.Get(k)
	high := wanted.Value(k)
	if !ok || high <= low {
		return high
	}
	part, _ := (high - low).Proportion(share, all)
	return low + part
}
