package actuate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/view"
)

// UnknownBudgets is the name under which the pods of a namespace share everything while its
// budgets are not known. No PodDisruptionBudget can have it.
const UnknownBudgets = "*"

// cacheDelay is how long after a restart was asked for the caches are not believed to
// show it.
const cacheDelay = 30 * time.Second

// BudgetReader knows which PodDisruptionBudgets count a pod, and sees to it that of the pods
// of one budget, or of one owner, one is restarted after the other. Its methods may be called
// by several goroutines at once.
//
// Mark gives the planner the budgets of its pods, and pods of no VPA that may be
// restarting. Enter is asked right before a pod is restarted or evicted, minutes after the
// plan or without one: it looks at the pods of the namespace as they are now, and at what
// was done a moment ago and is in no cache yet. How long others wait is up to the planner,
// whose state Planned hands over; looks go on from that.
//
// It does not ask whether a budget allows a disruption: the API server does.
type BudgetReader struct {
	Pods    corelisters.PodLister
	Budgets policylisters.PodDisruptionBudgetLister
	Synced  func() bool      // whether the budgets are known yet; without permission never
	Clock   func() time.Time // nil: time.Now

	mu     sync.Mutex
	parsed map[string]*namespaceBudgets // by namespace
	recent map[string]hold              // by what is shared
	state  disruption.State             // what the last plan, or a look since, knew of restarts
	known  map[string]time.Time         // when it knew that, by UID
}

// hold is a restart that was asked for a moment ago.
type hold struct {
	by types.UID
	at time.Time
}

// of returns the budgets of a namespace; nil if they are not known.
func (r *BudgetReader) of(namespace string) *namespaceBudgets {
	if r.Budgets == nil || !r.Synced() {
		return nil
	}
	objects, err := r.Budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	slices.SortFunc(objects, func(a, b *policyv1.PodDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	r.mu.Lock()
	defer r.mu.Unlock()
	parsed := r.parsed[namespace]
	if parsed == nil || !slices.Equal(objects, parsed.objects) {
		parsed = parseBudgets(namespace, objects, parsed)
	}
	if r.parsed == nil {
		r.parsed = map[string]*namespaceBudgets{}
	}
	parsed.used = r.now()
	r.parsed[namespace] = parsed
	return parsed
}

// Oversized returns an error if the namespace of a pod has a budget with a selector that is not
// evaluated: it may select the pod, and allow no disruption of it.
func (r *BudgetReader) Oversized(pod *corev1.Pod) error {
	budgets := r.of(pod.Namespace)
	if budgets == nil {
		return nil
	}
	for _, b := range budgets.budgets {
		if b.oversized {
			return &Held{Reason: reason.BudgetTooLarge, Cause: fmt.Errorf("the selector of PodDisruptionBudget %s/%s is not evaluated: %w",
				pod.Namespace, b.name, client.ErrSelectorTooLarge)}
		}
	}
	return nil
}

// Mark says of each pod of a view which budgets count it, in the namespaces in which
// pods are to be disrupted, and adds what other pods of these may be restarting.
func (r *BudgetReader) Mark(v *disruption.View, plan []disruption.Action) {
	namespaces := map[string]bool{}
	for i := range plan {
		if a := &plan[i]; a.Evict || a.MayEvict || a.Restarts {
			namespaces[a.Namespace] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		budgets := r.of(namespace)
		// A lister fails only if its index is missing, which is our own.
		pods, _ := r.Pods.Pods(namespace).List(labels.Everything())
		unplanned := make(map[string]*corev1.Pod, len(pods))
		for _, pod := range pods {
			unplanned[string(pod.UID)] = pod
		}
		for i := range v.VPAs {
			for j := range v.VPAs[i].Pods {
				p := &v.VPAs[i].Pods[j]
				if pod := unplanned[p.UID]; pod != nil && p.Namespace == namespace {
					p.Budgets = budgets.selecting(pod)
					delete(unplanned, p.UID)
				}
			}
		}
		for _, pod := range unplanned {
			_ = view.Guard(func() error { // a pod that makes it panic must not stop the others
				if core, is := restartable(pod); is {
					core.Budgets = budgets.selecting(pod)
					v.Others = append(v.Others, core)
				}
				return nil
			})
		}
	}
}

func (r *BudgetReader) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock()
}

// Planned takes over what a plan knows of restarts.
func (r *BudgetReader) Planned(s disruption.State, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	if r.state.Restarts == nil {
		r.state.Restarts, r.known = map[string]disruption.RestartState{}, map[string]time.Time{}
	}
	for uid, restart := range s.Restarts {
		r.state.Restarts[uid], r.known[uid] = restart, now
	}
}

// forget drops what nobody has looked at for long: it may be about another restart.
func (r *BudgetReader) forget(now time.Time) {
	maps.DeleteFunc(r.state.Restarts, func(uid string, _ disruption.RestartState) bool {
		return now.Sub(r.known[uid]) >= disruption.RestartGrace
	})
	maps.DeleteFunc(r.known, func(uid string, _ time.Time) bool { _, kept := r.state.Restarts[uid]; return !kept })
	maps.DeleteFunc(r.parsed, func(_ string, p *namespaceBudgets) bool { return now.Sub(p.used) >= disruption.RestartGrace })
}

// Enter asks whether a pod may be restarted by a resize, or evicted, as far as others
// that share a budget with it are concerned; for a restart those of its owner count,
// too. If so, it keeps others from being restarted until the caches show what was done.
// The caller calls leave if it was not done.
func (r *BudgetReader) Enter(pod *corev1.Pod, restarts bool) (leave func(), err error) {
	now := r.now
	budgets := r.of(pod.Namespace)
	keys := keysOf(budgets, pod, restarts)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.recent, func(_ string, h hold) bool { return now().Sub(h.at) >= cacheDelay })
	for _, key := range keys {
		if h, held := r.recent[key]; held && h.by != pod.UID {
			return nil, fmt.Errorf("a restart was asked for a moment ago in %s", key)
		}
	}
	if !restarts {
		return func() {}, nil
	}
	if err := r.restarting(pod, keys, budgets, now()); err != nil {
		return nil, err
	}
	if r.recent == nil {
		r.recent = map[string]hold{}
	}
	for _, key := range keys {
		r.recent[key] = hold{pod.UID, now()}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		maps.DeleteFunc(r.recent, func(_ string, h hold) bool { return h.by == pod.UID })
	}, nil
}

// keysOf name what a pod shares with others.
func keysOf(budgets *namespaceBudgets, pod *corev1.Pod, owner bool) (keys []string) {
	for _, name := range budgets.selecting(pod) {
		keys = append(keys, "PodDisruptionBudget "+pod.Namespace+"/"+name)
	}
	if ref := metav1.GetControllerOfNoCopy(pod); owner && ref != nil {
		keys = append(keys, ref.Kind+" "+pod.Namespace+"/"+ref.Name)
	}
	return keys
}

// restarting is an error if the pod must wait for another one that shares one of the
// keys and is being restarted.
func (r *BudgetReader) restarting(pod *corev1.Pod, keys []string, budgets *namespaceBudgets, now time.Time) error {
	all, err := r.Pods.Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", pod.Namespace, err)
	}
	r.forget(now)
	var holders disruption.RestartHolders
	names := map[string]string{}
	for _, other := range all {
		core, is := restartable(other)
		if !is {
			continue
		}
		one, holds := r.state.FollowRestart(&core, now)
		if _, follows := r.state.Restarts[one.UID]; follows {
			if r.known == nil {
				r.known = map[string]time.Time{}
			}
			r.known[one.UID] = now
		}
		if holds {
			names[one.UID] = other.Name
			holders.Add(one, keysOf(budgets, other, true)...)
		}
	}
	if by, key, blocked := holders.Blocker(string(pod.UID), keys...); blocked {
		return fmt.Errorf("pod %s of %s is being restarted", names[by.UID], key)
	}
	return nil
}

// restartable reads a pod that a resize can restart, or has restarted; false if it is none.
func restartable(pod *corev1.Pod) (core disruption.Pod, is bool) {
	_, marked := pod.Annotations[convert.RestartAnnotation]
	is = pod.DeletionTimestamp == nil && (marked || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
	}))
	if is {
		core = view.NewReading(&vpav1.VerticalPodAutoscaler{}, convert.LimitRanges{}).Pod(pod, 0)
	}
	return core, is
}

// TrimBudget is a cache.TransformFunc that keeps of a budget only which pods it counts.
func TrimBudget(object any) (any, error) {
	if o, ok := object.(*policyv1.PodDisruptionBudget); ok {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: client.BoundSelector(o.Spec.Selector)}}, nil
	}
	return object, nil
}
