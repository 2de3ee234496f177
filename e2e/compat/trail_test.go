package compat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"

	"loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/target"
)

// Sketches and the target of a checkpoint are stored as annotations. They must not affect upstream,
// and they must survive its update of the status.
func TestCheckpoint_SketchesSurviveUpstream(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	config := usage.DefaultConfig()
	p := usage.NewProfile(config.Shape)
	made, err := recipe.Parse("loadline")
	require.NoError(t, err)
	known := sketch.New(made.Needs)
	for i := range 3 * 24 * 60 {
		at := now.Add(time.Duration(i-3*24*60) * time.Minute)
		p.AddCPU(0.3, at)
		known.Observe(at, resources.CPU, 300, 0)
		known.Observe(at, resources.Memory, 300<<20, 0)
	}
	p.AddPeak(300<<20, now)
	owner, own := checkpoint.Owner{Namespace: "ns", VPA: "web"}, target.Key{Namespace: "ns", Kind: "Deployment", Name: "web"}
	written := func(image []byte) *upstreamv1.VerticalPodAutoscalerCheckpoint {
		r, err := checkpoint.NewRecord(owner, "a", checkpoint.Content{Target: own, Image: p.Image(), Sketch: image}, now)
		require.NoError(t, err)
		return through[upstreamv1.VerticalPodAutoscalerCheckpoint](t, r.Object())
	}
	with, without := written(known.Image()), written(nil)
	require.Equal(t, without.Status, with.Status)
	require.NotEqual(t, without.Annotations, with.Annotations)
	state := model.NewAggregateContainerState()
	require.NoError(t, state.LoadFromCheckpoint(&with.Status))
	require.Equal(t, 3*24*60, state.TotalSamplesCount)

	// Upstream takes over for an hour and replaces the status.
	status, err := state.SaveToCheckpoint()
	require.NoError(t, err)
	with.Status = *status
	with.Status.LastUpdateTime = metav1.NewTime(now.Add(time.Hour))
	loader := checkpoint.Loader{Client: fake.NewSimpleClientset(through[v1.VerticalPodAutoscalerCheckpoint](t, with)), Shape: config.Shape}
	history, problems, err := loader.Load(t.Context(), func(checkpoint.Owner) bool { return true }, now.Add(2*time.Hour))
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Nil(t, history[owner]["a"].Windows, "those of the status that we wrote")
	require.Empty(t, history.RemoveForeign(owner, own))
	again, err := sketch.Read(made.Needs, history.Sketches(owner)["a"], now, time.Hour)
	require.NoError(t, err)
	require.Equal(t, known.Image(), again.Image())
}
