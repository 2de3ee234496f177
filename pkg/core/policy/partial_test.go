package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func cpu(a resources.Amount) resources.List { return resources.List{}.With(resources.CPU, a) }

func TestInterpolate(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		has                    Container
		fullRequest, fullLimit resources.List // the full target
		millionths             resources.Amount
		request, limit         resources.List
	}{
		{
			name: "grows",
			has:  Container{Requests: cpu(100), Limits: cpu(200)}, fullRequest: cpu(500), fullLimit: cpu(1000),
			millionths: FullFraction / 2, request: cpu(300), limit: cpu(600),
		},
		{
			name: "shrinks",
			has:  Container{Requests: cpu(500), Limits: cpu(1000)}, fullRequest: cpu(100), fullLimit: cpu(200),
			millionths: FullFraction / 4, request: cpu(400), limit: cpu(800),
		},
		{
			name: "rounds down when growing",
			has:  Container{Requests: cpu(100)}, fullRequest: cpu(103),
			millionths: FullFraction / 2, request: cpu(101),
		},
		{
			name: "rounds down when shrinking",
			has:  Container{Requests: cpu(103)}, fullRequest: cpu(100),
			millionths: FullFraction / 2, request: cpu(101),
		},
		{
			name: "no part of the change",
			has:  Container{Requests: cpu(100), Limits: cpu(200)}, fullRequest: cpu(500), fullLimit: cpu(1000),
			millionths: 0, request: cpu(100), limit: cpu(200),
		},
		{
			name: "all of the change",
			has:  Container{Requests: cpu(100), Limits: cpu(200)}, fullRequest: cpu(500), fullLimit: cpu(1000),
			millionths: FullFraction, request: cpu(500), limit: cpu(1000),
		},
		{name: "no current request", fullRequest: cpu(500), millionths: FullFraction / 2, request: cpu(250)},
		{
			name: "unchanged limit",
			has:  Container{Requests: cpu(100), Limits: cpu(500)}, fullRequest: cpu(400), fullLimit: cpu(500),
			millionths: FullFraction / 3, request: cpu(199), limit: cpu(500),
		},
		{
			name: "new limit",
			has:  Container{Requests: cpu(100)}, fullRequest: cpu(500), fullLimit: cpu(1000),
			millionths: FullFraction / 2, request: cpu(300), limit: cpu(600),
		},
		{
			name: "limit without request",
			has:  Container{Limits: cpu(100)}, fullLimit: cpu(200),
			millionths: FullFraction / 2, limit: cpu(150),
		},
		{
			name: "other resource is complete",
			has:  Container{Requests: resources.NewList(100, 100)}, fullRequest: resources.List{}.With(resources.Memory, 200),
			millionths: 0, request: resources.List{}.With(resources.Memory, 200),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			full := ContainerTarget{Name: "app", Requests: tc.fullRequest, Limits: tc.fullLimit}
			got := Interpolate(resources.CPU, tc.millionths, tc.has, full)
			require.Equal(t, ContainerTarget{Name: "app", Requests: tc.request, Limits: tc.limit}, got)
		})
	}
}

func TestInterpolate_LimitStaysAboveRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string, least resources.Amount) resources.Amount {
			return resources.Amount(rapid.Int64Range(int64(least), 1<<42).Draw(t, label))
		}
		has, gets := draw("has", 1), draw("gets", 1)
		c := Container{Requests: resources.NewList(0, has)}
		if rapid.Bool().Draw(t, "limited") {
			c.Limits = resources.NewList(0, draw("limit", has))
		}
		got := Interpolate(resources.Memory, draw("millionths", 0)%(FullFraction+1), c, ContainerTarget{Requests: resources.NewList(0, gets), Limits: resources.NewList(0, draw("new limit", gets))})
		request, limit := got.Requests.Value(resources.Memory), got.Limits.Value(resources.Memory)
		require.GreaterOrEqual(t, limit, request)
		require.GreaterOrEqual(t, request, min(has, gets))
		require.LessOrEqual(t, request, max(has, gets))
	})
}

// A LimitRange may bound the ratio of limit to request.
func TestInterpolate_KeepsLimitRatio(t *testing.T) {
	for part := range FullFraction / 100 {
		got := Interpolate(resources.CPU, part*100, Container{Requests: cpu(100), Limits: cpu(200)}, ContainerTarget{Requests: cpu(413), Limits: cpu(826)})
		require.Equal(t, 2*got.Requests.Value(resources.CPU), got.Limits.Value(resources.CPU))
	}
}
