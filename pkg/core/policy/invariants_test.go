package policy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// byteSource decodes values from fuzzer bytes, and returns zeros after the last byte.
type byteSource struct{ bytes []byte }

func (d *byteSource) next() byte {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return b
}

// amount is 0, small, or of any size.
func (d *byteSource) amount() resources.Amount {
	size := d.next()
	a := resources.Amount(size >> 3)
	for range size & 7 {
		a = a<<8 | resources.Amount(d.next())
	}
	return a
}

func (d *byteSource) resources() resources.List { return some(d.amount(), d.amount()) }

func (d *byteSource) decodeWorld() world {
	w := world{recommendation: map[string]resources.Bounds{}}
	shape := d.next()
	for i := range shape & 3 {
		c := Container{Name: string(rune('a' + i)), Requests: d.resources(), Limits: d.resources()}
		for k := range resources.Kind(resources.Kinds) {
			if limit, ok := c.Limits.Get(k); ok {
				c.Limits = c.Limits.With(k, max(limit, c.Requests.Value(k)))
			}
		}
		w.pod.Containers = append(w.pod.Containers, c)
		flags := d.next()
		if flags&1 == 0 {
			lower, more := d.resources(), d.resources()
			b := resources.Bounds{Lower: lower, Target: lower, Upper: lower}
			for k := range resources.Kind(resources.Kinds) {
				if a, ok := lower.Get(k); ok {
					b.Target = b.Target.With(k, a.Add(more.Value(k)))
					b.Upper = b.Upper.With(k, a.Add(more.Value(k)).Add(more.Value(k)))
				}
			}
			w.recommendation[c.Name] = b
		}
		if flags&2 != 0 {
			r := bounded(d.resources(), d.resources())
			r.Off, r.RequestsOnly = flags&4 != 0, flags&8 != 0
			w.rules.Entries = append(w.rules.Entries, Entry{Container: c.Name, Rule: r})
		}
	}
	for i, r := range []*Range{&w.ranges.Container, &w.ranges.Pod} {
		if shape&(4<<i) == 0 {
			continue
		}
		r.Min, r.Max = d.resources(), d.resources()
		for k := range resources.Kind(resources.Kinds) {
			if most, ok := r.Max.Get(k); ok {
				r.Max = r.Max.With(k, max(most, r.Min.Value(k)))
			}
		}
	}
	return w
}

func FuzzFitInvariants(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 0xa1, 100, 0xa1, 100, 0xa1, 200, 0xa1, 200, 0, 0xa1, 150, 0xa1, 150})
	f.Add([]byte{2 | 4 | 8, 9, 100, 9, 100, 9, 200, 9, 200, 0, 9, 150, 9, 150, 9, 1, 9, 1})
	f.Add([]byte{3 | 8, 0x0a, 1, 244, 0x0a, 1, 244})
	f.Fuzz(func(t *testing.T, bytes []byte) { (&byteSource{bytes}).decodeWorld().checkInvariants(t) })
}

// checkInvariants verifies the contract of Fit: order independence, idempotence, requests within
// limits, proportional limits, and a note for each LimitRange refusal.
func (w world) checkInvariants(t require.TestingT) {
	result := w.fit()
	require.Equal(t, result, w.fit(), "deterministic")

	mirrored := w
	mirrored.pod.Containers = slices.Clone(w.pod.Containers)
	slices.Reverse(mirrored.pod.Containers)
	other := mirrored.fit()
	slices.Reverse(other.Containers)
	require.Equal(t, result, other, "the order of containers does not matter")

	applied := w
	applied.pod = w.after(result)
	again := applied.fit()
	held := result.has(Note{resources.CPU, HeldByRange}) || result.has(Note{resources.Memory, HeldByRange})
	require.True(t, held || refused(result) || sameAmounts(withoutMoved(result), again), "idempotent: %+v, then %+v", result, again)
	for i, fitted := range result.Containers {
		for k := range resources.Kind(resources.Kinds) {
			w.checkContainer(t, w.pod.Containers[i], fitted, k)
		}
	}
	w.checkRefusals(t, result)
	for k := range resources.Kind(resources.Kinds) {
		if result.has(Note{k, MovedWithOthers}) {
			p := newProblem(w.pod, w.recommendation, w.rules, w.ranges)
			alone := p.solveStable()
			require.True(t, alone.has(Note{k, OutsidePodRange}), "a container without recommendation moves only where the pod would be refused")
			require.False(t, result.has(Note{k, OutsidePodRange}), "and where that helps")
		}
	}
}

// withoutMoved removes the amounts given to containers without a recommendation. A pod at these
// amounts needs no move.
func withoutMoved(r Result) Result {
	r.Containers = slices.Clone(r.Containers)
	for i := range r.Containers {
		f := &r.Containers[i]
		for k := range resources.Kind(resources.Kinds) {
			if slices.Contains(f.Notes, Note{k, MovedWithOthers}) {
				f.Requests, f.Limits = f.Requests.Without(k), f.Limits.Without(k)
			}
		}
	}
	return r
}

func refused(r Result) bool {
	return slices.ContainsFunc(r.Containers, func(f ContainerTarget) bool { return slices.ContainsFunc(f.Notes, Note.Refused) })
}

func (w world) checkContainer(t require.TestingT, c Container, f ContainerTarget, k resources.Kind) {
	rule := w.rules.For(f.Name)
	_, recommended := w.recommendation[f.Name]
	if slices.Contains(f.Notes, Note{k, MovedWithOthers}) {
		require.False(t, f.Bounds.Target.Has(k), "nothing was recommended for it")
		require.False(t, rule.RequestsOnly && f.Limits.Has(k))
		return
	}
	if (!recommended || rule.Off) && len(f.Notes) == 0 {
		require.Equal(t, ContainerTarget{Name: f.Name}, f, "left alone")
	}
	request, written := f.Requests.Get(k)
	if !written {
		require.False(t, f.Limits.Has(k), "a limit never comes without a request")
		return
	}
	limit, limited := f.Limits.Get(k)
	if !limited {
		limit = c.Limits.Value(k)
	}
	require.GreaterOrEqual(t, request, resources.Amount(0))
	require.True(t, limit <= 0 || request <= limit, "%s: request %d above limit %d", k, request, limit)
	require.False(t, rule.RequestsOnly && f.Limits.Has(k))
	if lower, ok := f.Bounds.Lower.Get(k); ok {
		require.LessOrEqual(t, lower, request)
		require.GreaterOrEqual(t, f.Bounds.Upper.Value(k), request)
	}
	if slices.Contains(f.Notes, Note{k, HeldByRange}) {
		return // an intermediate result on the way to the target
	}
	if most := rule.Max.Value(k); most > 0 {
		require.LessOrEqual(t, request, most)
	}
	if least := rule.Min.Value(k); least > 0 && (rule.Max.Value(k) <= 0 || rule.Max.Value(k) >= least) && !rule.RequestsOnly {
		require.GreaterOrEqual(t, request, least)
	}
	w.checkProportion(t, c, f, k)
}

// checkProportion verifies that a limit keeps its ratio to the request to the unit. With LimitRanges,
// Fit starts from its own rounded result, so they are excluded.
func (w world) checkProportion(t require.TestingT, c Container, f ContainerTarget, k resources.Kind) {
	before, limit := c.Limits.Value(k), f.Limits.Value(k)
	if !f.Limits.Has(k) || w.ranges != (Ranges{}) {
		return
	}
	want, _ := scaleLimit(before, c.Requests.Value(k), f.Requests.Value(k))
	require.Equal(t, want, limit, "%s: the limit keeps its proportion to the request", k)
}

func (w world) checkRefusals(t require.TestingT, result Result) {
	for k := range resources.Kind(resources.Kinds) {
		for i, f := range result.Containers {
			request, written := f.Requests.Get(k)
			if !written {
				continue
			}
			limit, ok := f.Limits.Get(k)
			if !ok {
				limit = w.ranges.limitBasis(w.pod.Containers[i], k)
			}
			if outside(w.ranges.Container, k, request, limit) {
				require.True(t, slices.ContainsFunc(f.Notes, func(n Note) bool { return n.Kind == k && n.Refused() }), "%s of %s: a refusal that is not told", k, f.Name)
			}
		}
	}
}
