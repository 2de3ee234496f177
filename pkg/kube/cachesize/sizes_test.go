package cachesize

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestSizes_ReportsLargestNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := New(prometheus.NewRegistry()), cache.NewStore(cache.MetaNamespaceKeyFunc)
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
		require.Empty(t, served().Bytes, "a request measures nothing")
		ctx, stop := context.WithCancel(t.Context())
		go s.Run(ctx)
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		wait(firstInterval)
		u := served()
		require.Len(t, u.Namespaces, 10)
		require.Equal(t, "n-11", u.Namespaces[0].Name)
		require.Equal(t, map[string]int{"pods": 12}, u.Objects)
		require.Equal(t, 2, testutil.CollectAndCount(s, "loadline_cache_bytes"), "an empty cache is shown, too")

		require.NoError(t, store.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "large", Name: "x", Labels: map[string]string{"a": strings.Repeat("x", 100_000)}}}))
		wait(firstInterval)
		require.Equal(t, u, served(), "all objects are read every two minutes")
		wait(measureInterval)
		require.Equal(t, "large", served().Namespaces[0].Name)
		require.Greater(t, served().Bytes["pods"], u.Bytes["pods"]+100_000)

		s.Add("jobs", cache.NewStore(cache.MetaNamespaceKeyFunc))
		wait(firstInterval)
		require.Contains(t, served().Bytes, "jobs")
		stop() // ends Run
	})
}

type blocking struct {
	cache.Store
	release chan struct{}
}

func (b blocking) List() []any {
	<-b.release
	return nil
}

func TestSizes_ScrapesDoNotWaitForMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := New(prometheus.NewRegistry()), make(chan struct{})
		s.Add("pods", blocking{release: release})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.Run(ctx)
		time.Sleep(firstInterval)
		synctest.Wait()
		require.Zero(t, testutil.CollectAndCount(s, "loadline_cache_bytes"))
		close(release)
		synctest.Wait()
		require.Equal(t, 1, testutil.CollectAndCount(s, "loadline_cache_bytes"))
	})
}
