package compat

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	upstreamclient "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/clientset/versioned/typed/autoscaling.k8s.io/v1"
	upstreamvpa "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"

	"loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	ourclient "loadline.dev/loadline/pkg/generated/clientset/versioned/typed/autoscaling/v1"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/recommend"
	"loadline.dev/loadline/recommender/status"
)

type upstreamServer struct {
	upstreamclient.VerticalPodAutoscalerInterface
	writes int
}

// Patch counts a status write.
func (s *upstreamServer) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*upstreamv1.VerticalPodAutoscaler, error) {
	s.writes++
	return nil, nil
}

// publish runs an iteration of upstream over all VPAs, with one worker. Written statuses are
// observed at no cost.
func (u *upstream) publish(b *testing.B, f fleet) {
	for i := range f.vpas {
		p := f.vpas[i]
		v := u.vpa(p)
		v.UpdateRecommendation(&upstreamv1.RecommendedPodResources{ContainerRecommendations: u.recommend(b, p, p.versions[0])})
		v.UpdateConditions(v.PodCount > 0)
		require.NoError(b, u.cluster.RecordRecommendation(v, dayOne))
		if u.observed[p.name] == nil {
			u.observed[p.name] = &upstreamv1.VerticalPodAutoscalerStatus{}
		}
		before, now := u.server.writes, v.AsStatus()
		_, err := upstreamvpa.UpdateVpaStatusIfNeeded(&u.server, p.name, now, u.observed[p.name])
		require.NoError(b, err)
		if u.server.writes > before {
			u.observed[p.name] = now
		}
	}
}

// loadlineServer counts Loadline's status writes and stores them until they are observed.
type loadlineServer struct {
	versioned.Interface
	ourclient.AutoscalingV1Interface
	ourclient.VerticalPodAutoscalerInterface
	writes  int
	patches map[string][]byte
}

// AutoscalingV1 returns the server.
func (s *loadlineServer) AutoscalingV1() ourclient.AutoscalingV1Interface { return s }

// VerticalPodAutoscalers returns the server. Names are unique in a fleet.
func (s *loadlineServer) VerticalPodAutoscalers(string) ourclient.VerticalPodAutoscalerInterface {
	return s
}

// Patch stores the status of a VPA.
func (s *loadlineServer) Patch(_ context.Context, name string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*v1.VerticalPodAutoscaler, error) {
	s.writes++
	s.patches[name] = patch
	return nil, nil
}

func (l *loadline) connect() {
	l.server = &loadlineServer{patches: map[string][]byte{}}
	l.publisher = &recommend.Publisher{
		Advisor: l.advisor, Checkpoints: &checkpoints.Maintainer{Disabled: true}, Writer: status.Writer{Client: l.server},
		Quality: recommend.NewQuality(prometheus.NewRegistry()), Workers: 1, Tolerance: 0.01,
		Latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "latency"}),
		Results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "results"}, []string{"result"}),
	}
}

// publish runs an iteration over all VPAs. The next one observes the written statuses at no cost.
func (l *loadline) publish(b *testing.B, now time.Time) {
	if len(l.server.patches) > 0 {
		b.StopTimer()
		l.observe(b)
		b.StartTimer()
	}
	l.publisher.Publish(b.Context(), l.model.VPAs(), now, time.Minute)
}

func (l *loadline) observe(b *testing.B) {
	for i, o := range l.observed {
		if patch := l.server.patches[o.Object.Name]; patch != nil {
			var steps []struct {
				Value v1.VerticalPodAutoscalerStatus
			}
			require.NoError(b, json.Unmarshal(patch, &steps))
			o.Object = o.Object.DeepCopy()
			o.Object.Status = steps[0].Value
			l.observed[i] = o
		}
	}
	clear(l.server.patches)
	l.model.SyncVPAs(l.observed, dayOne)
}
