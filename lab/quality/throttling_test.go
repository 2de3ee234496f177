package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/trace"
)

// limitedRun is the result of replaying a process with a CPU limit equal to its request.
type limitedRun struct {
	mean, highest  float64 // usage without limit, in millicores
	undone         float64 // share of work cut off by the limit
	request        float64 // mean, in millicores
	changes        float64 // per day
	days, interval int     // length of the replay, and seconds between two samples
}

// runWithLimit replays a recording of one-second steps for a week. The request starts at 30m and
// follows the target when it leaves the bounds. Usage, and if known is set the share of seconds at
// the limit, are means of five minutes, as from Prometheus.
func runWithLimit(t *testing.T, file, text string, known bool) limitedRun {
	samples, err := trace.ReadProcess(file + ".csv.gz")
	require.NoError(t, err)
	made, err := recipe.Parse(text)
	require.NoError(t, err)
	h := limitedRun{days: 7, interval: 60}
	const window = 300
	type second struct{ use, reached float64 }
	var seconds []second
	state, request, work, begin := sketch.New(made.Needs), 30.0, 0.0, time.Unix(1772438400, 0)
	empty := usage.NewProfile(usage.DefaultConfig().Shape)
	n := h.days * 24 * 3600
	for s := range n {
		want := samples[s%len(samples)].CPU * 1000
		now := second{use: min(want, request)}
		if want > request && known {
			now.reached = 1
		}
		seconds = append(seconds, now)
		h.mean, h.highest = h.mean+want/float64(n), max(h.highest, want)
		h.request, h.undone, work = h.request+request/float64(n), h.undone+want-now.use, work+want
		if (s+1)%h.interval != 0 {
			continue
		}
		seconds = seconds[max(len(seconds)-window, 0):]
		var mean second
		for _, one := range seconds {
			mean.use, mean.reached = mean.use+one.use/float64(len(seconds)), mean.reached+one.reached/float64(len(seconds))
		}
		limit := resources.FromFloat(request)
		state.ObserveUse("", begin.Add(time.Duration(s)*time.Second), resources.CPU,
			sketch.Usage{Amount: resources.FromFloat(mean.use), Limit: limit, Request: limit, Throttled: mean.reached})
		b := made.Recommend(recipe.Input{Profile: &empty, Sketch: state, Containers: 1}).Bounds
		if limit < b.Lower.Value(resources.CPU) || limit > b.Upper.Value(resources.CPU) {
			request = float64(b.Target.Value(resources.CPU))
			h.changes += 1 / float64(h.days)
		}
	}
	h.undone /= work
	return h
}

// With throttled time, short bursts under a limit are detected and hardly any work is cut off. The
// request must not fluctuate because of that.
func TestThrottledTime_ReducesUndoneWorkOfBursts(t *testing.T) {
	for _, file := range []string{"../../testdata/traces/steady", "../testdata/finer/bursts", "../../testdata/traces/spiky", "../testdata/finer/kube-apiserver"} {
		for _, text := range []string{"loadline:pod-min-cpu=1", "loadline:cpu=tracking,pod-min-cpu=1"} {
			without, with := runWithLimit(t, file, text, false), runWithLimit(t, file, text, true)
			t.Logf("%-20s mean %3.0f, highest %4.0f; %-36s undone %2.0f %% (%3.0f, %.1f changes a day), with throttled time %2.0f %% (%3.0f, %.1f)",
				filepath.Base(file), with.mean, with.highest, text, 100*without.undone, without.request, without.changes, 100*with.undone, with.request, with.changes)
			require.Less(t, with.undone, 0.1, file)
			require.Less(t, with.undone, without.undone/3, file)
			require.Less(t, with.changes, 2.0, file)
			require.Less(t, with.request, with.highest, file)
		}
	}
}
