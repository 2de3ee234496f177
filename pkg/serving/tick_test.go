package serving

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

// iterationTimes has the times of regular and early iterations since the start.
type iterationTimes struct {
	start         time.Time
	passes, early []time.Duration
}

// runIterations runs RunEvery in virtual time with iterations of the given duration.
func runIterations(t *testing.T, length, pass time.Duration, wakes ...time.Duration) *iterationTimes {
	r := &iterationTimes{}
	now := func(at time.Time) {
		require.Equal(t, time.Now().UnixNano(), at.UnixNano(), "the time is that of the call")
	}
	synctest.Test(t, func(t *testing.T) {
		r.start = time.Now()
		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		wake := make(chan struct{}, 1)
		go func() {
			for _, at := range wakes {
				time.Sleep(time.Until(r.start.Add(at)))
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		}()
		RunEvery(ctx, time.Minute, wake,
			func(at time.Time) { now(at); r.passes = append(r.passes, time.Since(r.start)); time.Sleep(pass) },
			func(at time.Time) { now(at); r.early = append(r.early, time.Since(r.start)) })
	})
	return r
}

const s = time.Second

func TestRunEvery_FollowsInterval(t *testing.T) {
	r := runIterations(t, 200*s, 0)
	require.Equal(t, []time.Duration{60 * s, 120 * s, 180 * s}, r.passes)
	require.Empty(t, r.early)
}

func TestRunEvery_WakesWithinSeconds(t *testing.T) {
	r := runIterations(t, 50*s, 0, 10*s)
	require.Equal(t, []time.Duration{11 * s}, r.early)
}

func TestRunEvery_CoalescesWakeupsForFiveSeconds(t *testing.T) {
	var storm []time.Duration
	for at := 10 * s; at < 30*s; at += s / 10 {
		storm = append(storm, at)
	}
	r := runIterations(t, 50*s, 0, storm...)
	require.Equal(t, []time.Duration{11 * s, 16 * s, 21 * s, 26 * s, 31 * s}, r.early)
}

func TestRunEvery_KeepsWakeupDuringIteration(t *testing.T) {
	r := runIterations(t, 100*s, 20*s, 70*s)
	require.Equal(t, []time.Duration{60 * s}, r.passes)
	require.Equal(t, []time.Duration{81 * s}, r.early)
}

func TestRunEvery_SlowIterationsDropTicks(t *testing.T) {
	r := runIterations(t, 400*s, 100*s)
	require.Equal(t, []time.Duration{60 * s, 160 * s, 260 * s, 360 * s}, r.passes)
}

// The leader Lease is no longer renewed, but the elector has not noticed. No iteration may begin.
func TestRunEvery_SkipsIterationsWithStaleLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testkit.FrozenLeases{Interface: fake.NewClientset(), Frozen: new(atomic.Bool), Thaw: make(chan struct{})}
		election := flags.DefaultElection("test")
		election.Enabled = true
		ctx, stop := context.WithCancel(t.Context())
		began, wake := time.Now(), make(chan struct{}, 1)
		var passes, early []time.Duration
		ended := make(chan error)
		go func() {
			ended <- lease.Lead(ctx, process.OS{}, kube, election, func(ctx context.Context) error {
				RunEvery(ctx, time.Minute, wake,
					func(time.Time) { passes = append(passes, time.Since(began)) },
					func(time.Time) { early = append(early, time.Since(began)) })
				return nil
			})
		}()
		time.Sleep(70 * time.Second)
		kube.Frozen.Store(true)
		time.Sleep(20 * time.Second)
		wake <- struct{}{}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Minute}, passes, "none beside a successor")
		require.Empty(t, early)
		kube.Frozen.Store(false)
		close(kube.Thaw)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Greater(t, len(passes), 1, "the lease is renewed again")
		require.Len(t, early, 1, "what was due is made up for")
		stop()
		require.NoError(t, <-ended)
	})
}
