// Package fairwork shares workers between namespaces, so that no namespace delays the others.
package fairwork

import (
	"context"
	"slices"
	"sync"
	"time"
)

// NamespaceTime is the worker time that a namespace may use before all others had a turn.
const NamespaceTime = 2 * time.Second

// Run processes items in order, each as soon as a worker is free. Items of a namespace that has
// used NamespaceTime wait until all others are done, then each namespace gets its time again. Once
// allowed returns false, Run starts no more items. do gets the worker number, from 0. Run returns
// the items that were not started.
func Run[T any](items []T, workers int, namespace func(T) string, allowed func(T) bool, do func(worker int, item T)) (left []T) {
	q := queue[T]{namespace: namespace, allowed: allowed, items: items, began: time.Now(), namespaces: map[string]*usage{}}
	var all sync.WaitGroup
	for worker := range min(workers, len(items)) {
		all.Go(func() {
			for item, u, ok := q.next(); ok; item, u, ok = q.next() {
				do(worker, item)
				q.done(u)
			}
		})
	}
	all.Wait()
	return append(q.items, q.deferred...)
}

// RoundRobin orders items so that namespaces take turns, in the order of their first items.
func RoundRobin[T any](items []T, namespace func(T) string) []T {
	var rounds [][]T
	seen := map[string]int{}
	for _, item := range items {
		round := seen[namespace(item)]
		seen[namespace(item)]++
		if round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], item)
	}
	return slices.Concat(rounds...)
}

type queue[T any] struct {
	namespace func(T) string
	allowed   func(T) bool

	mu         sync.Mutex
	began      time.Time
	items      []T // of this round
	deferred   []T // to the next round
	namespaces map[string]*usage
	ended      bool
}

// usage is the worker time of a namespace. Times count from the start of Run.
type usage struct {
	used    time.Duration // finished items of this round minus start times of running ones
	running int
}

func (q *queue[T]) next() (item T, u *usage, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Since(q.began)
	for !q.ended {
		if len(q.items) == 0 {
			if len(q.deferred) == 0 {
				break
			}
			q.items, q.deferred = q.deferred, nil
			for _, u := range q.namespaces {
				u.used = -now * time.Duration(u.running)
			}
		}
		item = q.items[0]
		namespace := q.namespace(item)
		if u = q.namespaces[namespace]; u == nil {
			u = &usage{}
			q.namespaces[namespace] = u
		}
		if u.used+now*time.Duration(u.running) >= NamespaceTime {
			q.items, q.deferred = q.items[1:], append(q.deferred, item)
			continue
		}
		if !q.allowed(item) {
			q.ended = true
			break
		}
		q.items = q.items[1:]
		u.running++
		u.used -= now
		return item, u, true
	}
	return item, nil, false
}

func (q *queue[T]) done(u *usage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u.running--
	u.used += time.Since(q.began)
}

// minRequestTime is the minimum limit of a request, so that a change in progress can be finished.
const minRequestTime = 3 * time.Second

type turnKey struct{}

type turn struct {
	began    time.Time
	limit    time.Duration
	excluded time.Duration
}

// Turn returns a context that starts a turn of one namespace. All its requests with a context from
// Limit together take at most limit, but each one gets at least minRequestTime. Goroutines must not
// share a turn.
func Turn(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, turnKey{}, &turn{began: time.Now(), limit: limit})
}

// Limit returns a context for a request with the default timeout, or less if the turn ends earlier.
func Limit(ctx context.Context, defaultTimeout time.Duration) (context.Context, context.CancelFunc) {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		defaultTimeout = min(defaultTimeout, max(t.limit-t.used(), minRequestTime))
	}
	return context.WithTimeout(ctx, defaultTimeout)
}

// Shortens reports whether Limit would give a request less than the default timeout.
func Shortens(ctx context.Context, defaultTimeout time.Duration) bool {
	t, ok := ctx.Value(turnKey{}).(*turn)
	return ok && t.limit-t.used() < defaultTimeout && minRequestTime < defaultTimeout
}

// Exclude excludes the time of wait from the turn, since all namespaces share rate limits.
func Exclude(ctx context.Context, wait func(context.Context) error) error {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		began := time.Now()
		defer func() { t.excluded += time.Since(began) }()
	}
	return wait(ctx)
}

// Used returns the time that the turn of a context has used, or 0 without a turn.
func Used(ctx context.Context) time.Duration {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		return t.used()
	}
	return 0
}

func (t *turn) used() time.Duration { return time.Since(t.began) - t.excluded }
