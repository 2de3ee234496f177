package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// Pods of one workload share the values, taken from the highest usage in each minute.
func TestStatus_ReportsBasePeakAndMax(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		base   resources.Amount
	}{
		{name: "CruiseKube", recipe: "cruisekube", base: 300},
		{name: "shared CPU", recipe: "loadline:cpu=shared,memory=following", base: 302},
	} { // 302 is a grid value
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aPod("web-2", "web", "a"), webVPA(tc.recipe)).start()
			w.setUsage("web-1", "a", 100, 400)
			w.setUsage("web-2", "a", 300, 300)
			w.iterate(60)
			w.setUsage("web-1", "a", 900, 400)
			w.iterate(5)
			w.setUsage("web-1", "a", 100, 400)
			w.iterate(4 * 60)
			w.setUsage("web-2", "a", 600, 300)
			w.iterate(3)
			w.setUsage("web-2", "a", 300, 300)
			w.iterate(20)
			b := convert.Bounds(w.recommendations("web")[0])
			require.Equal(t, tc.base, b.Lower.Value(resources.CPU))
			require.InDelta(t, 600, float64(b.Target.Value(resources.CPU)), 2)
			require.InDelta(t, 900, float64(b.Upper.Value(resources.CPU)), 2)
			require.LessOrEqual(t, b.Lower.Value(resources.Memory), b.Target.Value(resources.Memory))
			require.LessOrEqual(t, b.Target.Value(resources.Memory), b.Upper.Value(resources.Memory))
			require.GreaterOrEqual(t, b.Target.Value(resources.Memory), resources.Amount(400<<20))
		})
	}
}

func TestResourcePolicy_CapsBaseAndPeak(t *testing.T) {
	for _, tc := range []struct {
		name              string
		least, most       string
		base, peak, upper resources.Amount
	}{
		{name: "peak above the maximum", least: "10m", most: "500m", base: 300, peak: 500, upper: 500},
		{name: "base below the minimum", least: "400m", most: "10", base: 400, peak: 600, upper: 600},
		{name: "base above the maximum", least: "10m", most: "200m", base: 200, peak: 200, upper: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := webVPA("cruisekube")
			cpu := func(text string) corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
			}
			vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
				{ContainerName: "a", MinAllowed: cpu(tc.least), MaxAllowed: cpu(tc.most)},
			}}
			w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), vpa).start()
			w.setUsage("web-1", "a", 600, 300)
			w.iterate(2)
			w.setUsage("web-1", "a", 300, 300)
			w.iterate(20)
			b := convert.Bounds(w.recommendations("web")[0])
			require.Equal(t, tc.base, b.Lower.Value(resources.CPU))
			require.InDelta(t, float64(tc.peak), float64(b.Target.Value(resources.CPU)), 1)
			require.InDelta(t, float64(tc.upper), float64(b.Upper.Value(resources.CPU)), 1)
		})
	}
}

// A base that moves by less than a tenth waits for the slot of the VPA. A larger rise is written in
// the same iteration, even with a short history.
func TestPublish_WritesBaseWhenItRises(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), webVPA("cruisekube")).start()
	w.setUsage("web-1", "a", 600, 300)
	w.iterate(2)
	w.setUsage("web-1", "a", 290, 300)
	w.iterate(20)
	w.vpas.ClearActions()
	for i := range 20 {
		w.setUsage("web-1", "a", resources.Amount(289+i%13), 300)
		w.iterate(1)
	}
	writes := 0
	for _, a := range w.vpas.Actions() {
		if a.GetVerb() == "patch" && a.GetResource().Resource == "verticalpodautoscalers" {
			writes++
		}
	}
	require.LessOrEqual(t, writes, 1, "only in the slot of the VPA, once an hour")
	before := w.vpa("web").Status.Recommendation
	w.setUsage("web-1", "a", 330, 300)
	w.iterate(2)
	require.Equal(t, before, w.vpa("web").Status.Recommendation, "two of ten minutes are above the 75th percentile")
	w.iterate(1)
	b := convert.Bounds(w.recommendations("web")[0])
	require.Equal(t, resources.Amount(322), b.Lower.Value(resources.CPU))
	require.Less(t, w.now.Sub(start()), time.Hour, "all within the hour of the peak")
}
