package ingest

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/feed"
	"loadline.dev/loadline/recommender/intake"
)

// Ingester adds usage to a store. Its exported fields are set once.
type Ingester struct {
	Source  func(context.Context, func(usage.Sample)) error
	Timeout time.Duration // of one call of Source
	OOMs    *intake.OOMs
	Store   *usage.Store
	Model   *feed.Model

	Quality   *Quality
	Samples   *prometheus.CounterVec // by what became of a sample
	Kills     *prometheus.CounterVec // by what became of a kill
	Responses *prometheus.CounterVec // by whether the source failed, and its name

	outage outage
}

// sourceName is the name of the only source in metrics.
const sourceName = "default-metrics-client"

// Once adds one sample of each container, then the kills that wait. A source
// that fails adds nothing; the kills are taken all the same.
func (i *Ingester) Once(ctx context.Context, now time.Time) {
	log := klog.FromContext(ctx)
	limited, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	err := i.Source(limited, i.sample)
	i.Responses.WithLabelValues(strconv.FormatBool(err != nil), sourceName).Inc()
	if ctx.Err() == nil {
		i.outage.note(log, err, now)
	}
	i.kills(log)
}

func (i *Ingester) sample(s usage.Sample) {
	reason := i.Store.Observe(s)
	i.Samples.WithLabelValues(result(reason)).Inc()
	if reason == usage.Accepted {
		i.Quality.Observe(i.Model.Controlling(s.Container), s.Container, s.Kind, s.Amount, false)
	}
}

func (i *Ingester) kills(log klog.Logger) {
	ooms, dropped := i.OOMs.Drain()
	if dropped > 0 {
		i.Kills.WithLabelValues("dropped").Add(float64(dropped))
		log.Info("More out-of-memory kills than fit between two passes, some were dropped", "dropped", dropped)
	}
	for _, oom := range ooms {
		reason := i.Store.ObserveOOM(oom)
		i.Kills.WithLabelValues(result(reason)).Inc()
		log.V(2).Info("Out of memory", "pod", klog.KRef(oom.Container.Namespace, oom.Container.Pod), "container", oom.Container.Container,
			"at", oom.At, "bytes", int64(oom.Memory), "ignored", string(reason))
		if reason == usage.Accepted {
			i.Quality.Observe(i.Model.Controlling(oom.Container), oom.Container, amount.Memory, oom.Memory, true)
		}
	}
}

// result is the label for what became of a sample or a kill.
func result(reason usage.Reason) string {
	switch reason {
	case usage.Accepted:
		return "taken"
	case usage.UnknownContainer:
		return "unknown_container"
	case usage.NegativeAmount:
		return "negative"
	case usage.NotNewer:
		return "not_newer"
	case usage.TooOld:
		return "too_old"
	}
	return "out_of_range"
}
