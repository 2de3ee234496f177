package status

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// Publisher brings recommendations into the status of VPAs. Its exported fields
// are set once.
type Publisher struct {
	Writer
	Workers   int
	Shape     usage.ProfileShape // of the scratch profiles
	Tolerance float64            // a bound that moves by a smaller fraction can wait; 0: none can
	// Estimate appends what the histories of a VPA come to, sorted by container.
	// It is asked whenever they change.
	Estimate func(*model.VPA, *usage.Profile, []Estimate) []Estimate
	// Advise makes a recommendation of estimates. That takes many times as long,
	// and is asked only where the status may have to change.
	Advise func(*model.VPA, []Estimate) Advice

	Changed func(v *model.VPA, container string, now resources.List) // told each uncapped target
	Latency prometheus.Histogram                                     // creation of a VPA to its first recommendation
	Results *prometheus.CounterVec                                   // of writes
	// Secure is called before the status of a VPA is written, side by side for
	// several; it saves what would be lost in a crash. Nil if nobody wants to know.
	Secure func(context.Context, *model.VPA, time.Time)
	// Progress is called after each VPA; nil if nobody wants to know.
	Progress func()
	// Rescue is deferred around the work on each VPA and may recover; nil if
	// nothing shall.
	Rescue func(*model.VPA)

	handled map[*model.VPA]*handled
}

// Advice is what is recommended for a VPA, and what there is to say about it.
type Advice struct {
	Containers []Recommended // sorted by name
	Held       string        // which targets are not lowered, and why; empty: none is held
	Lacks      string        // of which containers there are too few points to recommend anything; empty: of none
	History    time.Duration // that the samples of each container cover at least
}

// result is what became of a VPA in a pass, as the label of Results.
type result string

const (
	written   result = "written"
	unchanged result = "unchanged" // it is what is published
	putOff    result = "put_off"   // it is nearly what is published
	failed    result = "error"
	late      result = "late" // time was up; it comes first the next time
)

// job is a VPA to be looked at, and what it is like now.
type job struct {
	*handled
	seen inputs
}

// worker is what one goroutine needs for one VPA after the other.
type worker struct {
	scratch   usage.Profile
	estimates []Estimate
}

// missingLogInterval is how long a VPA may go without recommendation before, and
// between two times that, this is logged.
const missingLogInterval = 30 * time.Minute

// Publish computes and publishes a recommendation for every VPA of which
// anything changed since the last time, or whose last write failed. It returns how
// many had no turn because the span of time was over, or ctx ended: they come first
// the next time.
func (p *Publisher) Publish(ctx context.Context, vpas []*model.VPA, now time.Time, span time.Duration) int {
	p.prune(vpas)
	var jobs []job
	for _, v := range vpas {
		if j, stale := p.look(v, now); stale {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return a.before(b.handled) })
	return p.work(ctx, jobs, now, span)
}

// PublishChanged does the same for VPAs that are not as they were when they were
// last looked at. What failed or had no turn waits for Publish.
func (p *Publisher) PublishChanged(ctx context.Context, vpas []*model.VPA, now time.Time, span time.Duration) int {
	var jobs []job
	for _, v := range vpas {
		if j, stale := p.look(v, now); stale && j.inputs != j.seen {
			jobs = append(jobs, j)
		}
	}
	return p.work(ctx, jobs, now, span)
}

const (
	// leastSpan is the time for statuses however late a pass is.
	leastSpan = 5 * time.Second
	// requestTime is how long a request may last that starts before time is up.
	requestTime = 10 * time.Second
	// boundsShare is the part of the time that statuses get of which nothing but a
	// bound moved: a pass shall be short, and a bound may come some passes later.
	boundsShare = 30
)

// work goes through jobs with some workers, and counts those that had no turn.
func (p *Publisher) work(ctx context.Context, jobs []job, now time.Time, span time.Duration) int {
	span = max(span, leastSpan)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, span+requestTime)
	defer cancel()
	queue := make(chan job, 64*p.Workers) // lest a worker is woken for each
	var workers sync.WaitGroup
	var left atomic.Int64
	for range p.Workers {
		workers.Go(func() {
			w := worker{scratch: usage.NewProfile(p.Shape)}
			for j := range queue {
				if used := time.Since(began); ctx.Err() == nil && used < span {
					j.tried, j.rushed = now, used >= span/boundsShare && p.Tolerance > 0
					p.one(ctx, j, &w, now)
				} else {
					j.postpone(j.seen)
					p.Results.WithLabelValues(string(late)).Inc()
					left.Add(1)
				}
				if p.Progress != nil {
					p.Progress()
				}
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	workers.Wait()
	return int(left.Load())
}

// look tells what a VPA is like now, and whether there is anything to do.
func (p *Publisher) look(v *model.VPA, now time.Time) (j job, stale bool) {
	if p.Rescue != nil {
		defer p.Rescue(v)
	}
	j = job{p.of(v, now), inputsOf(v, now)}
	return j, j.stale(j.seen, now)
}

func (p *Publisher) one(ctx context.Context, j job, w *worker, now time.Time) {
	h, v := j.handled, j.vpa
	if p.Rescue != nil {
		defer p.Rescue(v)
	}
	onlyHistory := h.done && v.Recommended && j.seen.sameBut(h.inputs)
	h.done, h.inputs = false, j.seen
	w.estimates = p.Estimate(v, &w.scratch, w.estimates[:0])
	r, settled := p.settled(h, w.estimates, now)
	if onlyHistory && settled {
		for container, target := range v.Uncapped {
			p.Changed(v, container, target) // by nothing, which counts too
		}
	} else {
		r = p.publish(ctx, h, w.estimates, now)
	}
	p.Results.WithLabelValues(string(r)).Inc()
	p.note(h, r, w.estimates, now)
}

// publish builds the status of a VPA and writes it, unless it can wait.
func (p *Publisher) publish(ctx context.Context, h *handled, estimates []Estimate, now time.Time) result {
	v, log := h.vpa, klog.FromContext(ctx)
	advice := p.Advise(v, estimates)
	outcome := Outcome{
		Recommendation: advice.Containers,
		Pods:           h.inputs.pods,
		TargetError:    v.TargetError,
		Conflict:       h.inputs.conflict,
		Held:           advice.Held,
		Lacks:          advice.Lacks,
		Unsaved:        v.Unsaved,
		History:        advice.History,
	}
	if v.Recipe != nil {
		outcome.Recipe = v.Recipe.Problem
	}
	switch {
	case !h.inputs.grace:
		outcome.Recommendation = nil
	case v.TargetError != nil && Provided(v.Object) && (!v.Retargeted || !v.StatusOfOther()):
		// A target that cannot be read for a moment is no reason to change
		// what was recommended: we may see less than there is. What may have been
		// recommended for another target keeps the generation that it was made for.
		outcome.Recommendation = v.Object.Status.Recommendation.ContainerRecommendations
		outcome.Earlier = v.StatusOfOther()
	}
	p.remember(log, v, outcome, now)
	fresh := Compose(v.Object, outcome, now)
	h.history = outcome.history()
	if p.canWait(h, p.tolerance(h, advice.History), fresh, now) {
		return putOff
	}
	if p.Secure != nil {
		p.Secure(ctx, v, now)
		if v.Unsaved != outcome.Unsaved {
			outcome.Unsaved = v.Unsaved
			fresh = Compose(v.Object, outcome, now)
		}
	}
	done, err := p.Write(ctx, v.Object, fresh)
	switch {
	case err != nil && ctx.Err() != nil:
		return late
	case err != nil:
		log.Error(err, "Cannot publish a recommendation, trying again in the next pass", "vpa", klog.KObj(v.Object))
		return failed
	case done:
		return written
	}
	return unchanged
}

// remember keeps what later passes compare with, and speaks up for a VPA that
// has gone without recommendation for long.
func (p *Publisher) remember(log klog.Logger, v *model.VPA, o Outcome, now time.Time) {
	provided := len(o.Recommendation) > 0
	if provided && !v.Recommended {
		p.Latency.Observe(now.Sub(v.Object.CreationTimestamp.Time).Seconds())
	}
	if provided || v.Recommended {
		v.MissingLoggedAt = now
	}
	v.Recommended = provided
	if !provided && o.Lacks == "" && now.Sub(v.MissingLoggedAt) >= missingLogInterval {
		v.MissingLoggedAt = now
		log.Info("VPA still has no recommendation", "vpa", klog.KObj(v.Object), "pods", o.Pods, "age", now.Sub(v.Object.CreationTimestamp.Time))
	}
	if o.Held != "" && !Holds(v.Object, TargetHeld) {
		log.Info("Targets are held", "vpa", klog.KObj(v.Object), "reason", o.Held)
	}
	if o.Conflict != "" && !Holds(v.Object, TargetConflict) {
		log.Info("Two VPAs select the same pods", "vpa", klog.KObj(v.Object), "reason", o.Conflict)
	}
	uncapped := make(map[string]resources.List, len(o.Recommendation))
	for _, c := range o.Recommendation {
		resources := convert.Resources(c.UncappedTarget)
		p.Changed(v, c.ContainerName, resources)
		uncapped[c.ContainerName] = resources
	}
	v.Uncapped = uncapped
}

// conflict says which other VPA controls pods of v, and why; it is empty if none
// does.
func conflict(v *model.VPA) string {
	other := v.Controller()
	if other == nil {
		return ""
	}
	why := "it is older"
	switch {
	case !v.Acts() && other.Acts():
		why = "this one is switched off"
	case other.Object.CreationTimestamp.Equal(&v.Object.CreationTimestamp):
		why = "both are equally old and its name comes first"
	}
	return fmt.Sprintf("VPA %s selects the same pods and controls them because %s: delete one of the two, or give them different targets", other.Object.Name, why)
}
