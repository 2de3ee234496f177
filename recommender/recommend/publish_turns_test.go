package recommend

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/recommender/model"
)

// delayWrites fails writes with the result of fail and returns successful writes.
func (p *scriptedPublisher) delayWrites(takes time.Duration, fail func(vpa string) error) *[]string {
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

func succeed(string) error { return nil }

// Publishing in a large cluster may exceed the interval, but usage must be read in time.
func TestPublish_ServesLateVPAsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		written := p.delayWrites(2*time.Second, succeed)
		vpas := p.newVPAs(9)
		pass := func(span time.Duration) int {
			for _, v := range vpas {
				v.Invalidate()
			}
			return p.Publish(t.Context(), vpas, time.Now(), span)
		}
		for range 3 {
			require.Equal(t, 6, pass(minPublishTime), "while three were written, six came new")
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

type roundTripFunc func(*http.Request) error

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := f(r); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// hangWrites blocks the writes of one VPA until their timeout and returns other writes.
func (p *scriptedPublisher) hangWrites(t *testing.T, name string) *[]string {
	p.Workers = 1
	written := &[]string{}
	client, err := versioned.NewForConfig(&rest.Config{Host: "http://server", QPS: -1, Transport: roundTripFunc(func(r *http.Request) error {
		vpa := path.Base(path.Dir(r.URL.Path)) // parent of status
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

func TestPublish_HangingWriteDoesNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		written, vpas := p.hangWrites(t, "vpa-00"), p.newVPAs(3)
		require.Equal(t, 2, p.Publish(t.Context(), vpas, time.Now(), minPublishTime))
		require.Zero(t, p.Publish(t.Context(), vpas, time.Now(), minPublishTime))
		require.Equal(t, []string{"vpa-01", "vpa-02"}, *written)
	})
}

func TestPublish_EndsIfAPIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		p.hangWrites(t, "web")
		began := time.Now()
		require.Zero(t, p.Publish(t.Context(), []*model.VPA{p.vpa}, time.Now(), 20*time.Second), "it had its turn")
		require.Equal(t, 1.0, p.count(late))
		require.Equal(t, 20*time.Second+requestTimeout, time.Since(began))
	})
}

func TestPublish_FailedWritesDoNotDelayNewVPAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		written := p.delayWrites(time.Second, func(name string) error {
			if name != "vpa-20" {
				return errors.New("a policy denies it")
			}
			return nil
		})
		vpas := p.newVPAs(21)
		for range 5 {
			p.Publish(t.Context(), vpas[:20], time.Now(), minPublishTime)
			time.Sleep(time.Minute)
		}
		p.Publish(t.Context(), vpas, time.Now(), minPublishTime)
		require.Equal(t, []string{"vpa-20"}, *written)
	})
}

// A panicking VPA must not look like a lack of time.
func TestPublish_CountsPanicAsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		p.delayWrites(6*time.Second, succeed)
		vpas := p.newVPAs(2)
		require.Equal(t, 1, p.Publish(t.Context(), vpas, time.Now(), minPublishTime))
		p.panickingVPA = "vpa-01"
		for range 2 {
			require.Zero(t, p.Publish(t.Context(), vpas, time.Now(), minPublishTime))
		}
	})
}

func TestCountByHistory_OnlyEvaluatedVPAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		p.delayWrites(6*time.Second, succeed)
		vpas := p.newVPAs(3)
		for _, v := range vpas {
			v.Published.Recommended = true // as in their status
		}
		setHistory(vpas[0], 0)
		require.Equal(t, 2, p.Publish(t.Context(), vpas, time.Now(), minPublishTime))
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, []string{"history"})
		CountByHistory(gauge, vpas)
		require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("lessthan1hour")))
		require.Zero(t, testutil.ToFloat64(gauge.WithLabelValues("8days")))
		require.Equal(t, 1, p.Publish(t.Context(), vpas, time.Now(), minPublishTime))
		CountByHistory(gauge, vpas)
		require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("8days")))
	})
}

// manyVPAPublisher takes one second per write.
type manyVPAPublisher struct {
	*scriptedPublisher
	vpas    []*model.VPA
	written []string
	memory  int64
}

func newManyVPAPublisher(n int) *manyVPAPublisher {
	c := &manyVPAPublisher{scriptedPublisher: newScriptedPublisher(), memory: 2 << 30}
	c.vpas, c.Workers = c.newVPAs(n), 1
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
		v.Object = v.Object.DeepCopy() // as from the informer
		v.Object.Status = steps[0].Value
		return true, v.Object, nil
	})
	return c
}

// iterate moves all upper bounds and returns the written VPAs.
func (c *manyVPAPublisher) iterate(t *testing.T) []string {
	c.memory += c.memory / 10
	c.setUpperMemory(c.memory)
	for _, v := range c.vpas {
		v.Invalidate()
	}
	return c.iterateUnchanged(t)
}

func (c *manyVPAPublisher) iterateUnchanged(t *testing.T) []string {
	c.written = nil
	require.Zero(t, c.Publish(t.Context(), c.vpas, time.Now(), time.Minute))
	time.Sleep(time.Minute)
	return c.written
}

// Each iteration writes a few deferred bounds in turn. Targets never wait for bounds.
func TestPublish_AlternatesDeferredBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newManyVPAPublisher(12)
		require.Len(t, c.iterate(t), 12, "those without a recommendation do not wait")
		require.Equal(t, []string{"vpa-00", "vpa-01"}, c.iterate(t))
		require.Equal(t, []string{"vpa-02", "vpa-03"}, c.iterate(t))
		time.Sleep(3 * time.Hour)
		c.raisedVPA = "vpa-11"
		require.Equal(t, []string{"vpa-04", "vpa-05", "vpa-11"}, c.iterate(t))
		for range 4 {
			require.Len(t, c.iterateUnchanged(t), 2, "they are looked at again though nothing moves")
		}
		require.Equal(t, []string{"vpa-01", "vpa-02"}, c.written, "and all had their turn")
	})
}

func TestPublish_DefersNoBoundsWithoutTolerance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newManyVPAPublisher(12)
		c.Tolerance = 0
		c.iterate(t)
		require.Len(t, c.iterate(t), 12)
	})
}

func TestPublish_ContinuesAfterPanic(t *testing.T) {
	p := newScriptedPublisher()
	p.Workers, p.panickingVPA = 1, "bad"
	bad := p.newVPA("bad")
	for range 2 {
		p.Publish(t.Context(), []*model.VPA{bad, p.vpa}, now(), time.Minute)
	}
	require.Equal(t, 2.0, testutil.ToFloat64(p.panics))
	require.NotEmpty(t, p.client.Actions())
}

type brokenError struct{}

func (brokenError) Error() string { panic("a defect") }

func TestPublish_ContinuesAfterPanicBeforeQueue(t *testing.T) {
	p := newScriptedPublisher()
	bad := p.newVPA("bad")
	bad.TargetError = brokenError{}
	p.Publish(t.Context(), []*model.VPA{bad, p.vpa}, now(), time.Minute)
	require.Equal(t, 1.0, testutil.ToFloat64(p.panics))
	require.Len(t, p.client.Actions(), 1, "the other is published")
}

// The VPAs of the other namespace have waited longer.
func TestPublish_AlternatesNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedPublisher()
		written := p.delayWrites(time.Second, succeed)
		vpas := p.newVPAs(60)
		for _, v := range vpas {
			v.Object.Namespace = "hog"
		}
		quiet := vpas[len(vpas)-1]
		quiet.Object.Namespace = "quiet"
		for _, v := range vpas {
			v.Published.LastTried = time.Now()
		}
		quiet.Published.LastTried = time.Now().Add(time.Second) // all others have waited longer
		p.Publish(t.Context(), vpas, time.Now().Add(time.Minute), 20*time.Second)
		require.Contains(t, (*written)[:3], quiet.Object.Name)
		require.GreaterOrEqual(t, len(*written), 20, "the time that others leave is used")
	})
}
