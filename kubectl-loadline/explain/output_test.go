package explain

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

func TestExplain_QuotesMessagesOfObjects(t *testing.T) {
	s := plugintest.NewShop()
	s.Pods["front-1-a"].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
		Reason: plugintest.Hostile, Message: plugintest.Hostile, LastTransitionTime: metav1.NewTime(plugintest.Before(5))}}
	s.Policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionFalse, Reason: plugintest.Hostile, Message: plugintest.Hostile}}
	s.VPA.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: "TargetHeld", Status: corev1.ConditionTrue, Message: plugintest.Hostile}}
	s.VPA.Annotations = map[string]string{"loadline.dev/recipe": plugintest.Hostile}
	pod := explainText(t, s, "front-1-a")
	plugintest.RequirePrintable(t, pod)
	require.Contains(t, pod, `\x1b[2J`)
	kube, own := s.Clients()
	a, err := statusOf(t.Context(), own, request(t, s, kube, ""), "")
	require.NoError(t, err)
	for _, format := range []string{"table", "wide", "md", "csv", "json"} {
		plugintest.RequirePrintable(t, plugintest.Printed(t, a, format))
	}
}
