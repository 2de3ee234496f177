package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/view"
)

const (
	longestBoostPause = 1000 * time.Second // between failures; the first is firstPause
	// searches is how often a pod that no VPA controls is looked at, with the same pauses, before it
	// counts as having none.
	searches = 5

	budgetPause   = 30 * time.Second // until the budget is asked again
	outdatedPause = 30 * time.Second // until it is asked again whether the recommender has seen the target
	staticPause   = 10 * time.Minute // until a node that takes no CPU back is looked at again
	restartTime   = time.Minute      // a container that restarts may look ready for so long, and caches be behind

	missedPause = time.Second      // until the boost of a new pod is missed: caches may be behind
	missedAge   = 30 * time.Second // of pods whose boost may be given later
)

// BoostExecutor gives a boost and takes it back: actuate.Cluster, or actuate.Rehearsal.
type BoostExecutor interface {
	Boost(ctx context.Context, c actuate.Change) error
	Unboost(ctx context.Context, c actuate.Change) error
}

// BoostConfig is what a BoostQueue needs. All fields must be set.
type BoostConfig struct {
	Reader   *view.Reader
	Pods     corelisters.PodLister
	Executor BoostExecutor
	Plan     disruption.Config // the budget for containers that restart
	Workers  int               // pods of a namespace that are served at the same time
	// Static reports whether a node has the static CPU manager policy.
	Static func(node string) bool
	// Done gets every attempt, with the VPA of the pod; without VPA only
	// its namespace is set.
	Done func(vpa cache.ObjectName, err error)
}

// BoostQueue takes startup boosts back: the extra CPU that the admission controller gives to
// containers while they start. Make it with NewBoostQueue.
//
// It watches the pods that carry a boost annotation and are ready, and serves namespaces in turn. When the time of a boost is over
// it resizes the pod and removes the annotation. It does so with or without feature gate, for pods
// whose VPA is gone, too: their containers get back what they were written with. It computes nothing
// itself: policy.JudgeBoost does.
//
// It also gives the boost to new pods that the webhook left as they were, because their VPA was so new
// that another replica of the webhook had admitted it.
type BoostQueue struct {
	BoostConfig
	queue podQueue

	mu      sync.Mutex
	recent  map[types.UID]unboosted  // of the last restartTime
	without map[cache.ObjectName]int // how often no VPA was found, while one is searched
	given   map[types.UID]time.Time  // when young pods got a boost, or were found to get none
}

// unboosted is what was done to a pod a moment ago, which caches may not show yet.
type unboosted struct {
	at       time.Time
	over     []string
	restarts bool
}

// NewBoostQueue returns a queue.
func NewBoostQueue(c BoostConfig) *BoostQueue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstPause, longestBoostPause)
	return &BoostQueue{BoostConfig: c, queue: newFairQueue(limiter), recent: map[types.UID]unboosted{}, without: map[cache.ObjectName]int{}, given: map[types.UID]time.Time{}}
}

// Watch makes the queue learn of boosted pods from an informer.
func (q *BoostQueue) Watch(pods cache.SharedIndexInformer) error {
	add := func(object any) {
		pod, ok := client.PodOf(object)
		if ok && unseen(pod, time.Now()) {
			q.queue.AddAfter(cache.MetaObjectToName(pod), missedPause)
			return
		}
		if !ok || !convert.HasBoosted(pod) {
			return
		}
		if ready, _ := view.Ready(pod); ready {
			q.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, pod any) { add(pod) }})
	if err != nil {
		return fmt.Errorf("watch boosted pods: %w", err)
	}
	return nil
}

// Run serves the queue until ctx ends.
func (q *BoostQueue) Run(ctx context.Context) {
	serveQueue(ctx, q.queue, q.Workers, q.sync, "Failed to give or take back a startup boost, trying again")
}

// sync does for one pod what is due at now and returns when to look again; 0 if
// an event of the pod will come.
func (q *BoostQueue) sync(ctx context.Context, name cache.ObjectName, now time.Time) (again time.Duration, err error) {
	pod, err := q.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (pod.DeletionTimestamp != nil || !q.Reader.Serves(name.Namespace)) {
		q.found(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if unseen(pod, now) {
		return 0, q.giveMissed(ctx, pod, now)
	}
	reading, found, err := q.Reader.Controlling(ctx, pod)
	if err != nil { // whoever does not know the owner knows nothing of its VPA
		return 0, fmt.Errorf("find the VPA of the pod: %w", err)
	}
	if found {
		q.found(name)
	} else if pause := q.search(name); pause > 0 {
		klog.FromContext(ctx).V(4).Info("Startup boost not taken back yet: no VPA controls the pod, as far as is known", "pod", klog.KObj(pod))
		return pause, nil
	}
	if found && (q.Reader.Generations.Outdated(reading.Object) || convert.Unreadable(reading.Object) != "") {
		return outdatedPause, nil
	}
	if !found {
		// Nobody else would ever take the boost back.
		reading = view.NewReading(&vpav1.VerticalPodAutoscaler{}, reading.Ranges)
		reading.Object.Namespace, reading.Object.Spec.UpdatePolicy = name.Namespace, &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	}
	verdict := reading.Boosted(pod, now)
	if len(verdict.Over) == 0 {
		return verdict.Wait, nil
	}
	if left := q.justDone(pod.UID, verdict, now); left > 0 {
		return left, nil // the cache is behind; if it is not, it is time to do it again
	}
	core := reading.Pod(pod, 0)
	if core.Pending || core.Resize != disruption.NotResizing {
		return 0, nil // the end of it is an event
	}
	if q.pinned(core, verdict) {
		return staticPause, nil
	}
	if kept := keepingMemory(verdict); restarts(core, verdict) && !restarts(core, kept) {
		verdict = kept // a pod that has just started is not restarted for what a pass may do later
	}
	if restarts(core, verdict) {
		refused, err := q.refused(ctx, reading, pod)
		if err != nil || refused != "" {
			return budgetPause, err
		}
	}
	err = q.unboost(ctx, reading, pod, verdict, now)
	switch {
	case errors.Is(err, actuate.ErrRestarting):
		return budgetPause, nil
	case errors.Is(err, actuate.ErrStale):
		return stalePause, nil
	}
	return verdict.Wait, err
}

// unseen reports whether the webhook left a young pod as it was.
func unseen(pod *corev1.Pod, now time.Time) bool {
	if now.Sub(pod.CreationTimestamp.Time) > missedAge || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning {
		return false
	}
	_, seen := convert.Observed(pod)
	return !seen && !convert.HasBoosted(pod)
}

// giveMissed gives a young pod the startup boost of a VPA that is older than the pod.
func (q *BoostQueue) giveMissed(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	if pod.Spec.NodeName == "" || q.wasGiven(pod.UID, now) {
		return nil // the end of that is an event
	}
	reading, found, err := q.Reader.Controlling(ctx, pod)
	if err != nil || !found || !convert.HasBoost(reading.Object) || pod.CreationTimestamp.Before(&reading.Object.CreationTimestamp) {
		return err
	}
	err = q.Executor.Boost(ctx, actuate.Change{Target: pod, Reading: reading, Action: disruption.Action{
		Subject: disruption.Subject{Namespace: pod.Namespace, VPA: reading.Object.Name, Pod: pod.Name, UID: string(pod.UID)},
		Cause:   disruption.BoostMissed,
	}})
	if err != nil && !errors.Is(err, actuate.ErrRehearsed) && !actuate.Gone(err) {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.given[pod.UID] = now
	return nil
}

// wasGiven reports whether a pod has been served. It forgets pods that are no longer young.
func (q *BoostQueue) wasGiven(uid types.UID, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.given, func(_ types.UID, at time.Time) bool { return now.Sub(at) > missedAge })
	_, given := q.given[uid]
	return given
}

// search returns when the VPA of a pod is to be looked for again after it was not
// found: a cache may be behind. 0: often enough, there is none.
func (q *BoostQueue) search(name cache.ObjectName) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.without[name]
	if n >= searches {
		delete(q.without, name)
		return 0
	}
	q.without[name] = n + 1
	return firstPause << n
}

// found ends the search for the VPA of a pod.
func (q *BoostQueue) found(name cache.ObjectName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.without, name)
}

func (q *BoostQueue) unboost(ctx context.Context, reading view.Reading, pod *corev1.Pod, verdict policy.BoostVerdict, now time.Time) error {
	change := actuate.Change{Target: pod, Reading: reading, Unboosted: verdict.Over, Action: disruption.Action{
		Subject:    disruption.Subject{Namespace: pod.Namespace, VPA: reading.Object.Name, Pod: pod.Name, UID: string(pod.UID)},
		Cause:      disruption.BoostOver,
		Containers: verdict.Give,
		Restarts:   restarts(reading.Pod(pod, 0), verdict),
	}}
	err := q.Executor.Unboost(ctx, change)
	if errors.Is(err, actuate.ErrInUse) { // which may last; the CPU must not wait for it
		change.Containers = keepingMemory(verdict).Give
		err = q.Executor.Unboost(ctx, change)
	}
	if errors.Is(err, actuate.ErrRestarting) || errors.Is(err, actuate.ErrStale) {
		return err // it is tried again later
	}
	if errors.Is(err, actuate.ErrRehearsed) || err != nil && actuate.Gone(err) {
		return nil
	}
	if err == nil {
		q.mu.Lock()
		q.recent[pod.UID] = unboosted{now, verdict.Over, change.Restarts}
		q.mu.Unlock()
	}
	q.Done(cache.NewObjectName(pod.Namespace, reading.Object.Name), err)
	return err
}

// justDone returns for how long yet a verdict counts as carried out, because that
// was done a moment ago. It forgets what is older.
func (q *BoostQueue) justDone(uid types.UID, verdict policy.BoostVerdict, now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.recent, func(_ types.UID, d unboosted) bool { return now.Sub(d.at) >= restartTime })
	if d, known := q.recent[uid]; known && slices.Equal(d.over, verdict.Over) {
		return d.at.Add(restartTime).Sub(now)
	}
	return 0
}

// pinned reports whether the node would refuse to take the boost back. A pod that was
// refused would be evicted, boosted anew, and refused again.
func (q *BoostQueue) pinned(p disruption.Pod, verdict policy.BoostVerdict) bool {
	p.Static, p.Containers = q.Static(p.Node), slices.Clone(p.Containers)
	for i := range p.Containers {
		c := &p.Containers[i]
		at := slices.IndexFunc(verdict.Give, func(f policy.Fitted) bool { return f.Name == c.Asked.Name })
		if c.Observed = at >= 0; c.Observed {
			c.Fitted = verdict.Give[at]
		}
	}
	return p.CPURefused()
}

// keepingMemory is a verdict that leaves the memory of all containers as it is.
func keepingMemory(v policy.BoostVerdict) policy.BoostVerdict {
	v.Give = slices.Clone(v.Give)
	for i := range v.Give {
		f := &v.Give[i]
		f.Requests, f.Limits = f.Requests.Without(resources.Memory), f.Limits.Without(resources.Memory)
	}
	return v
}

// restarts reports whether what the pod would get restarts one of its containers.
func restarts(p disruption.Pod, verdict policy.BoostVerdict) bool {
	for _, f := range verdict.Give {
		for i := range p.Containers {
			if c := &p.Containers[i]; c.Asked.Name == f.Name && c.RestartsFor(f) {
				return true
			}
		}
	}
	return false
}

// refused says why no container of the pod may be restarted now. Pods whose
// containers were restarted a moment ago count as away.
func (q *BoostQueue) refused(ctx context.Context, reading view.Reading, pod *corev1.Pod) (reason.Reason, error) {
	v, err := q.Reader.Siblings(ctx, reading, pod)
	if err != nil {
		return "", err
	}
	budget := disruption.NewBudget(&v, q.Plan)
	q.mu.Lock()
	defer q.mu.Unlock()
	var this *disruption.Pod
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.UID == string(pod.UID) {
			this = p
		}
		if d, known := q.recent[types.UID(p.UID)]; known && d.restarts {
			budget.Spend(p)
		}
	}
	if this == nil {
		return reason.NoOwner, nil
	}
	return budget.Denies(this), nil
}
