// Package recommend computes the recommendations of VPAs and publishes them in their status.
//
// Publisher writes the statuses of changed VPAs. Advisor computes recommendations and checkpoint
// contents. It modifies only its notes in a VPA and the VPA's sketches, so several goroutines may
// use it for different VPAs, each with its own scratch profile. SketchKeeper chooses recipes and
// fills sketches. Quality and WorkloadQuality compare usage with recommendations.
//
// Package recipe computes the values. Advise formats them with convert.Format, keeps published
// values where history is missing or untrusted, rounds CPU to whole cores if enabled, and caps them
// with package policy, in this order.
package recommend

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// Publisher publishes recommendations in the status of VPAs. Its state is in model.VPA.Published.
// Its fields are set once.
//
//	Publish ── changed VPAs, least recently tried first, in parallel:
//	   Advisor.Estimates   evaluate the histories
//	   differsEnough       skip small changes of estimates
//	   Advisor.Advise      format the recommendation
//	   status.Compose      compose the status with conditions
//	   canDefer            skip small changes of bounds
//	   Checkpoints.Secure  save the history first if a crash would lower a target
//	   Writer.Write        patch the status
type Publisher struct {
	Advisor     *Advisor
	Checkpoints *checkpoints.Maintainer
	Writer      status.Writer
	Quality     *Quality
	Workers     int
	Tolerance   float64                // deferred fraction of a bound, 0: none
	Latency     prometheus.Histogram   // from creation of a VPA to its first recommendation
	Results     *prometheus.CounterVec // of VPAs by result
	Health      *serving.Health        // ticks after each VPA
	Guard       model.Guard            // around each VPA
}

type result string

const (
	written   result = "written"
	unchanged result = "unchanged" // equals the published status
	deferred  result = "put_off"   // nearly equals the published status
	failed    result = "error"
	late      result = "late" // first in the next iteration
)

const (
	// maxBoundsDelay is how long a bound may differ from the published one. Each VPA has its slot.
	maxBoundsDelay = time.Hour
	// minPublishTime applies even in a late iteration.
	minPublishTime = 5 * time.Second
	// requestTimeout is how long requests may exceed the time.
	requestTimeout = 10 * time.Second
	// boundsTimeDivisor defers changes of bounds after time / boundsTimeDivisor.
	boundsTimeDivisor  = 30
	missingLogInterval = 30 * time.Minute
)

type job struct {
	vpa  *model.VPA
	seen model.Inputs
}

// worker is the reusable memory of one goroutine.
type worker struct {
	scratch   usage.Profile
	estimates []model.Estimate
}

// AddVPA initializes the state of a new VPA from its status.
func (p *Publisher) AddVPA(v *model.VPA, now time.Time) {
	v.Published.Recommended, v.Published.MissingLoggedAt = status.Provided(v.Object), now
}

// Publish publishes all VPAs that changed since the last call or failed. It returns the number of
// VPAs left when span or ctx ended. These come first the next time.
func (p *Publisher) Publish(ctx context.Context, vpas []*model.VPA, now time.Time, span time.Duration) int {
	jobs := p.jobs(vpas, now, func(j job) bool { return p.needsPublish(j, now) })
	// Least recently tried VPAs come first, so that neither new VPAs nor VPAs behind hanging writes
	// starve. Ties are ordered by the last write, even a failed one, so that bounds take turns.
	slices.SortStableFunc(jobs, func(a, b job) int {
		x, y := &a.vpa.Published, &b.vpa.Published
		return cmp.Or(x.LastTried.Compare(y.LastTried), x.LastWriteOrSeen.Compare(y.LastWriteOrSeen))
	})
	return p.publishAll(ctx, jobs, now, span)
}

// PublishChanged publishes only VPAs with changed model.Inputs, for example after a kill.
func (p *Publisher) PublishChanged(ctx context.Context, vpas []*model.VPA, now time.Time, span time.Duration) int {
	return p.publishAll(ctx, p.jobs(vpas, now, func(j job) bool { return j.seen != j.vpa.Published.Inputs }), now, span)
}

func (p *Publisher) jobs(vpas []*model.VPA, now time.Time, wanted func(job) bool) (jobs []job) {
	collect := func(v *model.VPA) {
		defer p.Guard.Recover(v)
		if v.Published.LastWriteOrSeen.IsZero() {
			v.Published.LastWriteOrSeen = now
		}
		v.ChooseContainers(now)
		// An unread target is usually read within minutes. Until then no condition is written.
		if j := (job{v, v.Inputs(now)}); !j.seen.TargetUnread && wanted(j) {
			jobs = append(jobs, j)
		}
	}
	for _, v := range vpas {
		collect(v)
	}
	return jobs
}

func (p *Publisher) needsPublish(j job, now time.Time) bool {
	last := &j.vpa.Published
	return !last.Succeeded || !last.Recommended || last.Inputs != j.seen ||
		last.Deferred && (last.BoundsTimeUp || j.vpa.SlotPassed(maxBoundsDelay, last.LastWriteOrSeen, now))
}

// publishAll alternates between namespaces and returns the number of jobs left.
func (p *Publisher) publishAll(ctx context.Context, jobs []job, now time.Time, span time.Duration) int {
	span = max(span, minPublishTime)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, span+requestTimeout)
	defer cancel()
	workers := make([]worker, p.Workers)
	for i := range workers {
		workers[i].scratch = usage.NewProfile(p.Advisor.Shape)
	}
	left := fairwork.Run(jobs, p.Workers, func(j job) string { return j.vpa.Object.Namespace },
		func(job) bool { return ctx.Err() == nil && time.Since(began) < span },
		func(w int, j job) {
			last := &j.vpa.Published
			last.LastTried, last.BoundsTimeUp = now, time.Since(began) >= span/boundsTimeDivisor && p.Tolerance > 0
			p.publishOne(ctx, j, &workers[w], now)
			p.Health.Tick()
		})
	for _, j := range left {
		j.vpa.Published.Succeeded, j.vpa.Published.Inputs = false, j.seen
		p.Results.WithLabelValues(string(late)).Inc()
	}
	return len(left)
}

func (p *Publisher) publishOne(ctx context.Context, j job, w *worker, now time.Time) {
	v, last := j.vpa, &j.vpa.Published
	defer p.Guard.Recover(v)
	onlyHistory := j.seen
	onlyHistory.Revision = last.Inputs.Revision
	compare := last.Succeeded && last.Recommended && onlyHistory == last.Inputs && len(last.Estimates) > 0
	last.Succeeded, last.Inputs = false, j.seen
	w.estimates = p.Advisor.Estimates(v, &w.scratch, w.estimates[:0])

	var r result
	targetsStay := true
	switch {
	case compare && slices.Equal(last.Estimates, w.estimates):
		r = unchanged
	case compare && !p.boundsDue(v, now) && !p.differsEnough(v, last.Estimates, w.estimates):
		r = deferred
	default:
		targetsStay = false
		r = p.write(ctx, j, w.estimates, now)
	}
	if targetsStay {
		for container, target := range last.Uncapped {
			p.Quality.RecordChange(v, container, target)
		}
	}
	p.Results.WithLabelValues(string(r)).Inc()

	last.Succeeded, last.Deferred = r != failed && r != late, r == deferred
	if r == written || !last.Succeeded {
		last.LastWriteOrSeen = now
	}
	switch {
	case r == written || r == unchanged:
		last.Estimates = append(last.Estimates[:0], w.estimates...)
	case r == deferred && p.differsEnough(v, last.Estimates, w.estimates):
		last.Estimates = last.Estimates[:0] // the published status is based on other estimates
	}
}

func (p *Publisher) write(ctx context.Context, j job, estimates []model.Estimate, now time.Time) result {
	v, log := j.vpa, klog.FromContext(ctx)
	if client.VPARefused(v.Object) {
		done, err := p.Writer.WriteConditions(ctx, v.Object, status.ComposeRefused(v.Object, now))
		return p.resultOf(ctx, v, done, err)
	}
	outcome := p.Advisor.Advise(v, estimates)
	outcome.Pods, outcome.TargetError, outcome.Conflict, outcome.Unsaved = j.seen.Pods, j.seen.TargetError, j.seen.Conflict, v.Saved.Unsaved
	outcome.Ambiguous, outcome.Omitted, outcome.Outranked = j.seen.Ambiguous, j.seen.Omitted, j.seen.Outranked
	outcome.WriteLimited = v.Published.WriteLimited
	if v.Recipe != nil {
		outcome.Recipe = v.Recipe.Problem
	}
	outcome.RecipePolicy = j.seen.RecipePolicy
	switch {
	case j.seen.Observing != "":
		if len(outcome.Recommendation) == 0 {
			outcome.History = 0
		}
		outcome.Recommendation, outcome.Observing = nil, j.seen.Observing
	case !j.seen.Grace:
		outcome.Recommendation = nil
	case v.TargetError != nil && status.Provided(v.Object) && (!v.Retargeted || !v.StatusOfOther()):
		// The visible usage of a temporarily unreadable target may be incomplete, so keep its
		// recommendation. One for an earlier target keeps its generation.
		outcome.Recommendation = v.Object.Status.Recommendation.ContainerRecommendations
		outcome.KeepGeneration, outcome.MemoryLimits = v.StatusOfOther(), status.Message(v.Object, convert.SeparateMemoryLimit)
	}
	p.recordOutcome(log, v, outcome, now)
	fresh := status.Compose(v.Object, outcome, now)
	if p.canDefer(v, outcome.History, fresh, now) {
		return deferred
	}
	if status.Provided(v.Object) && convert.RaisesMemory(&v.Object.Status, &fresh) {
		ctx = client.Urgent(ctx)
	}
	p.Checkpoints.Secure(ctx, v, now)
	if v.Saved.Unsaved != outcome.Unsaved {
		outcome.Unsaved = v.Saved.Unsaved
		fresh = status.Compose(v.Object, outcome, now)
	}
	done, err := p.Writer.Write(ctx, v.Object, fresh)
	if v.Published.TooLarge = errors.Is(err, status.ErrTooLarge); v.Published.TooLarge {
		done, err = p.writeTooLarge(ctx, v, outcome, now)
	}
	return p.resultOf(ctx, v, done, err)
}

func (p *Publisher) resultOf(ctx context.Context, v *model.VPA, done bool, err error) result {
	log := klog.FromContext(ctx)
	if done || client.IsWriteLimited(err) {
		v.Published.WriteLimited = !done
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return late
	case client.IsWriteLimited(err):
		log.V(2).Info("Recommendation not published yet, retrying in the next iteration", "vpa", klog.KObj(v.Object), "reason", err)
		return late
	case err != nil:
		log.Error(err, "Failed to publish a recommendation, retrying in the next iteration", "vpa", klog.KObj(v.Object))
		return failed
	case done:
		return written
	}
	return unchanged
}

// writeTooLarge keeps the published recommendation, or writes none if that is too large as well.
func (p *Publisher) writeTooLarge(ctx context.Context, v *model.VPA, outcome status.Outcome, now time.Time) (bool, error) {
	if !status.Holds(v.Object, status.StatusTooLarge) {
		klog.FromContext(ctx).Info("Keeping the published recommendation: the new status is too large", "vpa", klog.KObj(v.Object),
			"containers", len(outcome.Recommendation), "limit", status.MaxBytes)
	}
	small := status.Outcome{
		Pods: outcome.Pods, TargetError: outcome.TargetError, Conflict: outcome.Conflict, Omitted: outcome.Omitted,
		Unsaved: outcome.Unsaved, Recipe: outcome.Recipe, RecipePolicy: outcome.RecipePolicy, TooLarge: true, WriteLimited: outcome.WriteLimited,
	}
	if status.Provided(v.Object) {
		kept := small
		kept.Recommendation, kept.KeepGeneration = v.Object.Status.Recommendation.ContainerRecommendations, true
		kept.MemoryLimits = status.Message(v.Object, convert.SeparateMemoryLimit)
		done, err := p.Writer.Write(ctx, v.Object, status.Compose(v.Object, kept, now))
		if !errors.Is(err, status.ErrTooLarge) {
			return done, err
		}
	}
	return p.Writer.Write(ctx, v.Object, status.Compose(v.Object, small, now))
}

// recordOutcome also logs new conditions and missing recommendations.
func (p *Publisher) recordOutcome(log klog.Logger, v *model.VPA, o status.Outcome, now time.Time) {
	last, provided := &v.Published, len(o.Recommendation) > 0
	last.Rising = o.Rising != ""
	if o.Observing != "" { // nothing is missing
		last.Recommended, last.HistoryStep, last.Uncapped, last.Protected = true, 0, nil, nil
		return
	}
	if provided && !last.Recommended {
		p.Latency.Observe(now.Sub(v.Object.CreationTimestamp.Time).Seconds())
	}
	if provided || last.Recommended {
		last.MissingLoggedAt = now
	}
	last.Recommended, last.HistoryStep = provided, 0
	if provided {
		last.HistoryStep = 1 + convert.HistoryStep(o.History)
	}
	if !provided && o.MissingPoints == "" && !o.Outranked && now.Sub(last.MissingLoggedAt) >= missingLogInterval {
		last.MissingLoggedAt = now
		log.Info("VPA still has no recommendation", "vpa", klog.KObj(v.Object), "pods", o.Pods, "age", now.Sub(v.Object.CreationTimestamp.Time))
	}
	if o.Held != "" && !status.Holds(v.Object, status.TargetHeld) {
		log.Info("Targets are held", "vpa", klog.KObj(v.Object), "reason", o.Held)
	}
	if o.Omitted != "" && !status.Holds(v.Object, status.TooManyContainers) {
		log.Info("VPA has too many containers", "vpa", klog.KObj(v.Object), "reason", o.Omitted)
	}
	if o.Conflict != "" && !status.Holds(v.Object, status.TargetConflict) {
		log.Info("Two VPAs select the same pods", "vpa", klog.KObj(v.Object), "reason", o.Conflict)
	}
	uncapped := make(map[string]resources.List, len(o.Recommendation))
	last.Protected = nil
	for _, c := range o.Recommendation {
		if o.MemoryLimits != "" {
			if last.Protected == nil {
				last.Protected = map[string]resources.Amount{}
			}
			last.Protected[c.ContainerName] = convert.Resources(c.UpperBound).Value(resources.Memory)
		}
		target := convert.Resources(c.UncappedTarget)
		p.Quality.RecordChange(v, c.ContainerName, target)
		uncapped[c.ContainerName] = target
	}
	last.Uncapped = uncapped
}

func (p *Publisher) boundsDue(v *model.VPA, now time.Time) bool {
	return !v.Published.BoundsTimeUp && v.SlotPassed(maxBoundsDelay, v.Published.LastWriteOrSeen, now)
}

// canDefer reports whether a status differs only in small changes of bounds.
func (p *Publisher) canDefer(v *model.VPA, history time.Duration, fresh vpav1.VerticalPodAutoscalerStatus, now time.Time) bool {
	published := &v.Object.Status
	if p.Tolerance <= 0 || p.boundsDue(v, now) || published.Recommendation == nil || !status.SameButBounds(published, &fresh) {
		return false
	}
	bounds := func(s *vpav1.VerticalPodAutoscalerStatus) (list []model.Estimate) {
		for _, c := range s.Recommendation.ContainerRecommendations {
			list = append(list, model.Estimate{Container: c.ContainerName, Bounds: convert.Bounds(c), History: history})
		}
		return list
	}
	before, after := bounds(published), bounds(&fresh)
	return !slices.Equal(before, after) && !p.differsEnough(v, before, after)
}

// differsEnough reports whether estimates differ in more than small changes of bounds. A bound may
// move by the fraction Tolerance, or by any distance once the time for bounds is up.
//
// Bounds approach the target as the history grows: by the fraction f/(1+days) when it grows by the
// fraction f. A short history would cause a write in each iteration, so f must reach 1/8 to 3/8.
// The value depends on the VPA, so that VPAs created together do not write together.
//
// If pods share node headroom, the lower bound is the base of their shares. Bases fluctuate, so a
// rise up to maxBaseRise and a fall up to maxBaseFall are deferred.
func (p *Publisher) differsEnough(v *model.VPA, published, fresh []model.Estimate) bool {
	return !slices.EqualFunc(published, fresh, func(was, is model.Estimate) bool {
		away, nearer := p.Tolerance, p.Tolerance
		switch {
		case was.Rounded:
			away, nearer = 0, 0
		case v.Published.BoundsTimeUp:
			away, nearer = math.Inf(1), math.Inf(1)
		case p.Tolerance > 0 && is.History < convert.HistorySteps[len(convert.HistorySteps)-1].From:
			longer := (0.5 + float64(v.Offset(maxBoundsDelay))/float64(maxBoundsDelay)) / 4
			nearer = max(nearer, longer/(1+is.History.Hours()/24))
		}
		rise, fall := nearer, away
		if sharesNode(v) && !was.Rounded {
			rise, fall = 0, 0
			if p.Tolerance > 0 {
				rise, fall = max(p.Tolerance, maxBaseRise), max(p.Tolerance, maxBaseFall)
			}
		}
		if protectsLimits(v) && was.Bounds.Upper.Value(resources.Memory) != is.Bounds.Upper.Value(resources.Memory) {
			return false
		}
		if !withinTolerance(was.Bounds.Lower, is.Bounds.Lower, rise, fall) || !withinTolerance(was.Bounds.Upper, is.Bounds.Upper, away, nearer) {
			return false
		}
		is.Bounds.Lower, is.Bounds.Upper = was.Bounds.Lower, was.Bounds.Upper
		return was == is
	})
}

// maxBaseRise and maxBaseFall are nearly two and four steps of the grid for bases.
const maxBaseRise, maxBaseFall = 0.1, 0.2

func sharesNode(v *model.VPA) bool { return v.Recipe != nil && v.Recipe.Sharing != nil }

// protectsLimits reports whether the upper memory bound is the memory to protect by limits.
func protectsLimits(v *model.VPA) bool { return v.Recipe != nil && v.Recipe.SeparateMemoryLimit }

func withinTolerance(was, is resources.List, rise, fall float64) bool {
	for k := range resources.Kind(resources.Kinds) {
		a, found := was.Get(k)
		b, stays := is.Get(k)
		if found != stays || float64(b-a) > rise*float64(a) || float64(a-b) > fall*float64(a) {
			return false
		}
	}
	return true
}
