package main

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
)

// sized makes a pod have what the VPA of newRolling recommends.
func sized(p *corev1.Pod) {
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("50m", "50Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")}}
	p.Annotations = map[string]string{"vpaObservedContainers": "app"}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, Resources: &p.Spec.Containers[0].Resources}}
}

// Its rollout is not asked about a workload that rests, and would have said the same.
func TestOnlyAWorkloadThatRestsIsNotAsked(t *testing.T) {
	all := cache.NewObjectName("shop", "deployment-web")
	for name, c := range map[string]struct {
		second func(*corev1.Pod) // what is different about one of the pods
		rests  bool
	}{
		"has what is recommended": {func(*corev1.Pod) {}, true},
		"is not ready":            {func(p *corev1.Pod) { p.Status.Conditions = nil }, true},
		"is pending":              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
		"is to be changed":        {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("100m", "100Mi") }, false},
		"has other amounts still": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: list("100m", "100Mi")}
		}, false},
		"waits for its node": {func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred})
		}, false},
		"has a note": {func(p *corev1.Pod) { p.Annotations[convert.ResizedAtAnnotation] = noon.Format(time.RFC3339) }, false},
	} {
		n := 0
		objects := deployment(3, func(p *corev1.Pod) {
			if sized(p); n == 1 {
				c.second(p)
			}
			n++
		})
		for _, by := range []*loadlinev1alpha1.SizingPolicy{auto(), auto(closed), sizingPolicy(loadlinev1alpha1.RolloutModeOneShot)} {
			w := newWorld(t, Default(), append(objects, lowering(madeVPA()), by, healthy("n1"))...)
			read := func(ask bool) []disruption.Skip {
				s, err := w.loop.reader.Read(t.Context(), noon, func(string) {})
				require.NoError(t, err)
				require.Equal(t, c.rests, s.Rollout(all).Resting, name)
				if ask {
					s.Rollout(all).Resting = false
				}
				asked := w.loop.hold(t.Context(), s, noon)
				require.Equal(t, ask || !c.rests, asked[all] != nil, name)
				if c.rests && ask {
					require.False(t, asked[all].turned(), name)
				}
				return w.loop.plan(t.Context(), s, &shareMoves{}, noon).Skipped
			}
			short, long := read(false), read(true)
			require.Equal(t, long, short, name)
		}
	}
}

// The gauge of observed pods goes down when the last workload comes to rest.
func TestAFleetAtRestHasNoObservedPods(t *testing.T) {
	note := convert.ChangeNotes(rollout.Change{At: noon.Add(-time.Minute), Containers: []rollout.Sizing{{
		From: policy.Container{Name: "app"}, To: policy.Container{Name: "app"},
	}}})
	w := newWorld(t, Default(), append(deployment(2, func(p *corev1.Pod) {
		sized(p)
		maps.Copy(p.Annotations, note)
	}), lowering(madeVPA()), auto(), healthy("n1"))...)
	w.pass(noon)
	require.EqualValues(t, 2, w.value("loadline_updater_observed_pods"))
	for _, name := range []string{"web-1-0", "web-1-1"} {
		w.change(name, func(p *corev1.Pod) {
			maps.DeleteFunc(p.Annotations, func(key, _ string) bool { _, noted := note[key]; return noted })
		})
		w.await("that no change is noted", func(p *corev1.Pod) bool { return !convert.HasNotedChange(p) }, name)
	}
	w.pass(noon.Add(time.Minute))
	require.Zero(t, w.value("loadline_updater_observed_pods"))
}
