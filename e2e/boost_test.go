package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// The informers of webhook and updater may show a VPA later than its first pod is created.
func TestBoost_PodsCreatedRightAfterTheirVPAAreBoosted(t *testing.T) {
	together(t)
	const namespace, workloads = "boosted-at-once", 40
	require.NoError(t, cluster.CreateNamespace(t.Context(), namespace))
	workload := func(i int) harness.Workload {
		return harness.Workload{Namespace: namespace, Name: fmt.Sprint("web-", i), Replicas: 1, Containers: []harness.Container{{Name: "app", CPU: "10m", Memory: "10Mi"}}}
	}
	boosting := func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3)), DurationSeconds: new(int32(3600))}}
	}
	require.NoError(t, harness.Each(t.Context(), workloads, func(ctx context.Context, i int) error {
		if err := cluster.CreateVPA(ctx, workload(i), vpav1.UpdateModeOff, boosting); err != nil {
			return err
		}
		return cluster.CreateWorkload(ctx, workload(i))
	}))
	for i := range workloads {
		awaitSized(t, workload(i), "30m")
	}
	events, err := cluster.Kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=InPlaceResizedByVPA"})
	require.NoError(t, err)
	t.Logf("%d pods boosted at their creation, %d in place", workloads-len(events.Items), len(events.Items))
}
