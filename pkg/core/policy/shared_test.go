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
	for name, test := range map[string]struct {
		sharing          *Sharing
		container        Container
		given            resources.Bounds
		rule             Rule
		requests, limits resources.List
		notes            []Note
	}{
		"no limits, none added":                {running(), c, shareOf(750, 500*mb, 600*mb), Default(), some(750, 500*mb), some(0, 0), nil},
		"a CPU limit stays":                    {running(), pair("c", 1000, 2000, 1000*mb, 0), shareOf(750, 500*mb, 600*mb), Default(), some(750, 500*mb), some(0, 0), nil},
		"and cuts the request":                 {running(), pair("c", 1000, 2000, 1000*mb, 0), shareOf(3000, 500*mb, 600*mb), Default(), some(2000, 500*mb), some(0, 0), []Note{{resources.CPU, CutToLimit}}},
		"it cannot be removed":                 {running(removing), pair("c", 1000, 2000, 1000*mb, 0), shareOf(750, 500*mb, 600*mb), Default(), some(750, 500*mb), some(0, 0), nil},
		"so it becomes that of the node":       {running(onNode(8000), removing), pair("c", 1000, 2000, 1000*mb, 0), shareOf(3000, 500*mb, 600*mb), Default(), some(3000, 500*mb), some(8000, 0), nil},
		"it becomes that of the node":          {running(onNode(8000)), pair("c", 1000, 2000, 1000*mb, 0), shareOf(3000, 500*mb, 600*mb), Default(), some(3000, 500*mb), some(8000, 0), nil},
		"but none is added":                    {running(onNode(8000)), c, shareOf(750, 500*mb, 600*mb), Default(), some(750, 500*mb), some(0, 0), nil},
		"and none of a node that is not known": {running(onNode(0)), pair("c", 1000, 2000, 1000*mb, 0), shareOf(750, 500*mb, 600*mb), Default(), some(750, 500*mb), some(0, 0), nil},
		"at most 10 cores":                     {running(), c, withBase(4000, shareOf(14000, 500*mb, 600*mb)), Default(), some(10000, 500*mb), some(0, 0), nil},
		"but no less than the base":            {running(), c, withBase(12000, shareOf(14000, 500*mb, 600*mb)), Default(), some(12000, 500*mb), some(0, 0), nil},
		"and maxAllowed":                       {running(), c, withBase(12000, shareOf(14000, 500*mb, 600*mb)), bounded(resources.List{}, some(11000, 0)), some(11000, 500*mb), some(0, 0), nil},
		"at least a millicore and 16 MB":       {running(), c, resources.Bounds{Target: resources.NewList(0, 3*mb)}, Default(), some(1, 16*mb), some(0, 0), nil},
		"twice the upper bound":                {running(), pair("c", 1000, 0, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb), Default(), some(750, 500*mb), some(0, 1800*mb), nil},
		"never a lower limit":                  {running(), pair("c", 1000, 0, 1000*mb, 5000*mb), shareOf(750, 500*mb, 900*mb), Default(), some(750, 500*mb), some(0, 5000*mb), nil},
		"no less than the request":             {running(), pair("c", 1000, 0, 100*mb, 110*mb), shareOf(750, 500*mb, 200*mb), Default(), some(750, 500*mb), some(0, 1000*mb), nil},
		"equal: both":                          {running(), pair("c", 1000, 0, 1000*mb, 1000*mb), shareOf(750, 500*mb, 900*mb), Default(), some(750, 1800*mb), some(0, 1800*mb), nil},
		"equal: nothing that is lower":         {running(), pair("c", 1000, 0, 1000*mb, 1000*mb), shareOf(750, 500*mb, 400*mb), Default(), some(750, 0), some(0, 0), nil},
		"no request, nothing":                  {running(), pair("c", 0, 2000, 0, 0), shareOf(750, 500*mb, 900*mb), Default(), some(0, 0), some(0, 0), nil},
		"limits that stand":                    {running(onNode(8000)), pair("c", 1000, 2000, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb), requestsOnly(), some(750, 500*mb), some(0, 0), []Note{{resources.CPU, LimitStays}, {resources.Memory, LimitStays}}},
		"equal, but limits stand":              {running(), pair("c", 1000, 0, 1000*mb, 1000*mb), shareOf(750, 500*mb, 900*mb), requestsOnly(), some(750, 500*mb), some(0, 0), []Note{{resources.Memory, LimitStays}}},
		"minAllowed, and the limit for it":     {running(), pair("c", 1000, 0, 300*mb, 400*mb), shareOf(750, 500*mb, 100*mb), bounded(some(900, 800*mb), resources.List{}), some(900, 800*mb), some(0, 1600*mb), nil},
		"maxAllowed":                           {running(), c, shareOf(750, 500*mb, 900*mb), bounded(resources.List{}, some(600, 400*mb)), some(600, 400*mb), some(0, 0), nil},
		"CPU alone: memory as of any pod":      {running(withoutMB), pair("c", 1000, 2000, 1000*mb, 2000*mb), shareOf(750, 500*mb, 900*mb), Default(), some(750, 500*mb), some(0, 1000*mb), nil},
		"the node's is one of many":            {running(func(s *Sharing) { s.NodeCPU = 8000 }), pair("c", 1000, 2000, 1000*mb, 0), shareOf(750, 500*mb, 600*mb), Default(), some(750, 500*mb), some(0, 0), nil},
		"a limit equal to the share":           {running(), pair("c", 1000, 0, 900*mb, 1000*mb), shareOf(750, 1000*mb, 250*mb), Default(), some(750, 1000*mb), some(0, 2000*mb), nil},
		"equal, and enough":                    {running(), pair("c", 1000, 0, 1000*mb, 1000*mb), shareOf(750, 500*mb, 500*mb), Default(), some(750, 1000*mb), some(0, 1000*mb), nil},
		"a limit that stands as it should be":  {running(onNode(8000)), pair("c", 1000, 8000, 1000*mb, 1800*mb), shareOf(750, 500*mb, 900*mb), requestsOnly(), some(750, 500*mb), some(0, 0), nil},
		"nobody wants to remove one":           {running(removing), pair("c", 1000, 2000, 1000*mb, 0), shareOf(750, 500*mb, 600*mb), requestsOnly(), some(750, 500*mb), some(0, 0), nil},
		"memory alone: CPU as of any pod":      {running(withoutCPU), pair("c", 1000, 2000, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb), Default(), some(750, 500*mb), some(1500, 1800*mb), nil},
	} {
		got := shared(test.sharing, test.container, test.given, test.rule, Ranges{})
		require.Equal(t, test.requests, got.Requests, name)
		require.Equal(t, test.limits, got.Limits, name)
		require.Equal(t, test.notes, got.Notes, name)
		require.Equal(t, [resources.Kinds]bool{}, got.WithoutLimit, name)
		for k := range resources.Kind(resources.Kinds) {
			if share, ok := got.Requests.Get(k); ok && test.sharing.Kinds[k] && !slices.Contains(got.Notes, Note{k, CutToLimit}) && test.rule.Min.Empty() && test.rule.Max.Empty() {
				require.Equal(t, max(share-sharedTolerance[k], 0), got.Bounds.Lower.Value(k), "%s: it moves when its share has", name)
				require.Equal(t, share+sharedTolerance[k], got.Bounds.Upper.Value(k), name)
			} else if !ok && test.sharing.Kinds[k] {
				require.Equal(t, resources.Bounds{}, only(got.Bounds, k), "%s: what it gets nothing of has no bounds", name)
			}
		}
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
	for name, test := range map[string]struct {
		sharing          *Sharing
		container        Container
		given            resources.Bounds
		rule             Rule
		requests, limits resources.List
		without          bool
		notes            []Note
	}{
		"a CPU limit stays":                  {created(), pair("c", 2000, 4000, 2000*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 700*mb), some(0, 1800*mb), false, nil},
		"a CPU limit goes":                   {created(removing), pair("c", 2000, 4000, 2000*mb, 3000*mb), shareOf(5250, 700*mb, 900*mb), Default(), some(5250, 700*mb), some(0, 1800*mb), true, nil},
		"that of no node yet":                {created(onNode(8000)), pair("c", 2000, 4000, 2000*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 700*mb), some(0, 1800*mb), false, nil},
		"a memory limit is added":            {created(), pair("c", 2000, 0, 2000*mb, 0), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 700*mb), some(0, 1800*mb), false, nil},
		"twice the request":                  {created(), c, shareOf(1250, 700*mb, 300*mb), Default(), some(1250, 700*mb), some(0, 1400*mb), false, nil},
		"at least 512 MB":                    {created(), c, shareOf(20, 40*mb, 60*mb), Default(), some(20, 40*mb), some(0, 512*mb), false, nil},
		"at least 16 MB":                     {created(), c, shareOf(20, 4*mb, 6*mb), Default(), some(20, 16*mb), some(0, 512*mb), false, nil},
		"no change of 16 MB":                 {created(), pair("c", 2000, 0, 716*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 0), some(0, 0), false, nil},
		"but one of 17":                      {created(), pair("c", 2000, 0, 717*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 700*mb), some(0, 1800*mb), false, nil},
		"and of a limit that is low":         {created(), pair("c", 2000, 0, 700*mb, 710*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 0), some(0, 1800*mb), false, nil},
		"at least a millicore":               {created(), c, resources.Bounds{Target: resources.NewList(0, 700*mb), Upper: some(0, 900*mb)}, Default(), some(1, 700*mb), some(0, 1800*mb), false, nil},
		"and more than 10 cores":             {created(), c, shareOf(14000, 700*mb, 900*mb), Default(), some(14000, 700*mb), some(0, 1800*mb), false, nil},
		"equal need not stay":                {created(), pair("c", 2000, 0, 2000*mb, 2000*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 700*mb), some(0, 1800*mb), false, nil},
		"no request, nothing":                {created(removing), pair("c", 0, 4000, 0, 0), shareOf(1250, 700*mb, 900*mb), Default(), some(0, 0), some(0, 0), false, nil},
		"a daemon keeps its requests":        {created(removing, ofDaemon), pair("c", 2000, 4000, 2000*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(0, 0), some(0, 3000*mb), true, nil},
		"and gets a higher limit":            {created(ofDaemon), c, shareOf(1250, 700*mb, 1900*mb), Default(), some(0, 0), some(0, 3800*mb), false, nil},
		"but no other":                       {created(ofDaemon), pair("c", 2000, 0, 2000*mb, 0), shareOf(1250, 700*mb, 1900*mb), Default(), some(0, 0), some(0, 0), false, nil},
		"a limit 16 MB too low stays":        {created(), pair("c", 2000, 0, 700*mb, 1784*mb), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 0), some(0, 0), false, nil},
		"no limit for a request that stays":  {created(), pair("c", 2000, 0, 700*mb, 0), shareOf(1250, 700*mb, 900*mb), Default(), some(1250, 0), some(0, 0), false, nil},
		"limits that nobody wants to remove": {created(), pair("c", 2000, 4000, 2000*mb, 1800*mb), shareOf(1250, 700*mb, 900*mb), requestsOnly(), some(1250, 700*mb), some(0, 0), false, nil},
		"limits that stand": {created(removing), pair("c", 2000, 4000, 2000*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), requestsOnly(), some(1250, 700*mb), some(0, 0), false,
			[]Note{{resources.CPU, LimitStays}, {resources.Memory, LimitStays}}},
		"off": {created(removing), pair("c", 2000, 4000, 2000*mb, 3000*mb), shareOf(1250, 700*mb, 900*mb), Rule{Off: true}, some(0, 0), some(0, 0), false, nil},
	} {
		got := shared(test.sharing, test.container, test.given, test.rule, Ranges{})
		require.Equal(t, test.requests, got.Requests, name)
		require.Equal(t, test.limits, got.Limits, name)
		require.Equal(t, [resources.Kinds]bool{resources.CPU: test.without}, got.WithoutLimit, name)
		require.Equal(t, test.notes, got.Notes, name)
	}
}

func TestFit_SharingRespectsLimitRanges(t *testing.T) {
	c, given := pair("c", 1000, 2000, 1000*mb, 1100*mb), shareOf(750, 500*mb, 900*mb)
	both := Pod{Containers: []Container{pair("a", 1000, 2000, 1000*mb, 1100*mb), pair("b", 1000, 2000, 1000*mb, 1100*mb)}}
	for name, test := range map[string]struct {
		sharing          *Sharing
		ranges           Ranges
		requests, limits resources.List
		without          bool
	}{
		"the maximum of a limit":       {running(onNode(8000)), ranged(Range{Max: some(4000, 1500*mb)}), some(750, 500*mb), some(4000, 1500*mb), false},
		"a ratio asks for more":        {running(), ranged(Range{MaxRatio: some(0, 2000)}), some(750, 900*mb), some(0, 1800*mb), false},
		"the minimum of a request":     {running(), ranged(Range{Min: some(900, 600*mb)}), some(900, 600*mb), some(0, 1800*mb), false},
		"of a limit that goes":         {created(removing), ranged(Range{Min: some(100, 0)}), some(750, 500*mb), some(0, 1800*mb), true},
		"a maximum: it stays":          {created(removing), ranged(Range{Max: some(4000, 0)}), some(750, 500*mb), some(0, 1800*mb), false},
		"a ratio: it stays":            {created(removing), ranged(Range{MaxRatio: some(3000, 0)}), some(750, 500*mb), some(0, 1800*mb), false},
		"a default: it stays":          {created(removing), ranged(Range{Default: some(500, 0)}), some(750, 500*mb), some(0, 1800*mb), false},
		"of the pod: it stays":         {created(removing), Ranges{Pod: Range{Max: some(4000, 0)}}, some(750, 500*mb), some(0, 1800*mb), false},
		"too much for the pod: scaled": {running(onNode(8000)), Ranges{Pod: Range{Max: some(3000, 1200*mb)}}, some(750, 500*mb), some(1500, 550*mb), false},
	} {
		got := shared(test.sharing, c, given, Default(), test.ranges)
		require.False(t, slices.ContainsFunc(got.Notes, Note.Refused), "%s: %v", name, got.Notes)
		require.Equal(t, test.requests, got.Requests, name)
		require.Equal(t, test.limits, got.Limits, name)
		require.Equal(t, test.without, got.WithoutLimit[resources.CPU], name)
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
	for name, test := range map[string]struct {
		sharing *Sharing
		request resources.Amount
	}{"within the limit that stays": {created(), 3999}, "without limit": {created(removing), 4500}} {
		rule.Sharing = test.sharing
		f, err := rule.ApplyBoost(c, shared(test.sharing, c, shareOf(1500, 0, 0), rule, Ranges{}), 0)
		require.NoError(t, err)
		require.Equal(t, some(test.request, 0), f.Requests, name)
		require.True(t, f.Limits.Empty(), name)
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
