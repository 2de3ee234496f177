package policy

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// member is what one container contributes to the sums of its pod for one
// kind: a request, and a limit that follows the request.
type member struct {
	name           string
	value          resources.Amount // the request
	least, most    resources.Amount // bounds of value
	limit, request resources.Amount // the pair whose proportion is kept; limit 0: no limit
	free           bool             // value may be changed
	pinned         bool             // the limit does not follow the request
	moved          bool             // balance changed value
	met            bool             // scaling moved value to a bound, where it stays
	rest           uint64           // what rounding dropped of its share
	notes          []Note           // why enclose changed value
}

// requestNow is the current value.
func (m *member) requestNow() resources.Amount { return m.value }

// limitNow is the limit that goes with the current value.
func (m *member) limitNow() resources.Amount {
	if m.pinned {
		return m.limit
	}
	limit, _ := scaleLimit(m.limit, m.request, m.value)
	return limit
}

// enclose moves the member into the bounds of the container range, of the
// rule, and of a limit that stays, and remembers those bounds for balance.
func (m *member) enclose(p *problem, i int, k resources.Kind) {
	part := &p.parts[i]
	rangeLeast, rangeMost := p.ranges.requestBounds(part.container, k, part.keeps[k])
	ceiling := resources.Amount(0)
	if part.keeps[k] {
		ceiling = part.container.Limits.Value(k)
	}
	steps := [...]struct {
		least, most       resources.Amount
		onRaised, onLower Reason
	}{
		{rangeLeast, rangeMost, RaisedToRange, CutToRange},
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
		m.least, _ = clamp(m.least, s.least, s.most)
		m.most, _ = clamp(m.most, s.least, s.most)
	}
}

// balance moves the requests of the free members until the sums of requests and of limits respect a pod range, as far
// as that is possible: up to the minimum, or down to the maximum, in proportion. A bound of 0 or below is none.
func balance(members []member, k resources.Kind, least, most resources.Amount) {
	requests, limits := sums(members)
	switch {
	case least > 0 && requests < least:
		scale(members, scaling{kind: k, total: least, up: true, of: (*member).requestNow})
	case limits == 0:
	case least > 0 && limits < least:
		scale(members, scaling{kind: k, total: least, up: true, limits: true, of: (*member).limitNow})
	case most > 0 && limits > most:
		scale(members, scaling{kind: k, total: most, limits: true, of: (*member).limitNow})
	}
}

func sums(members []member) (requests, limits resources.Amount) {
	for i := range members {
		requests, limits = requests.Add(members[i].value), limits.Add(members[i].limitNow())
	}
	return requests, limits
}

// scaling is one way to move a sum.
type scaling struct {
	kind   resources.Kind
	total  resources.Amount               // what the sum should become
	of     func(*member) resources.Amount // what is summed
	limits bool                           // limits are summed, not requests
	up     bool
}

// mostRounds is how often the members that met a bound are set aside. A pod needs a
// round for each container at most, and seldom more than two; the bound keeps the work
// for a pod made to need many of them in proportion to its containers.
const mostRounds = 64

// scale multiplies the members that can move by one factor, so that the sum becomes total. A member that meets its own
// bound stays there and the others share the rest. Where the others cannot make up for it nothing is changed. The work
// is in proportion to the number of members, the sorting in finish excepted.
func scale(members []member, s scaling) {
	before := make([]resources.Amount, len(members))
	active := make([]int, 0, len(members))
	var aside resources.Amount // sum of the members that are not active
	for i := range members {
		m := &members[i]
		before[i], m.met = m.value, false
		if m.free && m.value > 0 && (!s.limits || m.limit > 0 && !m.pinned) {
			active = append(active, i)
		} else {
			aside = aside.Add(s.of(m))
		}
	}
	ended := false
	for round := 0; !ended; round++ {
		met, ok := s.share(members, active, s.total-aside)
		if !ok || round == mostRounds {
			for i := range members {
				members[i].value = before[i]
			}
			return
		}
		active = slices.DeleteFunc(active, func(i int) bool {
			if members[i].met {
				aside = aside.Add(s.of(&members[i]))
			}
			return members[i].met
		})
		ended = !met
	}
	s.finish(members, active)
	for i := range members {
		members[i].moved = members[i].moved || members[i].value != before[i]
	}
}

// share gives the active members their part of the total. If some of them meet a bound it moves and marks only those,
// and reports that. It fails when the members that are not active leave nothing to share.
func (s scaling) share(members []member, active []int, total resources.Amount) (met, ok bool) {
	var part resources.Amount
	for _, i := range active {
		part = part.Add(s.of(&members[i]))
	}
	if total <= 0 || part <= 0 {
		return false, false
	}
	shares := make([]resources.Amount, len(active))
	for at, i := range active {
		m := &members[i]
		share, _ := m.value.Proportion(total, part)
		m.rest = uint64(m.value)*uint64(total) - uint64(share)*uint64(part)
		if m.rest > 0 && s.kind == resources.CPU && s.up && !s.limits {
			share = share.Add(1) // every container rounds up, as in the reference VPA
		}
		shares[at] = min(max(share, m.least, 1), m.most)
		if shares[at] != max(share, 1) {
			m.value, m.met, met = shares[at], true, true
		}
	}
	if !met {
		for at, i := range active {
			members[i].value = shares[at]
		}
	}
	return met, true
}

// finish corrects what rounding left over, one unit for each member, the largest remainder first, so that a minimum is
// met to the unit. (The reference VPA can end some bytes below it, and the API server refuses the pod.)
func (s scaling) finish(members []member, active []int) {
	slices.SortFunc(active, func(a, b int) int {
		return cmp.Or(cmp.Compare(members[b].rest, members[a].rest), cmp.Compare(members[a].name, members[b].name))
	})
	if !s.up {
		slices.Reverse(active)
	}
	var sum resources.Amount
	for i := range members {
		sum = sum.Add(s.of(&members[i]))
	}
	for range 2 { // rounding of requests and rounding of limits
		for _, i := range active {
			m := &members[i]
			before := s.of(m)
			switch {
			case s.up && sum < s.total && m.value < m.most:
				m.value++
			case !s.up && sum > s.total && m.value > max(m.least, 1):
				m.value--
			}
			sum = sum.Add(s.of(m) - before)
		}
	}
}
