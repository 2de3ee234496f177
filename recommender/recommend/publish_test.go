package recommend

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	kubetarget "loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

const day = 24 * time.Hour

func newPublisher(a *Advisor, client versioned.Interface, tolerance float64) *Publisher {
	return &Publisher{
		Advisor: a, Checkpoints: &checkpoints.Maintainer{Disabled: true}, Writer: status.Writer{Client: client},
		Quality: NewQuality(prometheus.NewRegistry()), Workers: 1, Tolerance: tolerance,
		Latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"}),
		Results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "y"}, []string{"result"}),
	}
}

// scriptedPublisher evaluates a scripted recipe for container a.
type scriptedPublisher struct {
	*Publisher
	client *fake.Clientset
	panics *prometheus.CounterVec
	vpa    *model.VPA // "web"

	bounds       resources.Bounds
	evaluations  atomic.Int64 // recipe evaluations
	raisedVPA    string       // VPA with a higher CPU target
	panickingVPA string       // VPA with a panicking recipe
}

func newScriptedPublisher() *scriptedPublisher {
	p := &scriptedPublisher{panics: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "z"}, []string{"step"})}
	p.bounds = resources.Bounds{Lower: resources.NewList(500, 512<<20), Target: resources.NewList(1000, 1<<30), Upper: resources.NewList(2000, 2<<30)}
	p.vpa = p.newVPA("web")
	p.client = fake.NewSimpleClientset(p.vpa.Object)
	config := usage.DefaultConfig()
	p.Publisher = newPublisher(&Advisor{Store: usage.NewStore(config), Shape: config.Shape}, p.client, 0.01)
	p.Workers, p.Guard = 2, model.NewGuard("x", p.panics)
	return p
}

// newVPA returns a VPA without status and with ten days of history.
func (p *scriptedPublisher) newVPA(name string) *model.VPA {
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	bound := func(of func(resources.Bounds) resources.List) (chains [resources.Kinds]recipe.Chain) {
		for k := range chains {
			chains[k] = recipe.Chain{{Name: "test", Apply: func(recipe.Subject, float64) float64 {
				p.evaluations.Add(1)
				b := p.bounds
				if p.raisedVPA == name {
					b.Target = b.Target.With(resources.CPU, 1100)
				}
				if p.panickingVPA == name {
					panic("a defect")
				}
				return float64(of(b).Value(resources.Kind(k)))
			}}}
		}
		return chains
	}
	v := &model.VPA{Object: object, Rules: convert.Rules(object), Recipe: &recipe.Choice{Recipe: &recipe.Recipe{
		Lower:  bound(func(b resources.Bounds) resources.List { return b.Lower }),
		Target: bound(func(b resources.Bounds) resources.List { return b.Target }),
		Upper:  bound(func(b resources.Bounds) resources.List { return b.Upper }),
	}}}
	setHistory(v, 10*day)
	return v
}

func (p *scriptedPublisher) newVPAs(n int) (vpas []*model.VPA) {
	for i := range n {
		vpas = append(vpas, p.newVPA(fmt.Sprintf("vpa-%02d", i)))
	}
	return vpas
}

func setHistory(v *model.VPA, length time.Duration) {
	shape := usage.DefaultConfig().Shape
	seen, longer := usage.NewProfile(shape), usage.NewProfile(shape)
	seen.AddCPU(1, now())
	seen.AddPeak(1, now())
	image := seen.Image()
	image.First, image.Last, image.Samples = now().Add(-length), now(), 1e9
	if err := longer.Load(image); err != nil {
		panic(err)
	}
	v.Restored = map[string]*usage.Profile{"a": &longer}
	v.Invalidate()
}

// publish runs one iteration and returns the number of writes.
func (p *scriptedPublisher) publish(t *testing.T, at time.Time) int {
	p.client.ClearActions()
	p.Publish(t.Context(), []*model.VPA{p.vpa}, at, time.Minute)
	writes := len(p.client.Actions())
	if writes > 0 {
		object, err := p.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), p.vpa.Object.Name, metav1.GetOptions{})
		require.NoError(t, err)
		p.vpa.Object = object // as from the informer
	}
	return writes
}

func (p *scriptedPublisher) setUpperMemory(memory int64) {
	p.bounds.Upper = p.bounds.Upper.With(resources.Memory, resources.Amount(memory))
	p.vpa.Invalidate()
}

func (p *scriptedPublisher) count(r result) float64 {
	return testutil.ToFloat64(p.Results.WithLabelValues(string(r)))
}

func (p *scriptedPublisher) publishAll(t *testing.T) *scriptedPublisher {
	require.Equal(t, 1, p.publish(t, now()))
	require.Zero(t, p.publish(t, now()))
	p.isBuilt()
	return p
}

// isBuilt reports whether a recommendation was built since the last call.
func (p *scriptedPublisher) isBuilt() bool {
	_, marked := p.vpa.Published.Uncapped["mark"]
	p.vpa.Published.Uncapped["mark"] = resources.List{}
	return !marked
}

func TestPublish_SkipsEvaluationWithoutChanges(t *testing.T) {
	p := newScriptedPublisher()
	require.Equal(t, 1, p.publish(t, now()))
	require.Zero(t, p.publish(t, now()), "the written object comes back")
	asked := p.evaluations.Load()
	for range 5 {
		require.Zero(t, p.publish(t, now()))
	}
	require.Equal(t, asked, p.evaluations.Load())
	p.vpa.Invalidate()
	require.Zero(t, p.publish(t, now()))
	require.Equal(t, asked+3*resources.Kinds, p.evaluations.Load())
	p.vpa.TargetError = errors.New("the target is gone")
	p.vpa.TargetErrorSince = now()
	require.Equal(t, 1, p.publish(t, now()))
}

func TestPublish_DefersBoundsButNotTargets(t *testing.T) {
	p := newScriptedPublisher()
	p.publish(t, now())
	p.setUpperMemory(2164261863) // 0.8 % more than 2Gi
	require.Zero(t, p.publish(t, now().Add(time.Minute)))
	p.setUpperMemory(2190433321) // 2 % more
	require.Equal(t, 1, p.publish(t, now().Add(2*time.Minute)))

	p.setUpperMemory(2200000000)
	require.Zero(t, p.publish(t, now().Add(3*time.Minute)))
	writes := 0
	for minute := range 70 { // no further change
		writes += p.publish(t, now().Add(time.Duration(4+minute)*time.Minute))
	}
	require.Equal(t, 1, writes, "within the hour it is written")

	p.setUpperMemory(2200000001)
	p.bounds.Target = p.bounds.Target.With(resources.CPU, 1001)
	require.Equal(t, 1, p.publish(t, now().Add(75*time.Minute)))

	p.Tolerance = 0
	p.setUpperMemory(2200000002)
	require.Equal(t, 1, p.publish(t, now().Add(76*time.Minute)))
}

func TestPublish_AccumulatesSmallBoundChanges(t *testing.T) {
	p := newScriptedPublisher().publishAll(t)
	memory := int64(2 << 30)
	creep := func() int {
		memory += memory * 4 / 1000
		p.setUpperMemory(memory)
		return p.publish(t, now())
	}
	require.Zero(t, creep())
	require.Zero(t, creep())
	require.False(t, p.isBuilt(), "nothing is built for what can wait")
	require.Equal(t, 2.0, p.count(deferred))
	require.Equal(t, 1, creep(), "1.2 %, though the last step was small")
	require.Zero(t, creep())
	require.Zero(t, creep())
	require.Equal(t, 1, creep())
}

// Bounds of a new workload move in each iteration. VPAs write them at different times.
func TestPublish_WritesYoungBoundsAsHistoryGrows(t *testing.T) {
	passes := map[int]bool{}
	for i := range 20 {
		p := newScriptedPublisher()
		p.vpa = p.newVPA(fmt.Sprint("web-", i))
		require.NoError(t, p.client.Tracker().Add(p.vpa.Object))
		setHistory(p.vpa, 0)
		p.publishAll(t)
		writes, last := 0, 0
		for minute := 2; minute <= 40; minute++ {
			p.setUpperMemory(int64(1+1440/minute) << 20)
			if n := p.publish(t, now()); n > 0 {
				writes, last = writes+n, minute
			}
		}
		require.Greater(t, writes, 4)
		require.Less(t, writes, 20, "not in each of 39 passes")
		passes[last] = true
	}
	require.Greater(t, len(passes), 3, "not all at once")
}

func TestPublish_DoesNotRebuildUnchanged(t *testing.T) {
	p := newScriptedPublisher().publishAll(t)
	before := p.count(unchanged)
	for range 3 {
		p.vpa.Invalidate()
		require.Zero(t, p.publish(t, now()))
	}
	require.False(t, p.isBuilt())
	require.Equal(t, before+3, p.count(unchanged))
}

func TestDiffersEnough_IgnoresSmallBoundChanges(t *testing.T) {
	p := newScriptedPublisher()
	was := model.Estimate{Container: "a", Bounds: p.bounds, History: 10 * day}
	for _, tc := range []struct {
		name   string
		change func(*model.Estimate)
		worth  bool
	}{
		{name: "no change", change: func(*model.Estimate) {}},
		{name: "lower bound by 1 %", change: func(e *model.Estimate) { e.Bounds.Lower = e.Bounds.Lower.With(resources.CPU, 505) }},
		{
			name: "lower bound by 2 %", change: func(e *model.Estimate) { e.Bounds.Lower = e.Bounds.Lower.With(resources.CPU, 510) },
			worth: true,
		},
		{name: "upper bound by 1 %", change: func(e *model.Estimate) { e.Bounds.Upper = e.Bounds.Upper.With(resources.CPU, 1980) }},
		{name: "no upper bound", change: func(e *model.Estimate) { e.Bounds.Upper = e.Bounds.Upper.Without(resources.CPU) }, worth: true},
		{name: "target", change: func(e *model.Estimate) { e.Bounds.Target = e.Bounds.Target.With(resources.CPU, 1001) }, worth: true},
		{name: "container", change: func(e *model.Estimate) { e.Container = "b" }, worth: true},
		{name: "known resource", change: func(e *model.Estimate) { e.Known[resources.CPU] = true }, worth: true},
		{name: "untrusted resource", change: func(e *model.Estimate) { e.Untrusted[resources.Memory] = true }, worth: true},
		{name: "length of history", change: func(e *model.Estimate) { e.History = time.Hour }, worth: true},
		{name: "rounded estimate", change: func(e *model.Estimate) { e.Rounded = true }, worth: true},
		{
			name: "number of points", change: func(e *model.Estimate) { e.Points[resources.CPU] = recipe.Points{Have: 6, Want: 12} },
			worth: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is := was
			tc.change(&is)
			require.Equal(t, tc.worth, p.differsEnough(p.vpa, []model.Estimate{was}, []model.Estimate{is}))
		})
	}
	require.True(t, p.differsEnough(p.vpa, nil, []model.Estimate{was}))
}

// A base that rises by more than a tenth or falls by more than a fifth is written at once, even
// with a short history.
func TestDiffersEnough_IgnoresSmallBaseChanges(t *testing.T) {
	p := newScriptedPublisher()
	served := *p.vpa.Recipe.Recipe
	served.Sharing = &sharing.Rule{}
	p.vpa.Recipe = &recipe.Choice{Recipe: &served}
	for _, rushed := range []bool{false, true} {
		for _, history := range []time.Duration{time.Hour, 10 * day} {
			p.vpa.Published.BoundsTimeUp = rushed
			was := model.Estimate{Container: "a", Bounds: p.bounds, History: history}
			for base, worth := range map[resources.Amount]bool{500: false, 526: false, 550: false, 552: true, 900: true, 475: false, 401: false, 399: true} {
				is := was
				is.Bounds.Lower = is.Bounds.Lower.With(resources.CPU, base)
				require.Equal(t, worth, p.differsEnough(p.vpa, []model.Estimate{was}, []model.Estimate{is}), "%d, %t, %s", base, rushed, history)
			}
			is := was
			is.Bounds.Upper = is.Bounds.Upper.With(resources.CPU, 3000)
			require.Equal(t, !rushed, p.differsEnough(p.vpa, []model.Estimate{was}, []model.Estimate{is}))
		}
	}
	p.Tolerance = 0
	is := model.Estimate{Container: "a", Bounds: p.bounds, History: 10 * day}
	was := is
	is.Bounds.Lower = is.Bounds.Lower.With(resources.CPU, 499)
	p.vpa.Published.BoundsTimeUp = false
	require.True(t, p.differsEnough(p.vpa, []model.Estimate{was}, []model.Estimate{is}), "without a tolerance nothing waits")
}

func TestPublish_BuildsRoundedBounds(t *testing.T) {
	p := newScriptedPublisher()
	p.Advisor.Format.MemoryStep = 1 << 20
	p.publishAll(t)
	p.setUpperMemory(2147483649) // may print as a whole step more
	require.Zero(t, p.publish(t, now()))
	require.True(t, p.isBuilt())
}

func TestPublish_EvaluatesChangedVPA(t *testing.T) {
	p := newScriptedPublisher().publishAll(t)
	other := p.vpa.Object.DeepCopy()
	other.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
		{ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")}}}}
	p.vpa.Object, p.vpa.Rules = other, convert.Rules(other)
	require.Equal(t, 1, p.publish(t, now()))
	require.Equal(t, "700m", p.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().String())
}

func TestPublish_RetriesFailedWrites(t *testing.T) {
	p := newScriptedPublisher()
	fail := true
	p.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fail, nil, errors.New("the API server is away")
	})
	for range 3 {
		p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	}
	require.Len(t, p.client.Actions(), 3)
	fail = false
	require.Equal(t, 1, p.publish(t, now()))
	require.Len(t, p.vpa.Object.Status.Recommendation.ContainerRecommendations, 1)
}

// Right after start many targets are unread, which must not change their status.
func TestPublish_SkipsUnreadTargets(t *testing.T) {
	p := newScriptedPublisher()
	unread := fmt.Errorf("cannot read the target: %w", kubetarget.ErrNotRead)
	p.vpa.TargetError, p.vpa.TargetErrorSince = unread, now()
	require.Zero(t, p.publish(t, now()))
	p.vpa.TargetError = nil
	require.Equal(t, 1, p.publish(t, now()))
	before := p.vpa.Object.Status
	require.Len(t, before.Recommendation.ContainerRecommendations, 1)

	p.vpa.TargetError, p.vpa.TargetErrorSince = unread, now()
	p.vpa.Invalidate()
	require.Zero(t, p.publish(t, now().Add(time.Hour)))
	require.False(t, status.Holds(p.vpa.Object, vpav1.ConfigUnsupported))
	p.vpa.TargetError = errors.New("the target has no selector")
	require.Equal(t, 1, p.publish(t, now().Add(time.Hour)))
	require.True(t, status.Holds(p.vpa.Object, vpav1.ConfigUnsupported))
}

func TestPublishChanged_DoesNotRetryFailedWrites(t *testing.T) {
	p := newScriptedPublisher()
	p.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	for range 3 { // kills of other VPAs
		p.PublishChanged(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	}
	require.Len(t, p.client.Actions(), 1)
	p.vpa.Invalidate()
	p.PublishChanged(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	require.Len(t, p.client.Actions(), 2, "a kill here is news")
	p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	require.Len(t, p.client.Actions(), 3)
}

// Large statuses would fill etcd and all caches.
func TestPublish_KeepsRecommendationIfStatusTooLarge(t *testing.T) {
	p := newScriptedPublisher()
	p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	published, err := p.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, published.Status.Recommendation.ContainerRecommendations, 1)

	for _, tc := range []struct {
		name     string
		provided bool
	}{{"with a recommendation", true}, {"without a recommendation", false}} {
		t.Run(tc.name, func(t *testing.T) {
			object := published.DeepCopy()
			if !tc.provided {
				object.Status = vpav1.VerticalPodAutoscalerStatus{}
			}
			v := p.newVPA("web")
			v.Object, v.Restored = object, map[string]*usage.Profile{strings.Repeat("x", status.MaxBytes): v.Restored["a"]}
			v.Invalidate()
			p.Publish(t.Context(), []*model.VPA{v}, now(), time.Minute)
			gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "limited"}, []string{"limit"})
			CountLimited(gauge, []*model.VPA{v})
			require.EqualValues(t, 1, testutil.ToFloat64(gauge.WithLabelValues("status_bytes")))
			got, err := p.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			require.True(t, status.Holds(got, status.StatusTooLarge))
			require.Equal(t, tc.provided, status.Provided(got))
			if tc.provided {
				require.Equal(t, object.Status.Recommendation, got.Status.Recommendation)
			}
		})
	}
}

// The cache lacks the recommendation of a VPA in a full namespace. New pods need the stored one.
func TestPublish_KeepsRecommendationOfRefusedVPA(t *testing.T) {
	p := newScriptedPublisher()
	require.Equal(t, 1, p.publish(t, now()))
	stored := p.vpa.Object.DeepCopy()
	require.Len(t, stored.Status.Recommendation.ContainerRecommendations, 1)

	for _, tc := range []struct {
		name   string
		change func(v *model.VPA)
	}{
		{name: "with a known recommendation", change: func(*model.VPA) {}},
		{name: "after a restart", change: func(v *model.VPA) { v.Published.Recommended = false }},
		{name: "with a new target", change: func(v *model.VPA) { v.Retargeted = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused := stored.DeepCopy()
			refused.Annotations = map[string]string{vpav1.UnreadableAnnotation: client.NamespaceFull}
			refused.Status.Recommendation = &vpav1.RecommendedPodResources{}
			p.vpa.Object, p.vpa.TargetError = refused, errors.New(client.NamespaceFull)
			tc.change(p.vpa)
			p.vpa.Invalidate()
			p.Publish(t.Context(), []*model.VPA{p.vpa}, now().Add(time.Hour), time.Minute)
			got, err := p.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, stored.Status.Recommendation, got.Status.Recommendation)
			require.Equal(t, stored.Status.ObservedGeneration, got.Status.ObservedGeneration)
			require.True(t, status.Provided(got))
			require.Equal(t, client.NamespaceFull, convert.UnsupportedReason(got))
			gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "limited"}, []string{"limit"})
			CountLimited(gauge, []*model.VPA{p.vpa})
			require.EqualValues(t, 1, testutil.ToFloat64(gauge.WithLabelValues("namespace_bytes")))

			p.vpa.Object, p.vpa.TargetError, p.vpa.Retargeted = got, nil, false
			require.Equal(t, 1, p.publish(t, now().Add(2*time.Hour)))
			require.Empty(t, convert.UnsupportedReason(p.vpa.Object))
			require.Equal(t, stored.Status.Recommendation, p.vpa.Object.Status.Recommendation)
		})
	}
}

// An alert must cover a busy API server, but not the write limit of a namespace.
func TestPublish_CountsBusyServersAsErrors(t *testing.T) {
	busy, limited := apierrors.NewTooManyRequests("too many requests", 1), apierrors.NewTooManyRequests("not sent", 1)
	limited.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "LoadlineWriteLimit"}}
	for _, tc := range []struct {
		name    string
		answer  error
		counted result
	}{
		{name: "the server is busy", answer: busy, counted: failed},
		{name: "the namespace used its write limit", answer: limited, counted: late},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newScriptedPublisher()
			p.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.answer })
			p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
			require.EqualValues(t, 1, p.count(tc.counted))
			require.Equal(t, tc.counted == late, p.vpa.Published.WriteLimited)
		})
	}
}
