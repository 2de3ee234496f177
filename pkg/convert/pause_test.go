package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

func TestParseBackoff_RoundTrips(t *testing.T) {
	read := func(text string) disruption.Backoff {
		return ParseBackoff(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{BackoffAnnotation: text}}})
	}
	p := disruption.Backoff{Ineffective: 3, Until: time.Date(2026, 1, 2, 13, 0, 0, 0, time.UTC)}
	require.Equal(t, "3 until 2026-01-02T13:00:00Z", FormatBackoff(p))
	require.Equal(t, p, read(FormatBackoff(p)))
	for _, text := range []string{"", "3", "3 until", "3 until tomorrow", "many until 2026-01-02T13:00:00Z", "0 until 2026-01-02T13:00:00Z", "-1 until 2026-01-02T13:00:00Z"} {
		require.Zero(t, read(text), text)
	}
	require.Zero(t, ParseBackoff(&corev1.Pod{}))
}
