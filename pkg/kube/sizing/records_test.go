package sizing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

var web = target.Workload{Key: target.Key{Namespace: "shop", Kind: "Deployment", Name: "web"}, APIVersion: "apps/v1", UID: "web-uid"}

func record(changes ...func(*loadlinev1alpha1.SizingRecord)) *loadlinev1alpha1.SizingRecord {
	cpu := func(text string) loadlinev1alpha1.ContainerSizes {
		return loadlinev1alpha1.ContainerSizes{Name: "c", Requests: loadlinev1alpha1.Sizes{"cpu": resource.MustParse(text)}}
	}
	r := &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "web-uid"}}},
		Status: loadlinev1alpha1.SizingRecordStatus{
			Mode: loadlinev1alpha1.RolloutModeCanary, Phase: loadlinev1alpha1.RolloutPhaseFullRollout, PolicyHash: "h",
			Kept:          []loadlinev1alpha1.ContainerSizes{cpu("200m")},
			Reverted:      []loadlinev1alpha1.RevertedSizes{{ContainerSizes: cpu("100m"), Time: metav1.NewTime(time.Unix(1, 0))}},
			CanaryMembers: []loadlinev1alpha1.CanaryMember{{UID: "p"}},
			Rounds:        []loadlinev1alpha1.Round{{Time: metav1.NewTime(time.Unix(1, 0)), Outcome: loadlinev1alpha1.RoundSuccess}},
		},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func owner(uid string) func(*loadlinev1alpha1.SizingRecord) {
	return func(r *loadlinev1alpha1.SizingRecord) {
		if r.OwnerReferences = nil; uid != "" {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: types.UID(uid)}}
		}
	}
}

func also(uid types.UID) func(*loadlinev1alpha1.SizingRecord) {
	return func(r *loadlinev1alpha1.SizingRecord) {
		r.OwnerReferences = append(r.OwnerReferences, metav1.OwnerReference{Kind: "Deployment", Name: "web", UID: uid})
	}
}

func unreadable(r *loadlinev1alpha1.SizingRecord) {
	r.Annotations = map[string]string{vpav1.UnreadableAnnotation: "status: cpu"}
}

func TestReadState_RequiresMatchingOwner(t *testing.T) {
	require.Equal(t, "shop/deployment-web", RecordName(web.Key).String())
	for _, tc := range []struct {
		name   string
		record *loadlinev1alpha1.SizingRecord
		owns   bool
		phase  rollout.Phase
	}{
		{name: "no record"},
		{name: "record of the workload", record: record(), owns: true, phase: rollout.PhaseFullRollout},
		{name: "record of a former workload", record: record(owner("former"))},
		{name: "record of both workloads", record: record(also("former")), owns: true, phase: rollout.PhaseFullRollout},
		{name: "record without an owner", record: record(owner("")), phase: rollout.PhaseFullRollout},
		{name: "unreadable record of a former workload", record: record(owner("former"), unreadable)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := ReadState(tc.record, web)
			require.NoError(t, err)
			require.Equal(t, tc.phase, s.Phase)
			require.Equal(t, tc.owns, tc.record != nil && IsOwner(web, &tc.record.ObjectMeta))
		})
	}
	_, err := ReadState(record(unreadable), web)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "shop/deployment-web: status: cpu")
}

func TestSkipNewPods_FollowsPhaseOfCurrentPolicy(t *testing.T) {
	p := fleet.Policy{Namespaces: fleet.Namespaces{Names: []string{"*"}}, Workloads: []fleet.Match{{Kind: "Deployment"}}, Mode: fleet.Canary, RolloutHash: "h"}
	d := fleet.NewSet([]fleet.Policy{p}, fleet.Options{}).Decide(fleet.Workload{Kind: "Deployment", Name: "web", Namespace: "shop", VPA: fleet.VPA{Origin: fleet.GeneratedVPA}})
	require.Empty(t, NewPodSkipReason(d, fleet.GeneratedVPA, rollout.State{Phase: rollout.PhaseFullRollout, Hash: "h"}))
	require.Equal(t, reason.InitialSizingOff, NewPodSkipReason(d, fleet.GeneratedVPA, rollout.State{Phase: rollout.PhaseFullRollout, Hash: "other"}))
	d.Policy.Initial = fleet.ToTarget
	require.Equal(t, reason.Halted, NewPodSkipReason(d, fleet.GeneratedVPA, rollout.State{Phase: rollout.PhaseHalted, Hash: "h"}))
	require.Empty(t, NewPodSkipReason(d, fleet.GeneratedVPA, rollout.State{Phase: rollout.PhaseHalted, Hash: "other"}))
	require.Empty(t, NewPodSkipReason(d, fleet.UserVPA, rollout.State{Phase: rollout.PhaseHalted, Hash: "h"}))
	d.Mode = fleet.OneShot // an annotation reduces the mode, and OneShot has no phases
	require.Empty(t, NewPodSkipReason(d, fleet.GeneratedVPA, rollout.State{Phase: rollout.PhaseHalted, Hash: "h"}))
}

func watchedRecords(t *testing.T, refused error, objects ...runtime.Object) *Records {
	own := vpafake.NewSimpleClientset(objects...)
	own.PrependReactor("list", "sizingrecords", func(clienttesting.Action) (bool, runtime.Object, error) { return refused != nil, nil, refused })
	vpas := client.VPAFactory(own, "")
	r, err := WatchRecords(vpas)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); vpas.Shutdown() })
	vpas.Start(ctx.Done())
	require.Eventually(t, r.Settled, time.Minute, time.Millisecond)
	return r
}

func TestRecords_ReturnStateOfWorkload(t *testing.T) {
	r := watchedRecords(t, nil, record())
	s, err := r.State(web)
	require.NoError(t, err)
	require.Equal(t, rollout.PhaseFullRollout, s.Phase)
	require.Equal(t, "h", s.Hash)
	cpu := resources.List{}.With(resources.CPU, 200)
	require.Equal(t, []policy.Container{{Name: "c", Requests: cpu}}, s.ProvenResources)
	require.Len(t, s.RevertedResources, 1)
	require.Empty(t, s.Rounds, "nobody needs them for a new pod")
	require.Empty(t, s.Members)
	s, err = r.State(target.Workload{Key: target.Key{Namespace: "shop", Kind: "Deployment", Name: "other"}})
	require.NoError(t, err)
	require.Zero(t, s)

	well := record(func(r *loadlinev1alpha1.SizingRecord) { r.Status.Reverted = nil })
	s, err = watchedRecords(t, nil, well).State(web)
	require.NoError(t, err)
	require.Empty(t, s.ProvenResources, "nothing did harm")

	_, err = watchedRecords(t, nil, record(unreadable)).State(web)
	require.ErrorIs(t, err, ErrUnknown)
	var none *Records
	_, err = none.State(web)
	require.ErrorIs(t, err, ErrUnknown)
}

func TestRecords_ForbiddenIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := watchedRecords(t, apierrors.NewForbidden(schema.GroupResource{Resource: "sizingrecords"}, "", nil), record())
		_, err := r.State(web)
		require.ErrorIs(t, err, ErrUnknown)
	})
}
