package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestNeed_IsMaxOfInitAndContainers(t *testing.T) {
	pod := func(has, wants, starting resources.Amount) *Pod {
		c := policy.Container{Name: "c", Requests: resources.NewList(has, has)}
		return &Pod{Footprint: resources.NewList(has+10, has+10), InitFootprint: resources.NewList(starting, 0), Containers: []Container{{Observed: true, Actual: c, Spec: c,
			Target: policy.ContainerTarget{Name: "c", Requests: resources.NewList(wants, wants)}}}}
	}
	for name, c := range map[string]struct{ has, wants, starting, before, after resources.Amount }{
		"no init container":                   {100, 300, 0, 110, 310},
		"it takes more, before and after":     {100, 300, 500, 500, 500},
		"it takes more before, and less then": {100, 300, 200, 200, 310},
		"it takes less, and more then":        {300, 100, 200, 310, 200},
	} {
		n := pod(c.has, c.wants, c.starting).Need()
		require.Equal(t, c.before, n.Before.Value(resources.CPU), name)
		require.Equal(t, c.after, n.After.Value(resources.CPU), name)
		require.Equal(t, c.has+10, n.Before.Value(resources.Memory), name)
	}
}
