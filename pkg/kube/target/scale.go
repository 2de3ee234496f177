package target

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scale reads the scale subresource of an object; client.Scales does it.
type Scale func(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error)

const (
	scaleRefresh  = 10 * time.Minute // an answer is asked for again after this, times 1 to 2
	scaleForget   = time.Hour        // since it was last read
	scaleLoop     = 7 * time.Second  // how often due answers are looked for
	scaleTimeout  = 10 * time.Second // of one request
	retryFirst    = 15 * time.Second // after a failure, doubled each time, at most scaleRefresh
	discoveryLife = 5 * time.Minute
)

// answer is what a scale subresource said.
type answer struct {
	selector string
	replicas int32
	owners   []metav1.OwnerReference
}

// entry is an answer and its life. Its mutex makes concurrent first readers wait
// for one request, and others not for each other.
type entry struct {
	mu       sync.RWMutex
	known    bool
	answer   answer
	err      error
	failures int
	due      time.Time    // when to ask again
	read     atomic.Int64 // last use, in Unix nanoseconds
}

// scaleCache remembers scale subresources, failures included. Readers never wait
// for a refresh, only for the first answer.
type scaleCache struct {
	scale Scale

	mu      sync.Mutex
	entries map[Key]*entry
}

func newScaleCache(scale Scale) *scaleCache {
	return &scaleCache{scale: scale, entries: map[Key]*entry{}}
}

// get returns the remembered answer, and asks if there is none.
func (c *scaleCache) get(ctx context.Context, key Key) (answer, error) {
	c.mu.Lock()
	e, found := c.entries[key]
	if !found {
		e = &entry{}
		c.entries[key] = e
	}
	c.mu.Unlock()

	e.mu.Lock()
	defer e.mu.Unlock()
	e.read.Store(time.Now().UnixNano())
	if !e.known {
		c.ask(ctx, key, e)
	}
	return e.answer, e.err
}

// recall returns the remembered answer without waiting for one.
func (c *scaleCache) recall(key Key) (a answer, known bool, err error) {
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e == nil || !e.mu.TryRLock() { // locked: an answer is on its way
		return answer{}, false, nil
	}
	defer e.mu.RUnlock()
	e.read.Store(time.Now().UnixNano())
	return e.answer, e.known, e.err
}

// ask fills e; the caller holds its mutex. A refresh that fails for a passing
// reason keeps the last good answer: a server in trouble is no news about the
// workload.
func (c *scaleCache) ask(ctx context.Context, key Key, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	scale, err := c.scale(ctx, key.Namespace, key.groupKind(), key.Name)
	e.due = time.Now().Add(scaleRefresh + rand.N(scaleRefresh))
	if err == nil {
		e.known, e.err, e.failures = true, nil, 0
		e.answer = answer{selector: scale.Status.Selector, replicas: scale.Spec.Replicas, owners: scale.OwnerReferences}
		return
	}
	e.due = time.Now().Add(min(retryFirst<<min(e.failures, 10), scaleRefresh))
	e.failures++
	if e.known && e.err == nil && !lasting(err) {
		return
	}
	e.known, e.err, e.answer = true, err, answer{}
}

// lasting reports whether an error tells something about the object or our
// rights, so that it would come again.
func lasting(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)
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
		case <-loop.C:
			c.refresh(ctx)
		}
	}
}

func (c *scaleCache) refresh(ctx context.Context) {
	now := time.Now()
	for key, e := range c.snapshot() {
		if ctx.Err() != nil {
			return
		}
		e.mu.RLock()
		unused, due := now.UnixNano()-e.read.Load() >= int64(scaleForget), e.known && !now.Before(e.due)
		e.mu.RUnlock()
		switch {
		case unused:
			c.drop(key)
		case due:
			c.renew(ctx, key, e)
		}
	}
}

// renew asks without holding the entry, so that readers get the old answer
// meanwhile.
func (c *scaleCache) renew(ctx context.Context, key Key, e *entry) {
	e.mu.RLock()
	fresh := &entry{known: e.known, answer: e.answer, err: e.err, failures: e.failures}
	e.mu.RUnlock()
	c.ask(ctx, key, fresh)
	e.mu.Lock()
	e.known, e.answer, e.err, e.failures, e.due = fresh.known, fresh.answer, fresh.err, fresh.failures, fresh.due
	e.mu.Unlock()
}

func (c *scaleCache) snapshot() map[Key]*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make(map[Key]*entry, len(c.entries))
	for key, e := range c.entries {
		entries[key] = e
	}
	return entries
}

func (c *scaleCache) drop(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}
