package recommend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/quality"
	"loadline.dev/loadline/recommender/status"
)

const day = 24 * time.Hour

// newPublisher returns a publisher that saves nothing.
func newPublisher(a *Advisor, client versioned.Interface, tolerance float64) *Publisher {
	return &Publisher{
		Advisor: a, Checkpoints: &checkpoints.Maintainer{Off: true}, Writer: status.Writer{Client: client},
		Quality: quality.NewMetrics(prometheus.NewRegistry()), Workers: 1, Tolerance: tolerance,
		Latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"}),
		Results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "y"}, []string{"result"}),
	}
}

// press is a publisher for VPAs with a container "a", whose recipe says what the test says.
type press struct {
	*Publisher
	client *fake.Clientset
	panics *prometheus.CounterVec
	vpa    *model.VPA // "web"

	bounds resources.Bounds
	asked  atomic.Int64 // how often the recipe was
	raised string       // a VPA whose CPU target is higher
	broken string       // a VPA whose recipe has a defect
}

func newPress() *press {
	p := &press{panics: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "z"}, []string{"step"})}
	p.bounds = resources.Bounds{Lower: resources.Of(500, 512<<20), Target: resources.Of(1000, 1<<30), Upper: resources.Of(2000, 2<<30)}
	p.vpa = p.takes("web")
	p.client = fake.NewSimpleClientset(p.vpa.Object)
	config := usage.DefaultConfig()
	p.Publisher = newPublisher(&Advisor{Store: usage.NewStore(config), Shape: config.Shape}, p.client, 0.01)
	p.Workers, p.Guard = 2, model.NewGuard("x", p.panics)
	return p
}

// takes returns a VPA without status that was observed for ten days.
func (p *press) takes(name string) *model.VPA {
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	bound := func(of func(resources.Bounds) resources.List) (chains [resources.Kinds]recipe.Chain) {
		for k := range chains {
			chains[k] = recipe.Chain{{Name: "test", Apply: func(recipe.Subject, float64) float64 {
				p.asked.Add(1)
				b := p.bounds
				if p.raised == name {
					b.Target = b.Target.With(resources.CPU, 1100)
				}
				if p.broken == name {
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
	observed(v, 10*day)
	return v
}

// some returns VPAs that have no status.
func (p *press) some(n int) (vpas []*model.VPA) {
	for i := range n {
		vpas = append(vpas, p.takes(fmt.Sprintf("vpa-%02d", i)))
	}
	return vpas
}

// observed makes a VPA have a history of a length.
func observed(v *model.VPA, length time.Duration) {
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

// publish makes one pass and returns how many writes it took.
func (p *press) publish(t *testing.T, at time.Time) int {
	p.client.ClearActions()
	p.Publish(t.Context(), []*model.VPA{p.vpa}, at, time.Minute)
	writes := len(p.client.Actions())
	if writes > 0 {
		object, err := p.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), p.vpa.Object.Name, metav1.GetOptions{})
		require.NoError(t, err)
		p.vpa.Object = object // as the informer brings it
	}
	return writes
}

func (p *press) upper(memory int64) {
	p.bounds.Upper = p.bounds.Upper.With(resources.Memory, resources.Amount(memory))
	p.vpa.Invalidate()
}

func (p *press) count(r result) float64 {
	return testutil.ToFloat64(p.Results.WithLabelValues(string(r)))
}

// upToDate publishes until nothing more is to be done.
func (p *press) upToDate(t *testing.T) *press {
	require.Equal(t, 1, p.publish(t, now()))
	require.Zero(t, p.publish(t, now()))
	p.isBuilt()
	return p
}

// isBuilt reports whether a recommendation was built for the VPA since it was last asked,
// by a mark in what is kept of the last one.
func (p *press) isBuilt() bool {
	_, marked := p.vpa.Published.Uncapped["mark"]
	p.vpa.Published.Uncapped["mark"] = resources.List{}
	return !marked
}

func TestNothingNewIsNotEvenLookedAt(t *testing.T) {
	p := newPress()
	require.Equal(t, 1, p.publish(t, now()))
	require.Zero(t, p.publish(t, now()), "the written object comes back")
	asked := p.asked.Load()
	for range 5 {
		require.Zero(t, p.publish(t, now()))
	}
	require.Equal(t, asked, p.asked.Load())
	p.vpa.Invalidate()
	require.Zero(t, p.publish(t, now()))
	require.Equal(t, asked+3*resources.Kinds, p.asked.Load())
	p.vpa.TargetError = errors.New("the target is gone")
	p.vpa.TargetErrorSince = now()
	require.Equal(t, 1, p.publish(t, now()))
}

func TestBoundsWaitTargetsDoNot(t *testing.T) {
	p := newPress()
	p.publish(t, now())
	p.upper(2164261863) // 0.8 % more than 2Gi
	require.Zero(t, p.publish(t, now().Add(time.Minute)))
	p.upper(2190433321) // 2 % more
	require.Equal(t, 1, p.publish(t, now().Add(2*time.Minute)))

	p.upper(2200000000)
	require.Zero(t, p.publish(t, now().Add(3*time.Minute)))
	writes := 0
	for minute := range 70 { // nothing new comes
		writes += p.publish(t, now().Add(time.Duration(4+minute)*time.Minute))
	}
	require.Equal(t, 1, writes, "within the hour it is written")

	p.upper(2200000001)
	p.bounds.Target = p.bounds.Target.With(resources.CPU, 1001)
	require.Equal(t, 1, p.publish(t, now().Add(75*time.Minute)))

	p.Tolerance = 0
	p.upper(2200000002)
	require.Equal(t, 1, p.publish(t, now().Add(76*time.Minute)))
}

func TestSmallChangesOfBoundsAddUp(t *testing.T) {
	p := newPress().upToDate(t)
	memory := int64(2 << 30)
	creep := func() int {
		memory += memory * 4 / 1000
		p.upper(memory)
		return p.publish(t, now())
	}
	require.Zero(t, creep())
	require.Zero(t, creep())
	require.False(t, p.isBuilt(), "nothing is built for what can wait")
	require.Equal(t, 2.0, p.count(putOff))
	require.Equal(t, 1, creep(), "1.2 %, though the last step was small")
	require.Zero(t, creep())
	require.Zero(t, creep())
	require.Equal(t, 1, creep())
}

// The bounds of a new workload move in each pass. That alone is written when its
// history is a good part longer, and for each VPA at another moment.
func TestBoundsOfYoungHistoriesAreWrittenAsTheyGrow(t *testing.T) {
	passes := map[int]bool{}
	for i := range 20 {
		p := newPress()
		p.vpa = p.takes(fmt.Sprint("web-", i))
		require.NoError(t, p.client.Tracker().Add(p.vpa.Object))
		observed(p.vpa, 0)
		p.upToDate(t)
		writes, last := 0, 0
		for minute := 2; minute <= 40; minute++ {
			p.upper(int64(1+1440/minute) << 20)
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

func TestWhatIsPublishedIsNotBuiltAgain(t *testing.T) {
	p := newPress().upToDate(t)
	before := p.count(unchanged)
	for range 3 {
		p.vpa.Invalidate()
		require.Zero(t, p.publish(t, now()))
	}
	require.False(t, p.isBuilt())
	require.Equal(t, before+3, p.count(unchanged))
}

func TestAllButBoundsIsWorthWriting(t *testing.T) {
	p := newPress()
	was := model.Estimate{Container: "a", Bounds: p.bounds, History: 10 * day}
	for name, c := range map[string]struct {
		change func(*model.Estimate)
		worth  bool
	}{
		"nothing":      {func(*model.Estimate) {}, false},
		"lower by 1 %": {func(e *model.Estimate) { e.Bounds.Lower = e.Bounds.Lower.With(resources.CPU, 505) }, false},
		"lower by 2 %": {func(e *model.Estimate) { e.Bounds.Lower = e.Bounds.Lower.With(resources.CPU, 510) }, true},
		"upper by 1 %": {func(e *model.Estimate) { e.Bounds.Upper = e.Bounds.Upper.With(resources.CPU, 1980) }, false},
		"no upper":     {func(e *model.Estimate) { e.Bounds.Upper = e.Bounds.Upper.Without(resources.CPU) }, true},
		"target":       {func(e *model.Estimate) { e.Bounds.Target = e.Bounds.Target.With(resources.CPU, 1001) }, true},
		"container":    {func(e *model.Estimate) { e.Container = "b" }, true},
		"known":        {func(e *model.Estimate) { e.Known[resources.CPU] = true }, true},
		"untrusted":    {func(e *model.Estimate) { e.Untrusted[resources.Memory] = true }, true},
		"history":      {func(e *model.Estimate) { e.History = time.Hour }, true},
		"coarse":       {func(e *model.Estimate) { e.Coarse = true }, true},
		"points":       {func(e *model.Estimate) { e.Points[resources.CPU] = recipe.Points{Have: 6, Want: 12} }, true},
	} {
		is := was
		c.change(&is)
		require.Equal(t, c.worth, p.worthWriting(p.vpa, []model.Estimate{was}, []model.Estimate{is}), name)
	}
	require.True(t, p.worthWriting(p.vpa, nil, []model.Estimate{was}))
}

func TestBoundsThatAreRoundedAreBuilt(t *testing.T) {
	p := newPress()
	p.Advisor.Format.MemoryStep = 1 << 20
	p.upToDate(t)
	p.upper(2147483649) // a little more may be a whole step more when it is printed
	require.Zero(t, p.publish(t, now()))
	require.True(t, p.isBuilt())
}

func TestAnotherObjectIsLookedAtWhateverTheHistory(t *testing.T) {
	p := newPress().upToDate(t)
	other := p.vpa.Object.DeepCopy()
	other.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
		{ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")}}}}
	p.vpa.Object, p.vpa.Rules = other, convert.Rules(other)
	require.Equal(t, 1, p.publish(t, now()))
	require.Equal(t, "700m", p.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().String())
}

func TestFailedWritesAreRepeated(t *testing.T) {
	p := newPress()
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

func TestWhatFailedWaitsForThePass(t *testing.T) {
	p := newPress()
	p.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	for range 3 { // one kill after the other, elsewhere
		p.PublishChanged(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	}
	require.Len(t, p.client.Actions(), 1)
	p.vpa.Invalidate()
	p.PublishChanged(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	require.Len(t, p.client.Actions(), 2, "a kill here is news")
	p.Publish(t.Context(), []*model.VPA{p.vpa}, now(), time.Minute)
	require.Len(t, p.client.Actions(), 3)
}

// answers makes each write take a time and end as the test says, and notes those that do
// not fail.
func (p *press) answers(takes time.Duration, fail func(vpa string) error) *[]string {
	p.Workers = 1
	written := &[]string{}
	p.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(takes)
		name := a.(clienttesting.PatchAction).GetName()
		if err := fail(name); err != nil {
			return true, nil, err
		}
		*written = append(*written, name)
		return true, &vpav1.VerticalPodAutoscaler{}, nil
	})
	return written
}

func well(string) error { return nil }

// Statuses of a large cluster may take longer than there is until the next
// pass: usage must be read then, or its samples are lost.
func TestThoseThatHadNoTurnComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		written := p.answers(2*time.Second, well)
		vpas := p.some(9)
		pass := func(span time.Duration) int {
			for _, v := range vpas {
				v.Invalidate()
			}
			return p.Publish(t.Context(), vpas, time.Now(), span)
		}
		for range 3 {
			require.Equal(t, 6, pass(leastSpan), "while three were written, six came new")
		}
		require.Equal(t, []string{"vpa-00", "vpa-01", "vpa-02", "vpa-03", "vpa-04", "vpa-05", "vpa-06", "vpa-07", "vpa-08"}, *written)
		require.Equal(t, 18.0, p.count(late))

		*written = nil
		require.Equal(t, 6, pass(-time.Minute), "it goes on, however late the pass is")
		require.Equal(t, []string{"vpa-00", "vpa-01", "vpa-02"}, *written)
		require.Zero(t, p.PublishChanged(t.Context(), vpas, time.Now(), time.Minute), "they wait for the pass")
		require.Len(t, *written, 3)
		require.Zero(t, p.Publish(t.Context(), vpas, time.Now(), time.Minute))
		require.Len(t, *written, 9)
	})
}

// answer is an API server, by the path of what is asked for.
type answer func(*http.Request) error

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := f(r); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// hangs makes the writes for a VPA hang until their time is up, and notes the others.
func (p *press) hangs(t *testing.T, name string) *[]string {
	p.Workers = 1
	written := &[]string{}
	client, err := versioned.NewForConfig(&rest.Config{Host: "http://server", QPS: -1, Transport: answer(func(r *http.Request) error {
		vpa := path.Base(path.Dir(r.URL.Path)) // before /status
		if vpa == name {
			<-r.Context().Done()
			return r.Context().Err()
		}
		*written = append(*written, vpa)
		return nil
	})})
	require.NoError(t, err)
	p.Writer.Client = client
	return written
}

func TestAVPAWhoseWriteHangsStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		written, vpas := p.hangs(t, "vpa-00"), p.some(3)
		require.Equal(t, 2, p.Publish(t.Context(), vpas, time.Now(), leastSpan))
		require.Zero(t, p.Publish(t.Context(), vpas, time.Now(), leastSpan))
		require.Equal(t, []string{"vpa-01", "vpa-02"}, *written)
	})
}

func TestAnAPIServerThatHangsEndsThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		p.hangs(t, "web")
		began := time.Now()
		require.Zero(t, p.Publish(t.Context(), []*model.VPA{p.vpa}, time.Now(), 20*time.Second), "it had its turn")
		require.Equal(t, 1.0, p.count(late))
		require.Equal(t, 20*time.Second+requestTime, time.Since(began))
	})
}

func TestWritesThatFailDoNotDelayAFirstRecommendation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		written := p.answers(time.Second, func(name string) error {
			if name != "vpa-20" {
				return errors.New("a policy denies it")
			}
			return nil
		})
		vpas := p.some(21)
		for range 5 {
			p.Publish(t.Context(), vpas[:20], time.Now(), leastSpan)
			time.Sleep(time.Minute)
		}
		p.Publish(t.Context(), vpas, time.Now(), leastSpan)
		require.Equal(t, []string{"vpa-20"}, *written)
	})
}

// A defect of one VPA must not look like a lack of time for ever.
func TestAPanicIsATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		p.answers(6*time.Second, well)
		vpas := p.some(2)
		require.Equal(t, 1, p.Publish(t.Context(), vpas, time.Now(), leastSpan))
		p.broken = "vpa-01"
		for range 2 {
			require.Zero(t, p.Publish(t.Context(), vpas, time.Now(), leastSpan))
		}
	})
}

func TestHistoriesAreCountedOnlyOfWhatWasLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		p.answers(6*time.Second, well)
		vpas := p.some(3)
		for _, v := range vpas {
			v.Published.Recommended = true // as their status says
		}
		observed(vpas[0], 0)
		require.Equal(t, 2, p.Publish(t.Context(), vpas, time.Now(), leastSpan))
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, []string{"history"})
		CountByHistory(gauge, vpas)
		require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("lessthan1hour")))
		require.Zero(t, testutil.ToFloat64(gauge.WithLabelValues("8days")))
		require.Equal(t, 1, p.Publish(t.Context(), vpas, time.Now(), leastSpan))
		CountByHistory(gauge, vpas)
		require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("8days")))
	})
}

// crowd is a press for many VPAs whose statuses come back as they are written, in a
// second each.
type crowd struct {
	*press
	vpas    []*model.VPA
	written []string
	memory  int64
}

func newCrowd(n int) *crowd {
	c := &crowd{press: newPress(), memory: 2 << 30}
	c.vpas, c.Workers = c.some(n), 1
	c.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(time.Second)
		patch := a.(clienttesting.PatchAction)
		var steps []struct {
			Value vpav1.VerticalPodAutoscalerStatus
		}
		if err := json.Unmarshal(patch.GetPatch(), &steps); err != nil {
			return true, nil, err
		}
		c.written = append(c.written, patch.GetName())
		at, err := strconv.Atoi(strings.TrimPrefix(patch.GetName(), "vpa-"))
		if err != nil {
			return true, nil, err
		}
		v := c.vpas[at]
		v.Object = v.Object.DeepCopy() // as the informer brings it
		v.Object.Status = steps[0].Value
		return true, v.Object, nil
	})
	return c
}

// pass moves all upper bounds and returns what is written then.
func (c *crowd) pass(t *testing.T) []string {
	c.memory += c.memory / 10
	c.upper(c.memory)
	for _, v := range c.vpas {
		v.Invalidate()
	}
	return c.rest(t)
}

// rest is a pass without news.
func (c *crowd) rest(t *testing.T) []string {
	c.written = nil
	require.Zero(t, c.Publish(t.Context(), c.vpas, time.Now(), time.Minute))
	time.Sleep(time.Minute)
	return c.written
}

// Where many bounds move at once each pass writes a few, in turn. Targets do not wait
// for them, however long bounds have waited.
func TestBoundsOfManyTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(12)
		require.Len(t, c.pass(t), 12, "those without a recommendation do not wait")
		require.Equal(t, []string{"vpa-00", "vpa-01"}, c.pass(t))
		require.Equal(t, []string{"vpa-02", "vpa-03"}, c.pass(t))
		time.Sleep(3 * time.Hour)
		c.raised = "vpa-11"
		require.Equal(t, []string{"vpa-04", "vpa-05", "vpa-11"}, c.pass(t))
		for range 4 {
			require.Len(t, c.rest(t), 2, "they are looked at again though nothing moves")
		}
		require.Equal(t, []string{"vpa-01", "vpa-02"}, c.written, "and all had their turn")
	})
}

func TestWithoutToleranceNoBoundWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(12)
		c.Tolerance = 0
		c.pass(t)
		require.Len(t, c.pass(t), 12)
	})
}

func TestAPanicKeepsNoOtherVPAFromItsRecommendation(t *testing.T) {
	p := newPress()
	p.Workers, p.broken = 1, "bad"
	bad := p.takes("bad")
	for range 2 {
		p.Publish(t.Context(), []*model.VPA{bad, p.vpa}, now(), time.Minute)
	}
	require.Equal(t, 2.0, testutil.ToFloat64(p.panics))
	require.NotEmpty(t, p.client.Actions())
}

type brokenError struct{}

func (brokenError) Error() string { panic("a defect") }

// A defect in what is asked about one VPA before it is queued stops no other.
func TestADefectBeforeTheQueueStopsOneVPAOnly(t *testing.T) {
	p := newPress()
	bad := p.takes("bad")
	bad.TargetError = brokenError{}
	p.Publish(t.Context(), []*model.VPA{bad, p.vpa}, now(), time.Minute)
	require.Equal(t, 1.0, testutil.ToFloat64(p.panics))
	require.Len(t, p.client.Actions(), 1, "the other is published")
}
