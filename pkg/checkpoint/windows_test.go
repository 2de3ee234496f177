package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

func read(text string, written time.Time) (windows map[string]usage.Window, sketch []byte, err error) {
	var past ContainerHistory
	err = past.decode(text, "ns", written)
	return past.Windows, past.Sketch, err
}

func TestAnnotation_RoundTripsWindows(t *testing.T) {
	want := map[string]usage.Window{
		"a": {End: now().Add(time.Hour + time.Nanosecond), Usage: 0, OOM: -1},
		"b": {End: now().Add(time.Hour), Usage: -1, OOM: 7 << 30, Kill: now()},
		"c": {Usage: -1, OOM: -1, Kill: now(), Kills: []uint64{1<<64 - 1, 1, 1 << 63}},
	}
	raw, err := encodeWindows(want)
	require.NoError(t, err)
	text := encodeAnnotation(nil, raw, nil, now())
	got, _, err := read(text, now())
	require.NoError(t, err)
	require.Equal(t, want, got)

	got, _, err = read(text, now().Add(time.Second))
	require.NoError(t, err)
	require.Nil(t, got, "another status was written since")

	raw, err = encodeWindows(nil)
	require.NoError(t, err)
	got, _, err = read(encodeAnnotation(nil, raw, nil, now()), now())
	require.NoError(t, err)
	require.NotNil(t, got, "it is known that no window was open")
}

func TestAnnotation_RoundTripsTarget(t *testing.T) {
	sums := map[uint64]bool{}
	for _, want := range []target.Key{
		{}, {Namespace: "ns", Kind: "Deployment", Name: "web"}, {Namespace: "ns", Kind: "StatefulSet", Name: "web"},
		{Namespace: "ns", Group: "argoproj.io", Kind: "Rollout", Name: "web"}, {Namespace: "ns", Group: "other.io", Kind: "Rollout", Name: `odd"name`},
	} {
		r, err := NewRecord(Owner{"ns", "web"}, "a", Content{Target: want, Image: image(3), Sketch: []byte{1}}, now())
		require.NoError(t, err)
		require.False(t, sums[r.Hash], "another target is a change")
		sums[r.Hash] = true
		l := Loader{Shape: shape()}
		past, err := l.read(r.Object(), now())
		require.NoError(t, err)
		require.Equal(t, want, past.Target)
		require.False(t, past.Rewritten)
		require.Equal(t, []byte{1}, past.Sketch)

		rewritten := r.Object()
		rewritten.Status.LastUpdateTime = metav1.NewTime(now().Add(time.Second))
		past, err = l.read(rewritten, now())
		require.NoError(t, err)
		require.True(t, past.Rewritten)
		require.Equal(t, want, past.Target, "that of the sketch")
	}
}

func TestRemoveForeign_RemovesOnlyOtherTargets(t *testing.T) {
	own, former := target.Key{Namespace: "ns", Kind: "Deployment", Name: "web"}, target.Key{Namespace: "ns", Kind: "Deployment", Name: "old"}
	owner, other := Owner{"ns", "web"}, Owner{"ns", "other"}
	p := func() *usage.Profile { p := usage.NewProfile(shape()); return &p }
	h := History{
		owner: {
			"own":       {Profile: p(), Target: own, Sketch: []byte{1}},
			"unknown":   {Profile: p(), Sketch: []byte{2}},
			"rewritten": {Profile: p(), Target: former, Rewritten: true, Sketch: []byte{3}},
			"z":         {Profile: p(), Target: former},
			"b":         {Profile: p(), Target: former},
		},
		other: {"a": {Profile: p(), Target: former}},
	}
	require.Equal(t, []ForeignContainer{{"b", former}, {"z", former}}, h.RemoveForeign(owner, own))
	require.Len(t, h.Profiles(owner), 3)
	require.Equal(t, map[string][]byte{"own": {1}, "unknown": {2}}, h.Sketches(owner), "the sketch is that of the former target")
	require.Empty(t, h.RemoveForeign(other, former))
	require.Len(t, h.RemoveForeign(other, own), 1)
	require.NotContains(t, h, other, "nothing is left")
	require.Equal(t, "b of Deployment old", ForeignContainer{"b", former}.String())
}

func TestEncode_KeepsHighestPeaksWithinLimit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		length int
	}{
		{name: "short names", length: 30},
		{name: "names of maximum length", length: 253},
	} {
		t.Run(tc.name, func(t *testing.T) {
			windows := map[string]usage.Window{}
			for i := range 5000 {
				pod := fmt.Sprintf("%0*d", tc.length, i)
				at := now().Add(time.Nanosecond)
				windows[pod] = usage.Window{End: at, Usage: 1<<62 + 1, OOM: 1<<62 + resources.Amount(i), Kill: at}
				if tc.length == 253 {
					w := windows[pod]
					w.Kills = slices.Repeat([]uint64{1<<64 - 1}, usage.RememberedKills)
					windows[pod] = w
				}
			}
			raw, err := encodeWindows(windows)
			require.NoError(t, err)
			text := encodeAnnotation(nil, raw, nil, now())
			c := &vpav1.VerticalPodAutoscalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{OpenWindows: text}}}
			require.Less(t, len(text), maxWindowBytes)
			require.NoError(t, validation.ValidateAnnotationsSize(c.Annotations))
			kept, _, err := read(text, now())
			require.NoError(t, err)
			require.LessOrEqual(t, len(kept), maxWindows)
			require.Greater(t, len(kept), 250)
			for i := range len(kept) {
				require.Contains(t, kept, fmt.Sprintf("%0*d", tc.length, 4999-i))
			}
		})
	}
}

// The API server refuses an object with more than 256 KiB of annotations, so the histograms would
// be lost as well.
func TestNewRecord_DropsSketchWithoutRoom(t *testing.T) {
	windows := map[string]usage.Window{}
	for i := range 1000 {
		windows[fmt.Sprintf("%050d", i)] = usage.Window{End: now(), Usage: 1 << 62, OOM: 1 << 62}
	}
	for size, left := range map[int]error{0: nil, 80 << 10: nil, 150 << 10: ErrSketch, 1 << 20: ErrSketch} {
		r, err := NewRecord(Owner{"ns", "web"}, "a", Content{Windows: windows, Sketch: make([]byte, size)}, now())
		require.NoError(t, err)
		require.Equal(t, left, r.DropErr, size)
		require.NoError(t, validation.ValidateAnnotationsSize(r.Object().Annotations), size)
		kept, sketch, err := read(r.windows, now())
		require.NoError(t, err)
		require.Greater(t, len(kept), 400)
		require.Equal(t, left == nil && size > 0, len(sketch) > 0, size)
	}
}

func TestDecode_MalformedAnnotationNamesField(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{name: "empty", want: "unexpected end of JSON input"},
		{name: "list", text: `[]`, want: "cannot unmarshal array"},
		{name: "truncated object", text: `{"windows":`, want: "unexpected end"},
		{name: "end is no time", text: `{"written":"W","windows":{"p":{"end":"yesterday","usage":1}}}`, want: "yesterday"},
		{name: "negative usage", text: `{"written":"W","windows":{"p":{"end":"2026-03-02T08:00:00Z","usage":-1}}}`,
			want: `window of pod "p": usage is -1, must not be negative`},
		{name: "kill size is a fraction out of range", text: `{"written":"W","windows":{"p":{"end":"2026-03-02T08:00:00Z","oom":1e30}}}`,
			want: "oom"},
		{name: "negative number of kills", text: `{"written":"W","windows":{"p":{"kill":"2026-03-02T08:00:00Z","kills":[-1]}}}`,
			want: "kills"},
		{name: "usage without an end", text: `{"written":"W","windows":{"p":{"usage":5}}}`, want: `window of pod "p": end is`},
		{name: "usage is a string", text: `{"written":"W","windows":{"p":{"end":"0000-01-01T00:00:00Z","usage":"5"}}}`, want: "usage"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := read(strings.ReplaceAll(tc.text, "W", formatTime(now())), now())
			require.ErrorIs(t, err, ErrWindows)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestLoad_ClampsAndReportsFutureTimes(t *testing.T) {
	wrong := object("web", "a", 5)
	year := metav1.NewTime(now().AddDate(1, 0, 0))
	wrong.Status.LastSampleStart = year
	wrong.Status.CPUHistogram.ReferenceTimestamp = year
	wrong.Status.MemoryHistogram.ReferenceTimestamp = year
	wrong.Annotations = map[string]string{OpenWindows: fmt.Sprintf(`{"written":%q,"windows":{"p":{"end":%q,"usage":5,"kill":%q},"q":{"kill":%q,"kills":[7]}}}`,
		formatTime(wrong.Status.LastUpdateTime.Time), formatTime(year.Time), formatTime(year.Time), formatTime(year.Time))}
	right := object("web", "b", 5) // within the allowed skew
	right.Status.LastSampleStart = metav1.NewTime(now().Add(time.Hour))
	right.Status.CPUHistogram.ReferenceTimestamp = metav1.NewTime(now().Add(25 * time.Hour))
	right.Status.MemoryHistogram.ReferenceTimestamp = metav1.NewTime(now().Add(49 * time.Hour))
	right.Annotations = map[string]string{OpenWindows: fmt.Sprintf(`{"written":%q,"windows":{"p":{"end":%q,"usage":5,"kill":%q}}}`,
		formatTime(right.Status.LastUpdateTime.Time), formatTime(now().Add(25*time.Hour)), formatTime(now().Add(time.Hour)))}
	b := newFakeServer(wrong, right)
	said := map[string]string{}
	loader := Loader{Client: b.client, Shape: shape(), MaxSkew: MaxSkew{Sample: time.Hour, CPU: 25 * time.Hour, Memory: 49 * time.Hour, Window: 25 * time.Hour}}
	history, problems, err := loader.Load(t.Context(), all, now())
	require.NoError(t, err)
	for _, p := range problems {
		require.ErrorIs(t, p.Err, ErrFuture)
		said[p.Object] = p.Err.Error()
	}
	require.Len(t, said, 1)
	for _, field := range []string{"status.lastSampleStart", "status.cpuHistogram.referenceTimestamp", "status.memoryHistogram.referenceTimestamp", OpenWindows} {
		require.Contains(t, said["ns/web-a"], field)
	}
	past := history[Owner{"ns", "web"}]["a"]
	require.True(t, past.Profile.Last().Equal(now()))
	require.True(t, past.Windows["p"].End.Equal(now()))
	require.Zero(t, past.Windows["p"].Kill)
	require.Equal(t, now(), past.Windows["q"].Kill, "its ID is known")
	require.Equal(t, []uint64{7}, past.Windows["q"].Kills)
	past = history[Owner{"ns", "web"}]["b"]
	require.True(t, past.Profile.Last().Equal(now().Add(time.Hour)))
	require.True(t, past.Windows["p"].End.Equal(now().Add(25*time.Hour)))
	require.True(t, past.Windows["p"].Kill.Equal(now().Add(time.Hour)))
	past = history[Owner{"ns", "web"}]["a"]
	// New samples count again.
	for i := range 60 * 24 * 3 {
		past.Profile.AddCPU(9, now().Add(time.Duration(i)*time.Minute))
	}
	require.Greater(t, past.Profile.CPU.Quantile(0.1), 8.0)
}

func TestLoad_KeepsTimesWithoutMaxSkew(t *testing.T) {
	year := now().AddDate(1, 0, 0)
	o := object("web", "a", 5)
	o.Status.LastSampleStart = metav1.NewTime(year)
	o.Annotations = map[string]string{OpenWindows: fmt.Sprintf(`{"written":%q,"windows":{"p":{"end":%q,"usage":5,"kill":%q}}}`,
		formatTime(o.Status.LastUpdateTime.Time), formatTime(year), formatTime(year))}
	past, err := (&Loader{Shape: shape()}).read(o, now())
	require.NoError(t, err)
	require.True(t, past.Profile.Last().Equal(year))
	require.True(t, past.Windows["p"].End.Equal(year))
	require.True(t, past.Windows["p"].Kill.Equal(year))
}
