package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

func TestCompose_SetsUsageAmbiguous(t *testing.T) {
	vpa := &vpav1.VerticalPodAutoscaler{}
	vpa.Status = Compose(vpa, Outcome{Pods: 1, Ambiguous: "container db has series of two clusters"}, time.Now())
	require.True(t, Holds(vpa, UsageAmbiguous))
	require.Equal(t, "container db has series of two clusters", Message(vpa, UsageAmbiguous))
	vpa.Status = Compose(vpa, Outcome{Pods: 1}, time.Now())
	require.False(t, Holds(vpa, UsageAmbiguous))
}
