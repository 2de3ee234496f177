package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestChooser_SwitchesBeyondMargin(t *testing.T) {
	costs := [][]float64{{1, 1, 1, 1, 1, 1, 1, 1}, {0.5, 0.5, 0.5, 0.5, 0.5, 3, 4, 3}}
	ch := chooser{candidates: []int{0, 1}, warmUpHours: 3, halfLife: 1e9, margin: 0.2}
	require.Equal(t, []int{0, 0, 0, 1, 1, 1, 1, 0}, ch.choose(costs), "half of the cost; 9.5 against 7 before the last hour")
	ch.margin = 0.6
	require.Equal(t, []int{0, 0, 0, 0, 0, 0, 0, 0}, ch.choose(costs), "half of the cost is not cheaper by the margin")
	ch.margin, ch.halfLife = 0.2, 0.5
	require.Equal(t, []int{0, 0, 0, 1, 1, 1, 0, 0}, ch.choose(costs), "one that forgets fast goes back at once")
	ch.candidates = []int{0}
	require.Equal(t, []int{0, 0, 0, 0, 0, 0, 0, 0}, ch.choose(costs), "what is no candidate is not chosen")
}

// daily returns a recording of four days with a sample every five minutes: a daily pattern with
// noise and bursts.
func daily() *replay.Recording {
	r := &replay.Recording{Dataset: "made", Workload: "daily", Container: "app"}
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it makes a recording
	for i := range 4 * 288 {
		use := 400 + 300*math.Sin(float64(i)/288*2*math.Pi) + 100*dice.Float64()
		if dice.IntN(100) == 0 {
			use += 2000
		}
		r.At = append(r.At, int64(i)*int64(5*time.Minute))
		r.Use[resources.CPU] = append(r.Use[resources.CPU], use)
		r.Use[resources.Memory] = append(r.Use[resources.Memory], use*(1<<20))
	}
	return r
}

func TestChooser_ConstantChoiceCostsLikePreset(t *testing.T) {
	r := daily()
	for _, p := range experiments() {
		c := newContainer(r, &p)
		made, err := p.candidates()
		require.NoError(t, err)
		c.replay(r, &p, made)
		setup := replay.DefaultSetup(p.kind)
		setup.Limits[p.kind] = p.limit
		scored := backtest.Run(r, backtest.Options{Setup: func(resources.Kind) replay.Setup { return setup }, WarmUp: backtest.WarmUp, Kinds: []resources.Kind{p.kind}}, made...)
		kills := 0
		require.Equal(t, 24, c.warmUpHours)
		for preset, name := range p.presets {
			choices := make([]int, len(c.presets[0].hours))
			for h := range choices {
				choices[h] = preset
			}
			price := price{starved: 4, change: 1, kill: 100}
			own, of := scored[preset].Scored, 3600*backtest.Unit(p.kind)
			kills += own.Kills
			require.InEpsilon(t, own.Over/of+4*own.StarvedWork/of+float64(own.Changes)+100*float64(own.Kills), c.presetCost(preset, price), 1e-9, "%s of %s, as the backtester scores it", name, p.kind)
			require.InEpsilon(t, c.presetCost(preset, price), c.cost(c.tallyChoices(choices), price), 1e-9, "%s of %s", name, p.kind)
		}
		require.Equal(t, p.kind == resources.Memory, kills > 0, "bursts kill")
	}
}

func TestFollows_AppliesUpdaterRules(t *testing.T) {
	bounds := func(lower, target, upper resources.Amount) resources.Bounds {
		of := func(a resources.Amount) resources.List { return resources.List{}.With(resources.CPU, a) }
		return resources.Bounds{Lower: of(lower), Target: of(target), Upper: of(upper)}
	}
	for _, tc := range []struct {
		name   string
		bounds resources.Bounds
		age    int64
		to     float64
	}{
		{name: "request below the bounds", bounds: bounds(1100, 1200, 1300), age: 0, to: 1200},
		{name: "request above the bounds", bounds: bounds(500, 700, 900), age: 0, to: 700},
		{name: "young container within the bounds", bounds: bounds(500, 800, 1300), age: lifetime - 1, to: 1000},
		{name: "old container within the bounds", bounds: bounds(500, 800, 1300), age: lifetime, to: 800},
		{name: "old container with a small change", bounds: bounds(500, 901, 1300), age: lifetime, to: 1000},
		{name: "empty recommendation", bounds: resources.Bounds{}, age: lifetime, to: 1000},
		{name: "request equal to the target", bounds: bounds(500, 1000, 1300), age: lifetime, to: 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to, changed := applyRecommendation(resources.CPU, 1000, tc.bounds, tc.age)
			require.InDelta(t, tc.to, to, 0)
			require.Equal(t, tc.to != 1000, changed)
		})
	}
}

func TestLess_ByContainerAndFleet(t *testing.T) {
	own, other := []float64{1, 50}, []float64{2, 100 / 1.5}
	s := study{}
	require.InDelta(t, 1-51/(2+100/1.5), s.relativeSaving(own, other, []int{0, 1}), 1e-12)
	s.byContainer = true
	require.InDelta(t, 1-math.Sqrt(0.5*0.75), s.relativeSaving(own, other, []int{0, 1}), 1e-12)
	require.InDelta(t, 0.5, s.relativeSaving(own, other, []int{0, 0}), 1e-12)
}

// Runs the whole study on generated pods of one day.
func TestRun_SplitsRecordingsInHalves(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pods.csv")
	var content strings.Builder
	content.WriteString("workload,container,timestamp,cpu_cores,memory_bytes\n")
	for pod := range 8 {
		for i := range 144 {
			use := 1 + float64(pod) + math.Sin(float64(i)/20)
			fmt.Fprintf(&content, "pod-%d,app,%d,%.3f,%.0f\n", pod, 600*i, use, use*(1<<30))
		}
	}
	require.NoError(t, os.WriteFile(name, []byte(content.String()), 0o600))
	var out strings.Builder
	require.NoError(t, run([]string{name}, &out))

	var halves [2]int
	for i, part := range []string{"tune", "report"} {
		c := command.Default()
		c.Baselines, c.Kinds, c.Part = false, []string{"cpu"}, part
		results, err := command.Replay(t.Context(), c, name)
		require.NoError(t, err)
		halves[i] = len(results)
	}
	require.NotEqual(t, halves[0], halves[1], "else it would not show which is which")
	require.Contains(t, out.String(), fmt.Sprintf("cpu, short recordings: chosen on %d containers, reported on %d\n", halves[0], halves[1]))
	require.Contains(t, out.String(), "| starved 4, change 0 core-hours | by container |")
	require.Contains(t, out.String(), "memory, limit 1 x request, short recordings")
	require.NotContains(t, out.String(), "long recordings")
	require.NotContains(t, out.String(), "NaN")
}

func TestRun_RejectsMissingRecordings(t *testing.T) {
	require.ErrorContains(t, run(nil, io.Discard), "want recordings")
	require.Error(t, run([]string{t.TempDir() + "/none.csv.gz"}, io.Discard))
}
