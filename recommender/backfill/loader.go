// Package backfill loads the usage of the past from Prometheus.
//
// Loader cuts the past into chunks of a day, asks for one after the other, and feeds each into a model and a store of
// its own under the rules of live samples; the loop takes the result between two passes. So neither side ever holds the
// whole past. What fails is asked for again, with growing pauses, and delivered by itself; Progress says how far that
// is.
//
//	past   [ day 1 | day 2 | … | today ]   one grid of times, as one query would have
//	chunk    series by series -> amounts by container and time -> store
//
// Pods that run now have the labels that they have now; of those that are gone Prometheus knows the labels or, failing
// that, a pod of the same workload that runs. What the labels mean to VPAs, package model knows. recommend.LoadingGauge
// says while much of the past is missing.
package backfill

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	clientprom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// Config says what is loaded, and what it is fed into.
type Config struct {
	Client *prometheus.Client
	Usage  prometheus.Usage
	Labels Labels
	Length time.Duration // how far back
	Step   time.Duration // between two samples, and window of the CPU rate
	// Waiting is the counter of the seconds in which work waited for CPU, which is asked for where
	// a recipe wants to know; empty = none.
	Waiting string

	Store       usage.StoreConfig
	MemorySaver bool       // feed only pods that a VPA selects
	PerVPA      bool       // settings of a VPA override those of the store
	Keys        model.Keys // nil: not known

	VPAs *model.Roster
	Pods corelisters.PodLister

	Policies *sizing.Policies        // set the recipes of VPAs; nil: none
	Sketches *recommend.SketchKeeper // of the live model; nil: none

	// Ambiguities gets the containers that are left out; nil = not needed.
	Ambiguities *prometheus.Ambiguities

	// Turn holds one token, which an attempt takes while it runs; nil: attempts do not wait.
	Turn chan struct{}

	Results *clientprom.CounterVec // samples, by "taken" or why not
}

// Labels says where the labels of pods are found.
type Labels struct {
	Query          string // expression, as it is sent
	Prefix         string // of the labels of pods
	Namespace, Pod string // labels that name the pod
}

// State is how much of the past is loaded.
type State string

// The states.
const (
	Loading  State = "loading"  // the first attempt runs
	Complete State = "complete" // all that Prometheus has
	Partial  State = "partial"  // some, and the rest is tried again
	Empty    State = "empty"    // all queries succeeded, and a kind has no usage at all: it is tried again
	Failed   State = "failed"   // nothing yet, and all is tried again
)

// Progress is how far loading is.
type Progress struct {
	State       State
	Done, Total int   // points in time, CPU and memory apart
	Samples     int   // that were taken
	Err         error // why the last attempt is not complete
}

// Past is a part of the past: the model and the store that it was fed into. Pods
// that are gone are not in the model any more.
type Past struct {
	Model *model.Model
	Store *usage.Store
}

const (
	leastPause = 30 * time.Second // after an attempt that is not complete
	mostPause  = 10 * time.Minute
)

// Loader loads the past once. Progress, Take and First are safe for concurrent use with Run.
type Loader struct {
	config Config
	first  chan struct{}
	once   sync.Once

	pause     time.Duration // after the first attempt, if it is not complete
	missing   []chunk       // Run's own
	waiting   waiting       // Run's own
	ambiguous bool          // it was logged that series are; Run's own
	own       ownCluster    // Run's own
	// otherLogged: it was logged that other clusters are left out; Run's own.
	otherLogged bool
	plan        []chunk
	// requests are the VPAs that are loaded for; nil: those that exist at the first attempt.
	requests map[vpaName]Request
	late     bool                 // the requests were given
	pods     map[podName]struct{} // of the first attempt; nil: no attempt yet, or no longer needed
	absorbed bool                 // the model has the whole load. Only the loop uses it.

	mu       sync.Mutex
	progress Progress
	loaded   []Past
	series   [resources.Kinds]int // of containers that Prometheus had, whether they count or not
}

// New returns a loader of the past of now.
func New(c Config, now time.Time) *Loader {
	l := &Loader{config: c, first: make(chan struct{}), pause: leastPause, plan: plan(now, c.Length, c.Step)}
	l.missing = slices.Clone(l.plan)
	l.progress.State = Loading
	for _, chunk := range l.missing {
		l.progress.Total += chunk.Count
	}
	return l
}

// Run loads until everything is loaded or ctx ends.
func (l *Loader) Run(ctx context.Context) {
	log := klog.FromContext(ctx)
	pauses := wait.Backoff{Duration: l.pause, Factor: 2, Steps: math.MaxInt, Cap: mostPause}
	for {
		start := time.Now()
		err := l.attempt(ctx, start)
		if ctx.Err() != nil {
			return
		}
		p := l.end(err)
		l.once.Do(func() { close(l.first) })
		if p.State == Complete {
			if l.waiting == unknown {
				log.Info("A recipe wants to know how long work waited for CPU, and Prometheus does not know it of the past: CPU use counts as it is", "metric", l.config.Waiting)
			}
			log.V(1).Info("History from Prometheus is complete", "samples", p.Samples, "took", time.Since(start))
			return
		}
		pause := pauses.Step()
		if p.State == Empty {
			log.Info("Prometheus has no usage from before the start, trying again. If it should have some, check --history-cpu-metric, --history-memory-metric, "+
				"--prometheus-cadvisor-job-name, --prometheus-matchers, --container-namespace-label, --container-pod-name-label and --container-name-label",
				"cpuQuery", l.config.Usage.CPU(l.config.Step), "cpuSeries", l.series[resources.CPU],
				"memoryQuery", l.config.Usage.Memory(), "memorySeries", l.series[resources.Memory], "after", pause)
		} else {
			log.Error(p.Err, "History from Prometheus is not complete, trying again", "done", p.Done, "of", p.Total, "after", pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// First is closed when the first attempt has ended, whatever came of it.
func (l *Loader) First() <-chan struct{} { return l.first }

// Progress returns how far loading is.
func (l *Loader) Progress() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress
}

// Take hands over what was loaded since the last time, oldest first.
func (l *Loader) Take() []Past {
	l.mu.Lock()
	defer l.mu.Unlock()
	loaded := l.loaded
	l.loaded = nil
	return loaded
}

func (l *Loader) loadedChunk(b *batch) {
	l.mu.Lock()
	l.progress.Done += b.Count
	l.progress.Samples += b.counts[taken]
	l.series[b.kind] += len(b.containers)
	l.mu.Unlock()
	for result, n := range b.counts {
		if n > 0 {
			l.config.Results.WithLabelValues(result).Add(float64(n))
		}
	}
}

func (l *Loader) end(err error) Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.progress
	p.Err = err
	if len(l.missing) == 0 && !l.late {
		l.retryEmpty(p)
	}
	switch {
	case p.State == Empty && len(l.missing) > 0 && err == nil:
	case len(l.missing) == 0:
		p.State, p.Err = Complete, nil
	case p.Done > 0:
		p.State = Partial
	default:
		p.State = Failed
	}
	return *p
}

// retryEmpty plans the kinds again of which Prometheus had no usage at all: its series may have
// other names or labels than configured, and then nothing is known of the past.
func (l *Loader) retryEmpty(p *Progress) {
	p.State = Loading
	for _, c := range l.plan {
		if l.series[c.kind] == 0 {
			l.missing = append(l.missing, c)
			p.Done -= c.Count
			p.State = Empty
		}
	}
}

// Absorb gives a model, which feeds store, what was loaded since the last time, and says so to loading. When that was
// all of it, what is known of a container is all that there was, and is doubted no more.
func (l *Loader) Absorb(model *model.Model, store *usage.Store, keeper *recommend.SketchKeeper, loading *recommend.LoadingGauge, now time.Time) {
	if loading.Complete() {
		return
	}
	l.markUncovered(model)
	progress := l.Progress() // before Take: all that it counts can be taken
	for _, past := range l.Take() {
		model.Absorb(past.Model, now)
		keeper.Absorb(past.Model)
	}
	// Where Prometheus has nothing, a day of live usage is all that there is to know.
	lived := progress.State == Empty && now.Sub(l.plan[len(l.plan)-1].Last()) >= store.Rules().Interval
	if progress.State != Complete && !lived {
		loading.Loaded(progress.Done)
		return
	}
	loading.Done()
	l.absorbed = true
	for _, v := range model.VPAs() {
		trustLoaded(v, store, l.config.Store.Shape)
	}
}

// trustLoaded ends the doubt about the containers of a VPA that have history.
func trustLoaded(v *model.VPA, store *usage.Store, shape usage.ProfileShape) {
	scratch := usage.NewProfile(shape)
	for container := range v.Trust.Untrusted {
		scratch.Reset()
		store.Profile(&scratch, v.Series(container)...)
		if !scratch.Empty() {
			delete(v.Trust.Untrusted, container)
			v.Invalidate()
		}
	}
}
