package convert

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

func TestParseShared_RoundTrips(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		text string
		mark sharing.Mark
	}{
		{name: "CPU with time and restarts", text: "cpu at 2026-01-02T12:00:00Z after 3",
			mark: sharing.Mark{Kinds: [resources.Kinds]bool{resources.CPU: true}, At: at, Restarts: 3}},
		{name: "CPU", text: "cpu", mark: sharing.Mark{Kinds: [resources.Kinds]bool{resources.CPU: true}}},
		{name: "CPU and memory", text: "cpu,memory", mark: sharing.Mark{Kinds: [resources.Kinds]bool{true, true}}},
		{name: "CPU and memory with time", text: "cpu,memory at 2026-01-02T12:00:00Z after 0",
			mark: sharing.Mark{Kinds: [resources.Kinds]bool{true, true}, At: at}},
		{name: "reverted memory", text: "memory at 2026-01-02T12:00:00Z after 12 reverted",
			mark: sharing.Mark{Kinds: [resources.Kinds]bool{resources.Memory: true}, At: at, Restarts: 12, Reverted: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.text, FormatShared(tc.mark))
			pod := &corev1.Pod{}
			pod.Annotations = map[string]string{SharedAnnotation: tc.text}
			got, marked := ParseShared(pod)
			require.True(t, marked)
			require.Equal(t, tc.mark, got)
		})
	}
	_, marked := ParseShared(&corev1.Pod{})
	require.False(t, marked)
}

func TestParseShared_InvalidMeansAllResources(t *testing.T) {
	for _, text := range []string{"", "true", "gpu", "cpu,", "cpu at noon after 3", "cpu at 2026-01-02T12:00:00Z", "cpu at 2026-01-02T12:00:00Z after -1", "gpu at 2026-01-02T12:00:00Z after 1",
		"cpu at 2026-01-02T12:00:00Z after 1 " + strings.Repeat(" ", 100)} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{SharedAnnotation: text}
		got, marked := ParseShared(pod)
		require.True(t, marked, text)
		require.Equal(t, sharing.Mark{Kinds: [resources.Kinds]bool{true, true}}, got, text)
	}
}
