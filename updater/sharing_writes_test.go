package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/testkit"
)

// Shrinking a pod takes a mark and a resize, growing one takes a resize, and only the first share
// of a pod emits an event. Nothing else is written, so write load follows the number of moved
// shares (lab/docs/scale.md).
func TestShare_WritesPerMovedPod(t *testing.T) {
	r := newSharing(t, 4, sharingOnPolicy())
	moved := func(want string, after time.Duration) (writes []string, events int) {
		t.Helper()
		r.kube.ClearActions()
		r.vpa.ClearActions()
		r.drainEvents()
		require.Equal(t, want, r.runAt(after))
		require.LessOrEqual(t, len(testkit.Writes(r.vpa.Actions()...)), 1, "the condition of the policy, if the number of pods is another one")
		return r.writes(), len(r.drainEvents())
	}
	writes, events := moved("725m 725m 725m 725m", 0)
	require.Len(t, writes, 8, "four shrink")
	require.Equal(t, 4, events)

	writes, events = moved("725m 725m 725m 725m", 5*time.Minute)
	require.Empty(t, writes, "a round that finds the same")
	require.Zero(t, events)

	require.NoError(t, r.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-1-3", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { _, err := r.loop.reader.Pods.Pods("shop").Get("web-1-3"); return err != nil }, time.Minute, time.Millisecond)
	writes, events = moved("800m 800m 800m", 10*time.Minute)
	require.Equal(t, []string{"patch pods resize", "patch pods resize", "patch pods resize"}, writes, "three grow")
	require.Zero(t, events)

	r.arrive("web-1-3")
	writes, events = moved("725m 725m 725m 725m", 15*time.Minute)
	require.Len(t, writes, 8, "four shrink")
	require.Equal(t, 1, events, "of the one that came")

	r.edit(sharingOff)
	writes, events = moved("1400m 1400m 1400m 1400m", 20*time.Minute)
	require.Len(t, writes, 4)
	require.Equal(t, 4, events, "one per pod")
	_, events = moved("1400m 1400m 1400m 1400m", 21*time.Minute)
	require.Zero(t, events, "the round may continue")
	_, events = moved("1400m 1400m 1400m 1400m", 22*time.Minute)
	require.Equal(t, 2, events, "the counts, on VPA and policy")
}
