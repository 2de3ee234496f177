package lease

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

func election() flags.Election {
	e := flags.DefaultElection("test")
	e.Enabled = true
	return e
}

func TestLead_RunsDirectlyWithoutElection(t *testing.T) {
	boom := errors.New("boom")
	require.ErrorIs(t, Lead(t.Context(), process.OS{}, fake.NewClientset(), flags.DefaultElection("x"), func(context.Context) error { return boom }), boom)
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, Lead(ctx, process.OS{}, fake.NewClientset(), flags.DefaultElection("x"), func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrStopRequested)
		return nil
	}))
}

func TestLead_StandbyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		var working atomic.Int32
		replica := func(ctx context.Context) error {
			return Lead(ctx, process.OS{}, kube, election(), func(ctx context.Context) error {
				working.Add(1)
				<-ctx.Done()
				time.Sleep(3 * time.Second) // the last iteration takes some time
				require.ErrorIs(t, context.Cause(ctx), ErrStopRequested)
				working.Add(-1)
				return nil
			})
		}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() { results <- replica(first) }()
		time.Sleep(time.Second)
		go func() { results <- replica(second) }()
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, working.Load())
		stopFirst()
		for range 60 {
			time.Sleep(time.Second / 2)
			require.LessOrEqual(t, working.Load(), int32(1), "the lease is held until work has ended")
		}
		require.NoError(t, <-results)
		require.EqualValues(t, 1, working.Load())
		stopSecond()
		require.NoError(t, <-results)
	})
}

func TestLead_LostLeaseIsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		var away, ended atomic.Bool
		outer, stop := context.WithCancel(t.Context())
		kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is gone")
		})
		result := make(chan error, 1)
		go func() {
			result <- Lead(outer, process.OS{}, kube, election(), func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second) // the program exits meanwhile
				require.NotErrorIs(t, context.Cause(ctx), ErrStopRequested)
				ended.Store(true)
				return nil
			})
		}()
		time.Sleep(time.Minute)
		away.Store(true)
		err := <-result
		require.ErrorContains(t, err, "lost the lease kube-system/test")
		stop()
		time.Sleep(2 * time.Second)
		require.True(t, ended.Load())
	})
}

func TestLead_StandbyStopsWithoutLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no rights")
		})
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			result <- Lead(ctx, process.OS{}, kube, election(), func(context.Context) error { return errors.New("never") })
		}()
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, <-result)
	})
}

func beat(kube *fake.Clientset) *Heartbeat {
	return &Heartbeat{Client: kube.CoordinationV1(), Namespace: "ns", Name: "beat", Holder: "me", Interval: 10 * time.Second}
}

// firstLook returns a monitor that judges only by the age of the Lease.
func firstLook(b *Heartbeat) *Monitor { return &Monitor{Heartbeat: b, Timeout: time.Minute} }

func stored(t *testing.T, kube *fake.Clientset) *coordinationv1.Lease {
	l, err := kube.CoordinationV1().Leases("ns").Get(t.Context(), "beat", metav1.GetOptions{})
	require.NoError(t, err)
	return l
}

func TestHeartbeat_WriteAndExpire(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	kube := fake.NewClientset()
	b := beat(kube)
	_, err := firstLook(b).Alive(t.Context(), now)
	require.ErrorContains(t, err, "read the heartbeat lease ns/beat")

	require.NoError(t, b.Write(t.Context(), now))
	l := stored(t, kube)
	require.Equal(t, "me", *l.Spec.HolderIdentity)
	require.EqualValues(t, 10, *l.Spec.LeaseDurationSeconds)
	require.Nil(t, l.Spec.RenewTime, "the first write only creates")

	require.NoError(t, b.Write(t.Context(), now))
	for age, want := range map[time.Duration]bool{0: true, time.Minute - 1: true, time.Minute: false, time.Hour: false} {
		alive, err := firstLook(b).Alive(t.Context(), now.Add(age))
		require.NoError(t, err)
		require.Equal(t, want, alive, age)
	}

	other := beat(kube)
	other.Holder = "somebody else"
	require.NoError(t, other.Expire(t.Context()), "that of another replica is left alone")
	alive, _ := firstLook(b).Alive(t.Context(), now)
	require.True(t, alive)
	require.NoError(t, b.Expire(t.Context()))
	alive, _ = firstLook(b).Alive(t.Context(), now)
	require.False(t, alive)
}

// versioned makes a client reject updates with an outdated resource version, as an API server does,
// and records the requests.
func versioned(kube *fake.Clientset) (requests func() []string) {
	version := 0
	kube.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		l := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		if l.ResourceVersion != "" && l.ResourceVersion != strconv.Itoa(version) {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "beat", nil)
		}
		version++
		l.ResourceVersion = strconv.Itoa(version)
		return false, nil, nil
	})
	return func() (verbs []string) {
		for _, action := range kube.Actions() {
			verbs = append(verbs, action.GetVerb())
		}
		kube.ClearActions()
		return verbs
	}
}

// An idle webhook does little but its heartbeat.
func TestHeartbeat_RenewsWithOneRequest(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	kube := fake.NewClientset()
	requests := versioned(kube)
	b, other := beat(kube), beat(kube)
	other.Holder = "another replica"
	require.NoError(t, b.Write(t.Context(), now))
	require.Equal(t, []string{"get", "create"}, requests())
	require.NoError(t, b.Write(t.Context(), now))
	require.Equal(t, []string{"get", "update"}, requests())
	next := func(who *Heartbeat, after time.Duration) []string {
		now = now.Add(after)
		require.NoError(t, who.Write(t.Context(), now))
		return requests()
	}
	require.Equal(t, []string{"update"}, next(b, 10*time.Second))
	require.Equal(t, []string{"update"}, next(b, 10*time.Second))
	require.Equal(t, []string{"get", "update"}, next(other, 5*time.Second))
	require.Equal(t, []string{"update", "get"}, next(b, 5*time.Second), "the other one has just renewed it")
	require.Equal(t, []string{"update"}, next(other, 5*time.Second))
	require.Equal(t, "another replica", *stored(t, kube).Spec.HolderIdentity)

	require.NoError(t, other.Expire(t.Context()))
	requests()
	require.Equal(t, []string{"update", "get", "update"}, next(b, 5*time.Second), "nobody is there but this one")
	require.Equal(t, "me", *stored(t, kube).Spec.HolderIdentity)
	require.Equal(t, now, stored(t, kube).Spec.RenewTime.UTC())

	require.NoError(t, kube.CoordinationV1().Leases("ns").Delete(t.Context(), "beat", metav1.DeleteOptions{}))
	requests()
	require.Equal(t, []string{"update", "get", "create"}, next(b, 10*time.Second))
}

func TestMonitor_NewLeaseIsAliveBeforeFirstRenewal(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	kube := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "beat", CreationTimestamp: metav1.NewTime(now)}})
	for age, want := range map[time.Duration]bool{59 * time.Second: true, time.Minute: false} {
		alive, err := firstLook(beat(kube)).Alive(t.Context(), now.Add(age))
		require.NoError(t, err)
		require.Equal(t, want, alive)
	}
}

func TestHeartbeat_RetriesOnlyTransientErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "leases"}
	for _, tc := range []struct {
		name  string
		err   error
		calls int
	}{
		{name: "internal error", err: apierrors.NewInternalError(errors.New("x")), calls: 3},
		{name: "too many requests", err: apierrors.NewTooManyRequests("x", 0), calls: 3},
		{name: "forbidden", err: apierrors.NewForbidden(resource, "beat", errors.New("x")), calls: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := fake.NewClientset()
				calls := 0
				kube.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					calls++
					return true, nil, tc.err
				})
				require.Error(t, beat(kube).Write(t.Context(), time.Now()))
				require.Equal(t, tc.calls, calls)
			})
		})
	}
}

func TestHeartbeat_ConcurrentCreateIsNoError(t *testing.T) {
	kube := fake.NewClientset()
	b := beat(kube)
	kube.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, "beat")
	})
	require.NoError(t, b.Write(t.Context(), time.Now()))
}

func TestNamespace_DefaultsFromEnvironment(t *testing.T) {
	t.Setenv("NAMESPACE", "")
	require.Equal(t, "kube-system", Namespace(""))
	t.Setenv("NAMESPACE", "mine")
	require.Equal(t, "mine", Namespace(""))
	require.Equal(t, "flag", Namespace("flag"))
}

// A suspended process resumes before its elector notices that the lease is lost.
func TestCheck_FrozenLeaderStopsBeforeSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		frozen := testkit.FrozenLeases{Interface: kube, Frozen: new(atomic.Bool), Thaw: make(chan struct{})}
		acted := make([]atomic.Int64, 2) // the last second in which each replica acted
		began := time.Now()
		replica := func(ctx context.Context, kube kubernetes.Interface, i int) {
			_ = Lead(ctx, process.OS{}, kube, election(), func(ctx context.Context) error {
				for ctx.Err() == nil {
					if err := Check(ctx); err == nil {
						acted[i].Store(int64(time.Since(began).Seconds()))
					} else {
						require.ErrorIs(t, err, ErrNotRenewed)
					}
					time.Sleep(time.Second)
				}
				return nil
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		var replicas sync.WaitGroup
		replicas.Go(func() { replica(ctx, frozen, 0) })
		time.Sleep(time.Second)
		replicas.Go(func() { replica(ctx, kube, 1) })
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, acted[0].Load(), int64(60))
		require.Zero(t, acted[1].Load())

		frozen.Frozen.Store(true)
		for acted[1].Load() == 0 {
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, acted[0].Load(), int64(61+flags.DefaultElection("").RenewDeadline.Seconds()))
		successor := acted[1].Load()
		time.Sleep(time.Minute)
		require.Less(t, acted[0].Load(), successor, "the first one acts no more")
		require.Greater(t, acted[1].Load(), successor)
		frozen.Frozen.Store(false)
		close(frozen.Thaw)
		stop()
		replicas.Wait()
	})
}

func TestCheck_UsesWallClockIfMonotonicClockStops(t *testing.T) {
	renewed := time.Now()
	own := &term{limit: 10 * time.Second, renewed: renewed}
	require.Zero(t, own.age(renewed))
	require.Equal(t, time.Minute, own.age(renewed.Round(0).Add(time.Minute)), "a paused virtual machine")
	require.Equal(t, time.Minute, own.age(renewed.Add(time.Minute)))
	require.NoError(t, Check(t.Context()), "without an election")
	require.ErrorIs(t, Check(context.WithValue(t.Context(), termKey{}, &term{limit: time.Hour})), ErrNotRenewed, "never renewed")
}
