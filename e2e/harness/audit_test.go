package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	statusLine = `{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:serviceaccount:kube-system:vpa-recommender"},` +
		`"objectRef":{"apiGroup":"autoscaling.k8s.io","resource":"verticalpodautoscalers","subresource":"status"},"requestURI":"/a",` +
		`"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","annotations":{"authorization.k8s.io/decision":"allow"}}` + "\n"
	watchLine   = `{"stage":"ResponseStarted","verb":"watch","user":{"username":"system:serviceaccount:kube-system:vpa-updater"},"requestURI":"/b","annotations":{"authorization.k8s.io/decision":"forbid"}}` + "\n"
	foreignLine = `{"verb":"get","user":{"username":"system:admin"},"requestURI":"/c?as=system:serviceaccount:kube-system:vpa-updater"}` + "\n"
)

// Includes a rotated log, and ignores an incomplete line.
func TestRequests_ReadsRotatedLogs(t *testing.T) {
	c := &Cluster{Options: Options{Dir: t.TempDir()}}
	require.Error(t, c.Requests(func(Request) {}), "there is no log")
	logs := filepath.Join(c.Dir, "logs")
	require.NoError(t, os.Mkdir(logs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(logs, "audit-2026-01-02T03-04-05.000.log"), []byte(statusLine+foreignLine), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(logs, "audit.log"), []byte(watchLine+statusLine[:100]), 0o600))
	var got []Request
	require.NoError(t, c.Requests(func(r Request) { got = append(got, r) }))
	require.Len(t, got, 2)
	require.Equal(t, "verticalpodautoscalers/status", got[0].Resource)
	require.True(t, got[0].Complete)
	require.False(t, got[0].Forbidden)
	require.Equal(t, 2026, got[0].At.Year())
	require.Equal(t, "vpa-updater", got[1].Account)
	require.False(t, got[1].Complete)
	require.True(t, got[1].Forbidden)
}

// Ignores dry runs, failed requests and other accounts.
func TestWritten_CountsStoredObjectsOfPrograms(t *testing.T) {
	c := &Cluster{Options: Options{Dir: t.TempDir()}}
	logs := filepath.Join(c.Dir, "logs")
	require.NoError(t, os.Mkdir(logs, 0o755))
	line := func(user, resource, subresource, query string, code int) string {
		return fmt.Sprintf(`{"level":"RequestResponse","user":{"username":"system:serviceaccount:kube-system:%s"},"objectRef":{"resource":%q,"subresource":%q},`+
			`"requestURI":"/a?%s","responseStatus":{"code":%d},"responseObject":{"kind":"Any"}}`+"\n", user, resource, subresource, query, code)
	}
	log := line("vpa-updater", "pods", "resize", "", 200) + line("vpa-updater", "events", "", "", 201) +
		line("other", "pods", "", "", 200) + line("vpa-updater", "pods", "eviction", "", 201) +
		line("vpa-updater", "pods", "", "dryRun=All", 201) + line("vpa-updater", "pods", "resize", "", 409) + statusLine
	require.NoError(t, os.WriteFile(filepath.Join(logs, "audit.log"), []byte(log), 0o600))
	got := map[string]int{}
	require.NoError(t, c.Written(func(account, resource string, bytes int) { got[account+" "+resource] += bytes }))
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Any"}}
	require.Equal(t, map[string]int{"vpa-updater pods": pod.Size(), "vpa-updater events": len(`{"kind":"Any"}`)}, got)
}

func TestPodCreations_SeparatesTimeInWebhooks(t *testing.T) {
	c := &Cluster{Options: Options{Dir: t.TempDir()}}
	logs := filepath.Join(c.Dir, "logs")
	require.NoError(t, os.Mkdir(logs, 0o755))
	line := func(namespace, subresource, annotations string) string {
		return fmt.Sprintf(`{"verb":"create","objectRef":{"resource":"pods","namespace":%q,"subresource":%q},`+
			`"requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","stageTimestamp":"2026-01-02T03:04:06.200000Z","annotations":{%s}}`+"\n", namespace, subresource, annotations)
	}
	log := line("shop", "", `"apiserver.latency.k8s.io/mutating-webhook":"194.5ms"`) + line("shop", "", "") + line("shop", "eviction", "") + line("other", "", "")
	require.NoError(t, os.WriteFile(filepath.Join(logs, "audit.log"), []byte(log), 0o600))
	var got []PodCreation
	require.NoError(t, c.PodCreations("shop", func(p PodCreation) { got = append(got, p) }))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, []PodCreation{{at, 1200 * time.Millisecond, 194500 * time.Microsecond}, {at, 1200 * time.Millisecond, 0}}, got)
}
