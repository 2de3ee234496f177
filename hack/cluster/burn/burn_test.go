package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedule_HoldsLastStepForever(t *testing.T) {
	s, err := parseSchedule("50m:10s,0:5s,1.5")
	require.NoError(t, err)
	for elapsed, want := range map[time.Duration]float64{
		0: 0.05, 9999 * time.Millisecond: 0.05, 10 * time.Second: 0, 14 * time.Second: 0, 15 * time.Second: 1.5, time.Hour: 1.5,
	} {
		require.InDelta(t, want, s.at(elapsed), 1e-9, elapsed)
	}
	require.InDelta(t, 1.5, s.peak(), 1e-9)
	ends, err := parseSchedule("20Mi:1s,3Gi:1s")
	require.NoError(t, err)
	require.InDelta(t, 3<<30, ends.at(time.Hour), 1e-9, "the last step holds even if it has a duration")
	require.Zero(t, schedule(nil).at(time.Hour))
}

func TestSchedule_RejectsInvalidText(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{name: "unknown unit", text: "1x", want: `step 1: want an amount such as 250m, 2 or 100Mi, got "1x"`},
		{name: "negative amount", text: "-1", want: "want an amount"},
		{name: "not a number", text: "NaN", want: "want an amount"},
		{name: "unit without an amount", text: "Mi", want: "want an amount"},
		{name: "step without a duration", text: "1,2", want: `step 1: want AMOUNT:DURATION, got "1"; only the last step may hold for good`},
		{name: "invalid duration", text: "1:5s,2:x", want: `step 2: want a duration above 0 such as 30s, got "x"`},
		{name: "duration of zero", text: "1:0s", want: "want a duration above 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseSchedule(tc.text)
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := newPlan("65", "1:")
	require.ErrorContains(t, err, "-cpu: want at most 64 cores, got 65")
	require.ErrorContains(t, err, "-memory: step 1")
	require.Equal(t, 2, burn("burn", []string{"-cpu=x"}))
	require.Equal(t, 2, burn("burn", []string{"stray"}))
}

func TestShare_SplitsCoresAmongThreads(t *testing.T) {
	for cores, want := range map[float64][3]float64{0: {0, 0, 0}, 0.3: {0.3, 0, 0}, 1: {1, 0, 0}, 2.25: {1, 1, 0.25}} {
		for thread, part := range want {
			require.InDelta(t, part, share(cores, thread), 1e-9, "%g cores, thread %d", cores, thread)
		}
	}
}

func TestMeter_LimitsDebtAfterThrottling(t *testing.T) {
	var m meter
	require.Equal(t, 30*time.Millisecond, m.due(0.3, 100*time.Millisecond, 0))
	require.Equal(t, 30*time.Millisecond, m.due(0.3, 200*time.Millisecond, 30*time.Millisecond), "all was spent")
	require.Equal(t, 50*time.Millisecond, m.due(0.3, 300*time.Millisecond, 40*time.Millisecond), "20 ms are left from before")
	require.Equal(t, maxDebt, m.due(1, 10*time.Second, 40*time.Millisecond), "a long wait is not made up for")
	require.Zero(t, m.due(0, 11*time.Second, 900*time.Millisecond), "too much was spent")
}

func TestHeld_AllocatesAndReleasesMemory(t *testing.T) {
	var h mappedMemory
	before := resident(t)
	require.NoError(t, h.adjust(64<<20))
	require.InDelta(t, 64<<20, resident(t)-before, 16<<20)
	require.NoError(t, h.adjust(1))
	require.Len(t, h, 1, "part of a chunk is a chunk")
	require.InDelta(t, 1<<20, resident(t)-before, 16<<20)
	require.NoError(t, h.adjust(0))
	require.Empty(t, h)
}

func resident(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

// On a busy machine the process gets less CPU than requested.
func TestRun_SpendsCPU(t *testing.T) {
	p, err := newPlan("300m", "1Mi")
	require.NoError(t, err)
	stop := make(chan os.Signal, 1)
	before := processTime(t)
	began := time.Now()
	time.AfterFunc(time.Second, func() { stop <- syscall.SIGTERM })
	require.NoError(t, p.run(stop))
	spent, elapsed := processTime(t)-before, time.Since(began)
	require.Greater(t, spent, 10*time.Millisecond)
	require.Less(t, spent, time.Duration(0.3*float64(elapsed))+200*time.Millisecond)
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
