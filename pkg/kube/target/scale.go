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

// Scale reads the scale subresource of an object; client.Scales does it. Its apiVersion is that
// of the object. For a kind without one its error wraps client.ErrNoScale.
type Scale func(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error)

const (
	scaleRefresh  = 10 * time.Minute // an answer is asked for again after this, times 1 to 2
	scaleForget   = time.Hour        // since it was last read
	scaleLoop     = 7 * time.Second  // how often due answers are looked for
	scaleTimeout  = 10 * time.Second // of one request
	firstTimeout  = 3 * time.Second  // of one that a caller waits for
	retryFirst    = 15 * time.Second // after a failure, doubled each time, at most scaleRefresh
	missingMost   = time.Hour        // at most, after failures that say that the object is not there
	hangPause     = time.Minute      // since a request timed out, in which nothing else of its kind is asked for in that namespace, or in any, see hangs
	discoveryLife = 5 * time.Minute

	// mostFailed is how many answers that are errors are kept for one namespace. An updater or a
	// recommender asks in each pass for the targets of all its VPAs and the owners of all its pods: with
	// fewer than are missing each pass would forget some, and ask the API server for them anew.
	mostFailed = 20_000
	// mostFailedOfReviews is mostFailed where reviews ask: the pod of a review need not be created, and anybody can
	// write any owner into it. What exists is bounded by the cluster, what does not exist by nothing else.
	mostFailedOfReviews = 1000
	// mostFirst is for how long callers of get wait within firstsLife for workloads of one namespace
	// that nobody has read. Others are read by run: a namespace in which targets are renamed all the
	// time must not use up the passes in which the workloads of all others have their turn.
	mostFirst  = 4 * time.Second
	firstsLife = time.Minute
	// mostFirstOfAll is mostFirst for all namespaces together: several of them must not use up the passes either. A
	// request that has begun may exceed it by firstTimeout, so callers wait 10 s at most.
	mostFirstOfAll = 7 * time.Second
	// mostOfRound is how many answers are asked for, and longestRound for how long, before others
	// that are due meanwhile are.
	mostOfRound  = 500
	longestRound = 15 * time.Second
	// mostUnread is how many workloads of a namespace wait to be read because somebody asked a Remembering resolver for
	// them: what is known to be there must not have to wait behind all that anybody makes up.
	mostUnread = 16
	// unreadLife is after how long one that was not read makes room for others: whoever reads may have dropped it.
	unreadLife = time.Minute
)

// answer is what a scale subresource said.
type answer struct {
	selector string
	replicas int32
	owners   []metav1.OwnerReference

	apiVersion string // of the object; empty: not said
	uid        types.UID
}

func answerOf(s *autoscalingv1.Scale) answer {
	return answer{selector: client.BoundSelectorText(s.Status.Selector), replicas: s.Spec.Replicas, owners: client.BoundOwners(s.OwnerReferences), apiVersion: s.APIVersion, uid: s.UID}
}

// entry is an answer and its life. Concurrent first readers wait for one request. The mutex is
// never held during a request.
type entry struct {
	mu    sync.RWMutex
	read  atomic.Int64  // last use, in Unix nanoseconds
	first chan struct{} // closed when the request for the first answer ends; nil: none is under way
	state
}

// state is what is known of an answer.
type state struct {
	known    bool
	answer   answer
	err      error
	failures int
	due      time.Time // when to ask again
}

// scaleCache remembers scale subresources, failures included. Readers never wait for a refresh, only for the first
// answer. Of a kind without scale subresource it remembers just that, and nothing for each object.
type scaleCache struct {
	scale                     Scale
	mostFailed                int
	mostFirst, mostFirstOfAll time.Duration

	mu        sync.Mutex
	entries   map[Key]*entry
	scaleless map[schema.GroupKind]scaleless
	hanging   map[schema.GroupKind]hang
	unread    map[string]map[Key]time.Time // workloads that wait to be read, by namespace, and since when
	firsts    map[string]time.Duration     // for how long callers of get waited since counting, by namespace
	firstsAll time.Duration                // the sum of firsts
	counting  time.Time

	asked string // the namespace that run asked for last; the one after it comes first in the next round
}

// scaleless is a kind without scale subresource.
type scaleless struct {
	example Key // an object that was asked for
	err     error
}

func newScaleCache(scale Scale) *scaleCache {
	return &scaleCache{scale: scale, mostFailed: mostFailed, mostFirst: mostFirst, mostFirstOfAll: mostFirstOfAll, entries: map[Key]*entry{}, scaleless: map[schema.GroupKind]scaleless{}, hanging: map[schema.GroupKind]hang{}, unread: map[string]map[Key]time.Time{}, firsts: map[string]time.Duration{}}
}

// find returns the entry of an object, or the error of its kind. Without one, the
// entry is nil, or a new one if there is to be one.
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

// get returns the remembered answer, and asks if there is none.
func (c *scaleCache) get(ctx context.Context, key Key) (answer, error) {
	e, err := c.find(key, false)
	if e == nil && err == nil {
		if c.hangs(key) { // nothing is noted of it, so that Run need not read it either
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

// recall returns the remembered answer without waiting for one. With soon one that is missing is read by run.
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

// cached returns the remembered answer. It is ErrNotRead if there is none: then run reads it, as far as its
// namespace has some left.
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

// want reports whether a workload is one to read, as far as its namespace has some left.
func (c *scaleCache) want(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil {
		return false // an answer is on its way
	}
	if _, waits := c.unread[key.Namespace][key]; waits {
		return true // but it may have been dropped
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

// dropUnread takes out workloads of a namespace that do not wait any more. The caller holds the lock.
func (c *scaleCache) dropUnread(namespace string, gone func(Key, time.Time) bool) {
	maps.DeleteFunc(c.unread[namespace], gone)
	if len(c.unread[namespace]) == 0 {
		delete(c.unread, namespace)
	}
}

// ask fills a copy of the state of an entry. A refresh that fails for a passing reason keeps the last good answer: a
// server that is away is no news about the workload. That the caller had no time is none either, also where nothing is
// known. The error is that of the request.
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
		e.failures = 0 // what failed so far was the server
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

// lasting reports whether an error is about the object or our rights, so that it would come again.
func lasting(err error) bool {
	return errors.Is(err, client.ErrNoScale) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)
}

// run refreshes due answers one by one and drops those nobody reads.
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
		_, _ = c.renew(ctx, key, entries[key], scaleTimeout) // a failure is remembered
		c.asked = key.Namespace
	}
}

// due drops what nobody has read for long, and returns what is to be asked for again, at most mostOfRound. Namespaces
// take turns, beginning with the one after that of the last round, as a server that hangs answers only a few in each;
// and of each what is due for longest comes first. What was never asked for is due since it was wanted.
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
		case asked: // the first answer is under way
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

// renew asks without holding the entry, so that readers get the old answer
// meanwhile. It returns the error of this request, also where the old answer still holds.
func (c *scaleCache) renew(ctx context.Context, key Key, e *entry, limit time.Duration) (answer, error) {
	e.mu.RLock()
	fresh := e.state
	e.mu.RUnlock()
	failed := c.ask(ctx, key, &fresh, limit)
	e.mu.Lock()
	defer e.mu.Unlock()
	if failed != nil && !lasting(failed) && e.known && e.err == nil { // somebody else was answered meanwhile
		e.due, e.failures = fresh.due, fresh.failures
		return e.answer, failed
	}
	e.state = fresh
	return fresh.answer, failed
}

// again returns an answer of now.
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

// without remembers that the kind of an object has no scale subresource.
func (c *scaleCache) without(key Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaleless[key.GroupKind()] = scaleless{key, err}
	delete(c.entries, key)
}

// reconsider asks again about the kinds without scale subresource, one object of
// each; until another answer is there the old one holds.
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

// shed drops errors of namespaces that have more than may be kept, those first that nobody has read for longest.
func (c *scaleCache) shed(entries map[Key]*entry) {
	type failed struct {
		key  Key
		read int64
	}
	all := map[string][]failed{}
	for key, e := range entries {
		e.mu.RLock()
		if e.first == nil && (!e.known || e.err != nil) { // what was never read may not be there either
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
