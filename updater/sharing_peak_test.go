package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// If the limit must grow, a higher request stays, and vice versa.
func TestShareRevert_ReducesNothing(t *testing.T) {
	for _, tc := range []struct{ name, request, limit, wantRequest, wantLimit string }{
		{name: "limit grows, higher request stays", request: "250Mi", limit: "300Mi", wantRequest: "250Mi", wantLimit: "400Mi"},
		{name: "limit grows, equal request stays", request: "200Mi", limit: "300Mi", wantRequest: "200Mi", wantLimit: "400Mi"},
		{name: "request grows, higher limit stays", request: "100Mi", limit: "2Gi", wantRequest: "200Mi", wantLimit: "2Gi"},
		{name: "both grow", request: "100Mi", limit: "300Mi", wantRequest: "200Mi", wantLimit: "400Mi"},
		{name: "both stay", request: "250Mi", limit: "500Mi", wantRequest: "250Mi", wantLimit: "500Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := shareWith(t, Default(), append(peakingPods(1, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = list("1400m", tc.request)
				memory := list("1", tc.limit)[corev1.ResourceMemory]
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: memory}
				p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(-time.Minute), 1)}
			}), peakingVPA(), sharingOnPolicy(cpuAndMemory))...)
			r.runAt(0)
			has := r.pod("web-1-0").Spec.Containers[0].Resources
			require.Equal(t, tc.wantRequest, has.Requests.Memory().String())
			require.Equal(t, tc.wantLimit, has.Limits.Memory().String())
		})
	}
}
