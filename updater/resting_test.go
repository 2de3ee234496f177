package updater

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/view"
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
				asked := w.loop.hold(t.Context(), s, w.loop.limits(t.Context(), noon), noon)
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

// Of a workload that rests only that is read again which has changed, whatever that is.
func TestAWorkloadThatRestsIsReadAsIfForTheFirstTime(t *testing.T) {
	vpa, policies := cache.NewObjectName("shop", madeVPA().Name), auto()
	hash := convert.Rollout(policies).Hash
	fine := rollout.State{Mode: fleet.Auto, Hash: hash, Rounds: []rollout.Round{{Time: noon.Add(-2 * time.Hour), Last: noon.Add(-2 * time.Hour), Pods: 3, Outcome: rollout.Success}},
		EvidenceMissing: rollout.Condition{Reason: rollout.NoPrometheus, Since: noon.Add(-2 * time.Hour)}}
	hurt := fine
	hurt.Kept = []policy.Container{{Name: "app", Requests: resources.List{}.With(resources.CPU, 100)}}
	hurt.Reverted = []rollout.RevertedSizes{{Container: policy.Container{Name: "app", Requests: resources.List{}.With(resources.CPU, 50)}, At: noon.Add(-time.Hour)}}
	record := func(s rollout.State) *loadlinev1alpha1.SizingRecord {
		return &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: vpa.Name}, Status: convert.RecordStatus(s)}
	}
	write := func(w *world, s rollout.State) {
		_, err := w.vpa.LoadlineV1alpha1().SizingRecords("shop").Update(t.Context(), record(s), metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	selects := func(w *world, app string) {
		object, err := w.kube.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		object = object.DeepCopy()
		object.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		_, err = w.kube.AppsV1().Deployments("shop").Update(t.Context(), object, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		stored rollout.State
		change func(w *world)
		later  time.Duration
	}{
		"its record, by somebody else": {stored: fine, change: func(w *world) { write(w, hurt) }},
		"its record, by this process": {stored: fine, change: func(w *world) {
			of, _ := w.loop.reader.Policies.Target(madeVPA())
			_, err := w.loop.records.Update(t.Context(), of, func(rollout.State) rollout.State { return hurt })
			require.NoError(t, err)
		}},
		"its record, which did harm before": {stored: hurt, change: func(w *world) { write(w, fine) }},
		"its record is deleted": {stored: hurt, change: func(w *world) {
			require.NoError(t, w.vpa.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), vpa.Name, metav1.DeleteOptions{}))
		}},
		"time goes by": {stored: hurt, change: func(*world) {}, later: 8 * 24 * time.Hour},
		"an autoscaler comes": {stored: fine, change: func(w *world) {
			h := hpa()
			_, err := w.kube.AutoscalingV2().HorizontalPodAutoscalers("shop").Create(t.Context(), h, metav1.CreateOptions{})
			require.NoError(t, err)
		}},
		"its selector": {stored: fine, change: func(w *world) { selects(w, "other") }},
		"its policy": {stored: fine, change: func(w *world) {
			p := auto(closed)
			_, err := w.vpa.LoadlineV1alpha1().SizingPolicies().Update(t.Context(), p, metav1.UpdateOptions{})
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(3, sized), lowering(madeVPA()), policies, healthy("n1"), record(c.stored))...)
			read := func(r *view.Reader, now time.Time) (any, *view.Rollout) {
				s, err := r.Read(t.Context(), now, func(string) {})
				require.NoError(t, err)
				if len(s.View.VPAs) > 0 {
					require.Equal(t, s.Rollout(vpa), s.RolloutAt(0))
				}
				of := s.Rollout(vpa)
				if of != nil {
					of = new(*of)
				}
				return s.View, of
			}
			var seen any
			var before *view.Rollout
			for range 3 {
				seen, before = read(w.loop.reader, noon)
			}
			require.Equal(t, len(c.stored.Reverted) == 0, before.Resting)
			c.change(w)
			require.Eventually(t, func() bool {
				fresh, of := read(w.caches.reader(Default()), noon.Add(c.later))
				again, same := read(w.loop.reader, noon.Add(c.later))
				return !assert.ObjectsAreEqual([]any{seen, before}, []any{fresh, of}) && assert.ObjectsAreEqual([]any{fresh, of}, []any{again, same})
			}, 20*time.Second, 5*time.Millisecond)
		})
	}
}
