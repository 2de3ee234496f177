package advice

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/feed"
	"loadline.dev/loadline/recommender/status"
)

// Memory is proven by an interval of samples of the VPA's own, CPU by one of the
// store's: what a VPA says of memory windows does not change how CPU is forgotten.
func TestWhatIsHeldIsReleasedAfterTheIntervalOfTheVPA(t *testing.T) {
	hours := func(n int32) *int32 { return new(n * 3600) }
	for name, c := range map[string]struct {
		own  *int32 // seconds
		gate bool
		span time.Duration
		held string
	}{
		"the store's, before":   {nil, true, 23 * time.Hour, "cpu and memory of container a"},
		"the store's, after":    {nil, true, 24 * time.Hour, ""},
		"shorter, before":       {hours(2), true, time.Hour, "cpu and memory of container a"},
		"shorter, after":        {hours(2), true, 2 * time.Hour, "cpu of container a"},
		"shorter, a day later":  {hours(2), true, 24 * time.Hour, ""},
		"longer, a day later":   {hours(72), true, 24 * time.Hour, "memory of container a"},
		"longer, after":         {hours(72), true, 72 * time.Hour, ""},
		"none, at once":         {hours(0), true, 0, "cpu and memory of container a"},
		"shorter, but gate off": {hours(2), false, 2 * time.Hour, "cpu and memory of container a"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, vpav1.ContainerResourcePolicy{ContainerName: "a", MemoryAggregationIntervalSeconds: c.own})
			d.perVPA(c.gate)
			d.publishes("a", "3", "3Gi")
			Doubt(d.vpa, nil)
			for _, at := range []time.Time{now(), now().Add(c.span)} {
				for k, used := range []amount.Amount{100, 1e8} {
					d.Store.Observe(usage.Sample{Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}, Kind: amount.Kind(k), At: at, Amount: used})
				}
			}
			held := d.advise().Held
			if c.held == "" {
				require.Empty(t, held)
				return
			}
			require.Contains(t, held, ": "+c.held)
		})
	}
}

// perVPA makes the desk anew with the feature gate PerVPAConfig on or off.
func (d *desk) perVPA(on bool) {
	object, pod := d.vpa.Object, d.pod
	d.Store = usage.New(usage.DefaultConfig())
	d.model = feed.NewModel(feed.Config{Store: d.Store, PerVPA: on})
	d.model.PutPod(pod, now())
	d.model.SyncVPAs([]feed.Observed{{Selector: everything, Object: object}}, now())
	d.vpa = d.model.Find("ns", "v")
}

// publishes puts a target into the status of the VPA.
func (d *desk) publishes(container, cpu, memory string) {
	target := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	d.vpa.Object.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}}
	d.vpa.Object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []status.Recommended{{
		ContainerName: container, Target: target, UncappedTarget: target}}}
}
