package recommend

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/recommender/model"
)

type publishedAdvisor struct {
	advisorFixture
	*Publisher
	client *fake.Clientset
	builds int // detected by a missing mark
}

func newPublishedAdvisor(t *testing.T, tolerance float64) *publishedAdvisor {
	o := &publishedAdvisor{advisorFixture: newAdvisorFixture(t)}
	o.client = fake.NewSimpleClientset(o.vpa.Object)
	o.Publisher = newPublisher(o.advisorFixture.Advisor, o.client, tolerance)
	return o
}

// iterate returns the number of writes.
func (o *publishedAdvisor) iterate(t *testing.T, at time.Time) int {
	o.client.ClearActions()
	o.Publish(t.Context(), o.model.VPAs(), at, time.Minute)
	writes := len(o.client.Actions())
	if _, marked := o.vpa.Published.Uncapped["mark"]; !marked {
		o.builds++
		o.vpa.Published.Uncapped["mark"] = resources.List{}
	}
	if writes > 0 {
		object, err := o.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), "v", metav1.GetOptions{})
		require.NoError(t, err)
		o.syncVPA(object, at)
	}
	return writes
}

func (o *publishedAdvisor) syncVPA(object *vpav1.VerticalPodAutoscaler, at time.Time) {
	o.model.SyncVPAs([]model.Observed{{Selector: labels.Everything(), Object: object}}, at)
}

func (o *publishedAdvisor) addSample(t *testing.T, at time.Time, cpu, memory float64) {
	for k, a := range []float64{cpu, memory} {
		require.Equal(t, usage.Accepted, o.Store.Observe(usage.Sample{
			Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}, Kind: resources.Kind(k), At: at, Amount: resources.FromFloat(a)}))
	}
}

// requireNear requires that a bound rises or falls by at most these fractions.
func requireNear(t *testing.T, want, got corev1.ResourceList, rise, fall float64) {
	w, g := convert.Resources(want), convert.Resources(got)
	for k := range resources.Kind(resources.Kinds) {
		require.Equal(t, w.Has(k), g.Has(k))
		published := float64(g.Value(k))
		require.LessOrEqual(t, float64(w.Value(k))-published, rise*1.0001*published)
		require.LessOrEqual(t, published-float64(w.Value(k)), fall*1.0001*published)
	}
}

// In every iteration the published status equals the full evaluation, except bounds within the
// tolerance.
func TestPublish_SkipsOnlyChangesWithinTolerance(t *testing.T) {
	for _, tolerance := range []float64{0, 0.01, 0.1} {
		o, random := newPublishedAdvisor(t, tolerance), rand.New(rand.NewPCG(1, 2))
		scratch := usage.NewProfile(o.Shape)
		at, passes, writes := now(), 0, 0
		for day := range 3 {
			for minute := range 24 * 60 {
				at = at.Add(time.Minute)
				noise := math.Exp(random.NormFloat64() / 4)
				o.addSample(t, at, 300*noise, 4e8*noise)
				if minute == 700 { // policy change with the same history
					object := o.vpa.Object.DeepCopy()
					limit := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(5+day)*1e8, resource.DecimalSI)}
					object.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: limit}}}
					_, err := o.client.AutoscalingV1().VerticalPodAutoscalers("ns").Update(t.Context(), object, metav1.UpdateOptions{})
					require.NoError(t, err)
					o.syncVPA(object, at)
				}
				writes += o.iterate(t, at)
				passes++
				estimates := o.Estimates(o.vpa, &scratch, nil)
				want := o.advisorFixture.Advise(o.vpa, estimates).Recommendation
				nearer := tolerance // towards the target, for short histories
				if tolerance > 0 {
					nearer = max(tolerance, 0.375/(1+estimates[0].History.Hours()/24))
				}
				got := o.vpa.Object.Status.Recommendation.ContainerRecommendations
				require.Len(t, got, len(want))
				for i := range want {
					require.True(t, equality.Semantic.DeepEqual(want[i].Target, got[i].Target), "%v instead of %v", got[i].Target, want[i].Target)
					require.True(t, equality.Semantic.DeepEqual(want[i].UncappedTarget, got[i].UncappedTarget))
					requireNear(t, want[i].LowerBound, got[i].LowerBound, nearer, tolerance)
					requireNear(t, want[i].UpperBound, got[i].UpperBound, tolerance, nearer)
				}
			}
		}
		t.Logf("tolerance %v: %d passes, %d built, %d written", tolerance, passes, o.builds, writes)
		if tolerance > 0 {
			require.Less(t, o.builds, passes/2)
		}
	}
}

func TestQuality_CountsUnchangedTargetAsZeroChange(t *testing.T) {
	o, registry := newPublishedAdvisor(t, 0.01), prometheus.NewRegistry()
	o.Quality = NewQuality(registry)
	changes := func() (n uint64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "vpa_quality_relative_recommendation_changes" {
				for _, m := range f.GetMetric() {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
		return n
	}
	o.addSample(t, now(), 300, 4e8)
	o.iterate(t, now())
	o.iterate(t, now())
	o.vpa.Invalidate()
	before, built := changes(), o.builds
	for range 3 {
		o.vpa.Invalidate()
		require.Zero(t, o.iterate(t, now()))
	}
	require.Equal(t, built, o.builds)
	require.Equal(t, before+3*resources.Kinds, changes())
}

func TestPublish_WritesHoldChangesWithoutNewUsage(t *testing.T) {
	o := newPublishedAdvisor(t, 0.01)
	o.History = &LoadingGauge{}
	for minute := range 10 {
		o.addSample(t, now().Add(time.Duration(minute)*time.Minute), 300, 4e8)
	}
	pass := func() int { o.vpa.Invalidate(); return o.iterate(t, now().Add(time.Hour)) }
	require.Equal(t, 1, pass())
	object := o.vpa.Object.DeepCopy() // another program published more
	for _, list := range []corev1.ResourceList{object.Status.Recommendation.ContainerRecommendations[0].Target, object.Status.Recommendation.ContainerRecommendations[0].UncappedTarget} {
		list[corev1.ResourceCPU] = resource.MustParse("3")
	}
	o.History.Begin(1)
	o.syncVPA(object, now())
	require.Equal(t, 1, pass(), "a condition")
	require.Equal(t, "3", o.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().String())
	require.Zero(t, pass())
	require.Zero(t, pass())
	o.History.SetComplete()
	require.Equal(t, 1, pass())
	require.Equal(t, "350m", o.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().String())
	require.Zero(t, pass())
	require.Equal(t, 3.0, testutil.ToFloat64(o.Results.WithLabelValues("written")))
}
