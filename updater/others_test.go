package updater

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
)

var fleetOwners = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web", UID: "uid-fleet", Controller: new(true)}}

// newFleet is newRolling with a Fleet instead of the Deployment, selected by the policy.
func newFleet(t *testing.T, policy *loadlinev1alpha1.SizingPolicy, change func(*corev1.Pod), objects ...runtime.Object) *rolling {
	t.Helper()
	policy.Spec.Workloads = []loadlinev1alpha1.WorkloadSelection{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}}
	objects = append(objects, policy, healthy("n1"))
	for _, o := range deployment(3, change) {
		switch o := o.(type) {
		case *appsv1.Deployment:
			continue
		case *appsv1.ReplicaSet:
			o.OwnerReferences = fleetOwners
		}
		objects = append(objects, o)
	}
	r := roll(t, Default(), objects...)
	r.fleets.Put("shop", "web", "uid-fleet", 3)
	return r
}

func generatedFleetVPA() *vpav1.VerticalPodAutoscaler {
	v := lowering(generatedVPA())
	v.Name, v.Spec.TargetRef.APIVersion, v.Spec.TargetRef.Kind = fleet.GeneratedVPAName("Fleet", "example.com", "web"), "example.com/v1", "Fleet"
	return v
}

func (r *rolling) recordOfFleet() *loadlinev1alpha1.SizingRecord {
	r.t.Helper()
	record, err := r.vpa.LoadlineV1alpha1().SizingRecords("shop").Get(r.t.Context(), generatedFleetVPA().Name, metav1.GetOptions{})
	require.NoError(r.t, err)
	return record
}

func TestCustomWorkload_IsRolledOut(t *testing.T) {
	r := newFleet(t, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), nil, generatedFleetVPA())
	r.at(0) // reads its scale
	require.Equal(t, []string{"web-1-0"}, r.at(time.Minute))
	require.Equal(t, "50m 100m 100m", r.sizes())
	record := r.recordOfFleet()
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web", UID: "uid-fleet", Controller: new(false), BlockOwnerDeletion: new(false)}}, record.OwnerReferences)
	require.EqualValues(t, 1, record.Status.Rounds[0].Pods)

	r.restarted("web-1-0", 2)
	r.judge(2 * time.Minute)
	require.Equal(t, "100m 100m 100m", r.sizes(), "it did harm")
	require.EqualValues(t, "Reverted", r.recordOfFleet().Status.Rounds[0].Outcome)
	r.at(3 * time.Minute)
	require.Equal(t, 3, r.skipped("RevertBackoff"))
}

func TestCustomWorkload_PolicyGovernsUserVPA(t *testing.T) {
	person := generatedFleetVPA()
	person.Name, person.Labels, person.Spec.UpdatePolicy.UpdateMode = "mine", nil, new(vpav1.UpdateModeInPlaceOrRecreate)
	r := newFleet(t, sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), nil, person)
	r.at(0)
	require.Empty(t, r.at(time.Minute))
	require.Equal(t, 3, r.skipped("RecommendOnly"))
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeAuto) })
	r.at(2 * time.Minute)
	require.Equal(t, "50m 100m 100m", r.sizes())
	require.Equal(t, "example.com/v1", r.recordOfFleet().OwnerReferences[0].APIVersion)
}

// A record with a former owner would be garbage collected together with its state.
func TestCustomWorkload_RecordFollowsRecreatedOwner(t *testing.T) {
	r := newFleet(t, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), nil, generatedFleetVPA())
	r.at(0)
	r.fleets.Put("shop", "web", "uid-again", 3)
	require.Empty(t, r.at(time.Minute))
	require.Zero(t, r.records())
	require.Equal(t, 3, r.skipped("NoRecord")+r.skipped("UnderObservation"))
	require.Equal(t, []string{"web-1-0"}, r.at(2*time.Minute))
	require.EqualValues(t, "uid-again", r.recordOfFleet().OwnerReferences[0].UID)
}

func TestCustomWorkload_RespectsHPAAndOptOut(t *testing.T) {
	auto := func() *loadlinev1alpha1.SizingPolicy { return sizingPolicy(loadlinev1alpha1.RolloutModeAuto) }
	autoscaled := hpa()
	autoscaled.Spec.ScaleTargetRef.APIVersion, autoscaled.Spec.ScaleTargetRef.Kind = "example.com/v1", "Fleet"
	r := newFleet(t, auto(), nil, generatedFleetVPA(), autoscaled)
	r.at(0)
	require.Equal(t, []string{"web-1-0"}, r.at(time.Minute))
	require.Equal(t, "100m 100m 100m", r.sizes(), "the autoscaler looks at CPU")
	require.Equal(t, "50Mi", strings.Fields(r.requests("web-1-0"))[1])

	for _, tc := range []struct {
		name        string
		reason      string
		annotations map[string]string
	}{
		{name: "opted out", reason: "OptedOut", annotations: map[string]string{fleet.SkipAnnotation: "true"}},
		{name: "mode Observe", reason: "Observing", annotations: map[string]string{fleet.ModeAnnotation: "Observe"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newFleet(t, auto(), func(p *corev1.Pod) {
				if p.Name == "web-1-1" {
					p.Annotations = tc.annotations
				}
			}, generatedFleetVPA())
			r.at(0)
			require.Empty(t, r.at(time.Minute))
			require.Equal(t, 3, r.skipped(tc.reason), "the pod template cannot be read, so one pod speaks for all")
		})
	}

	r = newFleet(t, auto(), nil, generatedFleetVPA())
	r.fleets.Delete("shop", "web")
	r.at(0)
	require.Empty(t, r.at(time.Minute))
	require.Equal(t, "100m 100m 100m", r.sizes())
}

// Annotations of other projects count only with the flag.
func TestForeignAnnotations_ExcludeWorkload(t *testing.T) {
	for _, key := range fleet.ForeignAnnotations() {
		for _, foreign := range []bool{false, true} {
			config := Default()
			config.Policies.ForeignAnnotations = foreign
			objects := annotated(deployment(3, nil), key, "true")
			r := roll(t, config, append(objects, lowering(generatedVPA()), sizingPolicy(loadlinev1alpha1.RolloutModeAuto), healthy("n1"))...)
			changed := r.at(0)
			require.Equal(t, foreign, len(changed) == 0, key)
			require.Equal(t, foreign, r.skipped("OptedOut") == 3, key)
		}
	}
}
