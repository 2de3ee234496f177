package client

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// RetryForbidden is when it is tried again to read what was forbidden; each time in a
	// row after twice as long, at most mostForbidden.
	RetryForbidden = 10 * time.Second
	mostForbidden  = 5 * time.Minute
	// trusted is for how long objects are still known that may not be read any more. While
	// an API server starts, or somebody replaces a role, it refuses what it soon allows.
	trusted = 5 * time.Minute
)

// Optional makes a program do without the objects of an informer as long as it may not
// read them, as with the permissions of the reference VPA, or as their definition is not
// installed. Then HasSynced of the informer
// is false; where it was true before, some minutes later. The log says once what follows from it, the
// given sentence, and not at each attempt what the client library says. A permission that
// comes later is found after retry, 0: RetryForbidden, or a multiple of it. It must be
// called before the informer starts, which must be one of Factory or VPAFactory and of a kind
// that it guards: nodes, namespaces, ResourceQuotas, PodDisruptionBudgets,
// HorizontalPodAutoscalers, SizingPolicies, SizingRecords.
func Optional(informer cache.SharedInformer, retry time.Duration, sentence string) error {
	return optional(informer, retry, sentence, nil, func() {})
}

// OptionalSync is Optional for objects that a program waits for when it starts. What it
// returns reports whether it is known if they can be read: they have been listed, or that was
// refused, and not only while an API server that starts does not know its roles yet.
func OptionalSync(informer cache.SharedInformer, sentence string) (cache.InformerSynced, error) {
	var was atomic.Bool
	err := optional(informer, 0, sentence, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, func() { was.Store(true) })
	return func() bool { return informer.HasSynced() || was.Load() }, err
}

// optional also tries again after the early pauses, before it takes a missing permission for
// the truth and calls note.
func optional(informer cache.SharedInformer, retry time.Duration, sentence string, early []time.Duration, note func()) error {
	return informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !refused(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		attempts, _ := ctx.Value(attemptsKey{}).(int32)
		var pause time.Duration
		if before := int32(len(early)); attempts <= before && apierrors.IsForbidden(err) {
			pause = early[max(attempts, 1)-1]
		} else {
			note()
			if attempts <= before+1 {
				klog.FromContext(ctx).Info(sentence, "reason", err)
			}
			pause = cmp.Or(retry, RetryForbidden)
			for ; attempts > before+1 && pause < mostForbidden; attempts-- {
				pause *= 2
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, mostForbidden)):
		}
	})
}

// refused reports whether objects cannot be read until somebody gives a permission, or
// installs a definition.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

// guarded is an informer that knows its objects only as long as they may be read: what
// it still holds after a permission was revoked may be wrong.
type guarded struct {
	cache.SharedIndexInformer

	trust     time.Duration // see trusted
	forbidden atomic.Int64  // since when, in nanoseconds since 1970, without a list since; 0: it is not
	attempts  atomic.Int32  // that were forbidden since then
}

// attemptsKey is where an error handler finds how often reading was forbidden since
// the last list. The informer that a program has may be a wrapper of the one that counts.
type attemptsKey struct{}

// SetWatchErrorHandlerWithContext lets the handler know how often reading was forbidden.
func (g *guarded) SetWatchErrorHandlerWithContext(handle cache.WatchErrorHandlerWithContext) error {
	return g.SharedIndexInformer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if refused(err) {
			ctx = context.WithValue(ctx, attemptsKey{}, g.attempts.Add(1))
		}
		handle(ctx, r, err)
	})
}

// HasSynced reports whether the objects are known.
func (g *guarded) HasSynced() bool {
	since := g.forbidden.Load()
	return g.SharedIndexInformer.HasSynced() && (since == 0 || time.Since(time.Unix(0, since)) < g.trust)
}

// note takes the outcome of a request.
func (g *guarded) note(err error) {
	if refused(err) {
		g.forbidden.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// listed says that the informer has got a whole list.
func (g *guarded) listed() {
	g.attempts.Store(0)
	g.forbidden.Store(0)
}

// guard wraps the requests of the informer.
func (g *guarded) guard(asks *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all, err := asks.ListWithContextFunc(ctx, o)
			g.note(err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := asks.WatchFuncWithContext(ctx, o)
			g.note(err)
			switch {
			case err != nil:
				return nil, err
			case o.SendInitialEvents == nil || !*o.SendInitialEvents:
				g.listed() // an informer watches what it has listed
				return w, nil
			case g.forbidden.Load() == 0:
				return w, nil
			}
			return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
				if event.Type == watch.Bookmark {
					if mark, ok := event.Object.(metav1.Object); ok && mark.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
						g.listed() // the end of a list that comes as a stream
					}
				}
				return event, true
			}), nil
		},
	}
}
