package recommend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// Memory is released after the aggregation interval of the VPA, CPU after that of the store.
func TestHold_EndsAfterIntervalOfVPA(t *testing.T) {
	hours := func(n int32) *int32 { return new(n * 3600) }
	for name, c := range map[string]struct {
		own  *int32 // seconds
		gate bool
		span time.Duration
		held string
	}{
		"the store's, before":   {nil, true, 23 * time.Hour, "cpu and memory of container a"},
		"the store's, after":    {nil, true, 24 * time.Hour, ""},
		"shorter, before":       {hours(2), true, time.Hour, "cpu and memory of container a"},
		"shorter, after":        {hours(2), true, 2 * time.Hour, "cpu of container a"},
		"shorter, a day later":  {hours(2), true, 24 * time.Hour, ""},
		"longer, a day later":   {hours(72), true, 24 * time.Hour, "memory of container a"},
		"longer, after":         {hours(72), true, 72 * time.Hour, ""},
		"none, at once":         {hours(0), true, 0, "cpu and memory of container a"},
		"shorter, but gate off": {hours(2), false, 2 * time.Hour, "cpu and memory of container a"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newAdvisorFixture(t, vpav1.ContainerResourcePolicy{ContainerName: "a", MemoryAggregationIntervalSeconds: c.own})
			d.rebuildWithGate(c.gate)
			d.setPublished("a", "3", "3Gi")
			NoteUntrusted(d.vpa, nil)
			for _, at := range []time.Time{now(), now().Add(c.span)} {
				for k, used := range []resources.Amount{100, 1e8} {
					d.Store.Observe(usage.Sample{Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}, Kind: resources.Kind(k), At: at, Amount: used})
				}
			}
			held := d.advise().Held
			if c.held == "" {
				require.Empty(t, held)
				return
			}
			require.Contains(t, held, ": "+c.held)
		})
	}
}

func (d *advisorFixture) rebuildWithGate(on bool) {
	object, pod := d.vpa.Object, d.pod
	d.Store = usage.NewStore(usage.DefaultConfig())
	d.model = model.NewModel(model.Config{Store: d.Store, PerVPA: on})
	d.model.PutPod(pod, now())
	d.model.SyncVPAs([]model.Observed{{Selector: everything, Object: object}}, now())
	d.vpa = d.model.Find("ns", "v")
}

func (d *advisorFixture) setPublished(container, cpu, memory string) {
	target := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	d.vpa.Object.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}}
	d.vpa.Object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []status.Recommended{{
		ContainerName: container, Target: target, UncappedTarget: target}}}
}

// Observation before the restart counts only if no history was lost.
func TestHold_CountsObservationBeforeRestart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*model.VPA, map[string]checkpoint.ContainerHistory)
		want   time.Duration
	}{
		"held for five hours": {func(*model.VPA, map[string]checkpoint.ContainerHistory) {}, 5 * time.Hour},
		"seen before it alone": {func(v *model.VPA, _ map[string]checkpoint.ContainerHistory) {
			v.Object.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now())
		}, 0},
		"since an unknown time": {func(v *model.VPA, _ map[string]checkpoint.ContainerHistory) {
			v.Object.Status.Conditions[1].LastTransitionTime = metav1.Time{}
		}, 0},
		"held no more": {func(v *model.VPA, _ map[string]checkpoint.ContainerHistory) {
			v.Object.Status.Conditions[1].Status = corev1.ConditionFalse
		}, 0},
		"a target is unsaved": {func(v *model.VPA, _ map[string]checkpoint.ContainerHistory) {
			v.Object.Status.Conditions = append(v.Object.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Type: status.TargetUnsaved, Status: corev1.ConditionTrue})
		}, 0},
		"the checkpoint is gone": {func(_ *model.VPA, past map[string]checkpoint.ContainerHistory) { delete(past, "a") }, 0},
		"its windows are": {func(_ *model.VPA, past map[string]checkpoint.ContainerHistory) {
			past["a"] = checkpoint.ContainerHistory{Profile: past["a"].Profile}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newAdvisorFixture(t)
			d.setPublished("a", "3", "3Gi")
			d.vpa.Object.Status.Conditions = append(d.vpa.Object.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{
				Type: status.TargetHeld, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now().Add(-6 * time.Hour))})
			seen := usage.NewProfile(d.Shape)
			seen.AddCPU(1, now().Add(-100*time.Hour))
			seen.AddCPU(1, now().Add(-time.Hour))
			past := map[string]checkpoint.ContainerHistory{"a": {Profile: &seen, Windows: map[string]usage.Window{}}}
			c.change(d.vpa, past)
			NoteUntrusted(d.vpa, past)
			require.Equal(t, c.want, d.vpa.Trust.ObservedWhileHeld["a"])
			enough := 24*time.Hour - c.want
			require.Equal(t, d.vpa.Trust.Untrusted["a"], d.untrusted(d.vpa, "a", enough-1))
			require.Empty(t, d.untrusted(d.vpa, "a", enough))
			d.History = &LoadingGauge{}
			d.History.Begin(1)
			require.True(t, d.untrusted(d.vpa, "a", 24*time.Hour-1)[resources.CPU], "what is loaded apart may be more")
		})
	}
}
