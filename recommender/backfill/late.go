package backfill

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

const (
	// maxNamespaces is the number of namespaces that a late load queries at most.
	maxNamespaces = 50
	// maxRequests is the number of VPAs of a namespace in a late load at most.
	maxRequests = 1000
	// minInterval is the time between two late loads of a namespace. It doubles with each load, up
	// to maxInterval, and begins anew when the namespace had none for that long.
	minInterval = time.Minute
	maxInterval = time.Hour
)

// Late loads the history that VPAs lack after the load at the start: that of new VPAs, of new recipes
// and of containers that began later. It runs one attempt at a time and prefers namespaces that had no
// load for longest. A namespace whose load fails waits alone. All methods are safe for concurrent use.
type Late struct {
	config Config
	first  *Loader
	wake   chan struct{}
	pause  time.Duration // after the first attempt, if it is not complete

	mu         sync.Mutex
	waiting    map[string]map[vpaName]Request // by namespace, of those that may have a load now
	readySince time.Time                      // since when any waits, wall clock
	asked      time.Time                      // when waiting was last made, clock of the loop
	intervals  map[string]interval            // of namespaces that had a load lately
	loads      []*lateLoad                    // not complete, or not absorbed
}

// interval is when a namespace may have its next late load.
type interval struct {
	next   time.Time
	length time.Duration
}

// lateLoad is a load for some VPAs.
type lateLoad struct {
	loader     *Loader
	namespaces []string
	due        time.Time // of the next attempt, wall clock
	pauses     wait.Backoff
	ended      bool              // no attempt follows
	split      bool              // other loads go on with what is left
	gone       map[gone]struct{} // found in Prometheus; used by the loop alone
}

// gone is a container that a VPA had in the past alone.
type gone struct {
	vpa       vpaName
	container string
}

// NewLate returns a loader of the history that the first load does not cover.
func NewLate(c Config, first *Loader) *Late {
	return &Late{config: c, first: first, wake: make(chan struct{}, 1), pause: leastPause, intervals: map[string]interval{}}
}

// Run loads until ctx ends.
func (l *Late) Run(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		if load := l.next(now); load != nil {
			l.attempt(ctx, load)
			continue
		}
		timer := time.NewTimer(l.idle(now))
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// idle returns how long no attempt is due.
func (l *Late) idle(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := mostPause
	for _, load := range l.loads {
		if !load.ended && load.due.After(now) {
			idle = min(idle, load.due.Sub(now))
		}
	}
	return idle
}

// next returns the load whose attempt is due first; nil: none is. It waits until the loop took what was
// loaded before.
func (l *Late) next(now time.Time) *lateLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due *lateLoad
	for _, load := range l.loads {
		if load.loader.delivered() {
			return nil
		}
		if !load.ended && !load.due.After(now) && (due == nil || load.due.Before(due.due)) {
			due = load
		}
	}
	if len(l.waiting) > 0 && (due == nil || l.readySince.Before(due.due)) {
		due = l.begin()
	}
	return due
}

// begin makes a load for the namespaces that had none for longest.
func (l *Late) begin() *lateLoad {
	namespaces := slices.SortedFunc(maps.Keys(l.waiting), func(a, b string) int {
		return cmp.Or(l.intervals[a].next.Compare(l.intervals[b].next), cmp.Compare(a, b))
	})
	namespaces = namespaces[:min(len(namespaces), maxNamespaces)]
	requests := map[vpaName]Request{}
	for _, namespace := range namespaces {
		maps.Copy(requests, l.waiting[namespace])
		delete(l.waiting, namespace)
		length := max(minInterval, min(2*l.intervals[namespace].length, maxInterval))
		l.intervals[namespace] = interval{l.asked.Add(length), length}
	}
	load := l.load(requests, namespaces, New(l.config, l.asked).missing)
	load.gone = map[gone]struct{}{}
	l.loads = append(l.loads, load)
	return load
}

// load returns a load of some chunks.
func (l *Late) load(requests map[vpaName]Request, namespaces []string, missing []chunk) *lateLoad {
	c := l.config
	c.MemorySaver = true
	if c.Usage.Namespace == "" {
		slices.Sort(namespaces)
		c.Usage.Matchers = prometheus.JoinMatchers(c.Usage.Matchers, fmt.Sprintf("%s=~%q", c.Usage.NamespaceLabel, prometheus.OneOf(namespaces)))
	}
	loader := New(c, l.asked)
	loader.requests, loader.late, loader.missing = requests, true, slices.Clone(missing)
	return &lateLoad{loader: loader, namespaces: namespaces, pauses: wait.Backoff{Duration: l.pause, Factor: 2, Steps: math.MaxInt, Cap: mostPause}}
}

// attempt makes one attempt of a load.
func (l *Late) attempt(ctx context.Context, load *lateLoad) {
	log := klog.FromContext(ctx)
	err := load.loader.attempt(ctx, time.Now())
	if ctx.Err() != nil {
		return
	}
	p := load.loader.end(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.State == Complete:
		load.ended = true
		log.V(1).Info("History from Prometheus is complete for VPAs that came later", "vpas", len(load.loader.requests), "samples", p.Samples)
	case len(load.namespaces) > 1 && prometheus.Heavy(err):
		l.split(load)
		log.Error(p.Err, "History of VPAs that came later is not complete, trying each namespace by itself", "namespaces", len(load.namespaces))
	default:
		pause := load.pauses.Step()
		load.due = time.Now().Add(pause)
		log.Error(p.Err, "History of VPAs that came later is not complete, trying again", "namespaces", len(load.namespaces), "after", pause)
	}
}

// split replaces a load by one for each of its namespaces: one that is too much for Prometheus must not
// keep history from the others.
func (l *Late) split(load *lateLoad) {
	for _, namespace := range load.namespaces {
		requests := maps.Clone(load.loader.requests)
		maps.DeleteFunc(requests, func(name vpaName, _ Request) bool { return name.namespace != namespace })
		part := l.load(requests, []string{namespace}, load.loader.missing)
		part.gone = load.gone
		part.due = time.Now()
		l.loads = append(l.loads, part)
	}
	load.ended, load.split = true, true
}

// Request collects the history that the VPAs of a model lack, and returns how many VPAs wait for history.
// It is called when the VPAs have their recipes, before live usage is added.
func (l *Late) Request(m *model.Model, now time.Time) (pending int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := map[string]bool{}
	for _, load := range l.loads {
		for _, namespace := range load.namespaces {
			busy[namespace] = true
		}
	}
	maps.DeleteFunc(l.intervals, func(_ string, i interval) bool { return now.Sub(i.next) >= maxInterval })
	waited := len(l.waiting) > 0
	l.waiting, l.asked = map[string]map[vpaName]Request{}, now
	for _, v := range m.VPAs() {
		l.cover(v, now)
		if v.Backfill.Pending() {
			pending++
			if namespace := v.Object.Namespace; !busy[namespace] && !now.Before(l.intervals[namespace].next) {
				l.enqueue(v)
			}
		}
	}
	if len(l.waiting) > 0 && !waited {
		l.readySince = time.Now()
	}
	if len(l.waiting)+len(l.loads) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return pending
}

// cover decides what history a VPA lacks: once for the VPA, and once for each container when it appears.
func (l *Late) cover(v *model.VPA, now time.Time) {
	b := &v.Backfill
	if v.TargetError != nil || v.Recipe == nil {
		return
	}
	fresh, covers := !b.Covered, false
	if fresh {
		var decided bool
		if covers, decided = l.first.Covers(v); !decided {
			return
		}
		b.Covered = true
		if !covers && v.Recipe.Needs.Any() {
			b.Request(sketch.AllParts, now)
		}
	}
	changes := map[string]model.Missing{}
	for _, container := range v.NewContainers() {
		var missing model.Missing
		since, lacks := v.MissingHistory(container)
		if lacks && now.Sub(since) < l.config.Length {
			missing.Histogram = since
		}
		if v.Recipe.Needs.Any() && v.Sketches[container] == nil && (!fresh || covers && lacks) {
			missing.Sketch = now
		}
		if missing != (model.Missing{}) {
			changes[container] = missing
		}
	}
	b.Require(changes)
}

// enqueue adds a VPA to those that wait. What the load at the start may still bring is left out.
func (l *Late) enqueue(v *model.VPA) {
	name, request := nameOf(v), Request{v.Target(), v.Backfill}
	if !l.first.done {
		request.Containers = nil
	}
	if !request.Pending() || len(l.waiting[name.namespace]) >= maxRequests {
		return
	}
	if l.waiting[name.namespace] == nil {
		l.waiting[name.namespace] = map[vpaName]Request{}
	}
	l.waiting[name.namespace][name] = request
}

// Absorb adds what was loaded since the last time to the VPAs of a model.
func (l *Late) Absorb(m *model.Model, store *usage.Store, keeper *recommend.SketchKeeper, now time.Time) {
	l.mu.Lock()
	loads := slices.Clone(l.loads)
	ended := map[*lateLoad]bool{}
	for _, load := range loads { // read before Take: all that was loaded can be taken
		ended[load] = load.ended
	}
	l.loads = slices.DeleteFunc(l.loads, func(load *lateLoad) bool { return load.ended })
	l.mu.Unlock()
	for _, load := range loads {
		for _, past := range load.loader.Take() {
			load.absorb(m, past, keeper, now)
		}
		if ended[load] && !load.split {
			load.finish(m, store)
		}
	}
}

// vpas yields the VPAs that still have the target for which history was requested.
func (l *lateLoad) vpas(m *model.Model, yield func(*model.VPA, Request)) {
	for _, name := range slices.SortedFunc(maps.Keys(l.loader.requests), func(a, b vpaName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	}) {
		request := l.loader.requests[name]
		if v := m.Find(name.namespace, name.name); v != nil && v.Target() == request.Target {
			yield(v, request)
		}
	}
}

func (l *lateLoad) absorb(m *model.Model, past Past, keeper *recommend.SketchKeeper, now time.Time) {
	m.AbsorbMissing(past.Model, l.wants, now)
	l.vpas(m, func(v *model.VPA, request Request) {
		theirs := past.Model.Find(v.Object.Namespace, v.Object.Name)
		if theirs == nil {
			return
		}
		keeper.AbsorbParts(v, theirs, func(container string) sketch.Parts { return l.parts(v, request, container) })
	})
}

// wants reports whether the histogram of a container of a VPA is loaded: where it was requested, and where
// the container is known from the past alone.
func (l *lateLoad) wants(v *model.VPA, container string) bool {
	name := nameOf(v)
	request, found := l.loader.requests[name]
	if !found || v.Target() != request.Target {
		return false
	}
	if until := request.Containers[container].Histogram; !until.IsZero() {
		return v.Backfill.Containers[container].Histogram.Equal(until)
	}
	if _, found := l.gone[gone{name, container}]; found || !request.histograms() || len(v.Series(container)) > 0 {
		return found
	}
	l.gone[gone{name, container}] = struct{}{}
	return true
}

// parts returns the parts of the sketch of a container that are loaded.
func (l *lateLoad) parts(v *model.VPA, request Request, container string) sketch.Parts {
	if _, found := l.gone[gone{nameOf(v), container}]; found {
		return sketch.AllParts
	}
	if now := v.Backfill.Containers[container].Sketch; !now.IsZero() || !request.Containers[container].Sketch.IsZero() {
		if now.Equal(request.Containers[container].Sketch) {
			return sketch.AllParts
		}
		return 0
	}
	if v.Backfill.Until.Equal(request.Until) {
		return request.Parts
	}
	return 0
}

// finish notes that the requests are fulfilled.
func (l *lateLoad) finish(m *model.Model, store *usage.Store) {
	for g := range l.gone {
		if _, requested := l.loader.requests[g.vpa]; !requested {
			continue
		}
		if v := m.Find(g.vpa.namespace, g.vpa.name); v != nil {
			v.LoadedHistory(g.container)
		}
	}
	l.vpas(m, func(v *model.VPA, request Request) {
		if v.Backfill.Until.Equal(request.Until) {
			v.Backfill.Parts &^= request.Parts
		}
		changes := map[string]model.Missing{}
		for container, missing := range request.Containers {
			if v.Backfill.Containers[container] == missing {
				changes[container] = model.Missing{}
				v.LoadedHistory(container)
			}
		}
		v.Backfill.Require(changes)
		trustLoaded(v, store, l.loader.config.Store.Shape)
		v.Invalidate()
	})
}
