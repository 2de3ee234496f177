package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestAnInitContainerIsNotCountedBesideTheOthers(t *testing.T) {
	pod := func(has, wants, starting resources.Amount) *Pod {
		c := policy.Container{Name: "c", Requests: resources.Of(has, has)}
		return &Pod{Footprint: resources.Of(has+10, has+10), Starting: resources.Of(starting, 0), Containers: []Container{{Observed: true, Actual: c, Spec: c,
			Target: policy.ContainerTarget{Name: "c", Requests: resources.Of(wants, wants)}}}}
	}
	for name, c := range map[string]struct{ has, wants, starting, before, after resources.Amount }{
		"no init container":                   {100, 300, 0, 110, 310},
		"it takes more, before and after":     {100, 300, 500, 500, 500},
		"it takes more before, and less then": {100, 300, 200, 200, 310},
		"it takes less, and more then":        {300, 100, 200, 310, 200},
	} {
		n := pod(c.has, c.wants, c.starting).Need()
		require.Equal(t, c.before, n.Has.Value(resources.CPU), name)
		require.Equal(t, c.after, n.Wants.Value(resources.CPU), name)
		require.Equal(t, c.has+10, n.Has.Value(resources.Memory), name)
	}
}
