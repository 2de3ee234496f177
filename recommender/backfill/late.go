package backfill

import (
	"cmp"
	"context"
	"errors"
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
	maxNamespaces = 50
	// maxRequests is the maximum number of VPAs of a namespace in a late load.
	maxRequests = 1000
	// minInterval is the initial time between two late loads of a namespace. It doubles up to
	// maxInterval, and resets after maxInterval without a load.
	minInterval = time.Minute
	maxInterval = time.Hour
	// maxFailures is the number of failed attempts before namespaces are tried separately.
	maxFailures = 3
)

// LateLoader loads history after the load at the start: for new VPAs, recipes and containers. It
// makes one attempt at a time, namespaces with the oldest load first. A failing namespace does not
// delay others. All methods are safe for concurrent use.
type LateLoader struct {
	config        Config
	startLoader   *Loader
	wake          chan struct{}
	retryInterval time.Duration // after an incomplete first attempt

	mu          sync.Mutex
	waiting     map[string]map[vpaName]Request // by namespace, if its interval has passed
	readySince  time.Time                      // since when requests wait, wall clock
	requestedAt time.Time                      // last Request call, clock of the loop
	intervals   map[string]interval            // by namespace, only after recent loads
	loads       []*lateLoad                    // incomplete or not absorbed
}

type interval struct {
	next   time.Time // earliest next load
	length time.Duration
}

// lateLoad holds the history of its attempts until everything is loaded, so that a VPA gets either
// all of it or none and is requested again.
type lateLoad struct {
	loader      *Loader
	namespaces  []string
	nextAttempt time.Time // next attempt, wall clock
	pauses      wait.Backoff
	failures    int  // incomplete attempts
	complete    bool // everything is loaded
}

// NewLateLoader returns a loader for history that the first load does not cover.
func NewLateLoader(c Config, first *Loader) *LateLoader {
	return &LateLoader{config: c, startLoader: first, wake: make(chan struct{}, 1), retryInterval: minRetryInterval, intervals: map[string]interval{}}
}

// Run loads until ctx ends.
func (l *LateLoader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		if load := l.next(now); load != nil {
			l.attempt(ctx, load)
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-time.After(l.waitTime(now)):
		}
	}
}

func (l *LateLoader) waitTime(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := maxRetryInterval
	for _, load := range l.loads {
		if load.nextAttempt.After(now) {
			idle = min(idle, load.nextAttempt.Sub(now))
		}
	}
	return idle
}

// next returns the load with the earliest due attempt, or nil while finished loads are not
// absorbed.
func (l *LateLoader) next(now time.Time) *lateLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due *lateLoad
	for _, load := range l.loads {
		if load.complete {
			return nil
		}
		if !load.nextAttempt.After(now) && (due == nil || load.nextAttempt.Before(due.nextAttempt)) {
			due = load
		}
	}
	if len(l.waiting) > 0 && (due == nil || l.readySince.Before(due.nextAttempt)) {
		due = l.start()
	}
	return due
}

func (l *LateLoader) start() *lateLoad {
	namespaces := slices.SortedFunc(maps.Keys(l.waiting), func(a, b string) int {
		return cmp.Or(l.intervals[a].next.Compare(l.intervals[b].next), cmp.Compare(a, b))
	})
	namespaces = namespaces[:min(len(namespaces), maxNamespaces)]
	requests := map[vpaName]Request{}
	for _, namespace := range namespaces {
		maps.Copy(requests, l.waiting[namespace])
		delete(l.waiting, namespace)
		length := max(minInterval, min(2*l.intervals[namespace].length, maxInterval))
		l.intervals[namespace] = interval{l.requestedAt.Add(length), length}
	}
	load := l.newLoad(requests, namespaces, New(l.config, l.requestedAt).missing)
	l.loads = append(l.loads, load)
	return load
}

func (l *LateLoader) newLoad(requests map[vpaName]Request, namespaces []string, missing []chunk) *lateLoad {
	c := l.config
	c.MemorySaver = true
	if c.Usage.Namespace == "" {
		slices.Sort(namespaces)
		c.Usage.Matchers = prometheus.JoinMatchers(c.Usage.Matchers, fmt.Sprintf("%s=~%q", c.Usage.NamespaceLabel, prometheus.OneOf(namespaces)))
	}
	loader := New(c, l.requestedAt)
	loader.requests, loader.late, loader.missing = requests, true, slices.Clone(missing)
	return &lateLoad{loader: loader, namespaces: namespaces, pauses: wait.Backoff{Duration: l.retryInterval, Factor: 2, Steps: math.MaxInt, Cap: maxRetryInterval}}
}

func (l *LateLoader) attempt(ctx context.Context, load *lateLoad) {
	log := klog.FromContext(ctx)
	err := load.loader.attempt(ctx, time.Now())
	if ctx.Err() != nil {
		return
	}
	p := load.loader.finishAttempt(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.State == Complete:
		load.complete = true
		log.V(1).Info("Loaded the history of later VPAs from Prometheus", "vpas", len(load.loader.requests), "samples", p.Samples)
	case load.mustSplit(err):
		l.split(load)
		log.Error(p.Err, "Failed to load all history of later VPAs, retrying each namespace separately", "namespaces", len(load.namespaces))
	default:
		pause := load.pauses.Step()
		load.nextAttempt = time.Now().Add(pause)
		log.Error(p.Err, "Failed to load all history of later VPAs, retrying", "namespaces", len(load.namespaces), "after", pause)
	}
}

// mustSplit reports whether namespaces must be tried separately: the load is too large or fails
// repeatedly. Failures to read pod labels would affect each of them and do not count.
func (l *lateLoad) mustSplit(err error) bool {
	if len(l.namespaces) == 1 || errors.Is(err, errLabels) {
		return false
	}
	l.failures++
	return prometheus.IsDivisible(err) || l.failures >= maxFailures
}

func (l *LateLoader) split(load *lateLoad) {
	for _, namespace := range load.namespaces {
		requests := maps.Clone(load.loader.requests)
		maps.DeleteFunc(requests, func(name vpaName, _ Request) bool { return name.namespace != namespace })
		part := l.newLoad(requests, []string{namespace}, load.loader.missing)
		part.loader.loaded = slices.Clone(load.loader.loaded)
		part.nextAttempt = time.Now()
		l.loads = append(l.loads, part)
	}
	l.loads = slices.DeleteFunc(l.loads, func(other *lateLoad) bool { return other == load })
}

// Request collects missing history and returns the number of waiting VPAs. Call it after recipes
// are set and before live usage is added.
func (l *LateLoader) Request(m *model.Model, now time.Time) (pending int) {
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
	l.waiting, l.requestedAt = map[string]map[vpaName]Request{}, now
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

// cover adds missing history, once for the VPA and once for each new container.
func (l *LateLoader) cover(v *model.VPA, now time.Time) {
	b := &v.Backfill
	if v.TargetError != nil || v.Recipe == nil {
		return
	}
	fresh, covers := !b.Covered, false
	if fresh {
		var decided bool
		if covers, decided = l.startLoader.Covers(v); !decided {
			return
		}
		b.Covered = true
		if !covers && v.Recipe.Needs.Any() {
			b.AddParts(sketch.AllParts, now)
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
	b.SetMissing(changes)
}

// enqueue omits containers until the load at the start is absorbed.
func (l *LateLoader) enqueue(v *model.VPA) {
	name, request := nameOf(v), Request{v.Target(), v.Observed(), v.Backfill}
	if !l.startLoader.absorbed {
		request.Containers = nil
	}
	if v.TargetError != nil || !request.Pending() || len(l.waiting[name.namespace]) >= maxRequests {
		return
	}
	if l.waiting[name.namespace] == nil {
		l.waiting[name.namespace] = map[vpaName]Request{}
	}
	l.waiting[name.namespace][name] = request
}

// Absorb adds the history of finished loads to the VPAs of a model.
func (l *LateLoader) Absorb(m *model.Model, store *usage.Store, keeper *recommend.SketchKeeper, now time.Time) {
	l.mu.Lock()
	var ended []*lateLoad
	l.loads = slices.DeleteFunc(l.loads, func(load *lateLoad) bool {
		if load.complete {
			ended = append(ended, load)
		}
		return load.complete
	})
	l.mu.Unlock()
	for _, load := range ended {
		newAbsorption(m, load.loader.requests).absorb(m, load.loader.Take(), keeper, now).finish(store, l.config.Store.Shape)
	}
}
