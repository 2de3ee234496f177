package client

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// RetryForbidden is how often it is tried to read what was forbidden.
const RetryForbidden = 10 * time.Minute

// Optional makes a program do without the objects of an informer as long as it may not
// read them, as with the permissions of the reference VPA. Then the log says once what
// follows from it, the given sentence, and not at each attempt what the client library
// says. A permission that comes later is found after retry; 0: RetryForbidden. It must be
// called before the informer starts.
func Optional(informer cache.SharedInformer, retry time.Duration, sentence string) error {
	var said atomic.Bool
	return informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsForbidden(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		if !said.Swap(true) {
			klog.FromContext(ctx).Info(sentence, "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(cmp.Or(retry, RetryForbidden)):
		}
	})
}
