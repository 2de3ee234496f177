package recommender

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// Ingester adds usage to a store. Its exported fields are set once.
type Ingester struct {
	Source  sampleSource
	Name    string        // of the source, for people; empty = the metrics API
	Timeout time.Duration // of one call of Source
	OOMs    *model.OOMs
	Health  *serving.Health // ticks now and then while samples arrive
	Store   *usage.Store
	Model   *model.Model

	Sketches *recommend.SketchKeeper // gets what counts; nil: there is none
	Guard    model.Guard             // around the work on each kill

	Quality   *recommend.Quality
	Samples   *prometheus.CounterVec // by what became of a sample
	Kills     *prometheus.CounterVec // by what became of a kill
	Responses *prometheus.CounterVec // by whether the source failed, and its name

	batch  []usage.Sample // not added yet
	early  []usage.OOM    // kills that were taken since the last samples
	outage serving.Reminder
	skewed bool // the last pass had samples from the future
	absurd bool // the last iteration had samples above the capacity of a node
}

// aheadOfUs is how far the clock of a node may be ahead of ours. What is newer still is not taken: next to it all other
// samples of a history would weigh nothing, and the container would get no new ones until then.
const aheadOfUs = time.Hour

// inFuture is the reason for that.
const inFuture usage.Reason = "the time is more than an hour ahead of ours"

// sourceName is the name of the only source in metrics.
const sourceName = "default-metrics-client"

// Once adds one sample of each container, then the kills that wait. A source
// that fails adds nothing; the kills are taken all the same.
func (i *Ingester) Once(ctx context.Context, now time.Time) {
	log := klog.FromContext(ctx)
	i.Quality.Workloads.Follow(i.Model, i.Store, now)
	limited, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	var future, above usage.ContainerKey
	i.batch = i.batch[:0] // not empty after a panic
	add := func() {
		for _, s := range i.batch {
			switch i.sample(s, now) {
			case inFuture:
				future = s.Container
			case usage.AboveCeiling:
				above = s.Container
			}
		}
		i.batch = i.batch[:0]
	}
	err := i.Source.Samples(limited, func(s usage.Sample) {
		if i.batch = append(i.batch, s); len(i.batch) < batchSize {
			return
		}
		i.Model.Change(add)
		i.Health.Tick()
	})
	i.Model.Change(add)
	i.Responses.WithLabelValues(strconv.FormatBool(err != nil), sourceName).Inc()
	if ctx.Err() == nil {
		i.logOutage(log, err, now)
	}
	skewed := future != usage.ContainerKey{}
	if skewed && !i.skewed {
		log.Info("Samples from the future are not taken: compare the clock of the node with ours",
			"pod", klog.KRef(future.Namespace, future.Pod), "now", now)
	}
	i.skewed = skewed
	absurd := above != usage.ContainerKey{}
	if absurd && !i.absurd {
		log.Info("Dropping usage samples above the capacity of the node", "pod", klog.KRef(above.Namespace, above.Pod), "container", above.Container)
	}
	i.absurd = absurd
	i.Model.Change(func() {
		for _, oom := range i.early {
			i.Store.ReviseOOM(oom)
		}
	})
	i.StoreKills(log, now)
	i.early = nil
}

// batchSize is the number of samples that are added at once. Explanations wait that long.
const batchSize = 1000

func (i *Ingester) sample(s usage.Sample, now time.Time) usage.Reason {
	reason := inFuture
	if s.At.Sub(now) <= aheadOfUs {
		reason = i.Store.Observe(s)
	}
	i.Samples.WithLabelValues(result(reason)).Inc()
	if reason == usage.Accepted {
		i.Quality.Observe(i.Model.Controlling(s.Container), s.Container, s.Kind, s.Amount, false)
		if i.Sketches != nil {
			i.Sketches.Observe(s, 1)
		}
	}
	return reason
}

// StoreKills adds the kills that wait to the store (Store.ObserveOOM), whose numbers the recipe vpa
// takes, and to the sketches, from which the others take theirs. Between two iterations the
// usage up to the kill may not be known yet: Once revises the kill when it is.
func (i *Ingester) StoreKills(log klog.Logger, now time.Time) {
	ooms, dropped := i.OOMs.Drain()
	if dropped > 0 {
		i.Kills.WithLabelValues("dropped").Add(float64(dropped))
		log.Info("More out-of-memory kills than fit between two passes, some were dropped", "dropped", dropped)
	}
	i.Model.Change(func() {
		for _, oom := range ooms {
			i.kill(log, oom, now)
		}
	})
}

// kill takes one kill. What was drained comes only once, so a defect in the work on one must not lose the others.
func (i *Ingester) kill(log klog.Logger, oom usage.OOM, now time.Time) {
	defer i.Guard.Recover(nil)
	oom = i.bound(oom)
	reason := inFuture
	if oom.At.Sub(now) <= aheadOfUs {
		reason = i.Store.ObserveOOM(oom)
	}
	i.Kills.WithLabelValues(result(reason)).Inc()
	log.V(2).Info("Out of memory", "pod", klog.KRef(oom.Container.Namespace, oom.Container.Pod), "container", oom.Container.Container,
		"at", oom.At, "bytes", int64(oom.Memory), "ignored", string(reason))
	if reason == usage.Accepted {
		i.early = append(i.early, oom)
		i.Quality.Observe(i.Model.Controlling(oom.Container), oom.Container, resources.Memory, oom.Memory, true)
		if i.Sketches != nil {
			i.Sketches.Killed(oom) // sketch.Sketch.Killed for the container of each VPA that selects the pod
		}
	}
}

// bound limits what a kill reports to what its container can use. Where the size at a kill from before
// the start is not known, it is the highest use.
func (i *Ingester) bound(oom usage.OOM) usage.OOM {
	if !oom.Found.IsZero() && oom.Memory == 0 && oom.Limit == 0 {
		oom.Memory = i.Store.Used(oom.Container)
	}
	if most := i.Store.Ceiling(oom.Container, resources.Memory); most > 0 {
		oom.Memory, oom.Limit = min(oom.Memory, most), min(oom.Limit, most)
	}
	return oom
}

// results are the labels for what became of a sample or a kill.
var results = map[usage.Reason]string{
	usage.Accepted:         "taken",
	usage.UnknownContainer: "unknown_container",
	usage.NegativeAmount:   "negative",
	usage.NotNewer:         "not_newer",
	usage.TooOld:           "too_old",
	usage.Duplicate:        "duplicate",
	inFuture:               "in_future",
	usage.AboveCeiling:     "above_capacity",
}

func result(reason usage.Reason) string { return cmp.Or(results[reason], "out_of_range") }

const metricsAPI = "The metrics API"

// logOutage logs when the source fails and when it works again, not each time.
func (i *Ingester) logOutage(log klog.Logger, err error, now time.Time) {
	source, problem := cmp.Or(i.Name, metricsAPI), ""
	if err != nil {
		problem = "outage" // whatever the error: that may be another one each time
	}
	due, lasted := i.outage.Due(problem, now)
	switch {
	case !due:
	case err == nil:
		log.Info(source+" answers again", "outage", lasted)
	case lasted > 0:
		log.Error(err, source+" still does not answer", "outage", lasted)
	case source == metricsAPI:
		log.Error(err, source+" does not answer, or not well: recommendations stay as they are until it does. Is metrics-server installed?")
	default:
		log.Error(err, source+" does not answer, or not well: recommendations stay as they are until it does")
	}
}
