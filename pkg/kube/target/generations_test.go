package target

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// at returns a VPA in a generation, with the generation that the recommender observed.
func at(generation, seen int64, target string) *vpav1.VerticalPodAutoscaler {
	v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", UID: "1", Generation: generation}}
	v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target}
	v.Status.ObservedGeneration = seen
	return v
}

func TestGenerations_OnlyTargetChangeOutdates(t *testing.T) {
	for _, tc := range []struct {
		name     string
		seen     []*vpav1.VerticalPodAutoscaler
		outdated bool // expected for the last of them
	}{
		{name: "first observation is behind", seen: []*vpav1.VerticalPodAutoscaler{at(5, 4, "a")}, outdated: true},
		{name: "no observed generation", seen: []*vpav1.VerticalPodAutoscaler{at(5, 0, "a")}},
		{name: "up to date", seen: []*vpav1.VerticalPodAutoscaler{at(5, 5, "a")}},
		{name: "another part changed", seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(5, 4, "a")}},
		{name: "target changed", seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(5, 4, "b")}, outdated: true},
		{
			name: "target and another part changed", seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(5, 4, "b"), at(6, 4, "b")},
			outdated: true,
		},
		{
			name: "recommender follows the target",
			seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(5, 4, "b"), at(6, 4, "b"), at(6, 5, "b")},
		},
		{
			name: "target changed and changed back", seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(5, 4, "b"), at(6, 5, "a")},
			outdated: true,
		},
		{
			name: "target changed and changed back, observed late",
			seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(6, 5, "a"), at(5, 4, "b"), at(6, 5, "a")}, outdated: true,
		},
		{
			name: "old state observed late",
			seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), at(5, 5, "b"), at(4, 4, "a"), at(5, 5, "b")},
		},
		{name: "same target in another API version", seen: []*vpav1.VerticalPodAutoscaler{at(4, 4, "a"), spelled(at(5, 4, "a"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var g Generations
			for _, v := range tc.seen {
				g.observe(v, true)
			}
			require.Equal(t, tc.outdated, g.Outdated(tc.seen[len(tc.seen)-1]))
		})
	}
	var none *Generations
	require.True(t, none.Outdated(at(5, 4, "a")))
	require.False(t, none.Outdated(at(5, 5, "a")))
}

func spelled(v *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	v.Spec.TargetRef.APIVersion = "apps/v1beta2"
	return v
}

func TestGenerations_RecreatedVPAStartsAnew(t *testing.T) {
	var g Generations
	g.observe(at(1, 0, "a"), true)
	again := at(5, 4, "a")
	again.UID = types.UID("2")
	require.True(t, g.Outdated(again))
}

func TestGenerations_FollowInformer(t *testing.T) {
	clients := vpafake.NewSimpleClientset(at(4, 4, "a"))
	f := client.VPAFactory(clients, "")
	informer := f.Autoscaling().V1().VerticalPodAutoscalers().Informer()
	var g Generations
	require.NoError(t, g.Watch(informer))
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	t.Cleanup(func() { stop(); f.Shutdown() })
	require.NoError(t, client.Sync(ctx, map[string]cache.InformerSynced{"vpas": informer.HasSynced}))
	require.Eventually(t, func() bool { return testkit.Watched(clients, "verticalpodautoscalers") }, time.Minute, time.Millisecond)
	known := func() (s observation, found bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		s, found = g.known[cache.NewObjectName("ns", "v")]
		return s, found
	}
	eventually := func(holds func() bool) { require.Eventually(t, holds, time.Minute, time.Millisecond) }
	eventually(func() bool { _, found := known(); return found })
	require.False(t, g.Outdated(at(5, 4, "a")))
	api := clients.AutoscalingV1().VerticalPodAutoscalers("ns")
	_, err := api.Update(ctx, at(6, 5, "b"), metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(func() bool { s, _ := known(); return s.since == 6 })
	require.NoError(t, api.Delete(ctx, "v", metav1.DeleteOptions{}))
	eventually(func() bool { _, found := known(); return !found })
	require.True(t, g.Outdated(at(7, 6, "b")))
	_, found := known()
	require.False(t, found, "what is gone is not remembered because somebody still has it")
}
