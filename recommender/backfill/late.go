package backfill

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// vpaName names a VPA.
type vpaName struct{ namespace, name string }

func nameOf(v *model.VPA) vpaName { return vpaName{v.Object.Namespace, v.Object.Name} }

// Request is a VPA that history is loaded for.
type Request struct {
	Target target.Key
	model.Backfill
}

// requested returns the VPAs that a load is for. The load at the start is for those whose pods are
// known at its first attempt.
func (l *Loader) requested(observed []model.Observed) []model.Observed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == nil {
		l.requests = map[vpaName]Request{}
		for _, o := range observed {
			if o.Err == nil {
				l.requests[vpaName{o.Object.Namespace, o.Object.Name}] = Request{Target: targetOf(o)}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(observed), func(o model.Observed) bool {
		request, found := l.requests[vpaName{o.Object.Namespace, o.Object.Name}]
		return !found || request.Target != targetOf(o)
	})
}

func targetOf(o model.Observed) (key target.Key) {
	if ref := o.Object.Spec.TargetRef; ref != nil {
		key = target.RefKey(o.Object.Namespace, ref)
	}
	return key
}

// Covers reports whether the load is for a VPA, and false as long as that is not decided.
func (l *Loader) Covers(v *model.VPA) (covers, decided bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	request, found := l.requests[nameOf(v)]
	return found && request.Target == v.Target(), l.requests != nil
}

// maxNamespaces is the number of namespaces that a query names. It asks for all of them where
// there are more.
const maxNamespaces = 50

// Late loads history for VPAs that came, or got another recipe, after the start. It runs one load
// at a time, for all VPAs that were waiting when it began. All methods are safe for concurrent use.
type Late struct {
	config Config
	first  *Loader
	wake   chan struct{}

	mu      sync.Mutex
	waiting map[vpaName]Request
	asked   time.Time  // when the last of them began to wait
	loads   []lateLoad // at most the one that ended and the one that runs
}

// lateLoad is a load for some VPAs.
type lateLoad struct {
	loader *Loader
	ended  bool
}

// NewLate returns what loads for the VPAs that the first load does not cover.
func NewLate(c Config, first *Loader) *Late {
	return &Late{config: c, first: first, wake: make(chan struct{}, 1), waiting: map[vpaName]Request{}}
}

// Run loads until ctx ends.
func (l *Late) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		loader := l.next()
		if loader == nil {
			continue
		}
		loader.Run(ctx)
		l.mu.Lock()
		for i := range l.loads {
			l.loads[i].ended = l.loads[i].ended || l.loads[i].loader == loader && ctx.Err() == nil
		}
		l.mu.Unlock()
	}
}

// next begins a load for the VPAs that wait.
func (l *Late) next() *Loader {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	c := l.config
	c.MemorySaver = true
	namespaces := map[string]bool{}
	for name := range l.waiting {
		namespaces[name.namespace] = true
	}
	if c.Usage.Namespace == "" && len(namespaces) <= maxNamespaces {
		var names []string
		for name := range namespaces {
			names = append(names, name)
		}
		slices.Sort(names)
		c.Usage.Matchers = prometheus.JoinMatchers(c.Usage.Matchers, fmt.Sprintf("%s=~%q", c.Usage.NamespaceLabel, prometheus.OneOf(names)))
	}
	loader := New(c, l.asked)
	loader.requests, loader.late = l.waiting, true
	l.waiting = map[vpaName]Request{}
	l.loads = append(l.loads, lateLoad{loader: loader})
	return loader
}

// Request asks for the history of the VPAs of a model that no load covers, and returns how many
// VPAs wait for history. It is called when the VPAs have their recipes, before live usage is added.
func (l *Late) Request(m *model.Model, now time.Time) (pending int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range m.VPAs() {
		l.cover(v, now)
		if v.Backfill.Pending() {
			pending++
			l.enqueue(v, now)
		}
	}
	if len(l.waiting) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return pending
}

// cover decides once for each VPA what is to be loaded for it.
func (l *Late) cover(v *model.VPA, now time.Time) {
	b := &v.Backfill
	if b.Covered || v.TargetError != nil || v.Recipe == nil {
		return
	}
	covers, decided := l.first.Covers(v)
	if !decided {
		return
	}
	b.Covered = true
	if covers {
		return
	}
	if b.Series = l.config.MemorySaver; b.Series {
		b.Until = now
	}
	if v.Recipe.Needs.Any() {
		b.Request(sketch.AllParts, now)
	}
}

// enqueue adds a VPA to those that wait, unless a load for it runs.
func (l *Late) enqueue(v *model.VPA, now time.Time) {
	name := nameOf(v)
	for _, load := range l.loads {
		if _, runs := load.loader.requests[name]; runs {
			return
		}
	}
	l.waiting[name], l.asked = Request{v.Target(), v.Backfill}, now
}

// Absorb adds what was loaded since the last time to the VPAs of a model.
func (l *Late) Absorb(m *model.Model, store *usage.Store, keeper *recommend.SketchKeeper, now time.Time) {
	l.mu.Lock()
	loads := slices.Clone(l.loads)
	l.loads = slices.DeleteFunc(l.loads, func(load lateLoad) bool { return load.ended })
	l.mu.Unlock()
	for _, load := range loads { // ended was read before Take: all that was loaded can be taken
		for _, past := range load.loader.Take() {
			load.absorb(m, past, keeper, now)
		}
		if load.ended {
			load.finish(m, store)
		}
	}
}

// vpas yields the VPAs that are still as they were requested.
func (l *lateLoad) vpas(m *model.Model, yield func(*model.VPA, Request)) {
	for _, v := range m.VPAs() {
		request, found := l.loader.requests[nameOf(v)]
		if found && v.Target() == request.Target && v.Backfill.Until.Equal(request.Until) {
			yield(v, request)
		}
	}
}

func (l *lateLoad) absorb(m *model.Model, past Past, keeper *recommend.SketchKeeper, now time.Time) {
	var since time.Time // of the earliest VPA whose histograms are missing
	l.vpas(m, func(v *model.VPA, request Request) {
		if theirs := past.Model.Find(v.Object.Namespace, v.Object.Name); theirs != nil {
			keeper.AbsorbParts(v, theirs, request.Parts)
		}
		if request.Series && (since.IsZero() || request.Until.Before(since)) {
			since = request.Until
		}
		v.Invalidate()
	})
	if !since.IsZero() {
		m.AbsorbSince(past.Model, since, now)
	}
}

// finish notes that the requests are fulfilled.
func (l *lateLoad) finish(m *model.Model, store *usage.Store) {
	l.vpas(m, func(v *model.VPA, request Request) {
		v.Backfill.Series, v.Backfill.Parts = false, v.Backfill.Parts&^request.Parts
		trustLoaded(v, store, l.loader.config.Store.Shape)
		v.Invalidate()
	})
}
