package client

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/kube/cachesize"
)

// MaxCacheAge is the age above which a cache is too old to disrupt pods. API servers send bookmarks
// once a minute, so a watch that is silent for this long is broken.
const MaxCacheAge = 3 * time.Minute

// Freshness records when each informer last received a list, an event or a bookmark. The zero value
// is ready to use. It is safe for concurrent use.
type Freshness struct {
	mu       sync.Mutex
	received map[string]time.Time // by resource
}

// Option configures the informers of a factory.
type Option func(*options)

type options struct {
	freshness *Freshness
	sizes     *cachesize.Sizes
}

// WithSizes adds the stores of a factory to sizes, which may be nil.
func WithSizes(s *cachesize.Sizes) Option { return func(o *options) { o.sizes = s } }

// WithFreshness records received data in f. Informers list again after MaxCacheAge of silence.
func WithFreshness(f *Freshness) Option { return func(o *options) { o.freshness = f } }

func apply(all []Option) (o options) {
	for _, option := range all {
		option(&o)
	}
	return o
}

// Ages returns the age of each filled cache by resource.
func (f *Freshness) Ages() map[string]time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, ages := time.Now(), make(map[string]time.Duration, len(f.received))
	for resource, at := range f.received {
		ages[resource] = max(now.Sub(at), 0)
	}
	return ages
}

// Stale returns an error that names the oldest cache if it is older than MaxCacheAge.
func (f *Freshness) Stale() error {
	var oldest string
	ages := f.Ages()
	for resource, age := range ages {
		if before := ages[oldest]; oldest == "" || age > before || age == before && resource < oldest {
			oldest = resource
		}
	}
	if age := ages[oldest]; age > MaxCacheAge {
		return fmt.Errorf("the watch of %s has received nothing for %s", oldest, age.Round(time.Second))
	}
	return nil
}

func (f *Freshness) record(resource string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.received == nil {
		f.received = map[string]time.Time{}
	}
	if at.After(f.received[resource]) {
		f.received[resource] = at
	}
}

// forget drops a resource that can no longer be read, because its informer reports that itself.
func (f *Freshness) forget(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.received, func(name string, _ time.Time) bool { return name == resource })
}

func (f *Freshness) track(object runtime.Object, optional bool, requests *cache.ListWatch) *cache.ListWatch {
	if f == nil {
		return requests
	}
	resource := resourceOf(object)
	failed := func(err error) {
		if optional && refused(err) {
			f.forget(resource)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			began := time.Now()
			all, err := requests.ListWithContextFunc(ctx, o)
			if err != nil {
				failed(err)
				return nil, err
			}
			f.record(resource, began)
			return all, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := requests.WatchFuncWithContext(ctx, o)
			if err != nil {
				failed(err)
				return nil, err
			}
			return f.follow(w, resource), nil
		},
	}
}

// expired makes an informer list again instead of resuming its watch.
var expired = watch.Event{Type: watch.Error, Object: &metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "the watch was silent for " + MaxCacheAge.String(),
}}

// follow forwards events. It forces a new list after MaxCacheAge of silence: some API servers send
// no bookmarks for a resource that has not changed since their start.
func (f *Freshness) follow(w watch.Interface, resource string) watch.Interface {
	events := make(chan watch.Event)
	followed := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		silence := time.NewTimer(MaxCacheAge)
		defer silence.Stop()
		for {
			select {
			case event, open := <-w.ResultChan():
				if !open {
					return
				}
				if event.Type != watch.Error {
					f.record(resource, time.Now())
				}
				silence.Reset(MaxCacheAge)
				select {
				case events <- event:
				case <-followed.StopChan():
					return
				}
			case <-silence.C:
				select {
				case events <- expired:
				case <-followed.StopChan():
				}
				return
			case <-followed.StopChan():
				return
			}
		}
	}()
	return followed
}

func resourceOf(object runtime.Object) string {
	kind := reflect.TypeOf(object).Elem().Name()
	resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return resource.Resource
}
