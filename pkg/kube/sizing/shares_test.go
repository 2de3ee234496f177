package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func TestIsSharing_RequiresConditionOfCurrentGeneration(t *testing.T) {
	for _, tc := range []struct {
		name      string
		condition metav1.Condition
		want      bool
	}{
		{
			name: "sharing", condition: metav1.Condition{Type: ConditionSharing, Status: metav1.ConditionTrue, ObservedGeneration: 3},
			want: true,
		},
		{name: "not sharing", condition: metav1.Condition{Type: ConditionSharing, Status: metav1.ConditionFalse, ObservedGeneration: 3}},
		{
			name:      "sharing in an earlier generation",
			condition: metav1.Condition{Type: ConditionSharing, Status: metav1.ConditionTrue, ObservedGeneration: 2},
		},
		{name: "another condition", condition: metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 3}}
			p.Status.Conditions = []metav1.Condition{tc.condition}
			s := &Snapshot{policies: map[string]*Policy{"shop": {Object: p}}}
			require.Equal(t, tc.want, s.IsSharing("shop"))
			require.False(t, s.IsSharing("other"))
		})
	}
}
