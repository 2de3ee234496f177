package lease

import (
	"context"
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
		working, stop := context.WithCancel(leading)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
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
