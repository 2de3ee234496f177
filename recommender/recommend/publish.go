// Package recommend puts together what is known about a VPA's containers, live and restored, and makes of it what goes
// out: a recommendation for the status, and contents for the checkpoints.
//
// Publisher is the road from changed VPAs to their written statuses. It asks Advisor, which makes recommendations and
// checkpoint contents. Advisor reads the store and the model and changes neither, but for what it notes in a VPA about
// its advice, and in the VPA's own sketches, so several goroutines may use it at once for different VPAs, each with its
// own scratch profile. SketchKeeper gives each VPA its recipe and fills the sketches that it asks for. Quality and
// WorkloadQuality are metrics that compare what is used with what was recommended.
//
// The numbers come from package recipe. Advise rounds them as convert.Format says, puts back what is
// published where less is known than then, or it is doubted (hold, keep), makes CPU whole cores where a flag wants that, and
// caps them with package policy, in this order; the status is put together by package status.
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

// Publisher brings recommendations into the status of VPAs. What it knows of a VPA is in
// model.VPA.Published. Its fields are set once.
//
//	Publish ── which VPAs have news? ── in order of their turns, some at once:
//	   Advisor.Estimates   what do the histories come to?
//	   worthWriting        is that more than nearly what is published?
//	   Advisor.Advise      the recommendation, as it will be printed
//	   status.Compose      the new status, with conditions
//	   canWait             do only bounds differ, and little?
//	   Checkpoints.Secure  the history behind it, if a crash would lower a target
//	   Writer.Write        the patch
type Publisher struct {
	Advisor     *Advisor
	Checkpoints *checkpoints.Maintainer
	Writer      status.Writer
	Quality     *Quality
	Workers     int
	Tolerance   float64                // a bound that moves by a smaller fraction can wait; 0: none can
	Latency     prometheus.Histogram   // creation of a VPA to its first recommendation
	Results     *prometheus.CounterVec // of writes
	Health      *serving.Health        // ticks after each VPA
	Guard       model.Guard            // around the work on each VPA
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

const (
	// longestWait is how long a bound may differ from what is published. Each VPA has its own moment within it.
	longestWait = time.Hour
	// leastSpan is the time for statuses however late a pass is.
	leastSpan = 5 * time.Second
	// requestTime is how long a request may last that starts before time is up.
	requestTime = 10 * time.Second
	// boundsShare is the divisor of the time of a pass for the part of it in which statuses are written of which
	// nothing but a bound moved: a pass shall be short, and a bound may come some passes later.
	boundsShare = 30
	// missingLogInterval is how long a VPA may go without recommendation before, and
	// between two times that, this is logged.
	missingLogInterval = 30 * time.Minute
)

type job struct {
	vpa  *model.VPA
	seen model.Inputs
}

// worker is the memory that one goroutine needs for one VPA after the other.
type worker struct {
	scratch   usage.Profile
	estimates []model.Estimate
}

// Take begins with a VPA that is new in the model: what its status has counts as recommended.
func (p *Publisher) Take(v *model.VPA, now time.Time) {
	v.Published.Recommended, v.Published.MissingLoggedAt = status.Provided(v.Object), now
}

// Publish computes and publishes a recommendation for every VPA of which anything changed since the last time, or whose
// last write failed. It returns how many had no turn because the span of time was over, or ctx ended: they come first
// the next time.
func (p *Publisher) Publish(ctx context.Context, vpas []*model.VPA, now time.Time, span time.Duration) int {
	jobs := p.jobs(vpas, now, func(j job) bool { return p.hasNews(j, now) })
	// Whose turn came longest ago is first, so that nothing starves: neither a new VPA, nor
	// those behind others whose writes hang. Among equals it is whose last write is the oldest,
	// so that bounds take turns; a write that failed counts.
	slices.SortStableFunc(jobs, func(a, b job) int {
		x, y := &a.vpa.Published, &b.vpa.Published
		return cmp.Or(x.Tried.Compare(y.Tried), x.LastWriteOrSeen.Compare(y.LastWriteOrSeen))
	})
	return p.work(ctx, jobs, now, span)
}

// PublishChanged does the same for VPAs that are not as they were when they were last looked at: model.Inputs differs,
// of which a kill for want of memory changes Revision. What failed or had no turn waits for Publish.
func (p *Publisher) PublishChanged(ctx context.Context, vpas []*model.VPA, now time.Time, span time.Duration) int {
	return p.work(ctx, p.jobs(vpas, now, func(j job) bool { return j.seen != j.vpa.Published.Inputs }), now, span)
}

func (p *Publisher) jobs(vpas []*model.VPA, now time.Time, wanted func(job) bool) (jobs []job) {
	look := func(v *model.VPA) {
		defer p.Guard.Recover(v)
		if v.Published.LastWriteOrSeen.IsZero() {
			v.Published.LastWriteOrSeen = now
		}
		v.ChooseContainers(now)
		// Of a target that is read within minutes nothing is written until then: neither that it cannot
		// be used, nor that it has no pods.
		if j := (job{v, v.Inputs(now)}); !j.seen.NotRead && wanted(j) {
			jobs = append(jobs, j)
		}
	}
	for _, v := range vpas {
		look(v)
	}
	return jobs
}

func (p *Publisher) hasNews(j job, now time.Time) bool {
	last := &j.vpa.Published
	return !last.Done || !last.Recommended || last.Inputs != j.seen ||
		last.PutOff && (last.Rushed || j.vpa.TurnCame(longestWait, last.LastWriteOrSeen, now))
}

// work does jobs with some workers, in turns of namespaces, and counts those that had no turn.
func (p *Publisher) work(ctx context.Context, jobs []job, now time.Time, span time.Duration) int {
	span = max(span, leastSpan)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, span+requestTime)
	defer cancel()
	workers := make([]worker, p.Workers)
	for i := range workers {
		workers[i].scratch = usage.NewProfile(p.Advisor.Shape)
	}
	left := fairwork.Run(jobs, p.Workers, func(j job) string { return j.vpa.Object.Namespace },
		func(job) bool { return ctx.Err() == nil && time.Since(began) < span },
		func(w int, j job) {
			last := &j.vpa.Published
			last.Tried, last.Rushed = now, time.Since(began) >= span/boundsShare && p.Tolerance > 0
			p.publishOne(ctx, j, &workers[w], now)
			p.Health.Tick()
		})
	for _, j := range left {
		j.vpa.Published.Done, j.vpa.Published.Inputs = false, j.seen
		p.Results.WithLabelValues(string(late)).Inc()
	}
	return len(left)
}

// publishOne brings the status of a VPA up to date, if there is anything new to say.
func (p *Publisher) publishOne(ctx context.Context, j job, w *worker, now time.Time) {
	v, last := j.vpa, &j.vpa.Published
	defer p.Guard.Recover(v)
	onlyHistory := j.seen
	onlyHistory.Revision = last.Inputs.Revision
	compare := last.Done && last.Recommended && onlyHistory == last.Inputs && len(last.Estimates) > 0
	last.Done, last.Inputs = false, j.seen
	w.estimates = p.Advisor.Estimates(v, &w.scratch, w.estimates[:0])

	var r result
	targetsStay := true
	switch {
	case compare && slices.Equal(last.Estimates, w.estimates):
		r = unchanged
	case compare && !p.due(v, now) && !p.worthWriting(v, last.Estimates, w.estimates):
		r = putOff
	default:
		targetsStay = false
		r = p.write(ctx, j, w.estimates, now)
	}
	if targetsStay {
		for container, target := range last.Uncapped {
			p.Quality.Changed(v, container, target)
		}
	}
	p.Results.WithLabelValues(string(r)).Inc()

	last.Done, last.PutOff = r != failed && r != late, r == putOff
	if r == written || !last.Done {
		last.LastWriteOrSeen = now
	}
	switch {
	case r == written || r == unchanged:
		last.Estimates = append(last.Estimates[:0], w.estimates...)
	case r == putOff && p.worthWriting(v, last.Estimates, w.estimates):
		last.Estimates = last.Estimates[:0] // what is published was not made of these
	}
}

// write builds the status of a VPA and writes it, unless it can wait.
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
		// A target that cannot be read for a moment is no reason to change what was recommended: we may see less than
		// there is. What may have been recommended for another target keeps the generation that it was made for.
		outcome.Recommendation = v.Object.Status.Recommendation.ContainerRecommendations
		outcome.Earlier, outcome.Separate = v.StatusOfOther(), status.Message(v.Object, convert.SeparateMemoryLimit)
	}
	p.remember(log, v, outcome, now)
	fresh := status.Compose(v.Object, outcome, now)
	if p.canWait(v, outcome.History, fresh, now) {
		return putOff
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
		log.V(2).Info("Recommendation not published yet, trying again in the next pass", "vpa", klog.KObj(v.Object), "reason", err)
		return late
	case err != nil:
		log.Error(err, "Cannot publish a recommendation, trying again in the next pass", "vpa", klog.KObj(v.Object))
		return failed
	case done:
		return written
	}
	return unchanged
}

// writeTooLarge writes a status with the published recommendation in place of one that exceeds
// status.MaxBytes, or without any if that exceeds it too.
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
		kept.Recommendation, kept.Earlier = v.Object.Status.Recommendation.ContainerRecommendations, true
		kept.Separate = status.Message(v.Object, convert.SeparateMemoryLimit)
		done, err := p.Writer.Write(ctx, v.Object, status.Compose(v.Object, kept, now))
		if !errors.Is(err, status.ErrTooLarge) {
			return done, err
		}
	}
	return p.Writer.Write(ctx, v.Object, status.Compose(v.Object, small, now))
}

// remember keeps what later passes compare with, and speaks up for a VPA that has gone without recommendation for long.
func (p *Publisher) remember(log klog.Logger, v *model.VPA, o status.Outcome, now time.Time) {
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
	if !provided && o.Lacks == "" && !o.Outranked && now.Sub(last.MissingLoggedAt) >= missingLogInterval {
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
		if o.Separate != "" {
			if last.Protected == nil {
				last.Protected = map[string]resources.Amount{}
			}
			last.Protected[c.ContainerName] = convert.Resources(c.UpperBound).Value(resources.Memory)
		}
		target := convert.Resources(c.UncappedTarget)
		p.Quality.Changed(v, c.ContainerName, target)
		uncapped[c.ContainerName] = target
	}
	last.Uncapped = uncapped
}

// due reports whether bounds must be published that are nearly as they should be.
func (p *Publisher) due(v *model.VPA, now time.Time) bool {
	return !v.Published.Rushed && v.TurnCame(longestWait, v.Published.LastWriteOrSeen, now)
}

// canWait reports whether a status differs from the published one only in bounds,
// and so little that nobody needs to know at once.
func (p *Publisher) canWait(v *model.VPA, history time.Duration, fresh vpav1.VerticalPodAutoscalerStatus, now time.Time) bool {
	published := &v.Object.Status
	if p.Tolerance <= 0 || p.due(v, now) || published.Recommendation == nil || !status.SameButBounds(published, &fresh) {
		return false
	}
	bounds := func(s *vpav1.VerticalPodAutoscalerStatus) (list []model.Estimate) {
		for _, c := range s.Recommendation.ContainerRecommendations {
			list = append(list, model.Estimate{Container: c.ContainerName, Bounds: convert.Bounds(c), History: history})
		}
		return list
	}
	before, after := bounds(published), bounds(&fresh)
	return !slices.Equal(before, after) && !p.worthWriting(v, before, after)
}

// worthWriting reports whether what is recommended now differs from what is published in
// anything but bounds, or in these by more than may wait. A bound may move by the fraction
// Tolerance. Where all may move that have no time in this pass, any distance may wait.
//
// Bounds come nearer to the target as the history gets longer: by the fraction f/(1+days) when it becomes longer by the
// fraction f. While it is short each pass would write for that alone, so that f must reach 1/8 to 3/8, another value
// for each VPA: many that began together do not write together.
//
// Where pods share what their node has left, the lower bound is the base that shares are made
// of. A base goes up and down all the time, and one that is a little off does no harm, so a
// rise of baseLag waits, and a fall of less than baseSlack; more is written at once.
func (p *Publisher) worthWriting(v *model.VPA, published, fresh []model.Estimate) bool {
	return !slices.EqualFunc(published, fresh, func(was, is model.Estimate) bool {
		away, nearer := p.Tolerance, p.Tolerance
		switch {
		case was.Rounded:
			away, nearer = 0, 0
		case v.Published.Rushed:
			away, nearer = math.Inf(1), math.Inf(1)
		case p.Tolerance > 0 && is.History < convert.HistorySteps[len(convert.HistorySteps)-1].From:
			longer := (0.5 + float64(v.Offset(longestWait))/float64(longestWait)) / 4
			nearer = max(nearer, longer/(1+is.History.Hours()/24))
		}
		rise, fall := nearer, away
		if shares(v) && !was.Rounded {
			rise, fall = 0, 0
			if p.Tolerance > 0 {
				rise, fall = max(p.Tolerance, baseLag), max(p.Tolerance, baseSlack)
			}
		}
		if protects(v) && was.Bounds.Upper.Value(resources.Memory) != is.Bounds.Upper.Value(resources.Memory) {
			return false
		}
		if !within(was.Bounds.Lower, is.Bounds.Lower, rise, fall) || !within(was.Bounds.Upper, is.Bounds.Upper, away, nearer) {
			return false
		}
		is.Bounds.Lower, is.Bounds.Upper = was.Bounds.Lower, was.Bounds.Upper
		return was == is
	})
}

// baseLag and baseSlack are the parts of a base that is published by which it may be too small
// and too large: nearly two steps of the grid that bases are rounded up to, and nearly four.
const baseLag, baseSlack = 0.1, 0.2

// shares reports whether the lower bounds of a VPA are what its pods share by.
func shares(v *model.VPA) bool { return v.Recipe != nil && v.Recipe.Sharing != nil }

// protects reports whether the upper bound of memory is what a limit protects.
func protects(v *model.VPA) bool { return v.Recipe != nil && v.Recipe.SeparateMemoryLimit }

// within reports whether two bounds have the same kinds and differ by no more than
// fractions of the first, one for a rise and one for a fall.
func within(was, is resources.List, rise, fall float64) bool {
	for k := range resources.Kind(resources.Kinds) {
		a, found := was.Get(k)
		b, stays := is.Get(k)
		if found != stays || float64(b-a) > rise*float64(a) || float64(a-b) > fall*float64(a) {
			return false
		}
	}
	return true
}
