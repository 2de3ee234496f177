package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/recommender/model"
)

// desk is a Publisher for one VPA, which recommends what the test says.
type desk struct {
	*Publisher
	client *fake.Clientset
	vpa    *model.VPA
	advice Advice
	asked  int // for estimates
	built  int // recommendations
}

func newDesk() *desk {
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	d := &desk{client: fake.NewSimpleClientset(object), vpa: &model.VPA{Object: object}, advice: Advice{Containers: []Recommended{recommended("a")}, History: 10 * day}}
	d.Publisher = &Publisher{
		Writer: Writer{d.client}, Workers: 2, Shape: usage.NewProfileShape(time.Hour, time.Hour), Tolerance: 0.01,
		Estimate: d.estimate,
		Advise:   func(*model.VPA, []Estimate) Advice { d.built++; return d.advice },
		Changed:  func(*model.VPA, string, resources.List) {},
		Latency:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"}),
		Results:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "y"}, []string{"result"}),
	}
	return d
}

// estimate appends what the advice is made of.
func (d *desk) estimate(_ *model.VPA, _ *usage.Profile, to []Estimate) []Estimate {
	d.asked++
	for _, c := range d.advice.Containers {
		to = append(to, Estimate{Container: c.ContainerName, Bounds: convert.Bounds(c), History: Covered(d.advice.History)})
	}
	return to
}

// publish makes one pass and returns how many writes it took.
func (d *desk) publish(t *testing.T, at time.Time) int {
	d.client.ClearActions()
	d.Publish(t.Context(), []*model.VPA{d.vpa}, at, time.Minute)
	writes := len(d.client.Actions())
	object, err := d.client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	if writes > 0 {
		d.vpa.Object = object // as the informer brings it
	}
	return writes
}

func (d *desk) upper(memory string) {
	c := recommended("a")
	c.UpperBound = list("2", memory)
	d.advice.Containers = []Recommended{c}
	d.vpa.Invalidate()
}

func TestNothingNewIsNotEvenLookedAt(t *testing.T) {
	d := newDesk()
	require.Equal(t, 1, d.publish(t, now()))
	require.Zero(t, d.publish(t, now()), "the written object comes back")
	asked := d.asked
	for range 5 {
		require.Zero(t, d.publish(t, now()))
	}
	require.Equal(t, asked, d.asked)
	d.vpa.Invalidate()
	require.Zero(t, d.publish(t, now()))
	require.Equal(t, asked+1, d.asked)
	d.vpa.TargetError = errors.New("the target is gone")
	d.vpa.TargetErrorSince = now()
	require.Equal(t, 1, d.publish(t, now()))
}

func TestBoundsWaitTargetsDoNot(t *testing.T) {
	d := newDesk()
	d.publish(t, now())
	d.upper("2164261863") // 0.8 % more than 2Gi
	require.Zero(t, d.publish(t, now().Add(time.Minute)))
	d.upper("2190433321") // 2 % more
	require.Equal(t, 1, d.publish(t, now().Add(2*time.Minute)))

	d.upper("2200000000")
	require.Zero(t, d.publish(t, now().Add(3*time.Minute)))
	writes := 0
	for minute := range 70 { // nothing new comes
		writes += d.publish(t, now().Add(time.Duration(4+minute)*time.Minute))
	}
	require.Equal(t, 1, writes, "within the hour it is written")

	d.upper("2200000001")
	d.advice.Containers[0].Target = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1001m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	require.Equal(t, 1, d.publish(t, now().Add(75*time.Minute)))

	d.Tolerance = 0
	d.upper("2200000002")
	d.advice.Containers[0].Target = d.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target
	require.Equal(t, 1, d.publish(t, now().Add(76*time.Minute)))
}

func (d *desk) count(r result) float64 {
	return testutil.ToFloat64(d.Results.WithLabelValues(string(r)))
}

// settle publishes until nothing more is to be done.
func (d *desk) settle(t *testing.T) *desk {
	require.Equal(t, 1, d.publish(t, now()))
	require.Zero(t, d.publish(t, now()))
	d.built = 0
	return d
}

func TestSmallChangesOfBoundsAddUp(t *testing.T) {
	d := newDesk().settle(t)
	memory := int64(2 << 30)
	creep := func() int {
		memory += memory * 4 / 1000
		d.upper(strconv.FormatInt(memory, 10))
		return d.publish(t, now())
	}
	require.Zero(t, creep())
	require.Zero(t, creep())
	require.Zero(t, d.built, "nothing is built for what can wait")
	require.Equal(t, 2.0, d.count(putOff))
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
		d := newDesk()
		d.vpa.Object.Name = "web" // the server knows this one only
		d.advice.History = 0
		d.settle(t)
		d.handled[d.vpa].phase = longest * time.Duration(i) / 20
		d.handled[d.vpa].sent = now()
		writes, last := 0, 0
		for minute := 2; minute <= 40; minute++ {
			d.upper(strconv.Itoa((1 + 1440/minute) << 20))
			if n := d.publish(t, now()); n > 0 {
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
	d := newDesk().settle(t)
	before := d.count(unchanged)
	changed := 0
	d.Changed = func(_ *model.VPA, container string, now resources.List) {
		require.Equal(t, "a", container)
		require.Equal(t, convert.Resources(list("1", "1Gi")), now)
		changed++
	}
	for range 3 {
		d.vpa.Invalidate()
		require.Zero(t, d.publish(t, now()))
	}
	require.Zero(t, d.built)
	require.Equal(t, 3, changed, "a target that stays is a change by nothing")
	require.Equal(t, before+3, d.count(unchanged))
}

func TestAllButBoundsIsBuiltAtOnce(t *testing.T) {
	estimated := Estimate{Container: "a", Bounds: convert.Bounds(recommended("a")), History: 10 * day}
	for name, change := range map[string]func(*Estimate){
		"target":    func(e *Estimate) { e.Bounds.Target = e.Bounds.Target.With(resources.CPU, 1001) },
		"lower":     func(e *Estimate) { e.Bounds.Lower = e.Bounds.Lower.With(resources.CPU, 506) },
		"container": func(e *Estimate) { e.Container = "b" },
		"known":     func(e *Estimate) { e.Known[resources.CPU] = true },
		"doubted":   func(e *Estimate) { e.Untrusted[resources.Memory] = true },
		"history":   func(e *Estimate) { e.History = time.Hour },
		"coarse":    func(e *Estimate) { e.Coarse = true },
	} {
		d := newDesk()
		e := estimated
		d.Estimate = func(_ *model.VPA, _ *usage.Profile, to []Estimate) []Estimate { return append(to, e) }
		d.settle(t)
		change(&e)
		d.vpa.Invalidate()
		d.publish(t, now())
		require.Equal(t, 1, d.built, name)
	}
}

func TestBoundsThatAreRoundedAreBuilt(t *testing.T) {
	d := newDesk()
	estimate := d.Estimate
	d.Estimate = func(v *model.VPA, p *usage.Profile, to []Estimate) []Estimate {
		to = estimate(v, p, to)
		to[0].Coarse = true
		return to
	}
	d.settle(t)
	d.upper("2147483649") // a little more may be a whole step more when it is printed
	require.Zero(t, d.publish(t, now()))
	require.Equal(t, 1, d.built)
}

func TestAnotherObjectIsLookedAtWhateverTheHistory(t *testing.T) {
	d := newDesk().settle(t)
	other := d.vpa.Object.DeepCopy()
	other.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{}
	d.vpa.Object = other
	d.advice.Containers = []Recommended{recommended("a")}
	d.advice.Containers[0].Target = list("700m", "1Gi") // capped, of the same estimates
	d.Estimate = func(_ *model.VPA, _ *usage.Profile, to []Estimate) []Estimate {
		return append(to, Estimate{Container: "a", Bounds: convert.Bounds(recommended("a"))})
	}
	require.Equal(t, 1, d.publish(t, now()))
}

func TestFailedWritesAreRepeated(t *testing.T) {
	d := newDesk()
	fail := true
	d.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fail, nil, errors.New("the API server is away")
	})
	for range 3 {
		d.Publish(t.Context(), []*model.VPA{d.vpa}, now(), time.Minute)
	}
	require.Len(t, d.client.Actions(), 3)
	fail = false
	require.Equal(t, 1, d.publish(t, now()))
	require.Len(t, d.vpa.Object.Status.Recommendation.ContainerRecommendations, 1)
}

func TestWhatFailedWaitsForThePass(t *testing.T) {
	d := newDesk()
	d.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	d.Publish(t.Context(), []*model.VPA{d.vpa}, now(), time.Minute)
	for range 3 { // one kill after the other, elsewhere
		d.PublishChanged(t.Context(), []*model.VPA{d.vpa}, now(), time.Minute)
	}
	require.Len(t, d.client.Actions(), 1)
	d.vpa.Invalidate()
	d.PublishChanged(t.Context(), []*model.VPA{d.vpa}, now(), time.Minute)
	require.Len(t, d.client.Actions(), 2, "a kill here is news")
	d.Publish(t.Context(), []*model.VPA{d.vpa}, now(), time.Minute)
	require.Len(t, d.client.Actions(), 3)
}

// some returns VPAs that have no status.
func some(n int) (vpas []*model.VPA) {
	for i := range n {
		vpas = append(vpas, &model.VPA{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("vpa-%02d", i)}}})
	}
	return vpas
}

// answers makes each write take a time and end as told, and notes those that do
// not fail.
func (d *desk) answers(takes time.Duration, fail func(vpa string) error) *[]string {
	d.Workers = 1
	written := &[]string{}
	d.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
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
		d := newDesk()
		written := d.answers(2*time.Second, well)
		vpas := some(9)
		pass := func(span time.Duration) int {
			for _, v := range vpas {
				v.Invalidate()
			}
			return d.Publish(t.Context(), vpas, time.Now(), span)
		}
		for range 3 {
			require.Equal(t, 6, pass(leastSpan), "while three were written, six came new")
		}
		require.Equal(t, []string{"vpa-00", "vpa-01", "vpa-02", "vpa-03", "vpa-04", "vpa-05", "vpa-06", "vpa-07", "vpa-08"}, *written)
		require.Equal(t, 18.0, d.count(late))

		*written = nil
		require.Equal(t, 6, pass(-time.Minute), "it goes on, however late the pass is")
		require.Equal(t, []string{"vpa-00", "vpa-01", "vpa-02"}, *written)
		require.Zero(t, d.PublishChanged(t.Context(), vpas, time.Now(), time.Minute), "they wait for the pass")
		require.Len(t, *written, 3)
		require.Zero(t, d.Publish(t.Context(), vpas, time.Now(), time.Minute))
		require.Len(t, *written, 9)
	})
}

func TestAVPAWhoseWriteHangsStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		written := d.answers(0, func(name string) error {
			if name == "vpa-00" {
				return context.DeadlineExceeded
			}
			return nil
		})
		d.Secure = func(ctx context.Context, v *model.VPA, _ time.Time) {
			if v.Object.Name == "vpa-00" {
				<-ctx.Done() // a webhook of its namespace hangs
			}
		}
		vpas := some(3)
		for range 2 {
			d.Publish(t.Context(), vpas, time.Now(), leastSpan)
		}
		require.Equal(t, []string{"vpa-01", "vpa-02"}, *written)
	})
}

func TestWritesThatFailDoNotDelayAFirstRecommendation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		written := d.answers(time.Second, func(name string) error {
			if name != "vpa-20" {
				return errors.New("a policy denies it")
			}
			return nil
		})
		vpas := some(21)
		for range 5 {
			d.Publish(t.Context(), vpas[:20], time.Now(), leastSpan)
			time.Sleep(time.Minute)
		}
		d.Publish(t.Context(), vpas, time.Now(), leastSpan)
		require.Equal(t, []string{"vpa-20"}, *written)
	})
}

// A defect of one VPA must not look like a lack of time for ever.
func TestAPanicIsATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.answers(6*time.Second, well)
		d.Rescue = func(*model.VPA) { _ = recover() }
		vpas := some(2)
		require.Equal(t, 1, d.Publish(t.Context(), vpas, time.Now(), leastSpan))
		advise := d.Advise
		d.Advise = func(v *model.VPA, e []Estimate) Advice {
			if v.Object.Name == "vpa-01" {
				panic("a defect")
			}
			return advise(v, e)
		}
		for range 2 {
			require.Zero(t, d.Publish(t.Context(), vpas, time.Now(), leastSpan))
		}
	})
}

func TestDepthCountsOnlyWhatWasLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.answers(6*time.Second, well)
		vpas := some(3)
		for _, v := range vpas {
			v.Recommended = true // as their status says
		}
		require.Equal(t, 2, d.Publish(t.Context(), vpas, time.Now(), leastSpan))
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, []string{"history"})
		d.Depth(gauge)
		require.Zero(t, testutil.ToFloat64(gauge.WithLabelValues("lessthan1hour")))
		require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("8days")))
	})
}

// crowd is a desk for many VPAs whose statuses come back as they are written, in a
// second each; the CPU target of one is as high as told.
type crowd struct {
	*desk
	vpas    []*model.VPA
	written []string
	raised  string
	upper   int64
}

func newCrowd(n int) *crowd {
	c := &crowd{desk: newDesk(), vpas: some(n), upper: 2 << 30}
	c.Workers = 1
	byName := map[string]*model.VPA{}
	for _, v := range c.vpas {
		byName[v.Object.Name] = v
	}
	c.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(time.Second)
		v := byName[a.(clienttesting.PatchAction).GetName()]
		c.written = append(c.written, v.Object.Name)
		advice := c.Advise(v, nil)
		object := v.Object.DeepCopy()
		object.Status = Compose(object, Outcome{Recommendation: advice.Containers, History: advice.History}, time.Now())
		v.Object = object // as the informer brings it
		return true, object, nil
	})
	estimate := c.Estimate
	c.Estimate = func(v *model.VPA, p *usage.Profile, to []Estimate) []Estimate {
		to = estimate(v, p, to)
		if v.Object.Name == c.raised {
			to[0].Bounds.Target = to[0].Bounds.Target.With(resources.CPU, 1100)
		}
		return to
	}
	c.Advise = func(v *model.VPA, _ []Estimate) Advice {
		a := c.advice
		a.Containers = slices.Clone(a.Containers)
		if v.Object.Name == c.raised {
			a.Containers[0].Target = list("1100m", "1Gi")
		}
		return a
	}
	return c
}

// pass moves all upper bounds and returns what is written then.
func (c *crowd) pass(t *testing.T) []string {
	c.upper += c.upper / 10
	c.desk.upper(strconv.FormatInt(c.upper, 10))
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

func TestAnAPIServerThatHangsEndsThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked := make(chan context.Context, 1)
		d.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, context.DeadlineExceeded
		})
		d.Secure = func(ctx context.Context, _ *model.VPA, _ time.Time) {
			asked <- ctx
			<-ctx.Done()
		}
		began := time.Now()
		require.Zero(t, d.Publish(ctx, []*model.VPA{d.vpa}, time.Now(), 20*time.Second), "it had its turn")
		require.Equal(t, 1.0, d.count(late))
		require.Equal(t, 20*time.Second+requestTime, time.Since(began))
		require.ErrorIs(t, (<-asked).Err(), context.DeadlineExceeded)
	})
}

func TestAPanicKeepsNoOtherVPAFromItsRecommendation(t *testing.T) {
	d := newDesk()
	bad := &model.VPA{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bad"}}}
	advise := d.Advise
	d.Workers = 1
	d.Advise = func(v *model.VPA, e []Estimate) Advice {
		if v == bad {
			panic("a defect")
		}
		return advise(v, e)
	}
	var rescued []*model.VPA
	d.Rescue = func(v *model.VPA) {
		if recover() != nil {
			rescued = append(rescued, v)
		}
	}
	for range 2 {
		d.Publish(t.Context(), []*model.VPA{bad, d.vpa}, now(), time.Minute)
	}
	require.Equal(t, []*model.VPA{bad, bad}, rescued)
	require.NotEmpty(t, d.client.Actions())
}

// A defect in what is asked about one VPA before it is queued stops no other.
func TestADefectBeforeTheQueueStopsOneVPAOnly(t *testing.T) {
	d := newDesk()
	broken := &model.VPA{} // without an object
	rescued := 0
	d.Rescue = func(*model.VPA) {
		if recover() != nil {
			rescued++
		}
	}
	d.Publish(t.Context(), []*model.VPA{broken, d.vpa}, now(), time.Minute)
	require.Equal(t, 1, rescued)
	require.NotEmpty(t, d.client.Actions(), "the other is published")
}
