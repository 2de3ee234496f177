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

// Ingester adds usage samples and out-of-memory kills to a store. Its exported fields are set once.
type Ingester struct {
	Source  sampleSource
	Name    string        // for display, empty: the metrics API
	Timeout time.Duration // of one Source.Samples call
	OOMs    *model.KillQueue
	Health  *serving.Health // ticks while samples arrive
	Store   *usage.Store
	Model   *model.Model

	Sketches *recommend.SketchKeeper // nil: none
	Guard    model.Guard             // around each kill

	Quality   *recommend.Quality
	Samples   *prometheus.CounterVec // by result
	Kills     *prometheus.CounterVec // by result
	Responses *prometheus.CounterVec // by failure and source name

	batch          []usage.Sample // not added yet
	revisableKills []usage.OOM    // kills stored since the last samples
	outage         serving.Reminder
	skewed         bool // the last iteration had samples from the future
	overCapacity   bool // the last iteration had samples above the capacity of a node
}

// maxSampleSkew is how far the clock of a node may be ahead. A newer sample would outweigh the
// whole history, and the container would accept no other until that time.
const maxSampleSkew = time.Hour

const inFuture usage.Reason = "the time is more than an hour ahead of ours"

const sourceName = "default-metrics-client"

// RunOnce adds one sample of each container, then the waiting kills, even if the source fails.
func (i *Ingester) RunOnce(ctx context.Context, now time.Time) {
	log := klog.FromContext(ctx)
	i.Quality.Workloads.Follow(i.Model, i.Store, now)
	limited, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	var future, above usage.ContainerKey
	i.batch = i.batch[:0] // not empty after a panic
	add := func() {
		for _, s := range i.batch {
			switch i.addSample(s, now) {
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
		log.Info("Rejecting usage samples from the future, check the clock of the node",
			"pod", klog.KRef(future.Namespace, future.Pod), "now", now)
	}
	i.skewed = skewed
	overCapacity := above != usage.ContainerKey{}
	if overCapacity && !i.overCapacity {
		log.Info("Dropping usage samples above the capacity of the node", "pod", klog.KRef(above.Namespace, above.Pod), "container", above.Container)
	}
	i.overCapacity = overCapacity
	i.Model.Change(func() {
		for _, oom := range i.revisableKills { // the new samples may show more usage before the kill
			i.Store.ReviseOOM(oom)
		}
	})
	i.StoreKills(log, now)
	i.revisableKills = nil
}

// batchSize is the number of samples added under one lock, which blocks explanations.
const batchSize = 1000

func (i *Ingester) addSample(s usage.Sample, now time.Time) usage.Reason {
	reason := inFuture
	if s.At.Sub(now) <= maxSampleSkew {
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

// StoreKills adds the waiting kills to the store for the recipe vpa, and to the sketches for the
// other recipes. The usage before a kill may still be missing, so RunOnce revises the kill later.
func (i *Ingester) StoreKills(log klog.Logger, now time.Time) {
	ooms, dropped := i.OOMs.Drain()
	if dropped > 0 {
		i.Kills.WithLabelValues("dropped").Add(float64(dropped))
		log.Info("Dropped out-of-memory kills, because the queue was full", "dropped", dropped)
	}
	i.Model.Change(func() {
		for _, oom := range ooms {
			i.storeKill(log, oom, now)
		}
	})
}

// storeKill recovers panics, because drained kills come only once and the others must not be lost.
func (i *Ingester) storeKill(log klog.Logger, oom usage.OOM, now time.Time) {
	defer i.Guard.Recover(nil)
	oom = i.capKill(oom)
	reason := inFuture
	if oom.At.Sub(now) <= maxSampleSkew {
		reason = i.Store.ObserveOOM(oom)
	}
	i.Kills.WithLabelValues(result(reason)).Inc()
	log.V(2).Info("Out of memory", "pod", klog.KRef(oom.Container.Namespace, oom.Container.Pod), "container", oom.Container.Container,
		"at", oom.At, "bytes", int64(oom.Memory), "ignored", string(reason))
	if reason == usage.Accepted {
		i.revisableKills = append(i.revisableKills, oom)
		i.Quality.Observe(i.Model.Controlling(oom.Container), oom.Container, resources.Memory, oom.Memory, true)
		if i.Sketches != nil {
			i.Sketches.ObserveKill(oom) // calls sketch.Sketch.ObserveKill for each VPA with a recipe that has sketches
		}
	}
}

// capKill limits the memory of a kill to the ceiling of its container. If the memory is unknown
// because the kill was before the start, it uses the highest usage.
func (i *Ingester) capKill(oom usage.OOM) usage.OOM {
	if !oom.Discovered.IsZero() && oom.Memory == 0 && oom.Limit == 0 {
		oom.Memory = i.Store.WindowUsage(oom.Container)
	}
	if ceiling := i.Store.Ceiling(oom.Container, resources.Memory); ceiling > 0 {
		oom.Memory, oom.Limit = min(oom.Memory, ceiling), min(oom.Limit, ceiling)
	}
	return oom
}

var results = map[usage.Reason]string{
	usage.Accepted:         "accepted",
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

func (i *Ingester) logOutage(log klog.Logger, err error, now time.Time) {
	source, problem := cmp.Or(i.Name, metricsAPI), ""
	if err != nil {
		problem = "outage" // the error may differ each time
	}
	due, lasted := i.outage.Due(problem, now)
	switch {
	case !due:
	case err == nil:
		log.Info(source+" is available again", "outage", lasted)
	case lasted > 0:
		log.Error(err, source+" is still not available", "outage", lasted)
	case source == metricsAPI:
		log.Error(err, source+" is not available, keeping all recommendations. Check that metrics-server is installed")
	default:
		log.Error(err, source+" is not available, keeping all recommendations")
	}
}
