package client

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// pages is a log that can be read while it is written.
type pages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pages) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *pages) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func TestOptional_LogsForbiddenOnceAndRetries(t *testing.T) {
	kube := fake.NewClientset(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "", nil)
	var mu sync.Mutex
	answers := []error{errors.New("etcd is away"), forbidden, errors.New("etcd is away"), forbidden}
	kube.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) == 0 {
			return false, nil, nil
		}
		err := answers[0]
		answers = answers[1:]
		return true, nil, err
	})
	quotas := Factory(kube, "", time.Hour, "").Core().V1().ResourceQuotas()
	require.NoError(t, Optional(quotas.Informer(), time.Millisecond, "Quotas are not asked"))
	log := &pages{}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))))
	ended := make(chan struct{})
	go func() { defer close(ended); quotas.Informer().RunWithContext(ctx) }()
	require.Eventually(t, quotas.Informer().HasSynced, time.Minute, time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "Quotas are not asked"), log.String())
	require.Equal(t, 1, strings.Count(log.String(), "is forbidden"), "nor does the client library say it")
	require.Contains(t, log.String(), "etcd is away", "other errors are not hidden")
	stop()
	<-ended
}

func TestOptional_ForbiddenInformerStopsImmediately(t *testing.T) {
	kube := fake.NewClientset()
	asked := make(chan struct{}, 10)
	kube.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "", nil)
	})
	f := Factory(kube, "", time.Hour, "")
	require.NoError(t, Optional(f.Core().V1().ResourceQuotas().Informer(), 0, "Quotas are not asked"))
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	<-asked
	stop()
	f.Shutdown()
}

// After a permission is revoked, the cached objects may be outdated.
func TestOptional_RevokedPermissionUnsyncsInformer(t *testing.T) {
	kube := fake.NewClientset(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}})
	var revoked atomic.Bool
	var open []*watch.FakeWatcher
	var mu sync.Mutex
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	}
	for _, resource := range []string{"resourcequotas", "nodes", "poddisruptionbudgets"} {
		kube.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return revoked.Load(), nil, forbidden(resource)
		})
		kube.PrependWatchReactor(resource, func(clienttesting.Action) (bool, watch.Interface, error) {
			if revoked.Load() {
				return true, nil, forbidden(resource)
			}
			mu.Lock()
			defer mu.Unlock()
			w := watch.NewFake()
			open = append(open, w)
			return true, w, nil
		})
	}
	f := Factory(kube, "", time.Hour, "")
	f.(*factory).gracePeriod = time.Nanosecond
	informers := []cache.SharedIndexInformer{f.Core().V1().ResourceQuotas().Informer(), f.Core().V1().Nodes().Informer(), f.Policy().V1().PodDisruptionBudgets().Informer()}
	for _, informer := range informers {
		require.NoError(t, Optional(informer, time.Millisecond, "They are not asked"))
	}
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	defer f.Shutdown()
	defer stop()
	all := func(known bool) func() bool {
		return func() bool {
			return !slices.ContainsFunc(informers, func(i cache.SharedIndexInformer) bool { return i.HasSynced() != known })
		}
	}
	require.Eventually(t, all(true), time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(open) == 3 }, time.Minute, time.Millisecond)
	revoked.Store(true)
	mu.Lock()
	for _, w := range open {
		w.Stop()
	}
	mu.Unlock()
	require.Eventually(t, all(false), time.Minute, time.Millisecond)
	revoked.Store(false)
	require.Eventually(t, all(true), time.Minute, time.Millisecond)
}

// A 403 may last only for seconds while roles are replaced.
func TestOptional_RetriesForbiddenWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		began := time.Now()
		var asked []time.Duration
		kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked = append(asked, time.Since(began))
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
		})
		nodes := Factory(kube, "", time.Hour, "").Core().V1().Nodes().Informer()
		require.NoError(t, Optional(nodes, 0, "Nodes are not asked"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); nodes.RunWithContext(ctx) }()
		time.Sleep(2 * time.Hour)
		stop()
		<-ended
		const own = time.Minute // the client library adds its own backoff
		require.Less(t, asked[1]-asked[0], RetryForbidden+own)
		require.GreaterOrEqual(t, asked[1]-asked[0], RetryForbidden)
		require.GreaterOrEqual(t, asked[2]-asked[1], 2*RetryForbidden)
		last := len(asked) - 1
		require.GreaterOrEqual(t, asked[last]-asked[last-1], 5*time.Minute)
		require.Less(t, asked[last]-asked[last-1], 5*time.Minute+own)
	})
}

type filled struct{ cache.SharedIndexInformer }

func (filled) HasSynced() bool { return true }

// A starting API server or a replaced role can forbid access for some seconds.
func TestOptional_ToleratesShortForbiddenPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &optionalInformer{SharedIndexInformer: filled{}, gracePeriod: forbiddenGracePeriod}
		for range 3 {
			g.recordError(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil))
			require.True(t, g.HasSynced())
			time.Sleep(forbiddenGracePeriod / 3)
		}
		require.False(t, g.HasSynced(), "since the first of them")
		g.recordList()
		require.True(t, g.HasSynced())
	})
}

func TestOptional_StreamedListEndsWithBookmark(t *testing.T) {
	g := &optionalInformer{}
	g.recordError(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil))
	source := watch.NewFakeWithChanSize(3, false)
	asks := g.wrap(&cache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return source, nil }})
	w, err := asks.WatchFuncWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	require.NoError(t, err)
	defer w.Stop()
	source.Add(&corev1.Node{})
	source.Action(watch.Bookmark, &corev1.Node{})
	<-w.ResultChan()
	<-w.ResultChan()
	require.NotZero(t, g.forbiddenSince.Load())
	source.Action(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	<-w.ResultChan()
	require.Zero(t, g.forbiddenSince.Load())
}
