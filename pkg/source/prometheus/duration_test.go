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
		d    time.Duration
		want string
	}{
		{7500 * time.Millisecond, "7s500ms"},
		{0, "1ms"},
		{time.Microsecond, "1ms"},
		{90 * time.Second, "1m30s"},
		{8 * 24 * time.Hour, "8d"},
		{1234567 * time.Microsecond, "1s235ms"},
	} {
		got := FormatDuration(tc.d)
		require.Equal(t, tc.want, got)
		d, err := model.ParseDuration(got)
		require.NoError(t, err)
		require.NotZero(t, d)
	}
}

func TestParseDuration_ReadsBothFormats(t *testing.T) {
	for text, want := range map[string]time.Duration{"8d": 8 * 24 * time.Hour, "7.5s": 7500 * time.Millisecond, "1h30m": 90 * time.Minute, "7s500ms": 7500 * time.Millisecond} {
		d, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
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
					_, err := client.Range(t.Context(), Range{Query: query, Times: Times{start, d, 20}}, func(map[string]string, []Point) {}, nil)
					require.NoError(t, err)
				}
			}
		})
	}
}
