package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestTheClassOfAPod(t *testing.T) {
	has := func(name string, request, limit resources.Amount) policy.Container {
		return policy.Container{Name: name, Requests: resources.Of(request, request), Limits: resources.Of(limit, limit)}
	}
	require.Equal(t, bestEffort, classOf([]policy.Container{{}, {}}))
	require.Equal(t, burstable, classOf([]policy.Container{has("a", 1, 1), {}}))
	require.Equal(t, guaranteed, classOf([]policy.Container{has("a", 1, 1), {Limits: resources.Of(2, 2)}}))
	require.Equal(t, burstable, classOf([]policy.Container{has("a", 1, 2)}))
	require.Equal(t, bestEffort, classOf([]policy.Container{has("a", 0, 0)}))
	p := Pod{Containers: []Container{{Observed: true, Fitted: policy.Fitted{Requests: resources.Of(1, 1)}}}}
	p.Fixed = []policy.Container{{Requests: resources.Of(1, 1)}}
	require.False(t, p.ChangesClass(), "another container makes it burstable already")
}
