package status

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/recommender/feed"
)

// desk is a Publisher for one VPA, which recommends what the test says.
type desk struct {
	*Publisher
	client *fake.Clientset
	vpa    *feed.VPA
	advice Advice
	asked  int
}

func newDesk() *desk {
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	d := &desk{client: fake.NewSimpleClientset(object), vpa: &feed.VPA{Object: object}, advice: Advice{Containers: []Recommended{recommended("a")}}}
	d.Publisher = &Publisher{
		Writer: Writer{d.client}, Workers: 2, Shape: profile.NewShape(time.Hour, time.Hour), Tolerance: 0.01,
		Recommend: func(*feed.VPA, *profile.Profile) Advice { d.asked++; return d.advice },
		Changed:   func(*feed.VPA, string, amount.Resources) {},
		Latency:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"}),
		Results:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "y"}, []string{"result"}),
	}
	return d
}

// publish makes one pass and returns how many writes it took.
func (d *desk) publish(t *testing.T, at time.Time) int {
	d.client.ClearActions()
	d.Publish(t.Context(), []*feed.VPA{d.vpa}, at)
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
	d.vpa.Touch()
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
	d.vpa.Touch()
	require.Zero(t, d.publish(t, now()))
	require.Equal(t, asked+1, d.asked)
	d.vpa.Trouble = errors.New("the target is gone")
	d.vpa.TroubleSince = now()
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

func TestFailedWritesAreRepeated(t *testing.T) {
	d := newDesk()
	fail := true
	d.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fail, nil, errors.New("the API server is away")
	})
	for range 3 {
		d.Publish(t.Context(), []*feed.VPA{d.vpa}, now())
	}
	require.Len(t, d.client.Actions(), 3)
	fail = false
	require.Equal(t, 1, d.publish(t, now()))
	require.Len(t, d.vpa.Object.Status.Recommendation.ContainerRecommendations, 1)
}

func TestAPanicKeepsNoOtherVPAFromItsRecommendation(t *testing.T) {
	d := newDesk()
	bad := &feed.VPA{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bad"}}}
	recommend := d.Recommend
	d.Workers = 1
	d.Recommend = func(v *feed.VPA, p *profile.Profile) Advice {
		if v == bad {
			panic("a defect")
		}
		return recommend(v, p)
	}
	var rescued []*feed.VPA
	d.Rescue = func(v *feed.VPA) {
		if recover() != nil {
			rescued = append(rescued, v)
		}
	}
	for range 2 {
		d.Publish(t.Context(), []*feed.VPA{bad, d.vpa}, now())
	}
	require.Equal(t, []*feed.VPA{bad, bad}, rescued)
	require.NotEmpty(t, d.client.Actions())
}
