package policy

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// member is the contribution of one container to the sums of its pod for one kind.
type member struct {
	name               string
	value              resources.Amount // request
	minValue, maxValue resources.Amount // bounds of value
	limit, request     resources.Amount // original pair, sets the proportion; limit 0 is no limit
	free               bool             // value may change
	pinned             bool             // the limit does not follow the request
	moved              bool             // balance changed value
	atBound            bool             // scaling moved value to a bound, where it stays
	remainder          uint64           // remainder of its share after rounding
	notes              []Note           // reasons for changes by clampToBounds
}

func (m *member) currentRequest() resources.Amount { return m.value }

func (m *member) currentLimit() resources.Amount {
	if m.pinned {
		return m.limit
	}
	limit, _ := scaleLimit(m.limit, m.request, m.value)
	return limit
}

// clampToBounds moves value, minValue and maxValue into container range, rule and fixed limit.
func (m *member) clampToBounds(p *problem, i int, k resources.Kind) {
	part := &p.parts[i]
	rangeMin, rangeMax := p.ranges.requestBounds(part.container, k, part.fixedLimits[k])
	ceiling := resources.Amount(0)
	if part.fixedLimits[k] {
		ceiling = part.container.Limits.Value(k)
	}
	steps := [...]struct {
		least, most       resources.Amount
		onRaised, onLower Reason
	}{
		{rangeMin, rangeMax, RaisedToRange, CutToRange},
		{part.rule.Min.Value(k), part.rule.Max.Value(k), RaisedToMin, CutToMax},
		{0, ceiling, 0, CutToLimit},
	}
	for _, s := range steps {
		var moved side
		switch m.value, moved = clamp(m.value, s.least, s.most); moved {
		case raised:
			m.notes = append(m.notes, Note{k, s.onRaised})
		case cut:
			m.notes = append(m.notes, Note{k, s.onLower})
		}
		m.minValue, _ = clamp(m.minValue, s.least, s.most)
		m.maxValue, _ = clamp(m.maxValue, s.least, s.most)
	}
}

// balance scales the requests of the free members in proportion until the sums of requests and of
// limits respect a pod range, as far as possible. A bound of 0 or below is no bound.
func balance(members []member, k resources.Kind, minSum, maxSum resources.Amount) {
	requests, limits := sums(members)
	switch {
	case minSum > 0 && requests < minSum:
		scale(members, scaling{kind: k, total: minSum, up: true, amount: (*member).currentRequest})
	case limits == 0:
	case minSum > 0 && limits < minSum:
		scale(members, scaling{kind: k, total: minSum, up: true, limits: true, amount: (*member).currentLimit})
	case maxSum > 0 && limits > maxSum:
		scale(members, scaling{kind: k, total: maxSum, limits: true, amount: (*member).currentLimit})
	}
}

func sums(members []member) (requests, limits resources.Amount) {
	for i := range members {
		requests, limits = requests.Add(members[i].value), limits.Add(members[i].currentLimit())
	}
	return requests, limits
}

type scaling struct {
	kind   resources.Kind
	total  resources.Amount               // desired sum
	amount func(*member) resources.Amount // term of a member in the sum
	limits bool                           // sums limits, not requests
	up     bool
}

// maxRounds bounds the work of scale for hostile pods. A pod rarely needs more than two rounds.
const maxRounds = 64

// scale multiplies the movable members by one factor, so that the sum becomes total. A member that
// reaches its bound stays there, and the others compensate. If they cannot, nothing changes.
func scale(members []member, s scaling) {
	before := make([]resources.Amount, len(members))
	active := make([]int, 0, len(members))
	var inactiveSum resources.Amount // sum of the inactive members
	for i := range members {
		m := &members[i]
		before[i], m.atBound = m.value, false
		if m.free && m.value > 0 && (!s.limits || m.limit > 0 && !m.pinned) {
			active = append(active, i)
		} else {
			inactiveSum = inactiveSum.Add(s.amount(m))
		}
	}
	ended := false
	for round := 0; !ended; round++ {
		met, ok := s.share(members, active, s.total-inactiveSum)
		if !ok || round == maxRounds {
			for i := range members {
				members[i].value = before[i]
			}
			return
		}
		active = slices.DeleteFunc(active, func(i int) bool {
			if members[i].atBound {
				inactiveSum = inactiveSum.Add(s.amount(&members[i]))
			}
			return members[i].atBound
		})
		ended = !met
	}
	s.finish(members, active)
	for i := range members {
		members[i].moved = members[i].moved || members[i].value != before[i]
	}
}

// share distributes the total over the active members. If some reach a bound, it moves and marks
// only these members and returns met. It fails if the inactive members leave nothing to share.
func (s scaling) share(members []member, active []int, total resources.Amount) (met, ok bool) {
	var part resources.Amount
	for _, i := range active {
		part = part.Add(s.amount(&members[i]))
	}
	if total <= 0 || part <= 0 {
		return false, false
	}
	shares := make([]resources.Amount, len(active))
	for at, i := range active {
		m := &members[i]
		share, _ := m.value.Proportion(total, part)
		m.remainder = uint64(m.value)*uint64(total) - uint64(share)*uint64(part)
		if m.remainder > 0 && s.kind == resources.CPU && s.up && !s.limits {
			share = share.Add(1) // every container rounds up, as in the reference VPA
		}
		shares[at] = min(max(share, m.minValue, 1), m.maxValue)
		if shares[at] != max(share, 1) {
			m.value, m.atBound, met = shares[at], true, true
		}
	}
	if !met {
		for at, i := range active {
			members[i].value = shares[at]
		}
	}
	return met, true
}

// finish corrects rounding by one unit per member, the largest remainder first, so that a minimum
// is met exactly. The reference VPA can end below it, and the API server rejects the pod.
func (s scaling) finish(members []member, active []int) {
	slices.SortFunc(active, func(a, b int) int {
		return cmp.Or(cmp.Compare(members[b].remainder, members[a].remainder), cmp.Compare(members[a].name, members[b].name))
	})
	if !s.up {
		slices.Reverse(active)
	}
	var sum resources.Amount
	for i := range members {
		sum = sum.Add(s.amount(&members[i]))
	}
	for range 2 { // once for the rounding of requests, once for limits
		for _, i := range active {
			m := &members[i]
			before := s.amount(m)
			switch {
			case s.up && sum < s.total && m.value < m.maxValue:
				m.value++
			case !s.up && sum > s.total && m.value > max(m.minValue, 1):
				m.value--
			}
			sum = sum.Add(s.amount(m) - before)
		}
	}
}
