package actuate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// The pods of a workload come in pages: pods of other owners may match its selector, and each may have
// more than a megabyte. Evictions in a row share what was read.
const (
	podsPage   = 50
	mostPods   = 500
	siblingAge = 5 * time.Second
)

// siblings is the state of the pods of an owner, as the API server returned it.
type siblings struct {
	at   time.Time
	pods []corev1.Pod // UID, deletion, phase and conditions
	all  bool         // else there are more than mostPods
}

// siblingCache holds the pods of owners that were read a moment ago. It is safe for concurrent use.
type siblingCache struct {
	mu      sync.Mutex
	byOwner map[ownerKey]siblings
}

// ownerKey is an owner of pods. References of cached pods have no UID.
type ownerKey struct {
	uid  types.UID
	name string // with kind and namespace
}

// read returns the state of the pods of an owner that is at most siblingAge old, and one of its pods as it
// is now, nil if that is gone.
func (s *siblingCache) read(ctx context.Context, kube kubernetes.Interface, owner *controller, one *corev1.Pod, now time.Time) (siblings, *corev1.Pod, error) {
	key := ownerKey{uid: owner.ref.UID, name: owner.ref.Kind + " " + one.Namespace + "/" + owner.ref.Name}
	s.mu.Lock()
	maps.DeleteFunc(s.byOwner, func(_ ownerKey, old siblings) bool { return now.Sub(old.at) >= siblingAge })
	known, found := s.byOwner[key]
	s.mu.Unlock()
	if !found {
		var err error
		if known, err = listSiblings(ctx, kube, owner, one.Namespace); err != nil {
			return siblings{}, nil, err
		}
		known.at = now
		s.mu.Lock()
		if s.byOwner == nil {
			s.byOwner = map[ownerKey]siblings{}
		}
		s.byOwner[key] = known
		s.mu.Unlock()
	}
	page, err := kube.CoreV1().Pods(one.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", one.Name).String()})
	if err != nil {
		return siblings{}, nil, err
	}
	for i := range page.Items {
		if pod := &page.Items[i]; pod.UID == one.UID && owner.owns(pod) && pod.DeletionTimestamp == nil {
			return known, pod, nil
		}
	}
	return known, nil, nil
}

func listSiblings(ctx context.Context, kube kubernetes.Interface, owner *controller, namespace string) (read siblings, err error) {
	options := metav1.ListOptions{LabelSelector: owner.selector.String(), Limit: podsPage}
	for range mostPods / podsPage {
		page, err := kube.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return siblings{}, err
		}
		for i := range page.Items {
			if pod := &page.Items[i]; owner.owns(pod) {
				read.pods = append(read.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID, DeletionTimestamp: pod.DeletionTimestamp},
					Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions}})
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			read.all = true
			break
		}
	}
	return read, nil
}

// evicted marks a pod as leaving.
func (s *siblingCache) evicted(pod *corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, of := range s.byOwner {
		if at := slices.IndexFunc(of.pods, func(p corev1.Pod) bool { return p.UID == pod.UID }); at >= 0 {
			of.pods = slices.Clone(of.pods)
			of.pods[at].DeletionTimestamp = new(metav1.NewTime(now))
			s.byOwner[key] = of
		}
	}
}

// owns reports whether a pod belongs to the controller. References of cached pods have no UID.
func (c *controller) owns(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == c.ref.Kind && ref.Name == c.ref.Name && (c.ref.UID == "" || ref.UID == c.ref.UID)
}
