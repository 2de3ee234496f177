package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// limitedServer is an API server that counts the bytes stored in namespace greedy.
type limitedServer struct {
	*WriteLimiter
	clients *Clients
	other   *Clients // shares the limit of clients
	size    atomic.Int64
	stored  atomic.Int64
	now     time.Time
}

func newLimitedServer(t *testing.T, limit WriteLimit, size int64) *limitedServer {
	t.Helper()
	s := &limitedServer{now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	s.size.Store(size)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"a":""}}}`
		if strings.Contains(r.URL.Path, "/autoscaling.k8s.io/") {
			answer = strings.Replace(answer, `"v1","kind":"Pod"`, `"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler"`, 1)
		}
		answer = strings.Replace(answer, `"a":""`, `"a":"`+strings.Repeat("x", max(int(s.size.Load())-len(answer), 0))+`"`, 1)
		if strings.Contains(r.URL.Path, "/greedy/") && r.Method != http.MethodGet {
			s.stored.Add(int64(len(answer)))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	s.WriteLimiter = NewWriteLimiter(limit, prometheus.NewRegistry())
	s.WriteLimiter.now = func() time.Time { return s.now }
	s.Limit(config)
	var err error
	s.clients, err = New(config)
	require.NoError(t, err)
	s.other, err = New(config)
	require.NoError(t, err)
	return s
}

func (s *limitedServer) patchPod(ctx context.Context, namespace string) error {
	_, err := s.clients.Kube.CoreV1().Pods(namespace).Patch(ctx, "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	return err
}

func (s *limitedServer) patchStatus(ctx context.Context, name string) error {
	_, err := s.clients.VPA.AutoscalingV1().VerticalPodAutoscalers("greedy").
		Patch(ctx, name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
	return err
}

func (s *limitedServer) run(pods int) {
	for i := range pods {
		s.countPod(nil, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: fmt.Sprint(i)}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
}

// A tenant cannot make the programs fill etcd, however often its objects change.
func TestWriteLimiter_BoundsBytesOfNamespace(t *testing.T) {
	var total int64
	for _, limit := range []WriteLimit{RecommenderWrites, UpdaterWrites} {
		s := newLimitedServer(t, limit, 300<<10)
		refused := 0
		for minute := range 10 {
			s.now = s.now.Add(time.Minute)
			for i := range 40 {
				clients := []*Clients{s.clients, s.other}[i%2]
				_, err := clients.Kube.CoreV1().Pods("greedy").Patch(t.Context(), "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
				if err != nil {
					require.True(t, IsWriteLimited(err), err)
					require.True(t, apierrors.IsTooManyRequests(err), err)
					require.ErrorContains(t, err, fmt.Sprintf("namespace greedy used its write limit (burst %d MiB, %d MiB per 10m0s)", limit.Burst>>20, limit.Refill>>20))
					refused++
				}
			}
			for range 10 * minute { // use the reserve as well
				_ = s.patchPod(Urgent(t.Context()), "greedy")
			}
		}
		require.Positive(t, refused)
		require.LessOrEqual(t, s.stored.Load(), int64(limit.Burst+limit.Refill))
		require.GreaterOrEqual(t, s.stored.Load(), int64(limit.Burst)*9/10, "the limit is used")
		require.GreaterOrEqual(t, testutil.ToFloat64(s.refused.WithLabelValues("pods")), float64(refused))
		total += int64(limit.Burst + limit.Refill)

		_, err := s.clients.Kube.CoreV1().Pods("greedy").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err, "reads are free")
		require.NoError(t, s.patchPod(t.Context(), "shop"), "other namespaces have their own limit")
		require.NoError(t, s.patchPod(Unlimited(t.Context()), "greedy"), "a revert is not delayed")
		require.NoError(t, s.patchPod(Urgent(Unlimited(t.Context())), "greedy"), "a revert is not delayed")
		_, err = s.clients.Kube.CoreV1().Secrets("greedy").Patch(t.Context(), "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		require.False(t, apierrors.IsTooManyRequests(err), "objects of the programs are not limited")
		_, err = s.clients.Kube.CoreV1().Pods("greedy").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.True(t, IsWriteLimited(err), "no eviction begins")
	}
	require.LessOrEqual(t, total, int64(64<<20))
}

// Frequent status updates of 10 VPAs with 300 containers cannot fill etcd while the namespace has
// few pods.
func TestWriteLimiter_BoundsStatusesOfFewPods(t *testing.T) {
	s := newLimitedServer(t, RecommenderWrites, 120<<10)
	s.run(3)
	refused := 0
	for range 60 {
		s.now = s.now.Add(10 * time.Second)
		for i := range 10 {
			if err := s.patchStatus(t.Context(), fmt.Sprint("vpa-", i)); err != nil {
				require.True(t, IsWriteLimited(err), err)
				refused++
			}
		}
	}
	require.Positive(t, refused)
	require.LessOrEqual(t, s.stored.Load(), int64(RecommenderWrites.Burst+RecommenderWrites.Refill))
}

func TestWriteLimiter_NeverLimitsALargeNamespace(t *testing.T) {
	const vpaCount, podCount, minutes = 5000, 10000, 20
	for _, tc := range []struct {
		name   string
		limit  WriteLimit
		writes map[string]int // objects by resource, each written once in ten minutes
		sizes  map[string]int
	}{
		{
			name: "recommender", limit: RecommenderWrites,
			writes: map[string]int{vpas: vpaCount, "verticalpodautoscalercheckpoints": 3 * vpaCount},
			sizes:  map[string]int{vpas: 10 << 10, "verticalpodautoscalercheckpoints": 6 << 10},
		},
		{
			name: "updater", limit: UpdaterWrites,
			writes: map[string]int{"pods": 3 * podCount, "sizingrecords": vpaCount, "events": podCount}, // annotation, resize and mark
			sizes:  map[string]int{"pods": 10 << 10, "sizingrecords": 4 << 10, "events": 1 << 10},
		},
	} {
		for _, spread := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s spread=%t", tc.name, spread), func(t *testing.T) {
				now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
				l := NewWriteLimiter(tc.limit, prometheus.NewRegistry())
				l.now = func() time.Time { return now }
				(&limitedServer{WriteLimiter: l}).run(podCount)
				for minute := range minutes {
					now = now.Add(time.Minute)
					for resource, objects := range tc.writes {
						part := objects / 10
						if !spread { // all in the first of ten minutes, up to the burst
							part = objects / 2
							if minute%5 != 0 {
								continue
							}
						}
						for i := range part {
							w := write{namespace: "greedy", resource: resource, name: fmt.Sprint(i), copies: 1}
							reserved, refusal := l.reserve(w, ordinary)
							require.Empty(t, refusal, "minute %d, %s %d", minute, resource, i)
							l.settle(w, ordinary, reserved, tc.sizes[resource])
						}
					}
				}
			})
		}
	}
}

// Writes that protect pods from harm pass while other writes are refused.
func TestWriteLimiter_ReservesPartForUrgentWrites(t *testing.T) {
	s := newLimitedServer(t, UpdaterWrites, 8<<10)
	for s.patchPod(t.Context(), "greedy") == nil {
	}
	for range 200 {
		require.NoError(t, s.patchPod(Urgent(t.Context()), "greedy"))
	}
	require.True(t, IsWriteLimited(s.patchPod(t.Context(), "greedy")))
}

// A user can repeatedly write forged annotations on many pods. Their removal must not use the
// budget that grows with the number of pods.
func TestWriteLimiter_BoundsCleanupRegardlessOfPods(t *testing.T) {
	s := newLimitedServer(t, UpdaterWrites, 8<<10)
	s.run(10000)
	for range 10 {
		for s.patchPod(Cleanup(t.Context()), "greedy") == nil {
		}
		s.now = s.now.Add(time.Minute)
	}
	require.Greater(t, s.stored.Load(), int64(UpdaterWrites.Refill))
	require.LessOrEqual(t, s.stored.Load(), int64(UpdaterWrites.Burst+UpdaterWrites.Refill))
	for range 5000 {
		require.NoError(t, s.patchPod(t.Context(), "greedy"), "changes of many pods go on")
	}
	require.NoError(t, s.patchPod(Cleanup(Urgent(t.Context())), "greedy"))
}

func TestWriteLimiter_RecoversAfterLargeObject(t *testing.T) {
	s := newLimitedServer(t, UpdaterWrites, 1<<20)
	require.NoError(t, s.patchPod(t.Context(), "greedy"))
	s.size.Store(8 << 10)
	for range 100 {
		require.NoError(t, s.patchPod(t.Context(), "greedy"))
	}
	require.Less(t, s.namespaces["greedy"].expected, 10<<10)
}

func TestWriteLimiter_WritesLargeVPARarely(t *testing.T) {
	s := newLimitedServer(t, RecommenderWrites, 1<<20)
	require.NoError(t, s.patchStatus(t.Context(), "large"))
	s.now = s.now.Add(9 * time.Minute)
	err := s.patchStatus(t.Context(), "large")
	require.True(t, IsWriteLimited(err), err)
	require.ErrorContains(t, err, "VPA greedy/large exceeds 256 KiB")
	require.NoError(t, s.patchStatus(Urgent(t.Context()), "large"))
	s.size.Store(8 << 10)
	require.NoError(t, s.patchStatus(t.Context(), "small"))
	s.now = s.now.Add(time.Minute)
	require.True(t, IsWriteLimited(s.patchStatus(t.Context(), "large")), "the urgent write counts")
	s.now = s.now.Add(9 * time.Minute)
	require.NoError(t, s.patchStatus(t.Context(), "large"))
	require.NoError(t, s.patchStatus(t.Context(), "large"), "it is small now")
}

func TestWriteLimiter_RefillsWithinWindow(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	limit := WriteLimit{Burst: 1 << 20, Refill: 1 << 20, Window: 10 * time.Minute}
	l := NewWriteLimiter(limit, prometheus.NewRegistry())
	l.now = func() time.Time { return now }
	attempt := func(p priority) bool {
		w := write{namespace: "shop", resource: "pods", name: "web", copies: 1}
		reserved, refusal := l.reserve(w, p)
		if refusal == "" {
			l.settle(w, ordinary, reserved, 256<<10)
		}
		return refusal == ""
	}
	require.True(t, attempt(ordinary))
	require.True(t, attempt(ordinary))
	require.True(t, attempt(ordinary))
	require.False(t, attempt(ordinary), "the rest is reserved")
	require.True(t, attempt(urgent))
	require.False(t, attempt(urgent))
	require.True(t, attempt(unlimited))
	now = now.Add(5 * time.Minute)
	require.False(t, attempt(ordinary), "unlimited writes count")
	require.True(t, attempt(urgent))
	now = now.Add(time.Hour)
	require.True(t, attempt(ordinary))
	require.True(t, attempt(ordinary))
	require.True(t, attempt(ordinary))
	require.False(t, attempt(ordinary), "no more than the burst is saved")
}

func TestWriteLimiter_CountsRunningPods(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	}
	kube := fake.NewClientset(pod("a", corev1.PodRunning), pod("b", corev1.PodPending))
	factory := informers.NewSharedInformerFactory(kube, 0)
	l := NewWriteLimiter(UpdaterWrites, prometheus.NewRegistry())
	require.NoError(t, l.WatchPods(factory.Core().V1().Pods().Informer()))
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	pods := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool { return l.RunningPods("shop") == want }, 10*time.Second, time.Millisecond)
	}
	pods(1)
	_, err := kube.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod("b", corev1.PodRunning), metav1.UpdateOptions{})
	require.NoError(t, err)
	pods(2)
	_, err = kube.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod("b", corev1.PodSucceeded), metav1.UpdateOptions{})
	require.NoError(t, err)
	pods(1)
	require.NoError(t, kube.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	pods(0)
}
