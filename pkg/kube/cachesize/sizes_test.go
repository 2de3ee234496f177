package cachesize

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestSizes_ReportsLargestNamespaces(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	registry := prometheus.NewRegistry()
	s := New(registry)
	s.now = func() time.Time { return now }
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	s.Add("pods", store)
	s.Add("pods", store)
	s.Add("nodes", cache.NewStore(cache.MetaNamespaceKeyFunc))
	for i := range 12 {
		require.NoError(t, store.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("n-%02d", i), Name: strings.Repeat("x", 100*i)}}))
	}
	served := func() (u Report) {
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, httptest.NewRequest("GET", Path, nil))
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &u))
		return u
	}
	u := served()
	require.Len(t, u.Namespaces, 10)
	require.Equal(t, "n-11", u.Namespaces[0].Name)
	require.Equal(t, map[string]int{"pods": 12}, u.Objects)
	require.Equal(t, 2, testutil.CollectAndCount(s, "loadline_cache_bytes"), "an empty cache is shown, too")

	require.NoError(t, store.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "large", Name: "x", Labels: map[string]string{"a": strings.Repeat("x", 100_000)}}}))
	require.Equal(t, u, served(), "a scrape does not read all objects each time")
	now = now.Add(measureInterval)
	require.Equal(t, "large", served().Namespaces[0].Name)
	require.Greater(t, served().Bytes["pods"], u.Bytes["pods"]+100_000)
}
