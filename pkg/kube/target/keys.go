package target

import (
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/kube/client"
)

// Keys knows which label keys the selectors of the controllers of a namespace mention
// that stay when their pods go: Deployments, StatefulSets, DaemonSets,
// ReplicationControllers, and ReplicaSets that nobody owns. The selector of any other
// ReplicaSet, and that of a Job, mentions what tells one generation of pods from the next.
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
	for _, informer := range r.caches.informers {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { k.count(object, 1) },
			UpdateFunc: func(before, after any) {
				k.count(after, 1)
				k.count(before, -1)
			},
			DeleteFunc: func(object any) {
				if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = tombstone.Obj
				}
				k.count(object, -1)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch the selectors of workloads: %w", err)
		}
		k.heard = append(k.heard, handler.HasSynced)
	}
	return k, nil
}

// Mention reports whether the selector of a controller in a namespace mentions a key.
func (k *Keys) Mention(namespace, key string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.users[namespace][key] > 0
}

// count counts a controller that comes or goes.
func (k *Keys) count(object any, more int) {
	namespace, selector := selects(object)
	if selector == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range selector.MatchLabels {
		k.add(namespace, key, more)
	}
	for i := range selector.MatchExpressions {
		k.add(namespace, selector.MatchExpressions[i].Key, more)
	}
}

func (k *Keys) add(namespace, key string, more int) {
	if k.users[namespace] == nil {
		k.users[namespace] = map[string]int{}
	}
	users := k.users[namespace]
	if users[key] += more; users[key] == 0 {
		delete(users, key)
	}
	if len(users) == 0 {
		delete(k.users, namespace)
	}
}

// selects returns the namespace and the selector of a controller that stays when its
// pods go; nil: it is none.
func selects(object any) (namespace string, selector *metav1.LabelSelector) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return o.Namespace, o.Spec.Selector
	case *appsv1.StatefulSet:
		return o.Namespace, o.Spec.Selector
	case *appsv1.DaemonSet:
		return o.Namespace, o.Spec.Selector
	case *corev1.ReplicationController:
		return o.Namespace, metav1.SetAsLabelSelector(o.Spec.Selector)
	case *client.ReplicaSet:
		if len(o.GetOwnerReferences()) == 0 {
			return o.GetNamespace(), o.Selector()
		}
	}
	return "", nil
}
