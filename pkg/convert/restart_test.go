package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

func TestParseRestart_RoundTrips(t *testing.T) {
	read := func(text string) disruption.Restart {
		return ParseRestart(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{RestartAnnotation: text}}})
	}
	r := disruption.Restart{At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Count: 3}
	require.Equal(t, "2026-01-02T12:00:00Z after 3", FormatRestart(r))
	require.Equal(t, r, read(FormatRestart(r)))
	for _, text := range []string{"", "2026-01-02T12:00:00Z", "yesterday after 3", "2026-01-02T12:00:00Z after many", "2026-01-02T12:00:00Z after -1"} {
		require.Zero(t, read(text), text)
	}
	require.Equal(t, 3, RestartCount(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 1}, {RestartCount: 2}}}}))
}
