package mutate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/testkit"
)

// A pod that reaches all its limits must stay Burstable like its template, because the updater
// cannot change the QoS class in place.
func TestPatch_KeepsPodsBurstableForInPlaceResize(t *testing.T) {
	only := vpav1.ContainerControlledValuesRequestsOnly
	for _, tc := range []struct {
		name    string
		mode    vpav1.UpdateMode
		sidecar string // requests of an init container without limits
		limits  string
		want    string
	}{
		{name: "InPlaceOrRecreate", mode: vpav1.UpdateModeInPlaceOrRecreate, limits: "cpu=500m memory=512Mi", want: "499m"},
		{name: "InPlace", mode: vpav1.UpdateModeInPlace, limits: "cpu=500m memory=512Mi", want: "499m"},
		{name: "Recreate", mode: vpav1.UpdateModeRecreate, limits: "cpu=500m memory=512Mi", want: "500m"},
		{name: "Initial", mode: vpav1.UpdateModeInitial, limits: "cpu=500m memory=512Mi", want: "500m"},
		{name: "Burstable by an init container", mode: vpav1.UpdateModeInPlace, sidecar: "cpu=10m", limits: "cpu=500m memory=512Mi", want: "500m"},
		{name: "no memory limit", mode: vpav1.UpdateModeInPlace, limits: "cpu=500m", want: "500m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := testkit.Pod("p", testkit.Container("c", "cpu=100m memory=100Mi", tc.limits))
			if tc.sidecar != "" {
				pod.Spec.InitContainers = []corev1.Container{testkit.Container("side", tc.sidecar, "")}
			}
			vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=900m memory=900Mi"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", ControlledValues: &only}))
			vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: &tc.mode}
			m, err := Config{}.Patch(pod, vpa, Constraints{})
			require.NoError(t, err)
			created := apply(t, pod, m.Patch)
			require.Equal(t, tc.want, created.Spec.Containers[0].Resources.Requests.Cpu().String())
			if tc.mode == vpav1.UpdateModeRecreate || tc.mode == vpav1.UpdateModeInitial {
				return
			}
			running := convert.RunningPod(created, convert.Recommendation(vpa.Status.Recommendation), convert.Rules(vpa), policy.Ranges{})
			require.False(t, running.NeedsChange(), "the updater agrees")
			written := convert.RunningPod(pod, convert.Recommendation(vpa.Status.Recommendation), convert.Rules(vpa), policy.Ranges{})
			require.False(t, written.ChangesClass(), "so it resizes pods of before in place")
			less := testkit.VPA("v", testkit.Recommend("c", "cpu=300m memory=300Mi"))
			smaller := convert.RunningPod(created, convert.Recommendation(less.Status.Recommendation), convert.Rules(vpa), policy.Ranges{})
			require.True(t, smaller.NeedsChange())
			require.False(t, smaller.ChangesClass(), "and back")
		})
	}
}
