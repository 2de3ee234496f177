package target

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// memo remembers what was read of objects until they change, so that reading it
// again costs nothing. A nil memo remembers nothing.
type memo struct {
	mu     sync.RWMutex
	events uint64 // changes of any object so far
	known  map[Key]workload
}

// Remember makes the resolver remember what it read of well-known objects until
// their informers tell of a change. It is for programs that ask for everything
// again and again; the factory is the one given to New.
func (r *Resolver) Remember(f informers.SharedInformerFactory) error {
	m := &memo{known: map[Key]workload{}}
	apps, batch, core := f.Apps().V1(), f.Batch().V1(), f.Core().V1()
	for kind, informer := range map[string]cache.SharedIndexInformer{
		"Deployment": apps.Deployments().Informer(), "ReplicaSet": apps.ReplicaSets().Informer(), "StatefulSet": apps.StatefulSets().Informer(),
		"DaemonSet": apps.DaemonSets().Informer(), "ReplicationController": core.ReplicationControllers().Informer(),
		"Job": batch.Jobs().Informer(), "CronJob": batch.CronJobs().Informer(),
	} {
		forget := func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if o, err := meta.Accessor(object); err == nil {
				m.forget(Key{Namespace: o.GetNamespace(), Kind: kind, Name: o.GetName()})
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: forget, UpdateFunc: func(_, after any) { forget(after) }, DeleteFunc: forget}); err != nil {
			return fmt.Errorf("watch for changes of kind %s: %w", kind, err)
		}
	}
	r.caches.memo = m
	return nil
}

// get returns what is known, or else the number of changes so far, for put.
func (m *memo) get(key Key) (w workload, at uint64, known bool) {
	if m == nil {
		return workload{}, 0, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	w, known = m.known[key]
	return w, m.events, known
}

// put remembers what was read after get. If anything changed since, what was
// read may be old already.
func (m *memo) put(key Key, w workload, at uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == at {
		m.known[key] = w
	}
}

func (m *memo) forget(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events++
	delete(m.known, key)
}
