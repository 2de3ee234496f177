package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/pkg/flags"
)

func TestHolder_ReturnsCurrentHolder(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	election := flags.DefaultElection("vpa-updater")
	for _, tc := range []struct {
		name string
		spec *coordinationv1.LeaseSpec
		want string
	}{
		{name: "no Lease"},
		{name: "no holder yet", spec: &coordinationv1.LeaseSpec{}},
		{name: "released", spec: &coordinationv1.LeaseSpec{HolderIdentity: new(""), RenewTime: &metav1.MicroTime{Time: now}}},
		{
			name: "held",
			spec: &coordinationv1.LeaseSpec{HolderIdentity: new("a"), RenewTime: &metav1.MicroTime{Time: now.Add(-14 * time.Second)}},
			want: "a",
		},
		{
			name: "expired",
			spec: &coordinationv1.LeaseSpec{HolderIdentity: new("a"), RenewTime: &metav1.MicroTime{Time: now.Add(-15 * time.Second)}},
		},
		{
			name: "long duration",
			spec: &coordinationv1.LeaseSpec{
				HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(60)),
				RenewTime: &metav1.MicroTime{Time: now.Add(-59 * time.Second)},
			},
			want: "a",
		},
		{
			name: "renewed in the future",
			spec: &coordinationv1.LeaseSpec{HolderIdentity: new("a"), RenewTime: &metav1.MicroTime{Time: now.Add(time.Hour)}}, want: "a",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kube := fake.NewClientset()
			if tc.spec != nil {
				require.NoError(t, kube.Tracker().Add(&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"}, Spec: *tc.spec,
				}))
			}
			got, err := Holder(t.Context(), kube, election, now)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	kube := fake.NewClientset()
	kube.PrependReactor("get", "leases", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "vpa-updater", nil)
	})
	_, err := Holder(t.Context(), kube, election, now)
	require.ErrorContains(t, err, "kube-system/vpa-updater")
}
