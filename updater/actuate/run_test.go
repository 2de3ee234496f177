package actuate

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func newRunner(pods ...*corev1.Pod) *Runner {
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, pod := range pods {
		if err := known.Add(pod); err != nil {
			panic(err)
		}
	}
	return &Runner{Executor: &DryRun{Out: io.Discard}, Policies: &policies.Resolver{}, Sharing: shares.New(shares.Config{}), Pods: corelisters.NewPodLister(known)}
}

func (r *Runner) run(ctx context.Context, result disruption.Result, kills Interrupter, now time.Time) Done {
	holds := (&rollouts.Rollouts{Policies: r.Policies}).Hold(ctx, &snapshot.View{}, nil, now)
	return r.Run(ctx, &Plan{Result: result, Holds: holds, Shares: &shares.Result{}, Interrupter: kills}, now)
}

type failingExecutor struct {
	Executor

	err     error
	evicted int
}

func (f *failingExecutor) Evict(context.Context, Change) error {
	f.evicted++
	return f.err
}

// An eviction without an answer may have been made.
func TestRun_RateLimitCountsUnconfirmedEvictions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		err     error
		evicted int
	}{
		{name: "made", evicted: 1},
		{name: "no answer", err: markUncertain(context.DeadlineExceeded), evicted: 1},
		{name: "refused", err: &BlockedError{Reason: reason.ReplacementRefused, Cause: io.EOF}, evicted: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRunner(podsNamed("a", "b", "c")...)
			executor := &failingExecutor{Executor: r.Executor, err: tc.err}
			r.Executor, r.Limiter = executor, disruption.NewRateLimiter(disruption.RateLimits{Cluster: 1, Namespace: 1}, noon)
			var plan disruption.Result
			for _, pod := range []string{"a", "b", "c"} {
				plan.Actions = append(plan.Actions, disruption.Action{Subject: disruption.Subject{Namespace: "shop", VPA: "a", Pod: pod, UID: pod}, Evict: true, Disrupts: true})
			}
			r.run(t.Context(), plan, nil, noon)
			require.Equal(t, tc.evicted, executor.evicted)
		})
	}
}

type pendingOOMKills struct{}

func (pendingOOMKills) HasPendingOOM(context.Context) bool { return true }

func podsNamed(names ...string) (pods []*corev1.Pod) {
	for _, name := range names {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}})
	}
	return pods
}

// hangingExecutor blocks evictions of some VPAs until the iteration ends.
type hangingExecutor struct {
	Executor

	hangs  map[string]bool // by VPA
	asked  []string
	served int // evictions that succeed per iteration
}

func (h *hangingExecutor) Evict(ctx context.Context, c Change) error {
	h.asked = append(h.asked, c.VPA)
	if h.hangs[c.VPA] || len(h.asked) > h.served {
		<-ctx.Done()
		return ErrRateLimited
	}
	return nil
}

// A VPA that uses up an iteration, such as with an unresponsive API, must not do so in the next
// one.
func TestRun_ResumesBehindVPAThatExhaustedIteration(t *testing.T) {
	for _, tc := range []struct {
		name   string
		hangs  map[string]bool
		served int
		asked  []string
	}{
		{name: "first VPA hangs", hangs: map[string]bool{"a": true}, served: 9, asked: []string{"a", "b", "c", "a", "a", "b", "c"}},
		{name: "time for one VPA", served: 1, asked: []string{"a", "b", "b", "c", "c", "a", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRunner(podsNamed("a", "b", "c")...)
			h := &hangingExecutor{Executor: r.Executor, hangs: tc.hangs}
			r.Executor = h
			actions := make([]disruption.Action, 0, 3)
			for _, vpa := range []string{"a", "b", "c"} {
				subject := disruption.Subject{Namespace: "shop", VPA: vpa, Pod: vpa, UID: vpa}
				actions = append(actions, disruption.Action{Evict: true, Subject: subject})
			}
			var asked []string
			synctest.Test(t, func(t *testing.T) {
				for len(asked) < len(tc.asked) {
					ctx, stop := context.WithTimeout(t.Context(), time.Second)
					h.asked, h.served = nil, tc.served
					r.run(ctx, disruption.Result{Actions: actions}, nil, noon)
					stop()
					asked = append(asked, h.asked...)
				}
			})
			require.Equal(t, tc.asked, asked[:len(tc.asked)])
		})
	}
}

func TestRun_VPAsShareRateLimit(t *testing.T) {
	r := newRunner(podsNamed("a", "b", "c", "d")...)
	turns := map[string]int{}
	var actions []disruption.Action
	for _, name := range []string{"a", "a", "b", "c", "d"} {
		actions = append(actions, disruption.Action{Evict: true, Subject: disruption.Subject{Namespace: "shop", VPA: name, Pod: name, UID: name}})
	}
	for range 12 {
		r.Executor = &cappedExecutor{left: 1, turns: turns}
		r.run(t.Context(), disruption.Result{Actions: actions}, nil, noon)
	}
	require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 3, "d": 3}, turns)
}

// cappedExecutor allows a number of evictions and counts them by VPA.
type cappedExecutor struct {
	Executor
	left  int
	turns map[string]int
}

func (l *cappedExecutor) Evict(_ context.Context, c Change) error {
	if l.left == 0 {
		return ErrRateLimited
	}
	l.left--
	l.turns[c.VPA]++
	return nil
}
