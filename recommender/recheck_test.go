package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/recommender/model"
)

type recheckRecorder struct {
	model.Targets
	recheck func(namespace string, ref *autoscalingv1.CrossVersionObjectReference)
}

func (r recheckRecorder) Recheck(namespace string, ref *autoscalingv1.CrossVersionObjectReference) {
	r.recheck(namespace, ref)
}

func TestRecheckTargets_BacksOffExponentially(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	var minutes []int
	began := w.now
	w.loop.Roster.Targets = recheckRecorder{w.loop.Roster.Targets, func(namespace string, ref *autoscalingv1.CrossVersionObjectReference) {
		require.Equal(t, "ns", namespace)
		require.Equal(t, "web", ref.Name)
		minutes = append(minutes, int(w.now.Sub(began)/time.Minute))
	}}
	w.iterate(3)
	require.Empty(t, minutes)
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { w.iterate(1); return len(minutes) > 0 }, time.Minute, time.Millisecond)
	began = began.Add(time.Duration(minutes[0]) * time.Minute)
	minutes = nil
	w.iterate(40)
	require.Equal(t, []int{1, 2, 4, 8, 16, 32}, minutes)
}
