package policy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

const mb = resources.Amount(1e6)

func running(changes ...func(*Sharing)) *Sharing {
	s := &Sharing{Kinds: [resources.Kinds]bool{true, true}}
	for _, change := range changes {
		change(s)
	}
	return s
}

func created(changes ...func(*Sharing)) *Sharing {
	return running(append(changes, func(s *Sharing) { s.New = true })...)
}

func removing(s *Sharing)   { s.CPULimit = sharing.RemoveLimit }
func ofDaemon(s *Sharing)   { s.Daemon = true }
func withoutMB(s *Sharing)  { s.Kinds[resources.Memory] = false }
func withoutCPU(s *Sharing) { s.Kinds[resources.CPU] = false }

func onNode(cpu resources.Amount) func(*Sharing) {
	return func(s *Sharing) { s.CPULimit, s.NodeCPU = sharing.NodeLimit, cpu }
}

// shared returns the target of a container that shares CPU and memory.
func shared(s *Sharing, c Container, b resources.Bounds, rule Rule, ranges Ranges) ContainerTarget {
	r := rules(rule)
	r.Sharing = s
	return Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{c.Name: b}, r, ranges).Containers[0]
}

func shareOf(cpu, memory, upper resources.Amount) resources.Bounds {
	return resources.Bounds{Lower: some(cpu, memory), Target: some(cpu, memory), Upper: some(cpu, upper)}
}

func withBase(base resources.Amount, b resources.Bounds) resources.Bounds {
	b.Lower = b.Lower.With(resources.CPU, base)
	return b
}

func TestFit_SharesOfRunningPods(t *testing.T) {
	c := pair("c", 1000, 0, 1000*mb, 0)
	for _, tc := range []struct {
		name             string
		sharing          *Sharing
		container        Container
		given            resources.Bounds
		rule             Rule
		requests, limits resources.List
		notes            []Note
	}{
		{
			name:    "no limits are added",
			sharing: running(), container: c, given: shareOf(750, 500*mb, 600*mb),
			rule: Default(), requests: some(750, 500*mb),
		},
		{
			name:    "CPU limit stays",
			sharing: running(), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(750, 500*mb, 600*mb),
			rule: Default(), requests: some(750, 500*mb),
		},
		{
			name:    "CPU limit cuts the request",
			sharing: running(), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(3000, 500*mb, 600*mb),
			rule: Default(), requests: some(2000, 500*mb),
			notes: []Note{{resources.CPU, CutToLimit}},
		},
		{
			name:    "CPU limit cannot be removed",
			sharing: running(removing), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(750, 500*mb, 600*mb),
			rule: Default(), requests: some(750, 500*mb),
		},
		{
			name:    "CPU limit to be removed becomes the CPU of the node",
			sharing: running(onNode(8000), removing), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(3000, 500*mb, 600*mb),
			rule: Default(), requests: some(3000, 500*mb), limits: some(8000, 0),
		},
		{
			name:    "CPU limit becomes the CPU of the node",
			sharing: running(onNode(8000)), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(3000, 500*mb, 600*mb),
			rule: Default(), requests: some(3000, 500*mb), limits: some(8000, 0),
		},
		{
			name:    "node limit is not added",
			sharing: running(onNode(8000)), container: c, given: shareOf(750, 500*mb, 600*mb),
			rule: Default(), requests: some(750, 500*mb),
		},
		{
			name:    "CPU of the node is unknown",
			sharing: running(onNode(0)), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(750, 500*mb, 600*mb),
			rule: Default(), requests: some(750, 500*mb),
		},
		{
			name:    "at most 10 cores",
			sharing: running(), container: c, given: withBase(4000, shareOf(14000, 500*mb, 600*mb)),
			rule: Default(), requests: some(10000, 500*mb),
		},
		{
			name:    "base above 10 cores is not cut",
			sharing: running(), container: c, given: withBase(12000, shareOf(14000, 500*mb, 600*mb)),
			rule: Default(), requests: some(12000, 500*mb),
		},
		{
			name:    "maxAllowed cuts the base",
			sharing: running(), container: c, given: withBase(12000, shareOf(14000, 500*mb, 600*mb)),
			rule: bounded(resources.List{}, some(11000, 0)), requests: some(11000, 500*mb),
		},
		{
			name:    "at least a millicore and 16 MB",
			sharing: running(), container: c, given: resources.Bounds{Target: resources.NewList(0, 3*mb)},
			rule: Default(), requests: some(1, 16*mb),
		},
		{
			name:    "memory limit is twice the upper bound",
			sharing: running(), container: pair("c", 1000, 0, 1000*mb, 1100*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: Default(), requests: some(750, 500*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "memory limit is never lowered",
			sharing: running(), container: pair("c", 1000, 0, 1000*mb, 5000*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: Default(), requests: some(750, 500*mb), limits: some(0, 5000*mb),
		},
		{
			name:    "memory limit is at least twice the share",
			sharing: running(), container: pair("c", 1000, 0, 100*mb, 110*mb), given: shareOf(750, 500*mb, 200*mb),
			rule: Default(), requests: some(750, 500*mb), limits: some(0, 1000*mb),
		},
		{
			name:    "equal request and limit follow the upper bound",
			sharing: running(), container: pair("c", 1000, 0, 1000*mb, 1000*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: Default(), requests: some(750, 1800*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "equal request and limit are not lowered",
			sharing: running(), container: pair("c", 1000, 0, 1000*mb, 1000*mb), given: shareOf(750, 500*mb, 400*mb),
			rule: Default(), requests: some(750, 0),
		},
		{name: "no request", sharing: running(), container: pair("c", 0, 2000, 0, 0), given: shareOf(750, 500*mb, 900*mb), rule: Default()},
		{
			name:    "fixed limits are noted",
			sharing: running(onNode(8000)), container: pair("c", 1000, 2000, 1000*mb, 1100*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: requestsOnly(), requests: some(750, 500*mb),
			notes: []Note{{resources.CPU, LimitStays}, {resources.Memory, LimitStays}},
		},
		{
			name:    "equal request and fixed limit",
			sharing: running(), container: pair("c", 1000, 0, 1000*mb, 1000*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: requestsOnly(), requests: some(750, 500*mb),
			notes: []Note{{resources.Memory, LimitStays}},
		},
		{
			name:    "minAllowed raises the limit",
			sharing: running(), container: pair("c", 1000, 0, 300*mb, 400*mb), given: shareOf(750, 500*mb, 100*mb),
			rule: bounded(some(900, 800*mb), resources.List{}), requests: some(900, 800*mb), limits: some(0, 1600*mb),
		},
		{
			name:    "maxAllowed",
			sharing: running(), container: c, given: shareOf(750, 500*mb, 900*mb),
			rule: bounded(resources.List{}, some(600, 400*mb)), requests: some(600, 400*mb),
		},
		{
			name:    "only CPU is shared",
			sharing: running(withoutMB), container: pair("c", 1000, 2000, 1000*mb, 2000*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: Default(), requests: some(750, 500*mb), limits: some(0, 1000*mb),
		},
		{
			name:    "CPU limit stays although the CPU of the node is known",
			sharing: running(func(s *Sharing) { s.NodeCPU = 8000 }), container: pair("c", 1000, 2000, 1000*mb, 0),
			given: shareOf(750, 500*mb, 600*mb),
			rule:  Default(), requests: some(750, 500*mb),
		},
		{
			name:    "limit equal to the share is doubled",
			sharing: running(), container: pair("c", 1000, 0, 900*mb, 1000*mb), given: shareOf(750, 1000*mb, 250*mb),
			rule: Default(), requests: some(750, 1000*mb), limits: some(0, 2000*mb),
		},
		{
			name:    "equal request and limit are high enough",
			sharing: running(), container: pair("c", 1000, 0, 1000*mb, 1000*mb), given: shareOf(750, 500*mb, 500*mb),
			rule: Default(), requests: some(750, 1000*mb), limits: some(0, 1000*mb),
		},
		{
			name:    "fixed limits have their target size",
			sharing: running(onNode(8000)), container: pair("c", 1000, 8000, 1000*mb, 1800*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: requestsOnly(), requests: some(750, 500*mb),
		},
		{
			name:    "fixed CPU limit of a running pod needs no note",
			sharing: running(removing), container: pair("c", 1000, 2000, 1000*mb, 0), given: shareOf(750, 500*mb, 600*mb),
			rule: requestsOnly(), requests: some(750, 500*mb),
		},
		{
			name:    "only memory is shared",
			sharing: running(withoutCPU), container: pair("c", 1000, 2000, 1000*mb, 1100*mb), given: shareOf(750, 500*mb, 900*mb),
			rule: Default(), requests: some(750, 500*mb), limits: some(1500, 1800*mb),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := shared(tc.sharing, tc.container, tc.given, tc.rule, Ranges{})
			require.Equal(t, tc.requests, got.Requests)
			require.Equal(t, tc.limits, got.Limits)
			require.Equal(t, tc.notes, got.Notes)
			require.Equal(t, [resources.Kinds]bool{}, got.WithoutLimit)
			for k := range resources.Kind(resources.Kinds) {
				share, ok := got.Requests.Get(k)
				capped := slices.Contains(got.Notes, Note{k, CutToLimit}) || !tc.rule.Min.Empty() || !tc.rule.Max.Empty()
				if ok && tc.sharing.Kinds[k] && !capped {
					require.Equal(t, max(share-sharedTolerance[k], 0), got.Bounds.Lower.Value(k), "bounds move with the share")
					require.Equal(t, share+sharedTolerance[k], got.Bounds.Upper.Value(k))
				} else if !ok && tc.sharing.Kinds[k] {
					require.Equal(t, resources.Bounds{}, only(got.Bounds, k), "no bounds without a share")
				}
			}
		})
	}
	got := shared(running(), pair("c", 1000, 0, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb), Default(), Ranges{})
	require.Equal(t, 1710*mb, got.MemoryLimit.Min, "a limit that is far below is raised at once")
	require.Greater(t, got.MemoryLimit.Max, 1<<40*mi, "and none is too high")
	require.Zero(t, shared(running(), c, shareOf(750, 500*mb, 900*mb), Default(), Ranges{}).MemoryLimit)
	require.Zero(t, shared(running(), pair("c", 1000, 0, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb), requestsOnly(), Ranges{}).MemoryLimit, "a limit that stands has no span")
}

func only(b resources.Bounds, k resources.Kind) resources.Bounds {
	for other := range resources.Kind(resources.Kinds) {
		if other != k {
			b = withoutKind(b, other)
		}
	}
	return b
}

func TestFit_PeaksOfNewPods(t *testing.T) {
	c := pair("c", 2000, 0, 2000*mb, 3000*mb)
	for _, tc := range []struct {
		name             string
		sharing          *Sharing
		container        Container
		given            resources.Bounds
		rule             Rule
		requests, limits resources.List
		limitRemoved     bool
		notes            []Note
	}{
		{
			name:    "CPU limit stays",
			sharing: created(), container: pair("c", 2000, 4000, 2000*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "CPU limit is removed",
			sharing: created(removing), container: pair("c", 2000, 4000, 2000*mb, 3000*mb), given: shareOf(5250, 700*mb, 900*mb),
			rule: Default(), requests: some(5250, 700*mb), limits: some(0, 1800*mb), limitRemoved: true,
		},
		{
			name:    "no node limit before the pod has a node",
			sharing: created(onNode(8000)), container: pair("c", 2000, 4000, 2000*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "memory limit is added",
			sharing: created(), container: pair("c", 2000, 0, 2000*mb, 0), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "memory limit is twice the request",
			sharing: created(), container: c, given: shareOf(1250, 700*mb, 300*mb),
			rule: Default(), requests: some(1250, 700*mb), limits: some(0, 1400*mb),
		},
		{
			name:    "memory limit is at least 512 MB",
			sharing: created(), container: c, given: shareOf(20, 40*mb, 60*mb),
			rule: Default(), requests: some(20, 40*mb), limits: some(0, 512*mb),
		},
		{
			name:    "memory request is at least 16 MB",
			sharing: created(), container: c, given: shareOf(20, 4*mb, 6*mb),
			rule: Default(), requests: some(20, 16*mb), limits: some(0, 512*mb),
		},
		{
			name:    "memory change of 16 MB is ignored",
			sharing: created(), container: pair("c", 2000, 0, 716*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 0),
		},
		{
			name:    "memory change of 17 MB is applied",
			sharing: created(), container: pair("c", 2000, 0, 717*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "low memory limit is raised alone",
			sharing: created(), container: pair("c", 2000, 0, 700*mb, 710*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 0), limits: some(0, 1800*mb),
		},
		{
			name:    "at least a millicore",
			sharing: created(), container: c, given: resources.Bounds{Target: resources.NewList(0, 700*mb), Upper: some(0, 900*mb)},
			rule: Default(), requests: some(1, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "more than 10 cores",
			sharing: created(), container: c, given: shareOf(14000, 700*mb, 900*mb),
			rule: Default(), requests: some(14000, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "equal request and limit may differ",
			sharing: created(), container: pair("c", 2000, 0, 2000*mb, 2000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 700*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "no request",
			sharing: created(removing), container: pair("c", 0, 4000, 0, 0), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(),
		},
		{
			name:    "daemon keeps its requests",
			sharing: created(removing, ofDaemon), container: pair("c", 2000, 4000, 2000*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), limits: some(0, 3000*mb), limitRemoved: true,
		},
		{
			name:    "daemon gets a higher memory limit",
			sharing: created(ofDaemon), container: c, given: shareOf(1250, 700*mb, 1900*mb),
			rule: Default(), limits: some(0, 3800*mb),
		},
		{
			name:    "daemon gets no new memory limit",
			sharing: created(ofDaemon), container: pair("c", 2000, 0, 2000*mb, 0), given: shareOf(1250, 700*mb, 1900*mb),
			rule: Default(),
		},
		{
			name:    "memory limit 16 MB too low stays",
			sharing: created(), container: pair("c", 2000, 0, 700*mb, 1784*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 0),
		},
		{
			name:    "no limit is added to an unchanged request",
			sharing: created(), container: pair("c", 2000, 0, 700*mb, 0), given: shareOf(1250, 700*mb, 900*mb),
			rule: Default(), requests: some(1250, 0),
		},
		{
			name:    "fixed limits need no note",
			sharing: created(), container: pair("c", 2000, 4000, 2000*mb, 1800*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: requestsOnly(), requests: some(1250, 700*mb),
		},
		{
			name:    "fixed limits are noted",
			sharing: created(removing), container: pair("c", 2000, 4000, 2000*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: requestsOnly(), requests: some(1250, 700*mb),
			notes: []Note{{resources.CPU, LimitStays}, {resources.Memory, LimitStays}},
		},
		{
			name:    "mode Off",
			sharing: created(removing), container: pair("c", 2000, 4000, 2000*mb, 3000*mb), given: shareOf(1250, 700*mb, 900*mb),
			rule: Rule{Off: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := shared(tc.sharing, tc.container, tc.given, tc.rule, Ranges{})
			require.Equal(t, tc.requests, got.Requests)
			require.Equal(t, tc.limits, got.Limits)
			require.Equal(t, [resources.Kinds]bool{resources.CPU: tc.limitRemoved}, got.WithoutLimit)
			require.Equal(t, tc.notes, got.Notes)
		})
	}
}

func TestFit_SharingRespectsLimitRanges(t *testing.T) {
	c, given := pair("c", 1000, 2000, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb)
	both := Pod{Containers: []Container{pair("a", 1000, 2000, 1000*mb, 1100*mb), pair("b", 1000, 2000, 1000*mb, 1100*mb)}}
	for _, tc := range []struct {
		name             string
		sharing          *Sharing
		ranges           Ranges
		requests, limits resources.List
		limitRemoved     bool
	}{
		{
			name:    "maximum of the limit",
			sharing: running(onNode(8000)), ranges: ranged(Range{Max: some(4000, 1500*mb)}),
			requests: some(750, 500*mb), limits: some(4000, 1500*mb),
		},
		{
			name:    "ratio raises the request",
			sharing: running(), ranges: ranged(Range{MaxRatio: some(0, 2000)}),
			requests: some(750, 900*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "minimum of the request",
			sharing: running(), ranges: ranged(Range{Min: some(900, 600*mb)}),
			requests: some(900, 600*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "minimum allows removal of the limit",
			sharing: created(removing), ranges: ranged(Range{Min: some(100, 0)}),
			requests: some(750, 500*mb), limits: some(0, 1800*mb), limitRemoved: true,
		},
		{
			name:    "maximum keeps the limit",
			sharing: created(removing), ranges: ranged(Range{Max: some(4000, 0)}),
			requests: some(750, 500*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "ratio keeps the limit",
			sharing: created(removing), ranges: ranged(Range{MaxRatio: some(3000, 0)}),
			requests: some(750, 500*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "default keeps the limit",
			sharing: created(removing), ranges: ranged(Range{Default: some(500, 0)}),
			requests: some(750, 500*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "maximum of the pod keeps the limit",
			sharing: created(removing), ranges: Ranges{Pod: Range{Max: some(4000, 0)}},
			requests: some(750, 500*mb), limits: some(0, 1800*mb),
		},
		{
			name:    "maximum of the pod scales the limits",
			sharing: running(onNode(8000)), ranges: Ranges{Pod: Range{Max: some(3000, 1200*mb)}},
			requests: some(750, 500*mb), limits: some(1500, 550*mb),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := shared(tc.sharing, c, given, Default(), tc.ranges)
			require.False(t, slices.ContainsFunc(got.Notes, Note.Refused), "%v", got.Notes)
			require.Equal(t, tc.requests, got.Requests)
			require.Equal(t, tc.limits, got.Limits)
			require.Equal(t, tc.limitRemoved, got.WithoutLimit[resources.CPU])
		})
	}
	r := Rules{Sharing: running()}
	got := Fit(both, map[string]resources.Bounds{"a": given, "b": given}, r, Ranges{Pod: Range{Max: some(0, 3*1000*mb)}})
	for _, f := range got.Containers {
		require.Equal(t, some(750, 500*mb), f.Requests, "the share is what is left")
		require.Equal(t, 550*mb, f.Limits.Value(resources.Memory), "2 x 1800 MB are too much: the limits follow the requests")
		require.Equal(t, 484*mb, f.Bounds.Lower.Value(resources.Memory), "and the pod moves with its share as others do")
	}
	got = Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": given}, Rules{Sharing: running(onNode(8000), ofDaemon)}, Ranges{Pod: Range{Max: some(3000, 1200*mb)}})
	require.Equal(t, some(750, 500*mb), got.Containers[0].Requests, "a daemon that runs shares like any other pod")
	small := Range{Min: some(3000, 0), Max: some(1000, 0)}
	got = Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": given}, Rules{Sharing: running(onNode(8000))}, ranged(small))
	require.True(t, got.refused(resources.CPU))
	require.Equal(t, some(1000, 1800*mb), got.Containers[0].Limits, "what helps nothing is not done")
	daemons := shared(created(ofDaemon), pair("c", 1000, 0, 1000*mb, 1100*mb), given, Default(), Ranges{Pod: Range{Max: some(0, 1200*mb)}})
	require.Equal(t, some(0, 0), daemons.Requests)
	require.Equal(t, some(0, 0), daemons.Limits, "what is refused is not given to a daemon, which keeps what it has")
}

func TestFit_SharedCPUWithSeparateMemoryLimit(t *testing.T) {
	r := separately(Default())
	r.Sharing = running(withoutMB)
	c := pair("c", 1000, 2000, 100*mi, 150*mi)
	b := follows(60*mi, 120*mi)
	for _, role := range roles(&b) {
		*role = role.With(resources.CPU, 750)
	}
	got := Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": b}, r, Ranges{}).Containers[0]
	require.Equal(t, some(750, 60*mi), got.Requests)
	require.Equal(t, some(0, 180*mi), got.Limits, "the CPU limit stays, that of memory protects 120")
	require.Equal(t, Proportion{100 * mi, 150 * mi}, got.Declared)
	require.Equal(t, resources.Amount(751), got.Bounds.Upper.Value(resources.CPU))

	r.Sharing = running()
	got = Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": b}, r, Ranges{}).Containers[0]
	require.Equal(t, some(0, 240*mi), got.Limits, "shared memory has the limit of that")
	require.Zero(t, got.Declared)

	c = Container{Name: "c", Requests: some(1000, 60*mi), Limits: some(2000, 300*mi), Declared: Proportion{100 * mi, 150 * mi}}
	got = Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": b}, r, Ranges{}).Containers[0]
	require.Equal(t, some(0, 300*mi), got.Limits, "and is not lowered, whatever the container was declared with")
}

func TestApplyBoost_WithSharing(t *testing.T) {
	rule := Default()
	rule.Boost = Boost{Type: BoostFactor, Factor: 3}
	c := pair("c", 2000, 4000, 0, 0)
	for _, tc := range []struct {
		name    string
		sharing *Sharing
		request resources.Amount
	}{
		{name: "below a CPU limit", sharing: created(), request: 3999},
		{name: "removed CPU limit", sharing: created(removing), request: 4500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rule.Sharing = tc.sharing
			f, err := rule.ApplyBoost(c, shared(tc.sharing, c, shareOf(1500, 0, 0), rule, Ranges{}), 0)
			require.NoError(t, err)
			require.Equal(t, some(tc.request, 0), f.Requests)
			require.True(t, f.Limits.Empty())
		})
	}
}

func drawShared(t *rapid.T) (world, *Sharing) {
	d := byteSource{rapid.SliceOfN(rapid.Byte(), 0, 120).Draw(t, "world")}
	w := d.decodeWorld()
	s := &Sharing{
		Kinds:    [resources.Kinds]bool{rapid.Bool().Draw(t, "CPU"), rapid.Bool().Draw(t, "memory")},
		CPULimit: sharing.CPULimit(rapid.IntRange(0, 2).Draw(t, "limit")), NodeCPU: resources.Amount(rapid.Int64Range(0, 64000).Draw(t, "node")),
		New: rapid.Bool().Draw(t, "new"), Daemon: rapid.Bool().Draw(t, "daemon"),
	}
	w.rules.Sharing = s
	return w, s
}

func TestFit_SharingInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, s := drawShared(t)
		result := w.fit()
		mirrored := w
		mirrored.pod.Containers = slices.Clone(w.pod.Containers)
		slices.Reverse(mirrored.pod.Containers)
		other := mirrored.fit()
		slices.Reverse(other.Containers)
		require.Equal(t, result, other)
		w.checkRefusals(t, result)
		for i, f := range result.Containers {
			w.checkShared(t, s, w.pod.Containers[i], f)
		}
		if refused(result) || w.ranges != (Ranges{}) {
			return
		}
		applied := w
		applied.pod = w.after(result)
		again := applied.after(applied.fit())
		require.Equal(t, applied.pod, again)
	})
}

func (w world) checkShared(t *rapid.T, s *Sharing, c Container, f ContainerTarget) {
	for k := range resources.Kind(resources.Kinds) {
		request, limit := amountAfter(f.Requests, c.Requests, k), amountAfter(f.Limits, c.Limits, k)
		if f.WithoutLimit[k] {
			require.True(t, s.New && k == resources.CPU && c.Limits.Value(k) > 0 && !f.Limits.Has(k))
			limit = 0
		}
		require.True(t, limit <= 0 || request <= limit || request == c.Requests.Value(k) && !f.Limits.Has(k), "%s: request %d above limit %d", k, request, limit)
		if !w.rules.For(c.Name).shares(k) || w.ranges != (Ranges{}) {
			continue
		}
		require.False(t, s.New && s.Daemon && f.Requests.Has(k), "a daemon keeps its requests")
		require.False(t, c.Requests.Value(k) <= 0 && (f.Requests.Has(k) || f.Limits.Has(k)), "without request")
		if k == resources.Memory && (!s.New || s.Daemon) && f.Limits.Has(k) {
			require.True(t, c.Limits.Value(k) > 0, "no limit is added")
			require.True(t, f.Limits.Value(k) >= c.Limits.Value(k) || f.Limits.Value(k) == f.Requests.Value(k) && w.rules.For(c.Name).Max.Has(k), "none is lowered")
		}
	}
}
