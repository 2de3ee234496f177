package prometheus

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/updater/rollouts"
)

// containerRun is a run of a container around a CPU change, as in cAdvisor's metrics.
type containerRun struct {
	pod, id, job                   string
	from, till                     time.Duration // offsets from the change
	throttled, waiting             float64       // shares after the change
	throttledBefore, waitingBefore float64
}

var counters = []struct {
	name string
	rate func(o *containerRun, after bool) float64
}{
	{"container_cpu_cfs_periods", func(*containerRun, bool) float64 { return 10 }},
	{"container_cpu_cfs_throttled_periods", func(o *containerRun, after bool) float64 {
		if after {
			return 10 * o.throttled
		}
		return 10 * o.throttledBefore
	}},
	{"container_pressure_cpu_waiting_seconds", func(o *containerRun, after bool) float64 {
		if after {
			return o.waiting
		}
		return o.waitingBefore
	}},
}

// evidenceMetrics returns the samples of containers in OpenMetrics format, one per pace.
func evidenceMetrics(changed time.Time, runs []containerRun, pace time.Duration) string {
	var text strings.Builder
	for _, c := range counters {
		fmt.Fprintf(&text, "# TYPE %s counter\n", c.name)
		for _, o := range runs {
			total := 0.0
			for at := o.from; at <= o.till; at += pace {
				fmt.Fprintf(&text, "%s_total{job=%q,namespace=\"shop\",pod=%q,container=\"app\",id=%q} %g %d\n", c.name, o.job, o.pod, o.id, total, changed.Add(at).Unix())
				total += c.rate(&o, at >= 0) * pace.Seconds()
			}
		}
	}
	text.WriteString("# EOF\n")
	return text.String()
}

// The minutes before and after a change, read from a real Prometheus, decide whether it is
// reverted.
func TestEvidenceSource_SharesDecideRevert(t *testing.T) {
	for _, pace := range []time.Duration{15 * time.Second, time.Minute} {
		t.Run(pace.String(), func(t *testing.T) { testEvidence(t, pace) })
	}
}

func testEvidence(t *testing.T, pace time.Duration) {
	changed := time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)
	now := changed.Add(6 * time.Minute)
	const early, late = -20 * time.Minute, 20 * time.Minute
	address := start(t, evidenceMetrics(changed, []containerRun{
		{"well", "/1", "a", early, late, 0.1, 0.1, 0.1, 0.1},
		{"throttled", "/1", "a", early, late, 0.8, 0.1, 0.1, 0.1},
		{"as-before", "/1", "a", early, late, 0.8, 0.5, 0.8, 0.3},
		{"waits", "/1", "a", early, late, 0.1, 0.5, 0.1, 0.1},
		{"web.1", "/1", "a", early, late, 0.8, 0.1, 0.1, 0.1},
		{"webx1", "/1", "a", early, late, 0.3, 0.1, 0.3, 0.1},
		{"restarted", "/1", "a", early, 3 * time.Minute, 0.8, 0.1, 0.1, 0.1},
		{"restarted", "/2", "a", 3*time.Minute + 15*time.Second, late, 0.8, 0.5, 0.8, 0.1},
		{"twice", "/1", "a", early, late, 0.8, 0.5, 0.1, 0.1},
		{"twice", "/1", "b", early, late, 0.8, 0.5, 0.1, 0.1},
		{"young", "/1", "a", -2 * time.Minute, late, 0.1, 0.5, 0.1, 0.1},
	}, pace))
	config := rollouts.DefaultEvidenceConfig()
	config.Address = address
	source, err := rollouts.NewEvidenceSource(process.OS{}, config)
	require.NoError(t, err)
	unknown := math.NaN()
	for pod, want := range map[string]struct {
		before, after rollouts.CPUPressure
		outcome       rollout.Outcome
		harm          rollout.Harm
	}{
		"well":      {rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.1}, rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.1}, rollout.Success, ""},
		"throttled": {rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.1}, rollouts.CPUPressure{Throttled: 0.8, Waiting: 0.1}, rollout.Reverted, rollout.Throttle},
		"as-before": {rollouts.CPUPressure{Throttled: 0.8, Waiting: 0.3}, rollouts.CPUPressure{Throttled: 0.8, Waiting: 0.5}, rollout.Success, ""},
		"waits":     {rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.1}, rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.5}, rollout.Reverted, rollout.Pressure},
		"web.1":     {rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.1}, rollouts.CPUPressure{Throttled: 0.8, Waiting: 0.1}, rollout.Reverted, rollout.Throttle},
		"restarted": {rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.1}, rollouts.CPUPressure{Throttled: 0.8, Waiting: unknown}, rollout.Reverted, rollout.Throttle},
		"twice":     {rollouts.CPUPressure{Throttled: unknown, Waiting: unknown}, rollouts.CPUPressure{Throttled: unknown, Waiting: unknown}, rollout.Success, ""},
		"young":     {rollouts.CPUPressure{Throttled: 0.1, Waiting: unknown}, rollouts.CPUPressure{Throttled: 0.1, Waiting: 0.5}, rollout.Success, ""},
		"unscraped": {rollouts.CPUPressure{Throttled: unknown, Waiting: unknown}, rollouts.CPUPressure{Throttled: unknown, Waiting: unknown}, rollout.Success, ""},
	} {
		t.Run(pod, func(t *testing.T) {
			pods := []string{"well", "web.1", pod}
			before, err := source.CPUPressure(t.Context(), "shop", pods, changed)
			require.NoError(t, err)
			after, err := source.CPUPressure(t.Context(), "shop", pods, now)
			require.NoError(t, err)
			require.NotContains(t, after, rollouts.ContainerKey{Pod: "webx1", Container: "app"})
			b, a := rollouts.PressureOf(before, pod, "app"), rollouts.PressureOf(after, pod, "app")
			for _, c := range [][2]float64{{want.before.Throttled, b.Throttled}, {want.before.Waiting, b.Waiting}, {want.after.Throttled, a.Throttled}, {want.after.Waiting, a.Waiting}} {
				require.Equal(t, math.IsNaN(c[0]), math.IsNaN(c[1]), "before %v, after %v", b, a)
				require.False(t, math.Abs(c[0]-c[1]) > 0.02, "before %v, after %v", b, a)
			}
			verdict := judge(changed, now, b, a)
			require.Equal(t, want.outcome, verdict.Outcome)
			require.Equal(t, want.harm, verdict.Harm)
		})
	}
}

// judge returns the verdict on a change that lowered the CPU request and limit.
func judge(changed, now time.Time, before, after rollouts.CPUPressure) rollout.Verdict {
	cpu := func(request, limit resources.Amount) policy.Container {
		c := policy.Container{Name: "app"}
		c.Requests = c.Requests.With(resources.CPU, request)
		c.Limits = c.Limits.With(resources.CPU, limit)
		return c
	}
	change := rollout.Change{At: changed, Ready: true, Containers: []rollout.ContainerChange{{From: cpu(500, 1000), To: cpu(100, 200)}}}
	known := rollout.Evidence{NodeReady: true, Measured: true, Containers: []rollout.ContainerEvidence{{
		Container: cpu(100, 200), Throttled: after.Throttled, ThrottledBefore: before.Throttled, Pressure: after.Waiting, PressureBefore: before.Waiting,
	}}}
	return rollout.Judge(change, known, rollout.Safety{Revert: true, Period: rollout.DefaultPeriod, Throttle: rollout.DefaultThrottle, Pressure: rollout.DefaultPressure}, now)
}
