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

// upstream is the reference recommender, put together from its packages. Its
// package routines, which does that in production, does not compile with the
// Prometheus client that we use; what it adds is little and is done here.
type upstream struct {
	options options
	cluster model.ClusterState
	written storedCheckpoints
	writer  checkpoint.CheckpointWriter

	// Of benchmarks.
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

// take lets an event happen that is no pass and no restart.
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
		// An error means that the pod is unknown or the sample not newer; ours
		// counts it. What matters is what becomes of the histories.
		_ = u.cluster.AddSample(&model.ContainerUsageSampleWithKey{Container: container, ContainerUsageSample: model.ContainerUsageSample{
			MeasureStart: begin.Add(e.sampled), Usage: model.ResourceAmount(e.amount), Resource: e.resource,
		}})
	case killed:
		_ = u.cluster.RecordOOM(container, begin.Add(e.sampled), model.ResourceAmount(e.amount))
	}
}

// see makes the cluster know a VPA as it is now.
func (u *upstream) see(t *testing.T, p vpaPlan, object *upstreamv1.VerticalPodAutoscaler) {
	require.NoError(t, u.cluster.AddOrUpdateVpa(object, p.selector()))
}

func (u *upstream) vpa(p vpaPlan) *model.Vpa {
	return u.cluster.VPAs()[model.VpaID{Namespace: p.namespace, VpaName: p.name}]
}

// states returns the history of each container that gets a recommendation.
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

// recommend returns what is published for a VPA.
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

// wholeCores stands for upstream's post-processor of that purpose, which is in
// the package that cannot be imported.
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

// save returns what upstream's writer writes, by object name.
func (u *upstream) save(t *testing.T) storedCheckpoints {
	clear(u.written)
	u.writer.StoreCheckpoints(t.Context(), 1)
	return u.written
}

// load gives the VPAs the histories of checkpoints.
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

// clean drops old histories.
func (u *upstream) clean(ctx context.Context, now time.Time) {
	u.cluster.RateLimitedGarbageCollectAggregateCollectionStates(ctx, now, controllerfetcher.FakeControllerFetcher{})
}

// storedCheckpoints is an API server that keeps checkpoints by name, in the form in
// which they are written.
type storedCheckpoints map[string]*upstreamv1.VerticalPodAutoscalerCheckpoint

// VerticalPodAutoscalerCheckpoints returns the client of a namespace.
func (c storedCheckpoints) VerticalPodAutoscalerCheckpoints(namespace string) upstreamclient.VerticalPodAutoscalerCheckpointInterface {
	return namespacedCheckpoints{all: c, namespace: namespace}
}

// namespacedCheckpoints answers what upstream's writer asks; anything else is a
// nil pointer, and shows.
type namespacedCheckpoints struct {
	upstreamclient.VerticalPodAutoscalerCheckpointInterface
	all       storedCheckpoints
	namespace string
}

// Patch says that the object does not exist yet, so that it is created whole.
func (c namespacedCheckpoints) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*upstreamv1.VerticalPodAutoscalerCheckpoint, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

// Create keeps the object.
func (c namespacedCheckpoints) Create(_ context.Context, object *upstreamv1.VerticalPodAutoscalerCheckpoint, _ metav1.CreateOptions) (*upstreamv1.VerticalPodAutoscalerCheckpoint, error) {
	object = object.DeepCopy()
	object.Namespace = c.namespace
	c.all[c.namespace+"/"+object.Name] = object
	return object, nil
}
