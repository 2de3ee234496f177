package present

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

// The largest init container and the ordinary ones share what the pod takes of its node.
func TestAnInitContainerIsNotCountedBesideTheOthers(t *testing.T) {
	pod := func(has, wants, starting amount.Amount) *Pod {
		c := policy.Container{Name: "c", Requests: amount.Of(has, has)}
		return &Pod{Footprint: amount.Of(has+10, has+10), Starting: amount.Of(starting, 0), Containers: []Container{{Observed: true, Current: c, Asked: c,
			Fitted: policy.Fitted{Name: "c", Requests: amount.Of(wants, wants)}}}}
	}
	for name, c := range map[string]struct{ has, wants, starting, before, after amount.Amount }{
		"no init container":                   {100, 300, 0, 110, 310},
		"it takes more, before and after":     {100, 300, 500, 500, 500},
		"it takes more before, and less then": {100, 300, 200, 200, 310},
		"it takes less, and more then":        {300, 100, 200, 310, 200},
	} {
		n := pod(c.has, c.wants, c.starting).Need()
		require.Equal(t, c.before, n.Has.Value(amount.CPU), name)
		require.Equal(t, c.after, n.Wants.Value(amount.CPU), name)
		require.Equal(t, c.has+10, n.Has.Value(amount.Memory), name)
	}
}

func TestTheClassOfAPod(t *testing.T) {
	has := func(name string, request, limit amount.Amount) policy.Container {
		return policy.Container{Name: name, Requests: amount.Of(request, request), Limits: amount.Of(limit, limit)}
	}
	require.Equal(t, bestEffort, classOf([]policy.Container{{}, {}}))
	require.Equal(t, burstable, classOf([]policy.Container{has("a", 1, 1), {}}))
	require.Equal(t, guaranteed, classOf([]policy.Container{has("a", 1, 1), {Limits: amount.Of(2, 2)}}))
	require.Equal(t, burstable, classOf([]policy.Container{has("a", 1, 2)}))
	require.Equal(t, bestEffort, classOf([]policy.Container{has("a", 0, 0)}))
	p := Pod{Containers: []Container{{Observed: true, Fitted: policy.Fitted{Requests: amount.Of(1, 1)}}}}
	p.Fixed = []policy.Container{{Requests: amount.Of(1, 1)}}
	require.False(t, p.ChangesClass(), "another container makes it burstable already")
}
