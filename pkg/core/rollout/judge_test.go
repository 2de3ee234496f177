package rollout

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

var (
	noon    = at("2026-03-02T12:00:00Z")
	careful = Safety{Revert: true, Period: DefaultPeriod, Restarts: DefaultRestarts, Throttle: DefaultThrottle, Pressure: DefaultPressure}
)

// lowered is a change at noon that lowers requests and limits of CPU and memory, with the evidence
// of a healthy pod.
func lowered() (Change, Evidence) {
	c := Change{At: noon, Ready: true, Containers: []ContainerChange{{From: sizes("app", 500, 200, 1000, 400), To: sizes("app", 200, 100, 400, 200), Restarts: 3}}}
	e := Evidence{NodeReady: true, Measured: true, Containers: []ContainerEvidence{{Container: c.Containers[0].To, Restarts: 3}}}
	return c, e
}

func TestJudge(t *testing.T) {
	none := math.NaN()
	for name, c := range map[string]struct {
		after  time.Duration
		does   func(*Change, *Evidence, *Safety)
		want   Outcome
		reason Harm
	}{
		"nothing happened":        {5 * time.Minute, nil, Success, ""},
		"the period is not over":  {5*time.Minute - 1, nil, "", ""},
		"killed after the change": {time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].OOMKilled = noon.Add(time.Second) }, Reverted, OOMKill},
		"killed at the change":    {6 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].OOMKilled = noon }, Success, ""},
		"one restart":             {6 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Restarts = 4 }, Success, ""},
		"two restarts":            {time.Second, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Restarts = 5 }, Reverted, Restart},
		"no number is given":      {time.Second, func(_ *Change, _ *Evidence, s *Safety) { s.Restarts = 0 }, "", ""},
		"three are wanted":        {6 * time.Minute, func(_ *Change, e *Evidence, s *Safety) { e.Containers[0].Restarts, s.Restarts = 5, 3 }, Success, ""},
		"killed, and only CPU was lowered": {6 * time.Minute, func(c *Change, e *Evidence, _ *Safety) {
			keepMemory(c, e)
			e.Containers[0].OOMKilled = noon.Add(time.Second)
		}, Success, ""},
		"restarts, and only CPU was lowered": {6 * time.Minute, func(c *Change, e *Evidence, _ *Safety) { keepMemory(c, e); e.Containers[0].Restarts = 5 }, Reverted, Restart},
		"throttled":                          {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Throttled = 0.51 }, Reverted, Throttle},
		"throttled as much as is tolerated":  {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Throttled = 0.5 }, Success, ""},
		"throttled before, too": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Throttled, e.Containers[0].ThrottledBefore = 0.9, 0.51
		}, Success, ""},
		"throttling is not known": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Throttled = none }, Success, ""},
		"throttling before is not known": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Throttled, e.Containers[0].ThrottledBefore = 0.9, none
		}, Success, ""},
		"throttled, and off":             {5 * time.Minute, func(_ *Change, e *Evidence, s *Safety) { e.Containers[0].Throttled, s.Throttle = 0.9, 0 }, Success, ""},
		"throttled early":                {4 * time.Minute, func(_ *Change, e *Evidence, s *Safety) { e.Containers[0].Throttled, s.Period = 0.9, time.Minute }, "", ""},
		"throttled after a short period": {5 * time.Minute, func(_ *Change, e *Evidence, s *Safety) { e.Containers[0].Throttled, s.Period = 0.9, time.Minute }, Reverted, Throttle},
		"a short period":                 {time.Minute, func(_ *Change, _ *Evidence, s *Safety) { s.Period, s.Throttle, s.Pressure = time.Minute, 0, 0 }, Success, ""},
		"throttled without a lower limit": {5 * time.Minute, func(c *Change, e *Evidence, _ *Safety) {
			c.Containers[0].From.Limits = c.Containers[0].To.Limits
			e.Containers[0].Throttled = 0.9
		}, Success, ""},
		"waits": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Pressure, e.Containers[0].PressureBefore = 0.4, 0.2
		}, Reverted, Pressure},
		"waits hardly more than before": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Pressure, e.Containers[0].PressureBefore = 0.4, 0.21
		}, Success, ""},
		"waits as much as is tolerated": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Pressure = 0.3 }, Success, ""},
		"waiting before is not known": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Pressure, e.Containers[0].PressureBefore = 0.4, none
		}, Success, ""},
		"not ready":                              {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.NotReady = true }, Reverted, NotReady},
		"not ready yet":                          {4 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.NotReady = true }, "", ""},
		"not ready since after the period":       {6 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.NotReady, e.NotReadySince = true, noon.Add(5*time.Minute+1) }, Success, ""},
		"not ready at the end of a short period": {2 * time.Minute, func(_ *Change, e *Evidence, s *Safety) { e.NotReady, s.Period = true, 2*time.Minute }, Reverted, NotReady},
		"not ready before, either":               {5 * time.Minute, func(c *Change, e *Evidence, _ *Safety) { e.NotReady, c.Ready = true, false }, Success, ""},
		"its node is lost":                       {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.NotReady, e.NodeReady = true, false }, Success, ""},
		"nothing was lowered":                    {0, func(c *Change, e *Evidence, _ *Safety) { raise(c, e); e.NotReady = true }, Success, ""},
		"deferred":                               {time.Hour, func(c *Change, e *Evidence, _ *Safety) { c.Pending = true; e.Containers[0].Restarts = 9 }, "", ""},
		"deferred, and only raised":              {time.Hour, func(c *Change, e *Evidence, _ *Safety) { raise(c, e); c.Pending = true }, "", ""},
		"the node is at it":                      {59 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Resizing, e.NotReady = true, true }, "", ""},
		"the node is at it for an hour":          {time.Hour, func(_ *Change, e *Evidence, _ *Safety) { e.Resizing = true }, Failed, UnfinishedResize},
		"restarts while the node is at it":       {30 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Resizing, e.Containers[0].Restarts = true, 5 }, Reverted, Restart},
		"a raise that the node is at":            {time.Minute, func(c *Change, e *Evidence, _ *Safety) { raise(c, e); e.Resizing = true }, "", ""},
		"infeasible":                             {time.Hour, func(c *Change, e *Evidence, _ *Safety) { c.Pending, e.Infeasible = true, true }, Failed, InfeasibleResize},
		"somebody else changed it": {time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Container = requests("app", 200, 150)
			e.Containers[0].Restarts = 9
		}, Superseded, ""},
		"somebody gave it back": {time.Minute, func(c *Change, e *Evidence, _ *Safety) { e.Containers[0].Container = c.Containers[0].From }, Superseded, ""},
		"somebody gave it back, not ready yet": {time.Minute, func(c *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Container, e.NotReady = c.Containers[0].From, true
		}, Superseded, ""},
		"we gave it back, and were killed": {time.Minute, func(c *Change, e *Evidence, _ *Safety) {
			e.Containers[0].Container = c.Containers[0].From
			e.Containers[0].Restarts = 5
		}, Reverted, Restart},
		"harm that was noted, and is gone": {6 * time.Minute, func(c *Change, _ *Evidence, _ *Safety) { c.Harm = NotReady }, Reverted, NotReady},
		"harm that was noted, long ago":    {48 * time.Hour, func(c *Change, _ *Evidence, _ *Safety) { c.Harm = NotReady }, Reverted, NotReady},
		"it was given back, and helped": {6 * time.Minute, func(c *Change, e *Evidence, _ *Safety) {
			c.Harm, e.Containers[0].Container = NotReady, c.Containers[0].From
		}, Reverted, NotReady},
		"harm that was noted, and changed since": {6 * time.Minute, func(c *Change, e *Evidence, _ *Safety) {
			c.Harm, e.Containers[0].Container = NotReady, requests("app", 200, 150)
		}, Superseded, ""},
		"harm that was noted, and the pod goes": {6 * time.Minute, func(c *Change, e *Evidence, _ *Safety) { c.Harm, e.Gone = NotReady, true }, Superseded, ""},
		"a new template":                        {time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Replaced, e.Containers[0].Restarts = true, 9 }, Superseded, ""},
		"gone":                                  {time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Gone = true }, Superseded, ""},
		"nobody looked for two days":            {48 * time.Hour, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Restarts, e.NotReady = 9, true }, Unobserved, ""},
		"ten minutes late":                      {15 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Restarts = 9 }, Reverted, Restart},
		"later than that":                       {15*time.Minute + 1, func(_ *Change, e *Evidence, _ *Safety) { e.Containers[0].Restarts = 9 }, Unobserved, ""},
		"the clock went back an hour":           {-time.Hour, nil, "", ""},
		"by more":                               {-time.Hour - 1, nil, Unobserved, ""},
		"not measured yet":                      {14 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Measured = false }, "", ""},
		"never measured":                        {16 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) { e.Measured = false }, Unobserved, ""},
		"not measured, but not needed":          {5 * time.Minute, func(_ *Change, e *Evidence, s *Safety) { e.Measured, s.Throttle, s.Pressure = false, 0, 0 }, Success, ""},
		"harm that is not taken back":           {time.Minute, func(_ *Change, e *Evidence, s *Safety) { s.Revert, e.Containers[0].Restarts = false, 5 }, Failed, Restart},
		"a sidecar that was not touched": {5 * time.Minute, func(_ *Change, e *Evidence, _ *Safety) {
			e.Containers = append(e.Containers, ContainerEvidence{Container: requests("sidecar", 1, 1), OOMKilled: noon.Add(1), Restarts: 9})
		}, Success, ""},
	} {
		t.Run(name, func(t *testing.T) {
			change, evidence := lowered()
			safety := careful
			if c.does != nil {
				c.does(&change, &evidence, &safety)
			}
			v := Judge(change, evidence, safety, noon.Add(c.after))
			require.Equal(t, c.want, v.Outcome)
			require.Equal(t, c.reason, v.Harm)
		})
	}
}

// keepMemory turns a change into one that lowers only CPU.
func keepMemory(c *Change, e *Evidence) {
	c.Containers[0].To = sizes("app", 200, -1, 400, -1)
	e.Containers[0].Container = sizes("app", 200, 200, 400, 400)
}

func raise(c *Change, e *Evidence) {
	c.Containers[0].To = sizes("app", 500, 300, 1000, 600)
	e.Containers[0].Container = c.Containers[0].To
}

func TestJudge_OnlyLoweredResourcesCauseHarm(t *testing.T) {
	c, e := lowered()
	e.NotReady = true
	require.Equal(t, NotReady, Judge(c, e, careful, noon).FinalHarm)
	raise(&c, &e)
	require.Empty(t, Judge(c, e, careful, noon).FinalHarm)
}

func TestJudge_NeedsMetricsAtEndOfPeriod(t *testing.T) {
	c, e := lowered()
	e.Measured = false
	require.False(t, Judge(c, e, careful, noon.Add(4*time.Minute)).NeedsMetrics)
	require.True(t, Judge(c, e, careful, noon.Add(5*time.Minute)).NeedsMetrics)
	e.Measured = true
	require.False(t, Judge(c, e, careful, noon.Add(5*time.Minute)).NeedsMetrics)
	c.Containers[0].From.Limits = c.Containers[0].To.Limits
	e.Measured = false
	require.True(t, Judge(c, e, careful, noon.Add(5*time.Minute)).NeedsMetrics, "the request was lowered")
	c.Containers[0].From.Requests = c.Containers[0].From.Requests.With(resources.CPU, 200)
	require.Equal(t, Success, Judge(c, e, careful, noon.Add(5*time.Minute)).Outcome)
	require.False(t, Judge(c, e, careful, noon.Add(time.Minute)).SharesPending)
}

func TestObservationPeriod(t *testing.T) {
	require.Equal(t, time.Minute, ObservationPeriod(time.Minute, time.Hour))
	require.Equal(t, time.Hour, ObservationPeriod(0, time.Hour))
	require.Equal(t, DefaultPeriod, ObservationPeriod(0, 0))
}
