package target

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"loadline.dev/loadline/pkg/kube/client"
)

// Users who create pods can name any number of nonexistent owners.
func TestScaleCache_BoundsMissingOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Resolver{scales: newScaleCache(func(_ context.Context, namespace string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			if namespace == "real" {
				return &autoscalingv1.Scale{}, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "rollouts"}, name)
		})}
		r.CacheOnly(func(Key) {}) // enables lookups of the review path
		c := r.scales
		ask := func(namespace string, i int) { _, _ = c.get(t.Context(), rolloutOf(namespace, i)) }
		for i := range 3 * maxReviewErrors {
			ask("greedy", i)
			ask("real", i)
			time.Sleep(time.Millisecond)
		}
		ask("shop", 0)
		c.refresh(t.Context())
		kept := map[string]int{}
		for key := range c.entries {
			kept[key.Namespace]++
		}
		require.Equal(t, map[string]int{"greedy": maxReviewErrors, "real": 3 * maxReviewErrors, "shop": 1}, kept)
		require.Contains(t, c.entries, rolloutOf("greedy", 3*maxReviewErrors-1), "the newest stay")
	})
}

// Users can create thousands of VPAs with nonexistent targets, and the updater looks up all of them
// in each iteration.
func TestScaleCache_BacksOffOnMissingTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets = 1500
		var requests atomic.Int64
		r := &Resolver{scales: newScaleCache(func(_ context.Context, _ string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			requests.Add(1)
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "rollouts"}, name)
		})}
		r.scale = r.scales.get
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { r.Run(ctx, nil) })
		for range 30 {
			for i := range targets {
				_, err := r.Selector(ctx, "greedy", &autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: fmt.Sprint(i)})
				require.ErrorContains(t, err, "not found")
			}
			time.Sleep(time.Minute)
		}
		// Immediately, and after 15 s, 30 s, 1 min, 2 min, 4 min, 8 min and 16 min.
		require.LessOrEqual(t, requests.Load(), int64(8*targets))
	})
}

func rolloutOf(namespace string, i int) Key {
	return Key{Namespace: namespace, Group: "argoproj.io", Kind: "Rollout", Name: fmt.Sprint(i)}
}

// limited is an API server behind a limit of 50 requests a second. Nothing exists in namespace
// greedy.
func limited(_ context.Context, namespace string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
	time.Sleep(20 * time.Millisecond)
	if namespace == "greedy" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "rollouts"}, name)
	}
	return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, nil
}

// Users who write VPAs in one namespace can constantly change their targets.
func TestScaleCache_NewTargetsDoNotUseUpIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScaleCache(limited)
		for pass := range 10 {
			began := time.Now()
			for i := range 3000 {
				asked := time.Now()
				_, err := c.get(t.Context(), rolloutOf("greedy", 3000*pass+i))
				if asked.Sub(began) >= maxFirstWait {
					require.ErrorIs(t, err, ErrNotRead)
				} else {
					require.ErrorContains(t, err, "not found")
				}
			}
			require.LessOrEqual(t, time.Since(began), maxFirstWait+time.Second)
			a, err := c.get(t.Context(), rolloutOf("shop", pass))
			require.NoError(t, err)
			require.EqualValues(t, 3, a.replicas)
			time.Sleep(time.Until(began.Add(time.Minute)))
		}
	})
}

// Several namespaces together cannot use up an iteration either. Lookups that it skips are made
// soon.
func TestScaleCache_SeveralNamespacesDoNotUseUpIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScaleCache(limited)
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		for i := range 1000 {
			for namespace := range 5 {
				_, _ = c.get(ctx, rolloutOf(fmt.Sprint("team-", namespace), i))
			}
		}
		require.LessOrEqual(t, time.Since(began), maxTotalFirstWait+time.Second)
		_, err := c.get(ctx, rolloutOf("shop", 1))
		require.ErrorIs(t, err, ErrNotRead)
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { c.run(ctx, nil) })
		time.Sleep(2 * (maxRoundRequests*20*time.Millisecond + scaleLoop))
		a, err := c.get(ctx, rolloutOf("shop", 1))
		require.NoError(t, err)
		require.EqualValues(t, 3, a.replicas)
	})
}

func TestScaleCache_NewTargetsDelayOtherNamespacesByTenSeconds(t *testing.T) {
	for _, tc := range []struct {
		name       string
		namespaces int
		answer     time.Duration
	}{
		{name: "quick answers, one namespace", namespaces: 1, answer: 20 * time.Millisecond},
		{name: "slow answers, one namespace", namespaces: 1, answer: 2900 * time.Millisecond},
		{name: "no answers, one namespace", namespaces: 1, answer: time.Hour},
		{name: "slow answers, several namespaces", namespaces: 5, answer: 2900 * time.Millisecond},
		{name: "no answers, several namespaces", namespaces: 5, answer: time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newScaleCache(func(ctx context.Context, _ string, _ schema.GroupKind, _ string) (*autoscalingv1.Scale, error) {
					select {
					case <-time.After(tc.answer):
						return &autoscalingv1.Scale{}, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				began := time.Now()
				for i := range 1000 {
					_, _ = c.get(t.Context(), rolloutOf(fmt.Sprint("team-", i%tc.namespaces), i))
				}
				require.LessOrEqual(t, time.Since(began), 10*time.Second)
			})
		})
	}
}

// A hanging server answers only one or two requests in each round. Each namespace gets its turn.
func TestScaleCache_HangingServerSkipsNoNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		c := newScaleCache(func(ctx context.Context, namespace string, _ schema.GroupKind, _ string) (*autoscalingv1.Scale, error) {
			asked[namespace]++
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for i := range 100 {
			for _, namespace := range []string{"a", "b", "c", "d"} {
				e, err := c.find(rolloutOf(namespace, i), true)
				require.NoError(t, err)
				e.lastUsed.Store(time.Now().UnixNano())
			}
		}
		for range 8 {
			c.refresh(t.Context())
			time.Sleep(hangPause)
		}
		require.Equal(t, map[string]int{"a": 4, "b": 4, "c": 4, "d": 4}, asked)
	})
}

// A kind with a hanging conversion webhook delays neither an iteration nor the reads of other
// kinds.
func TestScaleCache_HangingKindDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := 0
		c := newScaleCache(func(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			if kind.Kind == "Rollout" {
				return limited(ctx, namespace, kind, name)
			}
			hanging++
			<-ctx.Done()
			return nil, ctx.Err()
		})
		database := func(i int) Key {
			return Key{Namespace: fmt.Sprint("team-", i), Group: "db.example", Kind: "Database", Name: "main"}
		}
		for i := range 2 * maxRoundRequests {
			for _, key := range []Key{database(i), rolloutOf(fmt.Sprint("team-", i), 1)} {
				_, _, _ = c.lookup(key, true)
			}
		}
		began := time.Now()
		c.refresh(t.Context())
		c.refresh(t.Context())
		c.refresh(t.Context())
		require.Equal(t, 2, hanging)
		require.Less(t, time.Since(began), 2*scaleTimeout+2*maxRoundRequests*20*time.Millisecond+time.Second)
		for i := range 2 * maxRoundRequests {
			_, known, err := c.lookup(rolloutOf(fmt.Sprint("team-", i), 1), false)
			require.NoError(t, err)
			require.True(t, known)
		}

		asked := time.Now()
		_, err := c.get(t.Context(), database(maxRoundRequests))
		require.ErrorIs(t, err, ErrHangs)
		require.ErrorIs(t, err, ErrNotRead, "nothing can be said about it")
		require.Zero(t, time.Since(asked))
		time.Sleep(hangPause)
		_, err = c.get(t.Context(), database(maxRoundRequests))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3, hanging)
	})
}

func TestScaleCache_HangingNamespaceDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScaleCache(func(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			if namespace == "slow" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return limited(ctx, namespace, kind, name)
		})
		for i := range 10 {
			_, err := c.get(t.Context(), rolloutOf("slow", i))
			require.Error(t, err)
			began := time.Now()
			_, err = c.get(t.Context(), rolloutOf("shop", i))
			require.NoError(t, err)
			require.Less(t, time.Since(began), time.Second)
			time.Sleep(hangPause / 3)
		}
	})
}

// Iterations that write confirm each workload. Workloads of a hanging kind take only seconds of an
// iteration.
func TestScaleCache_ConfirmingHangingKindTakesSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScaleCache(func(ctx context.Context, _ string, _ schema.GroupKind, _ string) (*autoscalingv1.Scale, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		began := time.Now()
		for i := range 20 {
			_, err := c.refetch(t.Context(), rolloutOf("slow", i))
			require.Error(t, err)
		}
		require.Less(t, time.Since(began), firstTimeout+time.Second)
		_, err := c.refetch(t.Context(), rolloutOf("slow", 0))
		require.ErrorIs(t, err, ErrHangs)
		time.Sleep(hangPause)
		c.refresh(t.Context())
		require.Len(t, c.hanging, 1, "only that of now is remembered")
	})
}

func TestScaleCache_RefreshDoesNotWaitForFirstRequest(t *testing.T) {
	begun, hangs := make(chan struct{}), make(chan struct{})
	c := newScaleCache(func(_ context.Context, namespace string, _ schema.GroupKind, _ string) (*autoscalingv1.Scale, error) {
		if namespace == "slow" {
			close(begun)
			<-hangs
		}
		return &autoscalingv1.Scale{}, nil
	})
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = c.get(t.Context(), rolloutOf("slow", 1)) })
	<-begun
	_, _, _ = c.lookup(rolloutOf("shop", 1), true)
	refreshed := make(chan struct{})
	waiting.Go(func() { c.refresh(t.Context()); close(refreshed) })
	select {
	case <-refreshed:
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	close(hangs)
	waiting.Wait()
	_, known, err := c.lookup(rolloutOf("shop", 1), false)
	require.NoError(t, err)
	require.True(t, known)
}

func TestScaleCache_ReadsInOrderOfDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		c := newScaleCache(func(_ context.Context, _ string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			asked = append(asked, name)
			return &autoscalingv1.Scale{}, nil
		})
		for i := range 10 {
			_, _, _ = c.lookup(rolloutOf("shop", 9-i), true)
			time.Sleep(time.Second)
		}
		c.refresh(t.Context())
		require.Equal(t, []string{"9", "8", "7", "6", "5", "4", "3", "2", "1", "0"}, asked)
	})
}

func TestScaleCache_RefreshAlternatesNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 6 * maxRoundRequests
		c := newScaleCache(limited)
		for i := range many {
			_, _ = c.find(rolloutOf("greedy", i), true)
		}
		for _, e := range c.entries {
			e.lastUsed.Store(time.Now().UnixNano())
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { c.run(ctx, nil) })
		time.Sleep(scaleLoop + time.Second) // during the first round
		late := rolloutOf("shop", 1)
		_, known, _ := c.lookup(late, true)
		require.False(t, known)
		time.Sleep(2 * (maxRoundRequests*20*time.Millisecond + scaleLoop))
		a, known, err := c.lookup(late, false)
		require.NoError(t, err)
		require.True(t, known)
		require.EqualValues(t, 3, a.replicas)
		time.Sleep(many / maxRoundRequests * (maxRoundRequests*20*time.Millisecond + scaleLoop))
		_, known, err = c.lookup(rolloutOf("greedy", many-1), false)
		require.True(t, known, "of the others each is read in the end")
		require.True(t, apierrors.IsNotFound(err))
	})
}

// A caller that runs out of time stores no result, and the next caller makes the request again.
func TestScaleCache_CanceledCallerStoresNoResult(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	good := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	says := func() (*autoscalingv1.Scale, error) { return nil, client.ErrThrottled }
	c := newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) { return says() })
	_, err := c.get(ctx, rolloutOf("shop", 1))
	require.ErrorIs(t, err, client.ErrThrottled)
	says = func() (*autoscalingv1.Scale, error) { stop(); return nil, context.Canceled }
	_, err = c.get(ctx, rolloutOf("shop", 1))
	require.ErrorIs(t, err, context.Canceled)
	says = func() (*autoscalingv1.Scale, error) { t.Error("asked without time"); return good, nil }
	_, err = c.get(ctx, rolloutOf("shop", 1))
	require.ErrorIs(t, err, context.Canceled)
	says = func() (*autoscalingv1.Scale, error) { return good, nil }
	a, err := c.get(t.Context(), rolloutOf("shop", 1))
	require.NoError(t, err)
	require.EqualValues(t, 3, a.replicas)

	// A result that arrives in the last moment is stored.
	ctx, stop = context.WithCancel(t.Context())
	says = func() (*autoscalingv1.Scale, error) { stop(); return good, nil }
	a, err = c.get(ctx, rolloutOf("shop", 2))
	require.NoError(t, err)
	require.EqualValues(t, 3, a.replicas)
}

func TestScaleCache_FailureKeepsConcurrentResult(t *testing.T) {
	var c *scaleCache
	first := true
	c = newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
		if first {
			first = false
			_, err := c.get(t.Context(), rolloutOf("shop", 1))
			require.NoError(t, err)
			return nil, errors.New("the server is away")
		}
		return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, nil
	})
	e, err := c.find(rolloutOf("shop", 1), true)
	require.NoError(t, err)
	_, err = c.refreshEntry(t.Context(), rolloutOf("shop", 1), e, scaleTimeout)
	require.ErrorContains(t, err, "the server is away")
	a, known, err := c.lookup(rolloutOf("shop", 1), false)
	require.NoError(t, err)
	require.True(t, known)
	require.EqualValues(t, 3, a.replicas)
}

// References can be as large as their object, and the cache keeps them.
func TestScaleCache_RejectsInvalidNames(t *testing.T) {
	r := &Resolver{scales: newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
		t.Error("asked")
		return nil, errors.New("asked")
	})}
	r.scale = r.scales.get
	long := strings.Repeat("x", 700_000)
	for _, tc := range []struct {
		name string
		ref  autoscalingv1.CrossVersionObjectReference
	}{
		{name: "kind", ref: autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1", Kind: long, Name: "web"}},
		{name: "name", ref: autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1", Kind: "Rollout", Name: long}},
		{name: "group of apiVersion",
			ref: autoscalingv1.CrossVersionObjectReference{APIVersion: long + ".io/v1", Kind: "Rollout", Name: "web"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.Selector(t.Context(), "shop", &tc.ref)
			require.ErrorContains(t, err, "spec.targetRef: "+tc.name+` "xxx`)
			require.ErrorContains(t, err, "must have at most ")
			require.Less(t, len(err.Error()), 300)
		})
	}
	require.Empty(t, r.scales.entries)
}

// Readers of the review path never wait, and readers of an iteration end with their context.
func TestScaleCache_ReadersDoNotWaitForRequestOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, hangs := 0, make(chan struct{})
		c := newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			requests++
			<-hangs // ignores the context
			return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, nil
		})
		key := rolloutOf("shop", 1)
		var first sync.WaitGroup
		first.Go(func() {
			a, err := c.get(t.Context(), key)
			require.NoError(t, err)
			require.EqualValues(t, 3, a.replicas)
		})
		synctest.Wait()

		began := time.Now()
		_, known, err := c.lookup(key, true)
		require.NoError(t, err)
		require.False(t, known)
		require.Zero(t, time.Since(began))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = c.get(ctx, key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		c.refresh(t.Context())
		require.Equal(t, time.Second, time.Since(began), "a refresh leaves it out")

		close(hangs)
		first.Wait()
		a, err := c.get(t.Context(), key)
		require.NoError(t, err)
		require.EqualValues(t, 3, a.replicas)
		require.Equal(t, 1, requests, "one request for all")
	})
}
