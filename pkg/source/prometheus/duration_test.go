package prometheus

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestFormatDuration_IsValidForPrometheus(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    time.Duration
		want string
	}{
		{name: "seconds and milliseconds", d: 7500 * time.Millisecond, want: "7s500ms"},
		{name: "zero", d: 0, want: "1ms"},
		{name: "below a millisecond", d: time.Microsecond, want: "1ms"},
		{name: "minutes and seconds", d: 90 * time.Second, want: "1m30s"},
		{name: "days", d: 8 * 24 * time.Hour, want: "8d"},
		{name: "rounded to milliseconds", d: 1234567 * time.Microsecond, want: "1s235ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := FormatDuration(tc.d)
			require.Equal(t, tc.want, got)
			d, err := model.ParseDuration(got)
			require.NoError(t, err)
			require.NotZero(t, d)
		})
	}
}

func TestParseDuration_ReadsBothFormats(t *testing.T) {
	for _, tc := range []struct {
		name string
		text string
		want time.Duration
	}{
		{name: "days", text: "8d", want: 8 * 24 * time.Hour},
		{name: "fraction of a second", text: "7.5s", want: 7500 * time.Millisecond},
		{name: "hours and minutes", text: "1h30m", want: 90 * time.Minute},
		{name: "seconds and milliseconds", text: "7s500ms", want: 7500 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := ParseDuration(tc.text)
			require.NoError(t, err)
			require.Equal(t, tc.want, d)
		})
	}
	_, err := ParseDuration("soon")
	require.Error(t, err)
}

// Each duration that a flag accepts yields requests that Prometheus accepts. The test server
// rejects invalid ones.
func TestClient_SendsValidDurations(t *testing.T) {
	for _, d := range []time.Duration{7500 * time.Millisecond, 1001 * time.Millisecond, 1000400 * time.Microsecond, 90 * time.Second, 36 * time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			client, _ := serve(t, Config{Timeout: d}, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(matrix("")))
			})
			for k := range resources.Kind(resources.Kinds) {
				u := hour().Usage
				for _, query := range []string{u.Query(k, d), u.Peak(d), u.Throttled(d)} {
					asked := Range{Query: query, Times: Times{Start: start, Step: d, Count: 20}}
					_, err := client.Range(t.Context(), asked, func(map[string]string, []Point) {}, nil)
					require.NoError(t, err)
				}
			}
		})
	}
}
