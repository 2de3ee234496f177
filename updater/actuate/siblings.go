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

// The pods of a workload are listed in pages, because pods of other owners may match its selector
// and each pod may exceed a megabyte. Consecutive evictions share the list.
const (
	podsPage   = 50
	maxPods    = 500
	siblingAge = 5 * time.Second
)

type siblings struct {
	at   time.Time
	pods []corev1.Pod // UID, deletion, phase and conditions
	all  bool         // false: the owner has more than maxPods
}

// siblingCache holds recently listed pods by owner. It is safe for concurrent use.
type siblingCache struct {
	mu      sync.Mutex
	byOwner map[ownerKey]siblings
}

// ownerKey identifies an owner of pods. References of cached pods have no UID.
type ownerKey struct {
	uid  types.UID
	name string // kind, namespace and name
}

// get returns the pods of an owner, at most siblingAge old, and one of them, or nil if it is gone.
func (s *siblingCache) get(ctx context.Context, kube kubernetes.Interface, owner *controller, cached *corev1.Pod, now time.Time) (siblings, *corev1.Pod, error) {
	key := ownerKey{uid: owner.ref.UID, name: owner.ref.Kind + " " + cached.Namespace + "/" + owner.ref.Name}
	s.mu.Lock()
	maps.DeleteFunc(s.byOwner, func(_ ownerKey, old siblings) bool { return now.Sub(old.at) >= siblingAge })
	known, found := s.byOwner[key]
	s.mu.Unlock()
	if !found {
		var err error
		if known, err = listSiblings(ctx, kube, owner, cached.Namespace); err != nil {
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
	page, err := kube.CoreV1().Pods(cached.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", cached.Name).String()})
	if err != nil {
		return siblings{}, nil, err
	}
	for i := range page.Items {
		if pod := &page.Items[i]; pod.UID == cached.UID && owner.owns(pod) && pod.DeletionTimestamp == nil {
			return known, pod, nil
		}
	}
	return known, nil, nil
}

func listSiblings(ctx context.Context, kube kubernetes.Interface, owner *controller, namespace string) (read siblings, err error) {
	options := metav1.ListOptions{LabelSelector: owner.selector.String(), Limit: podsPage}
	for range maxPods / podsPage {
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

func (s *siblingCache) markTerminating(pod *corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, entry := range s.byOwner {
		if at := slices.IndexFunc(entry.pods, func(p corev1.Pod) bool { return p.UID == pod.UID }); at >= 0 {
			entry.pods = slices.Clone(entry.pods)
			entry.pods[at].DeletionTimestamp = new(metav1.NewTime(now))
			s.byOwner[key] = entry
		}
	}
}

func (c *controller) owns(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == c.ref.Kind && ref.Name == c.ref.Name && (c.ref.UID == "" || ref.UID == c.ref.UID)
}
