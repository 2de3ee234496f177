package actuate

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// siblingsOf returns the state of the pods of an owner that is at most siblingAge old, and one of its pods
// as it is now, nil if that is gone.
func (c *Checker) siblingsOf(ctx context.Context, owner *controller, one *corev1.Pod) (siblings, *corev1.Pod, error) {
	key := pauseKey{owner: owner.ref.UID, name: owner.ref.Kind + " " + one.Namespace + "/" + owner.ref.Name}
	c.mu.Lock()
	maps.DeleteFunc(c.siblings, func(_ pauseKey, s siblings) bool { return c.now().Sub(s.at) >= siblingAge })
	known, found := c.siblings[key]
	c.mu.Unlock()
	if !found {
		var err error
		if known, err = c.readSiblings(ctx, owner, one.Namespace); err != nil {
			return siblings{}, nil, err
		}
		c.mu.Lock()
		if c.siblings == nil {
			c.siblings = map[pauseKey]siblings{}
		}
		c.siblings[key] = known
		c.mu.Unlock()
	}
	page, err := c.Kube.CoreV1().Pods(one.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", one.Name).String()})
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

func (c *Checker) readSiblings(ctx context.Context, owner *controller, namespace string) (siblings, error) {
	read := siblings{at: c.now()}
	options := metav1.ListOptions{LabelSelector: owner.selector.String(), Limit: podsPage}
	for range mostPods / podsPage {
		page, err := c.Kube.CoreV1().Pods(namespace).List(ctx, options)
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

// Evicted notes that a pod was evicted: later checks count it as leaving.
func (c *Checker) Evicted(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.siblings {
		if at := slices.IndexFunc(s.pods, func(p corev1.Pod) bool { return p.UID == pod.UID }); at >= 0 {
			s.pods = slices.Clone(s.pods)
			s.pods[at].DeletionTimestamp = new(metav1.NewTime(c.now()))
			c.siblings[key] = s
		}
	}
}

// owns reports whether a pod belongs to the controller. References of cached pods have no UID.
func (c *controller) owns(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == c.ref.Kind && ref.Name == c.ref.Name && (c.ref.UID == "" || ref.UID == c.ref.UID)
}
