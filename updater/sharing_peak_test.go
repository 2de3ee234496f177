package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// If the limit must grow, a higher request stays, and vice versa.
func TestShareRevert_ReducesNothing(t *testing.T) {
	for name, c := range map[string]struct{ request, limit, wantRequest, wantLimit string }{
		"its limit must grow":       {"250Mi", "300Mi", "250Mi", "400Mi"},
		"its limit must grow alone": {"200Mi", "300Mi", "200Mi", "400Mi"},
		"its request must grow":     {"100Mi", "2Gi", "200Mi", "2Gi"},
		"both must":                 {"100Mi", "300Mi", "200Mi", "400Mi"},
		"none must":                 {"250Mi", "500Mi", "250Mi", "500Mi"},
	} {
		r := shareWith(t, Default(), append(peakingPods(1, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("1400m", c.request)
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: list("1", c.limit)[corev1.ResourceMemory]}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(-time.Minute), 1)}
		}), peakingVPA(), sharingOnPolicy(cpuAndMemory))...)
		r.runAt(0)
		has := r.pod("web-1-0").Spec.Containers[0].Resources
		require.Equal(t, c.wantRequest, has.Requests.Memory().String(), name)
		require.Equal(t, c.wantLimit, has.Limits.Memory().String(), name)
	}
}
