// Package backfill loads usage history from Prometheus.
//
// Loader splits the history into chunks of one day, queries them in sequence, and feeds each into
// its own model and store under the rules of live samples. The loop takes the results between two
// iterations, so neither side ever holds the whole history. Failed chunks are retried with growing
// pauses and delivered separately.
//
//	past   [ day 1 | day 2 | … | today ]   one grid of times, as one query would have
//	chunk    series by series -> amounts by container and time -> store
//
// Running pods have their current labels. Labels of deleted pods come from Prometheus or else from
// a running pod of the same workload.
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

// Config configures a load.
type Config struct {
	Client *prometheus.Client
	Usage  prometheus.Usage
	Labels Labels
	Length time.Duration // how far back
	Step   time.Duration // between samples, also the window of the CPU rate
	// Waiting is the counter of seconds spent waiting for CPU, empty: none.
	Waiting string

	Store       usage.StoreConfig
	MemorySaver bool       // feed only pods that a VPA selects
	PerVPA      bool       // VPAs may override the rules of the store
	Keys        model.Keys // nil: unknown

	VPAs *model.Roster
	Pods corelisters.PodLister

	Policies *sizing.Policies        // provide recipes of VPAs, nil: none
	Sketches *recommend.SketchKeeper // of the live model; nil: none

	// Ambiguities receives the ignored containers, nil: not needed.
	Ambiguities *prometheus.AmbiguousContainers

	// AttemptToken holds a token that each attempt takes while it runs, nil: unlimited.
	AttemptToken chan struct{}

	Results *clientprom.CounterVec // samples by result
}

// Labels configures the source of pod labels.
type Labels struct {
	Query          string // PromQL expression
	Prefix         string // of the labels with pod labels
	Namespace, Pod string // labels with namespace and name
}

// State is the state of the load.
type State string

// States of the load.
const (
	Loading  State = "loading"  // the first attempt runs
	Complete State = "complete" // everything that Prometheus has
	Partial  State = "partial"  // the rest is retried
	Empty    State = "empty"    // all queries succeeded, but a kind has no usage: retried
	Failed   State = "failed"   // nothing yet, retried
)

// Progress is the progress of the load.
type Progress struct {
	State       State
	Done, Total int   // points in time, for CPU and memory each
	Samples     int   // accepted samples
	Err         error // why the last attempt is incomplete
}

// LoadedHistory is a part of the history. Its model does not contain deleted pods.
type LoadedHistory struct {
	Model *model.Model
	Store *usage.Store
}

const (
	minRetryInterval = 30 * time.Second // after an incomplete attempt
	maxRetryInterval = 10 * time.Minute
)

// Loader loads the history once. Progress, Take and FirstAttempt may run concurrently with Run.
type Loader struct {
	config       Config
	firstAttempt chan struct{}
	once         sync.Once

	retryInterval time.Duration // after an incomplete first attempt
	missing       []chunk       // used by Run only
	waiting       waitingState  // used by Run only
	ambiguous     bool          // ambiguous series were logged, used by Run only
	ownCluster    ownCluster    // used by Run only
	// otherLogged reports that ignored clusters were logged, used by Run only
	otherLogged bool
	plan        []chunk
	// requests are the VPAs to load, nil: those of the first attempt
	requests map[vpaName]Request
	late     bool                 // the requests were given
	pods     map[podName]struct{} // of the first attempt, nil: none yet, or no longer needed
	absorbed bool                 // the model has the whole load, used by the loop only

	mu       sync.Mutex
	progress Progress
	loaded   []LoadedHistory
	series   [resources.Kinds]int // containers in Prometheus, even ignored ones
}

// New returns a loader of the history before now.
func New(c Config, now time.Time) *Loader {
	l := &Loader{config: c, firstAttempt: make(chan struct{}), retryInterval: minRetryInterval, plan: plan(now, c.Length, c.Step)}
	l.missing = slices.Clone(l.plan)
	l.progress.State = Loading
	for _, chunk := range l.missing {
		l.progress.Total += chunk.Count
	}
	return l
}

// Run retries until everything is loaded or ctx ends.
func (l *Loader) Run(ctx context.Context) {
	log := klog.FromContext(ctx)
	pauses := wait.Backoff{Duration: l.retryInterval, Factor: 2, Steps: math.MaxInt, Cap: maxRetryInterval}
	for {
		start := time.Now()
		err := l.attempt(ctx, start)
		if ctx.Err() != nil {
			return
		}
		p := l.finishAttempt(err)
		l.once.Do(func() { close(l.firstAttempt) })
		if p.State == Complete {
			if l.waiting == waitingUnavailable {
				log.Info("A recipe needs CPU waiting times, but Prometheus has no history of them, using CPU usage unchanged", "metric", l.config.Waiting)
			}
			log.V(1).Info("History from Prometheus is complete", "samples", p.Samples, "took", time.Since(start))
			return
		}
		pause := pauses.Step()
		if p.State == Empty {
			log.Info("Prometheus has no usage from before the start, retrying. If this is unexpected, check --history-cpu-metric, --history-memory-metric, "+
				"--prometheus-cadvisor-job-name, --prometheus-matchers, --container-namespace-label, --container-pod-name-label and --container-name-label",
				"cpuQuery", l.config.Usage.CPU(l.config.Step), "cpuSeries", l.series[resources.CPU],
				"memoryQuery", l.config.Usage.Memory(), "memorySeries", l.series[resources.Memory], "after", pause)
		} else {
			log.Error(p.Err, "Failed to load all history from Prometheus, retrying", "done", p.Done, "of", p.Total, "after", pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// FirstAttempt returns a channel that is closed after the first attempt, even a failed one.
func (l *Loader) FirstAttempt() <-chan struct{} { return l.firstAttempt }

// Progress returns the current progress.
func (l *Loader) Progress() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress
}

// Take returns the history loaded since the last call, oldest first.
func (l *Loader) Take() []LoadedHistory {
	l.mu.Lock()
	defer l.mu.Unlock()
	loaded := l.loaded
	l.loaded = nil
	return loaded
}

func (l *Loader) recordChunk(b *batch) {
	l.mu.Lock()
	l.progress.Done += b.Count
	l.progress.Samples += b.counts[accepted]
	l.series[b.kind] += len(b.containers)
	l.mu.Unlock()
	for result, n := range b.counts {
		if n > 0 {
			l.config.Results.WithLabelValues(result).Add(float64(n))
		}
	}
}

func (l *Loader) finishAttempt(err error) Progress {
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

// retryEmpty schedules kinds without usage again, because the configured names may not match.
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

// Absorb adds the history loaded since the last call. After the last part histories are trusted.
func (l *Loader) Absorb(model *model.Model, store *usage.Store, keeper *recommend.SketchKeeper, loading *recommend.LoadingGauge, now time.Time) {
	if loading.Complete() {
		return
	}
	l.markUncovered(model)
	progress := l.Progress() // before Take, so that Take returns all counted parts
	for _, past := range l.Take() {
		model.Absorb(past.Model, now)
		keeper.Absorb(past.Model)
	}
	// If Prometheus has no usage, one interval of live usage is the complete history.
	lived := progress.State == Empty && now.Sub(l.plan[len(l.plan)-1].Last()) >= store.Rules().Interval
	if progress.State != Complete && !lived {
		loading.SetLoaded(progress.Done)
		return
	}
	loading.SetComplete()
	l.absorbed = true
	for _, v := range model.VPAs() {
		trustLoaded(v, store, l.config.Store.Shape)
	}
}

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
