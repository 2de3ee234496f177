package target

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/kube/client"
)

// Scale reads a scale subresource, as client.Scales does. The result has the apiVersion of the
// object. For a kind without scale subresource the error wraps client.ErrNoScale.
type Scale func(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error)

const (
	scaleRefresh  = 10 * time.Minute // refresh interval, times 1 to 2
	scaleForget   = time.Hour        // since the last use
	scaleLoop     = 7 * time.Second  // interval of the search for due entries
	scaleTimeout  = 10 * time.Second // of one request
	firstTimeout  = 3 * time.Second  // of a request that a caller waits for
	retryFirst    = 15 * time.Second // after a failure, doubles up to scaleRefresh
	missingMost   = time.Hour        // maximum retry interval after NotFound
	hangPause     = time.Minute      // pause of a kind after a timeout, see isHanging
	discoveryLife = 5 * time.Minute

	// maxErrors bounds the cached errors of a namespace. Updater and recommender look up all
	// targets and owners in each iteration. A limit below the number of missing workloads would
	// cause requests in every iteration.
	mostFailed = 20_000
	// maxReviewErrors replaces maxErrors for admission reviews: the pod of a review may never be
	// created, and any user can give it any owner. Nothing else bounds nonexistent owners.
	mostFailedOfReviews = 1000
	// maxFirstWait bounds the time of callers of get within firstWaitWindow for unread workloads of
	// one namespace, and run reads the rest. A namespace that renames targets all the time must not
	// use up the iterations of all.
	mostFirst  = 4 * time.Second
	firstsLife = time.Minute
	// maxTotalFirstWait is maxFirstWait for all namespaces. A pending request may exceed it by
	// firstTimeout, so callers wait 10 s at most.
	mostFirstOfAll = 7 * time.Second
	// maxRoundRequests and maxRoundTime bound one round of requests, after which due entries are
	// selected again.
	mostOfRound  = 500
	longestRound = 15 * time.Second
	// maxUnread bounds the waiting workloads of a namespace from CacheOnly resolvers. Existing
	// workloads must not wait behind nonexistent ones of users.
	mostUnread = 16
	// unreadLifetime is the time after which a waiting workload makes room, because the reader may
	// have dropped it.
	unreadLife = time.Minute
)

// scaleInfo holds the used fields of a scale subresource.
type answer struct {
	selector string
	replicas int32
	owners   []metav1.OwnerReference

	apiVersion string // of the object; empty: unknown
	uid        types.UID
}

func answerOf(s *autoscalingv1.Scale) answer {
	return answer{selector: client.BoundSelectorText(s.Status.Selector), replicas: s.Spec.Replicas, owners: client.BoundOwners(s.OwnerReferences), apiVersion: s.APIVersion, uid: s.UID}
}

// entry is a cached result. Concurrent first readers share one request. The mutex is never held
// during a request.
type entry struct {
	mu    sync.RWMutex
	read  atomic.Int64  // last use, in ns since 1970
	first chan struct{} // closed when the first request ends; nil: no such request
	state
}

type state struct {
	known    bool
	answer   answer
	err      error
	failures int
	due      time.Time // time of the next request
}

// scaleCache caches scale subresources and errors. Readers wait only for the first result, never
// for a refresh. A kind without scale subresource takes one entry for all objects.
type scaleCache struct {
	scale                     Scale
	mostFailed                int
	mostFirst, mostFirstOfAll time.Duration

	mu        sync.Mutex
	entries   map[Key]*entry
	scaleless map[schema.GroupKind]scaleless
	hanging   map[schema.GroupKind]hang
	unread    map[string]map[Key]time.Time // start of the wait of unread workloads, by namespace
	firsts    map[string]time.Duration     // time of waits in get since windowStart, by namespace
	firstsAll time.Duration                // the sum of firstWaits
	counting  time.Time

	asked string // last namespace of a round; the next round starts after it
}

type scaleless struct {
	example Key // an object that was requested
	err     error
}

func newScaleCache(scale Scale) *scaleCache {
	return &scaleCache{scale: scale, mostFailed: mostFailed, mostFirst: mostFirst, mostFirstOfAll: mostFirstOfAll, entries: map[Key]*entry{}, scaleless: map[schema.GroupKind]scaleless{}, hanging: map[schema.GroupKind]hang{}, unread: map[string]map[Key]time.Time{}, firsts: map[string]time.Duration{}}
}

// find returns the entry of an object, or the error of its kind. A missing entry is added or nil.
func (c *scaleCache) find(key Key, add bool) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if add {
		c.dropUnread(key.Namespace, func(k Key, _ time.Time) bool { return k == key })
	}
	if none, known := c.scaleless[key.GroupKind()]; known {
		return nil, none.err
	}
	e := c.entries[key]
	if e == nil && add {
		e = &entry{state: state{due: time.Now()}}
		c.entries[key] = e
	}
	return e, nil
}

func (c *scaleCache) get(ctx context.Context, key Key) (answer, error) {
	e, err := c.find(key, false)
	if e == nil && err == nil {
		if c.hangs(key) { // add no entry, so that Run does not read it either
			return answer{}, ErrHangs
		}
		e, err = c.find(key, true)
	}
	if err != nil {
		return answer{}, err
	}
	e.read.Store(time.Now().UnixNano())
	for {
		known, first, mine := e.join()
		switch {
		case known.known:
			return known.answer, known.err
		case mine:
			return c.askFirst(ctx, key, e)
		}
		select {
		case <-first:
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// lookup does not wait for a result. With add, run reads a missing one.
func (c *scaleCache) recall(key Key, soon bool) (a answer, known bool, err error) {
	e, err := c.find(key, soon)
	if err != nil {
		return answer{}, true, err
	}
	if e == nil {
		return answer{}, false, nil
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	e.read.Store(time.Now().UnixNano())
	return e.answer, e.known, e.err
}

// cached returns ErrNotRead for a missing result, which run reads within the limit of its
// namespace.
func (c *scaleCache) cached(key Key) (answer, error) {
	a, known, err := c.recall(key, false)
	if !known && c.want(key) {
		a, known, err = c.recall(key, true)
	}
	if !known {
		return answer{}, ErrNotRead
	}
	return a, err
}

// addUnread reports whether the caller is to read a workload, within the limit of its namespace.
func (c *scaleCache) want(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil {
		return false // a request is pending
	}
	if _, waits := c.unread[key.Namespace][key]; waits {
		return true // but the reader may have dropped it
	}
	if len(c.unread[key.Namespace]) >= mostUnread {
		c.dropUnread(key.Namespace, expired)
	}
	waiting := c.unread[key.Namespace]
	switch {
	case len(waiting) >= mostUnread:
		return false
	case waiting == nil:
		waiting = map[Key]time.Time{}
		c.unread[key.Namespace] = waiting
	}
	waiting[key] = time.Now()
	return true
}

func expired(_ Key, since time.Time) bool { return time.Since(since) >= unreadLife }

// dropUnread requires the lock.
func (c *scaleCache) dropUnread(namespace string, gone func(Key, time.Time) bool) {
	maps.DeleteFunc(c.unread[namespace], gone)
	if len(c.unread[namespace]) == 0 {
		delete(c.unread, namespace)
	}
}

// fetch requests the scale subresource and updates a copy of an entry's state. A temporary failure
// keeps the last good result, because it contains no news about the workload. If the context of the
// caller ended or the client's rate limit left no time, only the time of the next request is
// updated, even without a result. The returned error is from the request.
func (c *scaleCache) ask(ctx context.Context, key Key, e *state, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	scale, err := c.scale(within, key.Namespace, key.GroupKind(), key.Name)
	if err != nil && (ctx.Err() != nil || errors.Is(err, client.ErrThrottled)) {
		e.due = time.Now().Add(retryFirst)
		return err
	}
	if within.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		c.timedOut(key)
	}
	e.due = time.Now().Add(scaleRefresh + rand.N(scaleRefresh))
	if err == nil {
		e.known, e.err, e.failures = true, nil, 0
		e.answer = answerOf(scale)
		return nil
	}
	if errors.Is(err, client.ErrNoScale) {
		c.without(key, err)
	}
	if e.known && e.err == nil && lasting(err) {
		e.failures = 0 // earlier failures were temporary
	}
	most := scaleRefresh
	if apierrors.IsNotFound(err) {
		most = missingMost
	}
	e.due = time.Now().Add(min(retryFirst<<min(e.failures, 10), most))
	e.failures++
	if e.known && e.err == nil && !lasting(err) {
		return err
	}
	e.known, e.err, e.answer = true, err, answer{}
	return err
}

// isPermanent reports whether an error concerns the object or permissions, so that a retry would
// fail too.
func lasting(err error) bool {
	return errors.Is(err, client.ErrNoScale) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)
}

func (c *scaleCache) run(ctx context.Context, forget func()) {
	loop := time.NewTicker(scaleLoop)
	defer loop.Stop()
	discovery := time.NewTicker(discoveryLife)
	defer discovery.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-discovery.C:
			if forget != nil {
				forget()
			}
			c.reconsider(ctx)
		case <-loop.C:
			c.refresh(ctx)
		}
	}
}

func (c *scaleCache) refresh(ctx context.Context) {
	c.mu.Lock()
	for namespace := range c.unread {
		c.dropUnread(namespace, expired)
	}
	entries := maps.Clone(c.entries)
	c.mu.Unlock()
	c.forgetHangs()
	c.shed(entries)
	began := time.Now()
	for _, key := range c.due(entries, began) {
		if ctx.Err() != nil || time.Since(began) >= longestRound {
			break
		}
		if c.hangs(key) {
			continue
		}
		_, _ = c.renew(ctx, key, entries[key], scaleTimeout) // a failure is recorded in the entry
		c.asked = key.Namespace
	}
}

// dueKeys drops entries that are unused for scaleForget, and returns at most maxRoundRequests
// entries to request. Namespaces take turns, starting after the last one of the previous round,
// because a hanging server completes few requests in each round. Within a namespace the longest
// overdue come first. An entry without any request is due since its creation.
func (c *scaleCache) due(entries map[Key]*entry, now time.Time) (next []Key) {
	type due struct {
		key  Key
		when time.Time
	}
	waiting := map[string][]due{}
	for key, e := range entries {
		e.mu.RLock()
		unused, when, asked := now.UnixNano()-e.read.Load() >= int64(scaleForget), e.due, e.first != nil
		e.mu.RUnlock()
		switch {
		case asked: // the first request is pending
		case unused:
			c.drop(key)
		case !now.Before(when) && !c.hangs(key):
			waiting[key.Namespace] = append(waiting[key.Namespace], due{key, when})
		}
	}
	for _, of := range waiting {
		slices.SortFunc(of, func(a, b due) int { return cmp.Or(a.when.Compare(b.when), CompareKeys(a.key, b.key)) })
	}
	namespaces := slices.Sorted(maps.Keys(waiting))
	after, found := slices.BinarySearch(namespaces, c.asked)
	if found {
		after++
	}
	namespaces = slices.Concat(namespaces[after:], namespaces[:after])
	for turn := 0; len(next) < mostOfRound; turn++ {
		before := len(next)
		for _, namespace := range namespaces {
			if of := waiting[namespace]; turn < len(of) && len(next) < mostOfRound {
				next = append(next, of[turn].key)
			}
		}
		if len(next) == before {
			break
		}
	}
	return next
}

// refreshEntry does not lock the entry during the request, so readers get the old result. It
// returns the error of the request, even if the old result stays valid.
func (c *scaleCache) renew(ctx context.Context, key Key, e *entry, limit time.Duration) (answer, error) {
	e.mu.RLock()
	fresh := e.state
	e.mu.RUnlock()
	failed := c.ask(ctx, key, &fresh, limit)
	e.mu.Lock()
	defer e.mu.Unlock()
	if failed != nil && !lasting(failed) && e.known && e.err == nil { // a concurrent request succeeded
		e.due, e.failures = fresh.due, fresh.failures
		return e.answer, failed
	}
	e.state = fresh
	return fresh.answer, failed
}

// refetch bypasses the cache.
func (c *scaleCache) again(ctx context.Context, key Key) (answer, error) {
	if c.hangs(key) {
		return answer{}, ErrHangs
	}
	e, err := c.find(key, true)
	if err != nil {
		return answer{}, err
	}
	e.read.Store(time.Now().UnixNano())
	return c.renew(ctx, key, e, firstTimeout)
}

func (c *scaleCache) without(key Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaleless[key.GroupKind()] = scaleless{key, err}
	delete(c.entries, key)
}

// recheckScaleless requests one object of each kind without scale subresource. A failed request
// changes nothing.
func (c *scaleCache) reconsider(ctx context.Context) {
	c.mu.Lock()
	kinds := maps.Clone(c.scaleless)
	c.mu.Unlock()
	for kind, none := range kinds {
		within, cancel := context.WithTimeout(ctx, scaleTimeout)
		_, err := c.scale(within, none.example.Namespace, kind, none.example.Name)
		cancel()
		if errors.Is(err, client.ErrNoScale) || err != nil && !lasting(err) {
			continue
		}
		c.mu.Lock()
		delete(c.scaleless, kind)
		c.mu.Unlock()
	}
}

func (c *scaleCache) drop(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// dropErrors drops the least recently used errors above maxErrors in each namespace.
func (c *scaleCache) shed(entries map[Key]*entry) {
	type failed struct {
		key  Key
		read int64
	}
	all := map[string][]failed{}
	for key, e := range entries {
		e.mu.RLock()
		if e.first == nil && (!e.known || e.err != nil) { // an unread object may not exist either
			all[key.Namespace] = append(all[key.Namespace], failed{key, e.read.Load()})
		}
		e.mu.RUnlock()
	}
	for _, some := range all {
		if len(some) <= c.mostFailed {
			continue
		}
		slices.SortFunc(some, func(a, b failed) int { return cmp.Compare(a.read, b.read) })
		for _, f := range some[:len(some)-c.mostFailed] {
			c.drop(f.key)
			delete(entries, f.key)
		}
	}
}
