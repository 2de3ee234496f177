package target

import (
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/kube/client"
)

// Keys knows which label keys the selectors of the controllers of a namespace mention
// that stay when their pods go: Deployments, StatefulSets, DaemonSets,
// ReplicationControllers, and ReplicaSets that nobody owns. The selector of any other
// ReplicaSet, and that of a Job, mentions what one generation of pods has and the next has not.
// It is safe for concurrent use.
type Keys struct {
	mu    sync.RWMutex
	users map[string]map[string]int // number of controllers by namespace and key

	heard []cache.InformerSynced
}

// Synced reports whether the controllers that the informers know are all counted.
func (k *Keys) Synced() bool {
	return !slices.ContainsFunc(k.heard, func(synced cache.InformerSynced) bool { return !synced() })
}

// Keys returns what knows the keys of the controllers that the resolver reads. It must
// be called before the informers start.
func (r *Resolver) Keys() (*Keys, error) {
	k := &Keys{users: map[string]map[string]int{}}
	heard, err := r.workloads.watch("selectors", func(_ string, before, after any) {
		k.count(after, 1)
		k.count(before, -1)
	})
	k.heard = heard
	return k, err
}

// Mention reports whether the selector of a controller in a namespace mentions a key.
func (k *Keys) Mention(namespace, key string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.users[namespace][key] > 0
}

// count counts a controller that comes or goes.
func (k *Keys) count(object any, more int) {
	switch o := object.(type) {
	case *batchv1.Job, *batchv1.CronJob:
		return
	case *client.ReplicaSet:
		if len(o.GetOwnerReferences()) > 0 {
			return
		}
	}
	w, _ := describe(object)
	if w.selector == nil {
		return
	}
	namespace := object.(metav1.Object).GetNamespace()
	k.mu.Lock()
	defer k.mu.Unlock()
	users := k.users[namespace]
	if users == nil {
		users = map[string]int{}
		k.users[namespace] = users
	}
	add := func(key string) {
		if users[key] += more; users[key] == 0 {
			delete(users, key)
		}
	}
	for key := range w.selector.MatchLabels {
		add(key)
	}
	for i := range w.selector.MatchExpressions {
		add(w.selector.MatchExpressions[i].Key)
	}
	if len(users) == 0 {
		delete(k.users, namespace)
	}
}
