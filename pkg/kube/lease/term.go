package lease

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// term is the time as leader: it runs work once, unless it was over before it
// began.
type term struct {
	work  func(context.Context) error
	ended chan error

	mu   sync.Mutex
	runs bool
	over bool
}

// ErrTold is the cause of the end of work's context where it ended because that
// of Lead did, while the Lease was held: only then the last words of work cannot
// contradict another replica.
var ErrTold = errors.New("told to end")

// until returns a context that also ends with ctx, and then has the cause ErrTold.
func until(ctx, leading context.Context) (context.Context, func()) {
	working, stop := context.WithCancelCause(leading)
	unbind := context.AfterFunc(ctx, func() { stop(ErrTold) })
	return working, func() { unbind(); stop(nil) }
}

// start returns the callback that begins the term. The context of work ends
// with the Lease, and with ctx.
func (t *term) start(ctx context.Context) func(context.Context) {
	return func(leading context.Context) {
		t.mu.Lock()
		t.runs = !t.over
		runs := t.runs
		t.mu.Unlock()
		if !runs {
			return
		}
		working, stop := until(ctx, leading)
		defer stop()
		t.ended <- t.work(working)
	}
}

// wait prevents a term that has not begun, or waits for the end of one that has.
func (t *term) wait() error {
	t.mu.Lock()
	t.over = true
	runs := t.runs
	t.mu.Unlock()
	if !runs {
		return nil
	}
	return <-t.ended
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
