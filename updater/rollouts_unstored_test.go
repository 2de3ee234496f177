package updater

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func atOnce(pods int32) func(*loadlinev1alpha1.SizingPolicySpec) {
	return func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = &pods }
}

// A change is stored in the record after it is made. If that fails, only the note on the pod is
// left.
func TestRevert_OfUnstoredChanges(t *testing.T) {
	for _, tc := range []struct {
		name            string
		stored, restart bool
	}{
		{name: "stored", stored: true, restart: true},
		{name: "not stored"},
		{name: "not stored, and restarted", restart: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 5, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, atOnce(2)))
			require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
			r.judge(5 * time.Minute)
			require.Empty(t, r.noted())
			broken := failCalls(r.vpa, "update", "sizingrecords", "")
			*broken = !tc.stored
			require.Equal(t, []string{"web-1-2", "web-1-3"}, r.at(6*time.Minute))
			*broken = false
			if tc.restart {
				r.restart()
			}
			require.Empty(t, r.at(7*time.Minute))
			for i, pod := range []string{"web-1-2", "web-1-3"} {
				r.restarted(pod, 2)
				_, err := r.sync(pod, 8*time.Minute+time.Duration(i)*time.Second)
				require.NoError(t, err)
				r.settled(pod)
			}
			require.Equal(t, "50m 50m 100m 100m 100m", r.sizes(), "both changes did harm")
		})
	}
}

func TestRevert_OfUnstoredChangeInSteps(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(5 * time.Minute)
	broken := failCalls(r.vpa, "update", "sizingrecords", "")
	require.Equal(t, []string{"web-1-1"}, r.at(6*time.Minute))
	*broken = false
	require.Empty(t, r.at(7*time.Minute))
	r.killed("web-1-1", 8*time.Minute)
	r.judge(8*time.Minute + time.Second)
	require.Equal(t, []string{"web-1-1"}, r.noted(), "the kubelet has not acted yet")
	r.kubelet("web-1-1", corev1.PodReasonDeferred)
	r.judge(8*time.Minute + 3*time.Second)
	require.Equal(t, "50m 100Mi", r.requests("web-1-1"), "its node has no CPU for the whole revert")
}

// The pod that was changed last may end first.
func TestRevert_OfFirstUnstoredChangeInRound(t *testing.T) {
	r := newRolling(t, 4, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, atOnce(2), func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Cooldown = &metav1.Duration{} }))
	require.Len(t, r.at(0), 2)
	r.judge(5 * time.Minute)
	require.Len(t, r.at(6*time.Minute), 2)
	r.judge(11 * time.Minute)
	require.Empty(t, r.at(12*time.Minute))
	require.Equal(t, loadlinev1alpha1.RoundSuccess, r.record().Rounds[0].Outcome)
	r.recommend("30m", "30Mi")
	broken, slow := false, true
	r.vpa.PrependReactor("update", "sizingrecords", func(ktesting.Action) (bool, runtime.Object, error) {
		return broken, nil, errors.New("connection refused")
	})
	r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "resize" && slow {
			broken = true
			r.now = r.now.Add(5 * time.Second)
		}
		return false, nil, nil
	})
	require.Len(t, r.at(15*time.Minute), 2)
	broken, slow = false, false
	require.Empty(t, r.at(16*time.Minute))
	for i, pod := range []string{"web-1-1", "web-1-0"} {
		r.restarted(pod, 2)
		_, err := r.sync(pod, 17*time.Minute+time.Duration(i)*time.Second)
		require.NoError(t, err)
		r.settled(pod)
	}
	require.Equal(t, "50m 50m 50m 50m", r.sizes())
}

// In mode Inherit the VPA decides about changes, and harm is reverted if the policy enables it.
func TestRevert_OfUnstoredChangesInModeInherit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stored bool
	}{{name: "stored", stored: true}, {name: "not stored"}} {
		t.Run(tc.name, func(t *testing.T) {
			policy := sizingPolicy(loadlinev1alpha1.RolloutModeInherit, func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Safety = &loadlinev1alpha1.Safety{AutoRevert: new(true)}
			})
			r := roll(t, Default(), append(deployment(4, nil), lowering(autoscaler(vpav1.UpdateModeInPlaceOrRecreate)), policy, healthy("n1"))...)
			broken := failCalls(r.vpa, "update", "sizingrecords", "")
			*broken = !tc.stored
			changed := r.at(0)
			require.NotEmpty(t, changed)
			*broken = false
			r.restart()
			r.at(time.Minute)
			for _, pod := range changed {
				r.restarted(pod, 2)
			}
			r.judge(2 * time.Minute)
			for _, pod := range changed {
				require.Equal(t, "100m 100Mi", r.requests(pod))
			}
		})
	}
}
