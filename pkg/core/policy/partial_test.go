package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func cpu(a resources.Amount) resources.List { return resources.List{}.With(resources.CPU, a) }

func TestInterpolate(t *testing.T) {
	for name, c := range map[string]struct {
		has                  Container
		wantRequest, wantMax resources.List // the full target
		millionths           resources.Amount
		request, limit       resources.List
	}{
		"grows":                   {Container{Requests: cpu(100), Limits: cpu(200)}, cpu(500), cpu(1000), FullFraction / 2, cpu(300), cpu(600)},
		"shrinks":                 {Container{Requests: cpu(500), Limits: cpu(1000)}, cpu(100), cpu(200), FullFraction / 4, cpu(400), cpu(800)},
		"rounds down":             {Container{Requests: cpu(100)}, cpu(103), resources.List{}, FullFraction / 2, cpu(101), resources.List{}},
		"rounds down on the way":  {Container{Requests: cpu(103)}, cpu(100), resources.List{}, FullFraction / 2, cpu(101), resources.List{}},
		"not at all":              {Container{Requests: cpu(100), Limits: cpu(200)}, cpu(500), cpu(1000), 0, cpu(100), cpu(200)},
		"all of it":               {Container{Requests: cpu(100), Limits: cpu(200)}, cpu(500), cpu(1000), FullFraction, cpu(500), cpu(1000)},
		"from nothing":            {Container{}, cpu(500), resources.List{}, FullFraction / 2, cpu(250), resources.List{}},
		"a limit that stays":      {Container{Requests: cpu(100), Limits: cpu(500)}, cpu(400), cpu(500), FullFraction / 3, cpu(199), cpu(500)},
		"a limit that is new":     {Container{Requests: cpu(100)}, cpu(500), cpu(1000), FullFraction / 2, cpu(300), cpu(600)},
		"a limit without request": {Container{Limits: cpu(100)}, resources.List{}, cpu(200), FullFraction / 2, resources.List{}, cpu(150)},
		"nothing of that kind":    {Container{Requests: resources.NewList(100, 100)}, resources.List{}.With(resources.Memory, 200), resources.List{}, 0, resources.List{}.With(resources.Memory, 200), resources.List{}},
	} {
		got := Interpolate(resources.CPU, c.millionths, c.has, ContainerTarget{Name: "app", Requests: c.wantRequest, Limits: c.wantMax})
		require.Equal(t, ContainerTarget{Name: "app", Requests: c.request, Limits: c.limit}, got, name)
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
