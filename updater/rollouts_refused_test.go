package updater

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/fairwork"
)

func (r *rolling) refuseRecords(err error) (writes *int) {
	writes = new(int)
	for _, verb := range []string{"create", "update"} {
		r.vpa.PrependReactor(verb, "sizingrecords", func(ktesting.Action) (bool, runtime.Object, error) {
			*writes++
			return true, nil, err
		})
	}
	return writes
}

// A timeout caused by a short turn is no evidence of an unresponsive API server.
func TestChanged_OnlyFullTimeoutStopsRecords(t *testing.T) {
	for _, tc := range []struct {
		name string
		turn time.Duration // 0: none
		want int           // writes
	}{
		{name: "without a turn", want: 1},
		{name: "at the begin of a turn", turn: time.Minute, want: 1},
		{name: "at the end of a turn", turn: time.Nanosecond, want: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 1, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
			it, err := r.loop.read(t.Context(), noon, func(string) {})
			require.NoError(t, err)
			r.loop.decide(t.Context(), it, noon)
			writes := r.refuseRecords(fmt.Errorf("no answer: %w", context.DeadlineExceeded))
			for range 2 {
				ctx := t.Context()
				if tc.turn > 0 {
					ctx = fairwork.Turn(ctx, tc.turn)
				}
				it.holds.Changed(ctx, disruption.Subject{Namespace: "shop", VPA: "deployment-web"}, rollout.Change{At: noon})
			}
			require.Equal(t, tc.want, *writes)
		})
	}
}

// The write limit is no API server error and must not trigger the alert for record errors.
func TestRecord_WriteLimitIsNoRecordError(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	refusal := apierrors.NewTooManyRequestsError("not sent")
	refusal.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "LoadlineWriteLimit"}}}
	writes := r.refuseRecords(refusal)
	require.Empty(t, r.at(0))
	require.Positive(t, *writes)
	require.Positive(t, r.skipped("WriteLimit"))
	require.Zero(t, r.value("loadline_updater_record_errors_total"))
}
