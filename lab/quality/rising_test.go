package main

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/source/trace"
)

// The long memory recordings have no known leak, so growth on each day of a week may be reported on
// few days only.
func TestMemoryGrowth_IsRarelyReported(t *testing.T) {
	folder := cmp.Or(os.Getenv("TRACES"), "../../../shared/data/traces")
	files, err := filepath.Glob(filepath.Join(folder, "bitbrains*.csv.gz"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skipf("no recordings in %s: set TRACES", folder)
	}
	days, told, containers, ever := 0, 0, 0, 0
	for _, file := range files {
		content, err := os.Open(file)
		require.NoError(t, err)
		for r, problem := range trace.Read(content, file, trace.Options{MinMemory: 1 << 20}) {
			require.True(t, problem == nil || problem.Warning, problem)
			peaks, before := &sketch.DailyPeaks{}, 0
			hits := map[int64]bool{}
			for i, at := range r.At {
				peaks.Observe(at, r.Use[resources.Memory][i])
				day := int((at - r.At[0]) / int64(24*3600*1e9))
				if day == before && i+1 < len(r.At) && i%72 != 0 { // every six hours
					continue
				}
				before = day
				if peaks.Growth().Days > 0 {
					hits[int64(day)] = true
				}
			}
			days, told, containers = days+before+1, told+len(hits), containers+1
			if len(hits) > 0 {
				ever++
			}
		}
		require.NoError(t, content.Close())
	}
	t.Logf("told on %d of %d days (%.3f %%), of %d of %d containers", told, days, 100*float64(told)/float64(days), ever, containers)
	require.Less(t, float64(told), 0.002*float64(days))
}

// A recorded leak is reported even if it is stretched over ten days. A cache that is emptied now
// and then is not.
func TestMemoryGrowth_ReportsRecordedLeak(t *testing.T) {
	for _, tc := range []struct {
		name string
		want bool
	}{
		{name: "leak", want: true},
		{name: "cache"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			peaks := &sketch.DailyPeaks{}
			told := 0
			samples, err := trace.ReadProcess("../testdata/finer/" + tc.name + ".csv.gz")
			require.NoError(t, err)
			for i, s := range samples {
				peaks.Observe(int64(1700000000+i*360)*1e9, s.Memory)
				if g := peaks.Growth(); g.Days > 0 {
					if told++; told == 1 {
						t.Logf("told after %.1f days: %s", float64(i)/240, g)
					}
				}
			}
			require.Equal(t, tc.want, told > 0)
		})
	}
}
