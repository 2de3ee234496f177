package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// storing is an API server that counts what it stores of namespace greedy. Each object has 300 KiB.
func storing(t *testing.T) (config *rest.Config, stored *atomic.Int64) {
	t.Helper()
	stored = &atomic.Int64{}
	answer := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"a":"` + strings.Repeat("x", 300<<10) + `"}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.Contains(r.URL.Path, "/greedy/") && r.Method != http.MethodGet {
			stored.Add(int64(len(answer)))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}, stored
}

// A tenant cannot make the programs fill etcd, however often its objects change, and nobody else is limited.
func TestLimitWrites_BoundsWhatANamespaceStores(t *testing.T) {
	var total int64
	for _, limit := range []WriteLimit{RecommenderWrites, UpdaterWrites} {
		config, stored := storing(t)
		LimitWrites(config, limit)
		first, err := New(config)
		require.NoError(t, err)
		second, err := New(config)
		require.NoError(t, err)
		refused := 0
		for i := range 200 {
			clients := []*Clients{first, second}[i%2]
			_, err = clients.Kube.CoreV1().Pods("greedy").Patch(t.Context(), "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			if err != nil {
				require.True(t, apierrors.IsTooManyRequests(err), err)
				require.ErrorContains(t, err, "writes for namespace greedy exceed the limit")
				refused++
			}
		}
		require.Positive(t, refused)
		require.LessOrEqual(t, stored.Load(), int64(limit.Burst+limit.Refill))
		require.GreaterOrEqual(t, stored.Load(), int64(limit.Burst)*9/10, "the limit is used")
		total += int64(limit.Burst + limit.Refill)

		_, err = first.Kube.CoreV1().Pods("greedy").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err, "reads are free")
		_, err = first.Kube.CoreV1().Pods("shop").Patch(t.Context(), "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		require.NoError(t, err, "other namespaces have their own limit")
		_, err = first.Kube.CoreV1().Pods("greedy").Patch(Unlimited(t.Context()), "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		require.NoError(t, err, "a revert is not delayed")
		_, err = first.Kube.CoreV1().Secrets("greedy").Patch(t.Context(), "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		require.False(t, apierrors.IsTooManyRequests(err), "objects of the programs are not limited")
		_, err = first.Kube.CoreV1().Pods("greedy").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.True(t, apierrors.IsTooManyRequests(err), "no eviction begins")
	}
	require.LessOrEqual(t, total, int64(64<<20))
}

func TestWriteBudget_RefillsInTheWindow(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	b := &writeBudget{limit: WriteLimit{Burst: 1 << 20, Refill: 1 << 20, Window: 10 * time.Minute}, now: func() time.Time { return now }, namespaces: map[string]*namespaceBudget{}}
	write := func() bool {
		reserved, ok := b.reserve("shop", false)
		if ok {
			b.settle("shop", reserved, 512<<10)
		}
		return ok
	}
	require.True(t, write())
	require.True(t, write())
	require.False(t, write())
	now = now.Add(5 * time.Minute)
	require.True(t, write(), "half of the limit is back")
	require.False(t, write())
	reserved, ok := b.reserve("shop", true)
	require.True(t, ok)
	b.settle("shop", reserved, 512<<10)
	now = now.Add(5 * time.Minute)
	require.False(t, write(), "what nothing delays counts")
	now = now.Add(time.Hour)
	require.True(t, write())
	require.True(t, write())
	require.False(t, write(), "no more than the burst is saved")
}
