package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/testkit"
)

func covering(containers ...convert.ContainerHistory) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Status.Conditions = append(vpa.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Type: convert.SufficientHistory, Message: convert.HistoryMessage(containers)})
	}
}

func TestPolicy_RequiresMinHistory(t *testing.T) {
	least := func(d time.Duration) func(*loadlinev1alpha1.SizingPolicySpec) {
		return func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MinHistory = &metav1.Duration{Duration: d} }
	}
	const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour
	c := func(span time.Duration) func(*vpav1.VerticalPodAutoscaler) {
		return covering(convert.ContainerHistory{Name: "c", Span: span})
	}
	user := func(history func(*vpav1.VerticalPodAutoscaler)) *vpav1.VerticalPodAutoscaler {
		return testkit.VPA("a", testkit.Mode(vpav1.UpdateModeRecreate), testkit.Recommend("c", "cpu=2"), history)
	}
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		vpa    *vpav1.VerticalPodAutoscaler
		want   string // CPU request of a new pod, empty if unchanged
	}{
		{"first sample", sizingPolicy(auto), generatedByRecommender(c(minute)), ""},
		{"default reached", sizingPolicy(auto), generatedByRecommender(c(hour)), "2"},
		{"setting not reached", sizingPolicy(auto, least(day)), generatedByRecommender(c(hour)), ""},
		{"setting reached", sizingPolicy(auto, least(day)), generatedByRecommender(c(2 * day)), "2"},
		{"nothing required", sizingPolicy(auto, least(0)), generatedByRecommender(c(0)), "2"},
		{"history is not reported", sizingPolicy(auto), generatedByRecommender(), "2"},
		{"a sidecar without history", sizingPolicy(auto),
			generatedByRecommender(covering(convert.ContainerHistory{Name: "c", Span: day}, convert.ContainerHistory{Name: "sidecar"})), "2"},
		{"a user VPA", sizingPolicy(auto), user(c(minute)), ""},
		{"a user VPA, mode Inherit", sizingPolicy(loadlinev1alpha1.RolloutModeInherit), user(c(minute)), "2"},
		{"a user VPA, mode Recommend", sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), user(c(minute)), "2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpafake.NewSimpleClientset(tc.vpa, tc.policy)))
			require.Equal(t, tc.want, cpuOf(answer))
		})
	}
}
