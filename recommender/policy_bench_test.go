package recommender

import (
	"io"
	"slices"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/testkit"
)

// BenchmarkPassUnderAPolicy compares iterations over 100,000 containers with and without a
// policy. The variants alternate to share machine conditions. Run it with GOMAXPROCS=1, because
// other processors collect garbage at any time.
func BenchmarkPassUnderAPolicy(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	c := testkit.Crowd{Pods: 50_000, Deployments: 10_000, Revisions: 11, Nodes: 2_000}
	without := iterationCosts{filledRecommender: newFilledRecommender(b, testkit.ServeCrowd(b, &testkit.CrowdServer{Crowd: c}), c)}
	c.UnderAPolicy = true
	under := iterationCosts{filledRecommender: newFilledRecommender(b, testkit.ServeCrowd(b, &testkit.CrowdServer{Crowd: c}), c)}
	both := []*iterationCosts{&without, &under}
	for _, p := range both {
		p.addDay(b)
		p.iterate(b) // warm-up
		p.cpu = nil
	}
	for b.Loop() {
		for _, p := range both {
			p.iterate(b)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(without.median().Milliseconds()), "without-cpu-ms")
	b.ReportMetric(float64(under.median().Milliseconds()), "cpu-ms")
	b.ReportMetric(float64(under.median())/float64(without.median()), "x-cpu")
	for _, p := range both {
		p.close()
	}
}

type iterationCosts struct {
	*filledRecommender
	cpu []time.Duration
}

// iterate runs an iteration without writes.
func (p *iterationCosts) iterate(b *testing.B) {
	begin := testkit.CPUTime(b)
	*p.now = p.now.Add(time.Minute)
	p.loop.loadVPAs(b.Context(), *p.now, minRestoreTime)
	p.loop.loadPods(*p.now)
	p.loop.addUsage(b.Context(), *p.now)
	p.loop.deleteRemovedPods()
	scratch := usage.NewProfile(p.loop.Advisor.Shape)
	for _, v := range p.loop.Model.VPAs() {
		p.loop.Advisor.Advise(v, p.loop.Advisor.Estimates(v, &scratch, nil))
	}
	p.cpu = append(p.cpu, testkit.CPUTime(b)-begin)
}

func (p *iterationCosts) median() time.Duration {
	return slices.Sorted(slices.Values(p.cpu))[len(p.cpu)/2]
}
