package sketch

import (
	"encoding/base64"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

var bothKinds = [resources.Kinds]bool{true, true}

// fullLife is a sketch of two days that exercises every part.
func fullLife(needs Needs) *Sketch {
	t, earlier := New(needs), New(needs)
	t.SetLimitRatio(120)
	for i := range 60 {
		now := start.Add(-9*time.Hour + time.Duration(i)*time.Minute)
		earlier.Observe(now, resources.CPU, resources.Amount(200+i*7), 0)
		earlier.Observe(now, resources.Memory, resources.Amount(i+1)<<21, 0)
	}
	for i := range 700 {
		now := start.Add(time.Duration(i) * 4 * time.Minute)
		if i >= 500 {
			now = now.Add(11 * time.Hour)
		}
		cpu, memory := resources.Amount(100+i*7919%1900), resources.Amount(i*104729%1000003)<<10
		t.ObservePod([]string{"a", "b"}[i%2], now, resources.CPU, cpu, resources.Amount(i/300*1000))
		t.ObservePod([]string{"a", "b"}[i%2], now, resources.Memory, memory, 0)
		t.SetDeclared(100 << 20)
		if i%50 == 20 {
			t.ObservePressure(now, cpu, 0.25)
		}
		if i%200 == 130 {
			t.ObserveKill(now, memory, resources.Amount(i%400/200)<<30)
			t.SetTarget(resources.Memory, 2*memory)
		}
	}
	t.Merge(earlier)
	return t
}

// Other versions read and write these images in checkpoints.
func TestImage_MatchesGolden(t *testing.T) {
	for _, tc := range []struct {
		name  string
		needs Needs
	}{
		{name: "everything", needs: allParts()},
		{name: "loadline", needs: Needs{Peaks: true, LimitRatio: true, Declared: 100 * time.Hour, Load: ofCPU(calm())}},
		{name: "cruisekube", needs: Needs{Hours: bothKinds, Pressure: true, Kills: true}},
		{name: "shared", needs: sharedNeeds()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			image := fullLife(tc.needs).Image()
			saved := golden(t, tc.name)
			again, err := Read(tc.needs, saved, start, 0)
			require.NoError(t, err)
			require.Equal(t, saved, again.Image())
			if runtime.GOARCH == "amd64" { // other architectures round the last digit differently
				require.Equal(t, saved, image)
			}
		})
	}
}

func sharedNeeds() Needs {
	return Needs{Peaks: true, LimitRatio: true, Declared: 100 * time.Hour, Load: ofCPU(calm()), Hours: [resources.Kinds]bool{resources.CPU: true}, Pressure: true}
}

// After a change of the preset, parts needed by both stay and the others begin. The hours start
// with the current usage.
func TestRead_ImageWithoutHours(t *testing.T) {
	old, err := Read(sharedNeeds(), golden(t, "loadline"), start, 0)
	require.NoError(t, err)
	_, known := old.Coverage(cpu)
	require.False(t, known, "nothing is known of its hours")
	was, err := Read(Needs{Peaks: true, Load: ofCPU(calm())}, golden(t, "loadline"), start, 0)
	require.NoError(t, err)
	require.Equal(t, was.Load[cpu].Level(0, was.Now), old.Load[cpu].Level(0, old.Now))
	require.Equal(t, was.Peaks, old.Peaks)
	now := time.Unix(0, old.Now).Add(time.Minute)
	old.Observe(now, resources.CPU, 500, 0)
	old.ObservePressure(now, 500, 0.2)
	covered, known := old.Coverage(cpu)
	require.True(t, known)
	require.Zero(t, covered)
	require.InEpsilon(t, 500, old.Hours[cpu].Highest(), 0.002)
	require.InEpsilon(t, 600, old.PressureHours.Recent(10, 0.75), 0.002)
}

func TestRead_ImageWithoutLimits(t *testing.T) {
	saved := golden(t, "everything-without-limits")
	old, err := Read(allParts(), saved, start, 0)
	require.NoError(t, err)
	again, err := Read(allParts(), old.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, old, again)
	_, known := old.Coverage(cpu)
	require.True(t, known)
}

func TestRead_ImageWithoutFirstUsage(t *testing.T) {
	needs := Needs{Peaks: true, LimitRatio: true, Declared: 100 * time.Hour, Load: ofCPU(calm().Sustained(15 * time.Minute))}
	old, err := Read(needs, golden(t, "loadline-without-first"), start, 0)
	require.NoError(t, err)
	require.Equal(t, fullLife(needs).Load[cpu].first, old.Load[cpu].first)
	same, err := Read(needs, golden(t, "loadline-in-thousandths"), start, 0)
	require.NoError(t, err)
	require.Equal(t, same.Image(), old.Image())

	needs.Tracked = trackedShape()
	more, err := Read(needs, golden(t, "loadline-without-first"), start, 0)
	require.NoError(t, err)
	_, known := more.Coverage(cpu)
	require.False(t, known, "nothing is known of what the second load needs")
	require.Equal(t, old.Load[cpu].first, more.Load[cpu].first)
	require.Equal(t, old.Load[cpu].Level(0, old.Now), more.Load[cpu].Level(0, more.Now))
}

func golden(t *testing.T, name string) []byte {
	content, err := os.ReadFile("testdata/" + name + ".image")
	require.NoError(t, err)
	image, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(content)), ""))
	require.NoError(t, err)
	return image
}

// A recommender keeps a sketch for each of 100,000 containers.
func TestSketch_EmptySizeIsBounded(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Sketch{}), uintptr(152))
	for needs, most := range map[*Needs]float64{
		{}: 1, {Peaks: true, LimitRatio: true, Declared: time.Hour, Load: ofCPU(calm())}: 3, {Hours: bothKinds, Pressure: true, Kills: true}: 4,
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { New(*needs) }), most)
	}
}

func BenchmarkSketch(b *testing.B) {
	for name, needs := range map[string]Needs{
		"loadline":   {Peaks: true, LimitRatio: true, Declared: time.Hour, Load: ofCPU(calm())},
		"cruisekube": {Hours: bothKinds, Pressure: true, Kills: true},
	} {
		b.Run(name+"/observe", func(b *testing.B) {
			b.ReportAllocs()
			t, now := fullLife(needs), start.Add(100*time.Hour)
			for i := range b.N {
				if i%1000 == 0 {
					now = now.Add(time.Minute)
				}
				t.Observe(now, resources.CPU, resources.Amount(i%1000), 0)
				t.Observe(now, resources.Memory, resources.Amount(i%1000)<<20, 0)
			}
		})
		b.Run(name+"/new", func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				New(needs)
			}
		})
		b.Run(name+"/image", func(b *testing.B) {
			b.ReportAllocs()
			t := fullLife(needs)
			for range b.N {
				t.Image()
			}
		})
		b.Run(name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			image := fullLife(needs).Image()
			for range b.N {
				if _, err := Read(needs, image, start, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/adapt", func(b *testing.B) {
			b.ReportAllocs()
			t := fullLife(needs)
			for range b.N {
				t.Adapt(needs)
			}
		})
	}
}
