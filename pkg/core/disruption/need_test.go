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
	for _, tc := range []struct {
		name                                string
		has, wants, starting, before, after resources.Amount
	}{
		{name: "no init container", has: 100, wants: 300, starting: 0, before: 110, after: 310},
		{name: "init container needs more before and after the change", has: 100, wants: 300, starting: 500, before: 500, after: 500},
		{name: "init container needs more only before the change", has: 100, wants: 300, starting: 200, before: 200, after: 310},
		{name: "init container needs more only after the change", has: 300, wants: 100, starting: 200, before: 310, after: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := pod(tc.has, tc.wants, tc.starting).Need()
			require.Equal(t, tc.before, n.Before.Value(resources.CPU))
			require.Equal(t, tc.after, n.After.Value(resources.CPU))
			require.Equal(t, tc.has+10, n.Before.Value(resources.Memory))
		})
	}
}
