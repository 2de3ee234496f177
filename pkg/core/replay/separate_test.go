package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// separateAdvisor recommends a request of 60 bytes and protects 120, or 200 after a kill.
type separateAdvisor struct {
	recorder
	separate bool
	killed   bool
	limits   []resources.Amount // in force, one for each memory sample
}

func (a *separateAdvisor) SeparateMemoryLimit() bool                            { return a.separate }
func (a *separateAdvisor) Killed(time.Time, resources.Amount, resources.Amount) { a.killed = true }
func (a *separateAdvisor) Advise(time.Time, resources.List) resources.Bounds {
	of := func(v resources.Amount) resources.List { return resources.List{}.With(resources.Memory, v) }
	b := resources.Bounds{Lower: of(57), Target: of(60), Upper: of(120)}
	if a.killed {
		b.Upper = of(200)
	}
	return b
}

type limitRecorder struct {
	eventRecorder
	of *separateAdvisor
}

func (s limitRecorder) Sample(x Sample) {
	if x.Kind == resources.Memory {
		s.of.limits = append(s.of.limits, x.Limit)
	}
}

// The declared request is 100 with a limit of 150, so protecting 120 and 200 bytes needs limits of
// 180 and 300. The kill raises only the limit, before the container restarts. If the limit follows
// the request, 100 is within the bounds and falls to 60, because the kill came soon after the
// start.
func TestRun_SeparateMemoryLimit(t *testing.T) {
	for separate, want := range map[bool][]resources.Amount{
		true:  {150, 180, 180, 180, 300, 300}, // a sample with a kill reports the limit after it
		false: {150, 150, 150, 150, 150, 90},
	} {
		a := &separateAdvisor{separate: separate}
		r := &Recording{}
		for m, use := range []float64{50, 50, 50, 50, 190, 50} {
			r.At = append(r.At, begin+int64(m)*int64(time.Minute))
			r.Use[resources.CPU], r.Use[resources.Memory] = append(r.Use[resources.CPU], 1), append(r.Use[resources.Memory], use)
		}
		s := DefaultSetup(resources.Memory)
		s.Limits[resources.Memory] = Limit{Proportional, 1.5}
		s.Initial = s.Initial.With(resources.Memory, 100)
		Run(r, s, a, limitRecorder{eventRecorder{&a.recorder}, a})
		require.Equal(t, want, a.limits)
		if separate {
			require.Len(t, a.changes, 2, "down to 60, and the limit alone")
			require.Equal(t, a.changes[1].From, a.changes[1].To)
		} else {
			require.Len(t, a.changes, 1)
		}
		require.Len(t, a.kills, 1)
	}
}
