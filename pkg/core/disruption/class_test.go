package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestPod_ChangesClassOnlyByItsOwnContainers(t *testing.T) {
	p := Pod{Containers: []Container{{Observed: true, Target: policy.ContainerTarget{Requests: resources.NewList(1, 1)}}}}
	p.FixedContainers = []policy.Container{{Requests: resources.NewList(1, 1)}}
	require.False(t, p.ChangesClass(), "another container makes it burstable already")
}

func Guaranteed(containers []policy.Container) bool {
	return policy.ClassOf(containers) == policy.Guaranteed
}

func TestGuaranteed_RequestsEqualLimits(t *testing.T) {
	both := func(cpu, memory resources.Amount) resources.List {
		return resources.List{}.With(resources.CPU, cpu).With(resources.Memory, memory)
	}
	equal, looser := policy.Container{Requests: both(100, 1), Limits: both(100, 1)}, policy.Container{Requests: both(100, 1), Limits: both(100, 2)}
	require.True(t, Guaranteed([]policy.Container{equal, {Limits: both(100, 1)}}), "a request that is not there is the limit")
	require.False(t, Guaranteed([]policy.Container{equal, looser}))
	require.False(t, Guaranteed([]policy.Container{{}}))
}
