package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func TestIsSharing_RequiresConditionOfCurrentGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		condition metav1.Condition
		want      bool
	}{
		"they do":                 {metav1.Condition{Type: ConditionSharing, Status: metav1.ConditionTrue, ObservedGeneration: 3}, true},
		"they do not":             {metav1.Condition{Type: ConditionSharing, Status: metav1.ConditionFalse, ObservedGeneration: 3}, false},
		"they did before":         {metav1.Condition{Type: ConditionSharing, Status: metav1.ConditionTrue, ObservedGeneration: 2}, false},
		"it is said of something": {metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 3}, false},
	} {
		p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 3}}
		p.Status.Conditions = []metav1.Condition{c.condition}
		s := &Snapshot{policies: map[string]*Policy{"shop": {Object: p}}}
		require.Equal(t, c.want, s.IsSharing("shop"), name)
		require.False(t, s.IsSharing("other"), name)
	}
}
