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
	scaleRefresh    = 10 * time.Minute // refresh interval, times 1 to 2
	scaleForget     = time.Hour        // since the last use
	scaleLoop       = 7 * time.Second  // interval of the search for due entries
	scaleTimeout    = 10 * time.Second // of one request
	firstTimeout    = 3 * time.Second  // of a request that a caller waits for
	minRetry        = 15 * time.Second // after a failure, doubles up to scaleRefresh
	maxMissingRetry = time.Hour        // maximum retry interval after NotFound
	hangPause       = time.Minute      // pause of a kind after a timeout, see isHanging
	discoveryLife   = 5 * time.Minute

	// maxErrors bounds the cached errors of a namespace. A limit below the number of missing
	// workloads would cause requests in every iteration of updater and recommender.
	maxErrors = 20_000
	// maxReviewErrors replaces maxErrors for admission reviews: the pod of a review may never be
	// created, and any user can give it any owner. Nothing else bounds nonexistent owners.
	maxReviewErrors = 1000
	// maxFirstWait bounds the time of callers of get within firstWaitWindow for unread workloads of
	// one namespace, and run reads the rest. A namespace that renames targets all the time must not
	// use up the iterations of all.
	maxFirstWait    = 4 * time.Second
	firstWaitWindow = time.Minute
	// maxTotalFirstWait is maxFirstWait for all namespaces. A pending request may exceed it by
	// firstTimeout, so callers wait 10 s at most.
	maxTotalFirstWait = 7 * time.Second
	// maxRoundRequests and maxRoundTime bound one round of requests, after which due entries are
	// selected again.
	maxRoundRequests = 500
	maxRoundTime     = 15 * time.Second
	// maxUnread bounds the waiting workloads of a namespace from CacheOnly resolvers. Existing
	// workloads must not wait behind nonexistent ones of users.
	maxUnread = 16
	// unreadLifetime is the time after which a waiting workload makes room, because the reader may
	// have dropped it.
	unreadLifetime = time.Minute
)

type scaleInfo struct {
	selector string
	replicas int32
	owners   []metav1.OwnerReference

	apiVersion string // of the object; empty: unknown
	uid        types.UID
}

func scaleInfoOf(s *autoscalingv1.Scale) scaleInfo {
	return scaleInfo{selector: client.BoundSelectorText(s.Status.Selector), replicas: s.Spec.Replicas, owners: client.BoundOwners(s.OwnerReferences), apiVersion: s.APIVersion, uid: s.UID}
}

// entry is a cached result. Concurrent first readers share one request. The mutex is never held
// during a request.
type entry struct {
	mu       sync.RWMutex
	lastUsed atomic.Int64  // last use, in ns since 1970
	first    chan struct{} // closed when the first request ends; nil: no such request
	state
}

type state struct {
	known    bool
	info     scaleInfo
	err      error
	failures int
	due      time.Time // time of the next request
}

// scaleCache caches scale subresources and errors. Readers wait only for the first result, never
// for a refresh. A kind without scale subresource takes one entry for all objects.
type scaleCache struct {
	scale                           Scale
	maxErrors                       int
	maxFirstWait, maxTotalFirstWait time.Duration

	mu             sync.Mutex
	entries        map[Key]*entry
	scaleless      map[schema.GroupKind]scaleless
	hanging        map[schema.GroupKind]hang
	unread         map[string]map[Key]time.Time // start of the wait of unread workloads, by namespace
	firstWaits     map[string]time.Duration     // time of waits in get since windowStart, by namespace
	totalFirstWait time.Duration                // the sum of firstWaits
	windowStart    time.Time

	lastNamespace string // last namespace of a round; the next round starts after it
}

type scaleless struct {
	example Key // an object that was requested
	err     error
}

func newScaleCache(scale Scale) *scaleCache {
	return &scaleCache{scale: scale, maxErrors: maxErrors, maxFirstWait: maxFirstWait, maxTotalFirstWait: maxTotalFirstWait, entries: map[Key]*entry{}, scaleless: map[schema.GroupKind]scaleless{}, hanging: map[schema.GroupKind]hang{}, unread: map[string]map[Key]time.Time{}, firstWaits: map[string]time.Duration{}}
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

func (c *scaleCache) get(ctx context.Context, key Key) (scaleInfo, error) {
	e, err := c.find(key, false)
	if e == nil && err == nil {
		if c.isHanging(key) { // add no entry, so that Run does not read it either
			return scaleInfo{}, ErrHangs
		}
		e, err = c.find(key, true)
	}
	if err != nil {
		return scaleInfo{}, err
	}
	e.lastUsed.Store(time.Now().UnixNano())
	for {
		known, first, mine := e.join()
		switch {
		case known.known:
			return known.info, known.err
		case mine:
			return c.fetchFirst(ctx, key, e)
		}
		select {
		case <-first:
		case <-ctx.Done():
			return scaleInfo{}, ctx.Err()
		}
	}
}

// lookup does not wait for a result. With add, run reads a missing one.
func (c *scaleCache) lookup(key Key, add bool) (a scaleInfo, known bool, err error) {
	e, err := c.find(key, add)
	if err != nil {
		return scaleInfo{}, true, err
	}
	if e == nil {
		return scaleInfo{}, false, nil
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	e.lastUsed.Store(time.Now().UnixNano())
	return e.info, e.known, e.err
}

// cached returns ErrNotRead for a missing result. run reads it within the limit of its namespace.
func (c *scaleCache) cached(key Key) (scaleInfo, error) {
	a, known, err := c.lookup(key, false)
	if !known && c.addUnread(key) {
		a, known, err = c.lookup(key, true)
	}
	if !known {
		return scaleInfo{}, ErrNotRead
	}
	return a, err
}

// addUnread reports whether the caller is to read a workload, within the limit of its namespace.
func (c *scaleCache) addUnread(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil {
		return false // a request is pending
	}
	if _, waits := c.unread[key.Namespace][key]; waits {
		return true // but the reader may have dropped it
	}
	if len(c.unread[key.Namespace]) >= maxUnread {
		c.dropUnread(key.Namespace, expired)
	}
	waiting := c.unread[key.Namespace]
	switch {
	case len(waiting) >= maxUnread:
		return false
	case waiting == nil:
		waiting = map[Key]time.Time{}
		c.unread[key.Namespace] = waiting
	}
	waiting[key] = time.Now()
	return true
}

func expired(_ Key, since time.Time) bool { return time.Since(since) >= unreadLifetime }

// dropUnread requires the lock.
func (c *scaleCache) dropUnread(namespace string, gone func(Key, time.Time) bool) {
	maps.DeleteFunc(c.unread[namespace], gone)
	if len(c.unread[namespace]) == 0 {
		delete(c.unread, namespace)
	}
}

// fetch requests the scale subresource and updates a copy of an entry's state. A temporary failure
// keeps the last good result. If the context of the caller ended or the client's rate limit left no
// time, only the time of the next request is updated, even without a result. The returned error is
// from the request.
func (c *scaleCache) fetch(ctx context.Context, key Key, e *state, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	scale, err := c.scale(within, key.Namespace, key.GroupKind(), key.Name)
	if err != nil && (ctx.Err() != nil || errors.Is(err, client.ErrThrottled)) {
		e.due = time.Now().Add(minRetry)
		return err
	}
	if within.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		c.recordTimeout(key)
	}
	e.due = time.Now().Add(scaleRefresh + rand.N(scaleRefresh))
	if err == nil {
		e.known, e.err, e.failures = true, nil, 0
		e.info = scaleInfoOf(scale)
		return nil
	}
	if errors.Is(err, client.ErrNoScale) {
		c.markScaleless(key, err)
	}
	if e.known && e.err == nil && isPermanent(err) {
		e.failures = 0 // earlier failures were temporary
	}
	maxRetry := scaleRefresh
	if apierrors.IsNotFound(err) {
		maxRetry = maxMissingRetry
	}
	e.due = time.Now().Add(min(minRetry<<min(e.failures, 10), maxRetry))
	e.failures++
	if e.known && e.err == nil && !isPermanent(err) {
		return err
	}
	e.known, e.err, e.info = true, err, scaleInfo{}
	return err
}

// isPermanent reports whether a retry would fail too, because of the object or permissions.
func isPermanent(err error) bool {
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
			c.recheckScaleless(ctx)
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
	c.dropExpiredHangs()
	c.dropErrors(entries)
	began := time.Now()
	for _, key := range c.dueKeys(entries, began) {
		if ctx.Err() != nil || time.Since(began) >= maxRoundTime {
			break
		}
		if c.isHanging(key) {
			continue
		}
		_, _ = c.refreshEntry(ctx, key, entries[key], scaleTimeout) // a failure is recorded in the entry
		c.lastNamespace = key.Namespace
	}
}

// dueKeys drops entries unused for scaleForget, and returns at most maxRoundRequests due entries.
// Namespaces take turns after the last one of the previous round, because a hanging server
// completes few requests in each round. Within a namespace the longest overdue come first. An entry
// without any request is due since its creation.
func (c *scaleCache) dueKeys(entries map[Key]*entry, now time.Time) (next []Key) {
	type due struct {
		key  Key
		when time.Time
	}
	waiting := map[string][]due{}
	for key, e := range entries {
		e.mu.RLock()
		unused, when, asked := now.UnixNano()-e.lastUsed.Load() >= int64(scaleForget), e.due, e.first != nil
		e.mu.RUnlock()
		switch {
		case asked: // the first request is pending
		case unused:
			c.drop(key)
		case !now.Before(when) && !c.isHanging(key):
			waiting[key.Namespace] = append(waiting[key.Namespace], due{key, when})
		}
	}
	for _, group := range waiting {
		slices.SortFunc(group, func(a, b due) int { return cmp.Or(a.when.Compare(b.when), CompareKeys(a.key, b.key)) })
	}
	namespaces := slices.Sorted(maps.Keys(waiting))
	after, found := slices.BinarySearch(namespaces, c.lastNamespace)
	if found {
		after++
	}
	namespaces = slices.Concat(namespaces[after:], namespaces[:after])
	for turn := 0; len(next) < maxRoundRequests; turn++ {
		before := len(next)
		for _, namespace := range namespaces {
			if group := waiting[namespace]; turn < len(group) && len(next) < maxRoundRequests {
				next = append(next, group[turn].key)
			}
		}
		if len(next) == before {
			break
		}
	}
	return next
}

// refreshEntry lets readers get the old result during the request. It returns the request's error.
func (c *scaleCache) refreshEntry(ctx context.Context, key Key, e *entry, limit time.Duration) (scaleInfo, error) {
	e.mu.RLock()
	fresh := e.state
	e.mu.RUnlock()
	failed := c.fetch(ctx, key, &fresh, limit)
	e.mu.Lock()
	defer e.mu.Unlock()
	if failed != nil && !isPermanent(failed) && e.known && e.err == nil { // a concurrent request succeeded
		e.due, e.failures = fresh.due, fresh.failures
		return e.info, failed
	}
	e.state = fresh
	return fresh.info, failed
}

// refetch bypasses the cache.
func (c *scaleCache) refetch(ctx context.Context, key Key) (scaleInfo, error) {
	if c.isHanging(key) {
		return scaleInfo{}, ErrHangs
	}
	e, err := c.find(key, true)
	if err != nil {
		return scaleInfo{}, err
	}
	e.lastUsed.Store(time.Now().UnixNano())
	return c.refreshEntry(ctx, key, e, firstTimeout)
}

func (c *scaleCache) markScaleless(key Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaleless[key.GroupKind()] = scaleless{key, err}
	delete(c.entries, key)
}

// recheckScaleless requests one object of each kind. A failed request changes nothing.
func (c *scaleCache) recheckScaleless(ctx context.Context) {
	c.mu.Lock()
	kinds := maps.Clone(c.scaleless)
	c.mu.Unlock()
	for kind, none := range kinds {
		within, cancel := context.WithTimeout(ctx, scaleTimeout)
		_, err := c.scale(within, none.example.Namespace, kind, none.example.Name)
		cancel()
		if errors.Is(err, client.ErrNoScale) || err != nil && !isPermanent(err) {
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
func (c *scaleCache) dropErrors(entries map[Key]*entry) {
	type failed struct {
		key  Key
		read int64
	}
	all := map[string][]failed{}
	for key, e := range entries {
		e.mu.RLock()
		if e.first == nil && (!e.known || e.err != nil) { // an unread object may not exist either
			all[key.Namespace] = append(all[key.Namespace], failed{key, e.lastUsed.Load()})
		}
		e.mu.RUnlock()
	}
	for _, group := range all {
		if len(group) <= c.maxErrors {
			continue
		}
		slices.SortFunc(group, func(a, b failed) int { return cmp.Compare(a.read, b.read) })
		for _, f := range group[:len(group)-c.maxErrors] {
			c.drop(f.key)
			delete(entries, f.key)
		}
	}
}
