package actuate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/fairwork"
)

// slowNamespace is an executor that delays each write in namespace greedy.
type slowNamespace struct {
	Executor

	took  time.Duration
	began time.Time
	shop  []time.Duration // start times of writes in namespace shop
	all   int
	order strings.Builder // E: eviction, R: resize
}

func (s *slowNamespace) write(namespace string) {
	if s.all++; namespace == "greedy" {
		time.Sleep(s.took)
	} else {
		s.shop = append(s.shop, time.Since(s.began))
	}
}

func (s *slowNamespace) Resize(ctx context.Context, c Change) (rollout.Change, error) {
	if since, brief := time.Since(s.began), inBriefTurn(ctx); !brief && c.Namespace == "shop" || brief && since > 10*time.Second {
		return rollout.Change{}, errors.New("only what nobody waits for takes long")
	}
	s.order.WriteByte('R')
	s.write(c.Namespace)
	return rollout.Change{}, nil
}

// inBriefTurn reports whether the context limits requests because other namespaces wait.
func inBriefTurn(ctx context.Context) bool {
	limited, cancel := fairwork.Limit(ctx, time.Hour)
	defer cancel()
	end, _ := limited.Deadline()
	return time.Until(end) <= maxTurnTime
}

func (s *slowNamespace) Evict(_ context.Context, c Change) error {
	s.order.WriteByte('E')
	s.write(c.Namespace)
	return nil
}

func (s *slowNamespace) RecordBackoff(_ context.Context, pod *corev1.Pod, _ disruption.Backoff) error {
	s.write(pod.Namespace)
	return nil
}

// The delay is at most 10 s, and all writes are made.
func TestRun_BoundsDelayByBusyNamespace(t *testing.T) {
	for _, tc := range []struct {
		name   string
		took   time.Duration
		writes int
		passes []time.Duration // maximum delay of others, by iteration
	}{
		{name: "many writes", took: 100 * time.Millisecond, writes: 200, passes: []time.Duration{2 * time.Second, 2 * time.Second}},
		{name: "slow writes", took: 6 * time.Second, writes: 5, passes: []time.Duration{6 * time.Second, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := func(namespace string) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: types.UID(namespace)}}
			}
			r := newRunner(pod("greedy"), pod("shop"))
			var plan disruption.Result
			of := func(namespace string) disruption.Subject {
				return disruption.Subject{Namespace: namespace, VPA: "a", Pod: "a", UID: namespace}
			}
			for range tc.writes {
				plan.Actions = append(plan.Actions, disruption.Action{Subject: of("greedy")})
				plan.Backoffs = append(plan.Backoffs, disruption.PodBackoff{Subject: of("greedy")})
			}
			plan.Actions = append(plan.Actions, disruption.Action{Subject: of("shop")})
			synctest.Test(t, func(t *testing.T) {
				for n, longest := range tc.passes {
					s := &slowNamespace{Executor: r.Executor, took: tc.took, began: time.Now()}
					r.Executor = s
					r.run(t.Context(), plan, nil, noon.Add(time.Duration(n)*time.Minute))
					require.Len(t, s.shop, 1)
					require.LessOrEqual(t, s.shop[0], longest, "pass %d", n)
					require.Equal(t, 2*tc.writes+1, s.all)
				}
			})
		})
	}
}

// An early iteration restores memory after an OOM kill. Late writes delay it by at most 3 s.
func TestRun_LateWritesYieldToEarlyIteration(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: "a", UID: "greedy"}}
	r := newRunner(pod)
	var plan disruption.Result
	for range 200 {
		plan.Actions = append(plan.Actions, disruption.Action{Subject: disruption.Subject{Namespace: "greedy", VPA: "a", Pod: "a", UID: "greedy"}})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &slowNamespace{Executor: r.Executor, took: 100 * time.Millisecond, began: time.Now()}
		r.Executor = s
		done := r.run(t.Context(), plan, pendingOOMKills{}, noon)
		require.True(t, done.Interrupted)
		require.Equal(t, 50, s.all)
		require.Equal(t, 5*time.Second, time.Since(s.began))
	})
}

func TestRun_LateEvictionsFollowResizes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: "a", UID: "greedy"}}
	r := newRunner(pod)
	var plan disruption.Result
	for i := range 10 {
		plan.Actions = append(plan.Actions, disruption.Action{
			Subject: disruption.Subject{Namespace: "greedy", VPA: "a", Pod: "a", UID: "greedy"}, Evict: i < 5,
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &slowNamespace{Executor: r.Executor, took: 3 * time.Second, began: time.Now()}
		r.Executor = s
		r.run(t.Context(), plan, nil, noon)
		require.Equal(t, "ERRRRREEEE", s.order.String())
	})
}

// Writes that one iteration leaves come first in the next, even if users cause early iterations all
// the time.
func TestRun_LateNamespacesRotateAcrossIterations(t *testing.T) {
	var pods []*corev1.Pod
	var plan disruption.Result
	for _, namespace := range []string{"a", "b", "c", "d"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: types.UID(namespace)}})
		for range 100 {
			plan.Actions = append(plan.Actions, disruption.Action{Subject: disruption.Subject{Namespace: namespace, VPA: "a", Pod: "a", UID: namespace}})
		}
	}
	r := newRunner(pods...)
	synctest.Test(t, func(t *testing.T) {
		s := &slowResizer{Executor: r.Executor, resized: map[string]int{}}
		r.Executor, r.slowNamespaces, r.unservedNamespaces = s, map[string]time.Time{}, map[string]bool{}
		for _, action := range plan.Actions {
			r.slowNamespaces[action.Namespace] = noon
		}
		for _, want := range []map[string]int{{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1, "d": 1}} {
			r.run(t.Context(), plan, pendingOOMKills{}, noon)
			require.Equal(t, want, s.resized)
		}
	})
}

type slowResizer struct {
	Executor

	resized map[string]int // by namespace
}

func (s *slowResizer) Resize(_ context.Context, c Change) (rollout.Change, error) {
	time.Sleep(2500 * time.Millisecond)
	s.resized[c.Namespace]++
	return rollout.Change{}, nil
}

type rateLimitedExecutor struct {
	Executor

	resized []string
}

func (l *rateLimitedExecutor) Resize(ctx context.Context, c Change) (rollout.Change, error) {
	l.resized = append(l.resized, c.Namespace)
	return rollout.Change{}, fairwork.Exclude(ctx, func(context.Context) error { time.Sleep(5 * time.Second); return nil })
}

// slowServer is an executor whose eviction checks need more time than a brief turn has.
type slowServer struct {
	Executor

	evicted []string // namespaces
	never   bool     // late turns are too short as well
}

func (s *slowServer) Resize(context.Context, Change) (rollout.Change, error) {
	s.evicted = append(s.evicted, "resize")
	return rollout.Change{}, nil
}

func (s *slowServer) Evict(ctx context.Context, c Change) error {
	if s.never || inBriefTurn(ctx) {
		time.Sleep(maxTurnTime)
		return ErrTurnEnded
	}
	s.evicted = append(s.evicted, c.Namespace)
	return nil
}

// The retry comes at the end of the same iteration.
func TestRun_RetriesEvictionAfterTurnEnds(t *testing.T) {
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "shop"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "crew", Name: "a", UID: "crew"}},
	}
	r := newRunner(pods...)
	shop := disruption.Subject{Namespace: "shop", VPA: "a", Pod: "a", UID: "shop"}
	crew := disruption.Subject{Namespace: "crew", VPA: "a", Pod: "a", UID: "crew"}
	for _, tc := range []struct {
		name  string
		never bool
		want  []string
		skips []disruption.Skip
	}{
		{name: "enough time at the end", want: []string{"resize", "shop"}},
		{name: "never enough time", never: true, want: []string{"resize"}, skips: []disruption.Skip{{Subject: shop, Reason: reason.RateLimited}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowServer{Executor: r.Executor, never: tc.never}
				r.Executor, r.slowNamespaces = s, nil
				done := r.run(t.Context(), disruption.Result{Actions: []disruption.Action{{Subject: shop, Evict: true}, {Subject: crew}}}, nil, noon)
				require.Equal(t, tc.want, s.evicted)
				require.Equal(t, tc.skips, done.Skipped)
			})
		})
	}
}

// All namespaces share the rate limit, so waiting for it does not make a namespace slow.
func TestRun_RateLimitWaitDoesNotMarkNamespaceSlow(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: "a", UID: "greedy"}}
	r := newRunner(pod)
	of := disruption.Subject{Namespace: "greedy", VPA: "a", Pod: "a", UID: "greedy"}
	synctest.Test(t, func(t *testing.T) {
		l := &rateLimitedExecutor{Executor: r.Executor}
		r.Executor = l
		r.run(t.Context(), disruption.Result{Actions: []disruption.Action{{Subject: of}, {Subject: of}, {Subject: of}}}, nil, noon)
		require.Len(t, l.resized, 3)
		require.Empty(t, r.slowNamespaces)
	})
}
