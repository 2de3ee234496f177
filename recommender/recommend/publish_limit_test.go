package recommend

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// limitWrites adds an API server with a write limit and VPAs of 12 KiB.
func limitWrites(t *testing.T, p *scriptedPublisher, limit client.WriteLimit) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var steps []struct {
			Value vpav1.VerticalPodAutoscalerStatus `json:"value"`
		}
		if json.NewDecoder(r.Body).Decode(&steps) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		object := p.vpa.Object.DeepCopy()
		object.Annotations = map[string]string{"large": strings.Repeat("x", 12<<10)}
		object.Status = steps[0].Value
		p.vpa.Object = object
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	client.NewWriteLimiter(limit, prometheus.NewRegistry()).Limit(config)
	limited, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	p.Writer = status.Writer{Client: limited}
}

func TestPublish_WriteLimitExemptsMemoryRaises(t *testing.T) {
	p, at := newScriptedPublisher(), now()
	p.vpa.Object.APIVersion, p.vpa.Object.Kind = "autoscaling.k8s.io/v1", "VerticalPodAutoscaler"
	limitWrites(t, p, client.WriteLimit{Burst: 256 << 10, Refill: 1 << 10, Window: time.Hour})
	publish := func(cpu, memory resources.Amount) {
		p.bounds.Target = p.bounds.Target.With(resources.CPU, cpu).With(resources.Memory, memory)
		p.vpa.Invalidate()
		at = at.Add(time.Minute)
		p.Publish(t.Context(), []*model.VPA{p.vpa}, at, time.Minute)
	}
	cpu := resources.Amount(1000)
	for ; cpu < 3000 && p.count(late) == 0; cpu += 100 {
		publish(cpu, 1<<30)
	}
	require.EqualValues(t, 1, p.count(late))
	require.InDelta(t, 15, p.count(written), 3, "the limit without the reserve")
	require.Zero(t, p.count(failed))
	publish(cpu, 1<<30)
	require.EqualValues(t, 2, p.count(late))
	require.False(t, status.Holds(p.vpa.Object, status.WriteLimited))

	before := p.count(written)
	publish(cpu, 2<<30)
	require.Equal(t, before+1, p.count(written), "memory after a kill does not wait")
	require.Equal(t, "2Gi", p.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target.Memory().String())
	require.True(t, status.Holds(p.vpa.Object, status.WriteLimited), "the status says why it is late")

	limitWrites(t, p, client.RecommenderWrites)
	publish(cpu, 2<<30)
	require.Equal(t, before+1, p.count(written), "no write that only removes the condition")
	publish(cpu+100, 2<<30)
	require.Equal(t, before+2, p.count(written))
	require.False(t, status.Holds(p.vpa.Object, status.WriteLimited))
}
