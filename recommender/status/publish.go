package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/recommender/feed"
)

// Publisher brings recommendations into the status of VPAs. Its fields are set
// once.
type Publisher struct {
	Writer
	Workers   int
	Shape     profile.Shape // of the scratch profiles
	Recommend func(*feed.VPA, *profile.Profile) []Recommended

	Changed func(v *feed.VPA, container string, now amount.Resources) // told each uncapped target
	Latency prometheus.Histogram                                      // creation of a VPA to its first recommendation
	Results *prometheus.CounterVec                                    // of writes
}

// complainAfter is how long a VPA may go without recommendation before, and
// between two times that, this is logged.
const complainAfter = 30 * time.Minute

// Publish computes and publishes a recommendation for every VPA.
func (p *Publisher) Publish(ctx context.Context, vpas []*feed.VPA, now time.Time) {
	queue := make(chan *feed.VPA)
	var workers sync.WaitGroup
	for range p.Workers {
		workers.Go(func() {
			scratch := profile.New(p.Shape)
			for v := range queue {
				p.one(ctx, v, &scratch, now)
			}
		})
	}
	for _, v := range vpas {
		queue <- v
	}
	close(queue)
	workers.Wait()
}

func (p *Publisher) one(ctx context.Context, v *feed.VPA, scratch *profile.Profile, now time.Time) {
	log := klog.FromContext(ctx)
	outcome := Outcome{
		Recommendation: p.Recommend(v, scratch),
		Pods:           v.Pods(),
		Trouble:        v.Trouble,
		Conflict:       conflict(v),
	}
	switch {
	case !v.InGrace(now):
		outcome.Recommendation = nil
	case v.Trouble != nil && Provided(v.Object):
		// A target that cannot be read for a moment is no reason to change
		// what was recommended: we may see less than there is.
		outcome.Recommendation = v.Object.Status.Recommendation.ContainerRecommendations
	}
	p.remember(log, v, outcome, now)
	written, err := p.Write(ctx, v.Object, Compose(v.Object, outcome, now))
	switch {
	case err != nil && ctx.Err() == nil:
		p.Results.WithLabelValues("error").Inc()
		log.Error(err, "Cannot publish a recommendation, trying again in the next pass", "vpa", klog.KObj(v.Object))
	case written:
		p.Results.WithLabelValues("written").Inc()
	case err == nil:
		p.Results.WithLabelValues("unchanged").Inc()
	}
}

// remember keeps what later passes compare with, and speaks up for a VPA that
// has gone without recommendation for long.
func (p *Publisher) remember(log klog.Logger, v *feed.VPA, o Outcome, now time.Time) {
	provided := len(o.Recommendation) > 0
	if provided && !v.Recommended {
		p.Latency.Observe(now.Sub(v.Object.CreationTimestamp.Time).Seconds())
	}
	v.Recommended = provided
	if provided {
		v.Complained = now
	} else if now.Sub(v.Complained) >= complainAfter {
		v.Complained = now
		log.Info("VPA still has no recommendation", "vpa", klog.KObj(v.Object), "pods", o.Pods, "age", now.Sub(v.Object.CreationTimestamp.Time))
	}
	if o.Conflict != "" && !Conflicts(v.Object) {
		log.Info("Two VPAs select the same pods", "vpa", klog.KObj(v.Object), "reason", o.Conflict)
	}
	uncapped := make(map[string]amount.Resources, len(o.Recommendation))
	for _, c := range o.Recommendation {
		resources := convert.Resources(c.UncappedTarget)
		p.Changed(v, c.ContainerName, resources)
		uncapped[c.ContainerName] = resources
	}
	v.Uncapped = uncapped
}

// conflict says which other VPA controls pods of v, and why; it is empty if none
// does.
func conflict(v *feed.VPA) string {
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
