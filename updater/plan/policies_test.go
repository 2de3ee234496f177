package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
)

func TestReasonExplain_PolicyReasons(t *testing.T) {
	for _, why := range []reason.Reason{reason.OptedOut, reason.PolicyUnknown, reason.PolicyPaused, reason.ModeOff, reason.Observing, reason.RecommendOnly} {
		e := why.Explain()
		require.Equal(t, string(why), e.Reason.String())
		require.Equal(t, why == reason.PolicyUnknown, e.ActionRequired, "only that one is not what somebody asked for: %s", why)
	}
}

// The webhook adds no boost for a generated VPA. A boost of another VPA is removed by restoring the
// pod's original resources.
func TestReaderControlling_IgnoresGeneratedVPA(t *testing.T) {
	made := targeting(fleet.GeneratedVPAName("StatefulSet", "apps", "web"), "a", "apps/v1", "StatefulSet", "web")
	made.Labels = map[string]string{fleet.PolicyLabel: "p"}
	made.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	pod := controlled("a", "web-0", "apps/v1", "StatefulSet", "web")
	r := newReader(t, made, pod, &appsv1.StatefulSet{ObjectMeta: meta("a", "web"), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: new(int32(1))}})
	_, found, err := r.Controlling(t.Context(), pod, false)
	require.NoError(t, err)
	require.False(t, found)

	// A Reader without policies cannot resolve any, so nothing may act.
	s := read(t, r)
	require.Empty(t, s.VPAs)
	require.Equal(t, []disruption.Skip{{Subject: disruption.Subject{Namespace: "a", VPA: made.Name, Pod: "web-0", UID: "aweb-0"}, Reason: reason.PolicyUnknown}}, s.Skipped)
}
