package portion

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

func cpu(a amount.Amount) amount.Resources { return amount.Resources{}.With(amount.CPU, a) }

func TestPartOfTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		has                  policy.Container
		wantRequest, wantMax amount.Resources // what it would get
		millionths           amount.Amount
		request, limit       amount.Resources
	}{
		"grows":                   {policy.Container{Requests: cpu(100), Limits: cpu(200)}, cpu(500), cpu(1000), Whole / 2, cpu(300), cpu(600)},
		"shrinks":                 {policy.Container{Requests: cpu(500), Limits: cpu(1000)}, cpu(100), cpu(200), Whole / 4, cpu(400), cpu(800)},
		"rounds down":             {policy.Container{Requests: cpu(100)}, cpu(103), amount.Resources{}, Whole / 2, cpu(101), amount.Resources{}},
		"rounds down on the way":  {policy.Container{Requests: cpu(103)}, cpu(100), amount.Resources{}, Whole / 2, cpu(101), amount.Resources{}},
		"not at all":              {policy.Container{Requests: cpu(100), Limits: cpu(200)}, cpu(500), cpu(1000), 0, cpu(100), cpu(200)},
		"all of it":               {policy.Container{Requests: cpu(100), Limits: cpu(200)}, cpu(500), cpu(1000), Whole, cpu(500), cpu(1000)},
		"from nothing":            {policy.Container{}, cpu(500), amount.Resources{}, Whole / 2, cpu(250), amount.Resources{}},
		"a limit that stays":      {policy.Container{Requests: cpu(100), Limits: cpu(500)}, cpu(400), cpu(500), Whole / 3, cpu(199), cpu(500)},
		"a limit that is new":     {policy.Container{Requests: cpu(100)}, cpu(500), cpu(1000), Whole / 2, cpu(300), cpu(600)},
		"a limit without request": {policy.Container{Limits: cpu(100)}, amount.Resources{}, cpu(200), Whole / 2, amount.Resources{}, cpu(150)},
		"nothing of that kind":    {policy.Container{Requests: amount.Of(100, 100)}, amount.Resources{}.With(amount.Memory, 200), amount.Resources{}, 0, amount.Resources{}.With(amount.Memory, 200), amount.Resources{}},
	} {
		got := Of(amount.CPU, c.millionths, c.has, policy.Fitted{Name: "app", Requests: c.wantRequest, Limits: c.wantMax})
		require.Equal(t, policy.Fitted{Name: "app", Requests: c.request, Limits: c.limit}, got, name)
	}
}

func TestALimitStaysAtOrAboveItsRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string, least amount.Amount) amount.Amount {
			return amount.Amount(rapid.Int64Range(int64(least), 1<<42).Draw(t, label))
		}
		has, gets := draw("has", 1), draw("gets", 1)
		c := policy.Container{Requests: amount.Of(0, has)}
		if rapid.Bool().Draw(t, "limited") {
			c.Limits = amount.Of(0, draw("limit", has))
		}
		got := Of(amount.Memory, draw("millionths", 0)%(Whole+1), c, policy.Fitted{Requests: amount.Of(0, gets), Limits: amount.Of(0, draw("new limit", gets))})
		request, limit := got.Requests.Value(amount.Memory), got.Limits.Value(amount.Memory)
		require.GreaterOrEqual(t, limit, request)
		require.GreaterOrEqual(t, request, min(has, gets))
		require.LessOrEqual(t, request, max(has, gets))
	})
}

// A LimitRange may say how many times its request a limit may be at most.
func TestTheRatioOfLimitAndRequestStays(t *testing.T) {
	for part := range Whole / 100 {
		got := Of(amount.CPU, part*100, policy.Container{Requests: cpu(100), Limits: cpu(200)}, policy.Fitted{Requests: cpu(413), Limits: cpu(826)})
		require.Equal(t, 2*got.Requests.Value(amount.CPU), got.Limits.Value(amount.CPU))
	}
}
