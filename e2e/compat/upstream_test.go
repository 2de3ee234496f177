package compat

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	upstreamclient "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/clientset/versioned/typed/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/checkpoint"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
	upstreamvpa "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
)

// upstream is the upstream recommender, assembled from its packages. Package routines, which does
// that in production, does not compile with Loadline's version of the Prometheus client.
type upstream struct {
	options options
	cluster model.ClusterState
	written storedCheckpoints
	writer  checkpoint.CheckpointWriter

	// For benchmarks.
	observed map[string]*upstreamv1.VerticalPodAutoscalerStatus
	server   upstreamServer
}

func newUpstream(o options) *upstream {
	model.InitializeAggregationsConfig(&o.aggregation)
	u := &upstream{options: o, cluster: model.NewClusterState(time.Second), written: storedCheckpoints{}, observed: map[string]*upstreamv1.VerticalPodAutoscalerStatus{}}
	u.writer = checkpoint.NewCheckpointWriter(u.cluster, u.written)
	return u
}

func podID(p vpaPlan, pod string) model.PodID {
	return model.PodID{Namespace: p.namespace, PodName: pod}
}

func (u *upstream) take(t *testing.T, begin time.Time, p vpaPlan, e event) {
	id := podID(p, e.pod)
	container := model.ContainerID{PodID: id, ContainerName: e.container}
	switch e.kind {
	case appears:
		u.cluster.AddOrUpdatePod(id, e.labels, corev1.PodRunning)
		for _, name := range e.names {
			require.NoError(t, u.cluster.AddOrUpdateContainer(model.ContainerID{PodID: id, ContainerName: name}, nil))
		}
	case vanishes:
		u.cluster.DeletePod(id)
	case uses:
		// An error means an unknown pod or an outdated sample. Only the resulting histories matter.
		_ = u.cluster.AddSample(&model.ContainerUsageSampleWithKey{Container: container, ContainerUsageSample: model.ContainerUsageSample{
			MeasureStart: begin.Add(e.sampled), Usage: model.ResourceAmount(e.amount), Resource: e.resource,
		}})
	case killed:
		_ = u.cluster.RecordOOM(container, begin.Add(e.sampled), model.ResourceAmount(e.amount))
	}
}

func (u *upstream) see(t *testing.T, p vpaPlan, object *upstreamv1.VerticalPodAutoscaler) {
	require.NoError(t, u.cluster.AddOrUpdateVpa(object, p.selector()))
}

func (u *upstream) vpa(p vpaPlan) *model.Vpa {
	return u.cluster.VPAs()[model.VpaID{Namespace: p.namespace, VpaName: p.name}]
}

func (u *upstream) states(p vpaPlan) model.ContainerNameToAggregateStateMap {
	v := u.vpa(p)
	states := v.AggregateStateByContainerName()
	for name, state := range states {
		policy := upstreamvpa.GetContainerResourcePolicy(name, v.ResourcePolicy)
		if policy != nil && policy.Mode != nil && *policy.Mode == upstreamv1.ContainerScalingModeOff {
			delete(states, name)
			continue
		}
		state.UpdateFromPolicy(policy)
	}
	return states
}

func (u *upstream) recommend(t testing.TB, p vpaPlan, object *upstreamv1.VerticalPodAutoscaler) []upstreamv1.RecommendedContainerResources {
	resources := logic.CreatePodResourceRecommender(u.options.estimate).GetRecommendedPodResources(u.states(p))
	list := logic.MapToListOfRecommendedContainerResources(resources, u.options.format)
	if u.options.integerCPU {
		wholeCores(object, list)
	}
	capped, err := upstreamvpa.ApplyVPAPolicy(list, object.Spec.ResourcePolicy, u.options.maxAllowed)
	require.NoError(t, err)
	return capped.ContainerRecommendations
}

// wholeCores replaces upstream's integer CPU post-processor, which is in the package that cannot be
// imported.
func wholeCores(object *upstreamv1.VerticalPodAutoscaler, list *upstreamv1.RecommendedPodResources) {
	for _, c := range list.ContainerRecommendations {
		if object.Annotations["vpa-post-processor.kubernetes.io/"+c.ContainerName+"_integerCPU"] != "true" {
			continue
		}
		for _, l := range []corev1.ResourceList{c.Target, c.LowerBound, c.UpperBound, c.UncappedTarget} {
			if q, found := l[corev1.ResourceCPU]; found {
				q.Set(q.Value()) // Value rounds up
				l[corev1.ResourceCPU] = q
			}
		}
	}
}

func (u *upstream) save(t *testing.T) storedCheckpoints {
	clear(u.written)
	u.writer.StoreCheckpoints(t.Context(), 1)
	return u.written
}

func (u *upstream) load(t *testing.T, p vpaPlan, saved storedCheckpoints) {
	v := u.vpa(p)
	for _, c := range saved {
		if c.Namespace != p.namespace || c.Spec.VPAObjectName != p.name {
			continue
		}
		state := model.NewAggregateContainerState()
		require.NoError(t, state.LoadFromCheckpoint(&c.Status))
		v.ContainersInitialAggregateState[c.Spec.ContainerName] = state
	}
}

func (u *upstream) clean(ctx context.Context, now time.Time) {
	u.cluster.RateLimitedGarbageCollectAggregateCollectionStates(ctx, now, controllerfetcher.FakeControllerFetcher{})
}

// storedCheckpoints is an API server that stores checkpoints by name.
type storedCheckpoints map[string]*upstreamv1.VerticalPodAutoscalerCheckpoint

// VerticalPodAutoscalerCheckpoints returns the client of a namespace.
func (c storedCheckpoints) VerticalPodAutoscalerCheckpoints(namespace string) upstreamclient.VerticalPodAutoscalerCheckpointInterface {
	return namespacedCheckpoints{all: c, namespace: namespace}
}

// namespacedCheckpoints implements the methods that upstream's writer calls. All others panic with
// a nil pointer.
type namespacedCheckpoints struct {
	upstreamclient.VerticalPodAutoscalerCheckpointInterface
	all       storedCheckpoints
	namespace string
}

// Patch returns NotFound, so that the writer creates the whole object.
func (c namespacedCheckpoints) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*upstreamv1.VerticalPodAutoscalerCheckpoint, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

// Create stores the object.
func (c namespacedCheckpoints) Create(_ context.Context, object *upstreamv1.VerticalPodAutoscalerCheckpoint, _ metav1.CreateOptions) (*upstreamv1.VerticalPodAutoscalerCheckpoint, error) {
	object = object.DeepCopy()
	object.Namespace = c.namespace
	c.all[c.namespace+"/"+object.Name] = object
	return object, nil
}
