package policy

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

// naiveScaling recomputes each sum whenever it is needed.
type naiveScaling struct {
	kind       resources.Kind
	total      resources.Amount
	limits, up bool
}

func (s naiveScaling) of(m member) resources.Amount {
	if s.limits {
		return m.currentLimit()
	}
	return m.currentRequest()
}

// naiveScale multiplies the movable members by one factor, so that their sum becomes total. A
// member that reaches its own bound stays there and the others share the remainder. If they cannot
// reach the total, nothing changes.
func naiveScale(members []member, s naiveScaling) {
	before := make([]resources.Amount, len(members))
	active := make([]int, 0, len(members))
	for i, m := range members {
		before[i] = m.value
		if m.free && m.value > 0 && (!s.limits || m.limit > 0 && !m.pinned) {
			active = append(active, i)
		}
	}
	for {
		met, ok := s.share(members, active)
		if !ok {
			for i := range members {
				members[i].value = before[i]
			}
			return
		}
		if len(met) == 0 {
			break
		}
		active = slices.DeleteFunc(active, func(i int) bool { return slices.Contains(met, i) })
	}
	s.finish(members, active)
	for i := range members {
		members[i].moved = members[i].moved || members[i].value != before[i]
	}
}

func (s naiveScaling) share(members []member, active []int) (met []int, ok bool) {
	var all, part resources.Amount
	for _, m := range members {
		all = all.Add(s.of(m))
	}
	for _, i := range active {
		part = part.Add(s.of(members[i]))
	}
	total := s.total.Add(part - all)
	if total <= 0 || part <= 0 {
		return nil, false
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
			m.value = shares[at]
			met = append(met, i)
		}
	}
	if len(met) == 0 {
		for at, i := range active {
			members[i].value = shares[at]
		}
	}
	return met, true
}

// finish corrects the rounding remainder by one unit per member, largest remainder first. The
// reference VPA can end some bytes below a minimum, and the API server refuses the pod.
func (s naiveScaling) finish(members []member, active []int) {
	slices.SortFunc(active, func(a, b int) int {
		return cmp.Or(cmp.Compare(members[b].remainder, members[a].remainder), cmp.Compare(members[a].name, members[b].name))
	})
	if !s.up {
		slices.Reverse(active)
	}
	for range 2 { // rounding of requests and of limits
		for _, i := range active {
			var sum resources.Amount
			for _, m := range members {
				sum = sum.Add(s.of(m))
			}
			switch m := &members[i]; {
			case s.up && sum < s.total && m.value < m.maxValue:
				m.value++
			case !s.up && sum > s.total && m.value > max(m.minValue, 1):
				m.value--
			}
		}
	}
}

func drawMembers(t *rapid.T) []member {
	value := func(label string) resources.Amount {
		return resources.Amount(rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<34)).Draw(t, label))
	}
	members := make([]member, rapid.IntRange(0, 12).Draw(t, "members"))
	for i := range members {
		least, limit := value("least"), value("limit") // no sum saturates
		members[i] = member{name: string(rune('a' + i)), value: value("value"), minValue: least, maxValue: least + value("room"),
			limit: limit, request: limit / resources.Amount(rapid.IntRange(1, 16).Draw(t, "ratio")), free: rapid.IntRange(0, 3).Draw(t, "free") > 0, pinned: rapid.IntRange(0, 4).Draw(t, "pinned") == 0}
	}
	return members
}

func TestScale_MatchesNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		want := naiveScaling{kind: resources.Kind(rapid.IntRange(0, resources.Kinds-1).Draw(t, "kind")), limits: rapid.Bool().Draw(t, "limits"), up: rapid.Bool().Draw(t, "up"),
			total: resources.Amount(rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 1<<37)).Draw(t, "total"))}
		s := scaling{kind: want.kind, total: want.total, limits: want.limits, up: want.up, amount: (*member).currentRequest}
		if s.limits {
			s.amount = (*member).currentLimit
		}
		naive := slices.Clone(members)
		naiveScale(naive, want)
		scale(members, s)
		for i := range members {
			require.Equal(t, naive[i].value, members[i].value)
			require.Equal(t, naive[i].moved, members[i].moved)
		}
	})
}

func countReads(n int, hard bool) (looks int) {
	members := make([]member, n)
	for i := range members {
		members[i] = member{name: "c", value: 100, maxValue: 1 << 40, limit: 100, request: 100, free: true}
		if hard { // one more member reaches its bound in each round
			members[i].maxValue = 1000 - resources.Amount(n-i)
		}
	}
	scale(members, scaling{kind: resources.CPU, total: resources.Amount(n)*1000 - resources.Amount(n*n)/2, up: true, amount: func(m *member) resources.Amount {
		looks++
		return m.value
	}})
	return looks
}

func TestScale_IsLinearInContainers(t *testing.T) {
	for _, hard := range []bool{false, true} {
		few, many := countReads(200, hard), countReads(2000, hard)
		require.LessOrEqual(t, many, 12*few, "hard: %t", hard)
	}
}
