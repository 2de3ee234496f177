// Package boost removes startup boosts: the extra CPU that the webhook gives to containers while
// they start.
package boost

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
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/podqueue"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

const (
	maxPause   = 1000 * time.Second // between failures
	stalePause = time.Second        // after a resize with an outdated cached pod
	// maxSearches is the number of attempts to find the VPA of a pod, with the pauses of failures.
	maxSearches = 5

	budgetPause   = 30 * time.Second // while the budget allows no restart
	outdatedPause = 30 * time.Second // while the recommendation is for another target
	staticPause   = 10 * time.Minute // while the node refuses to lower CPU
	restartTime   = time.Minute      // a restarting container may look ready in caches so long

	missedPause = time.Second      // before a new pod counts as missed by the webhook
	missedAge   = 30 * time.Second // maximum age of pods that get a missed boost
)

// Executor adds and removes boosts: actuate.Cluster, or actuate.DryRun in a dry run.
type Executor interface {
	AddBoost(ctx context.Context, c actuate.Change) error
	RemoveBoost(ctx context.Context, c actuate.Change) error
}

// Config has the parts of a Queue. All fields must be set.
type Config struct {
	Reader    *snapshot.Reader
	Policies  *policies.Resolver
	Pods      corelisters.PodLister
	Executor  Executor
	Plan      disruption.Config // budget of containers that restart
	Workers   int               // per namespace
	StaticCPU *plan.StaticCPUNodes
	Metrics   interface {
		// BoostRemoved counts an attempt for a pod of a VPA. Without VPA only its namespace is set.
		BoostRemoved(vpa cache.ObjectName, err error)
	}
}

// Queue removes startup boosts. New creates it.
//
// It watches ready pods with a boost annotation. When policy.EvaluateBoost ends a boost, the queue
// resizes the pod and removes the annotation, with or without feature gate. Containers of pods
// without VPA get their original resources.
//
// It also adds the boost to new pods that the webhook missed, because another replica of the
// webhook had just admitted their VPA.
type Queue struct {
	Config
	queue podqueue.Queue

	mu          sync.Mutex
	recent      map[types.UID]recentRemoval // within restartTime
	vpaSearches map[cache.ObjectName]int    // attempts to find the VPA
	decidedAt   map[types.UID]time.Time     // time of the decision about a missed boost
}

// recentRemoval is a recent change of a pod, which caches may not show yet.
type recentRemoval struct {
	at         time.Time
	containers []string
	restarts   bool
}

// New returns a queue.
func New(c Config) *Queue {
	return &Queue{Config: c, queue: podqueue.New(maxPause), recent: map[types.UID]recentRemoval{}, vpaSearches: map[cache.ObjectName]int{}, decidedAt: map[types.UID]time.Time{}}
}

// Watch adds pods of an informer to the queue.
func (q *Queue) Watch(pods cache.SharedIndexInformer) error {
	add := func(object any) {
		pod, ok := client.PodOf(object)
		if ok && isMissedByWebhook(pod, time.Now()) {
			q.queue.AddAfter(cache.MetaObjectToName(pod), missedPause)
			return
		}
		if !ok || !convert.IsBoosted(pod) {
			return
		}
		if ready, _ := convert.Ready(pod); ready {
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
func (q *Queue) Run(ctx context.Context) {
	podqueue.Serve(ctx, q.queue, q.Workers, q.sync, "Failed to add or remove a startup boost, retrying")
}

// sync returns the time until the next call, or 0 to wait for an event of the pod.
func (q *Queue) sync(ctx context.Context, name cache.ObjectName, now time.Time) (retryAfter time.Duration, err error) {
	pod, err := q.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (pod.DeletionTimestamp != nil || !q.Reader.Namespaces.Includes(name.Namespace)) {
		q.forgetSearch(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if isMissedByWebhook(pod, now) {
		return 0, q.addMissedBoost(ctx, pod, now)
	}
	vpa, pause, err := q.controllingVPA(ctx, pod, now)
	if err != nil || pause > 0 {
		return pause, err
	}
	verdict := Judge(vpa, pod, now)
	if len(verdict.Expired) == 0 {
		return verdict.NextExpiry, nil
	}
	if left := q.remainingDelay(pod.UID, verdict, now); left > 0 {
		return left, nil // the cache may be behind; if it is not, try again then
	}
	core := vpa.Pod(pod)
	if core.Pending || core.Resize != disruption.NotResizing {
		return 0, nil // its end is an event
	}
	if q.isNodeRefusing(core, verdict) {
		return staticPause, nil
	}
	if memoryKept := withoutMemory(verdict); restarts(core, verdict) && !restarts(core, memoryKept) {
		verdict = memoryKept // restarting a just started pod for memory can wait
	}
	if restarts(core, verdict) {
		refused, err := q.restartBlocker(ctx, vpa, pod)
		if err != nil || refused != "" {
			return budgetPause, err
		}
	}
	return retryPause(q.removeBoost(ctx, vpa, pod, verdict, now), verdict.NextExpiry)
}

// retryPause returns when to try again after a boost was not removed for a temporary reason, or next.
func retryPause(err error, next time.Duration) (time.Duration, error) {
	switch {
	case errors.Is(err, actuate.ErrRestarting):
		return budgetPause, nil
	case errors.Is(err, snapshot.ErrStale):
		return stalePause, nil
	}
	return next, err
}

// controllingVPA returns the VPA of a pod with its effective policy applied, or how long to wait for
// it. For a pod that stays without a VPA it returns one in mode Off, because no other component
// would remove the boost.
func (q *Queue) controllingVPA(ctx context.Context, pod *corev1.Pod, now time.Time) (vpa snapshot.VPA, pause time.Duration, err error) {
	name := cache.MetaObjectToName(pod)
	vpa, found, err := q.Reader.Controlling(ctx, pod, false)
	if err != nil { // without the owner, the VPA is unknown
		return vpa, 0, fmt.Errorf("find the VPA of the pod: %w", err)
	}
	if !found {
		if pause := q.nextSearch(name); pause > 0 {
			klog.FromContext(ctx).V(4).Info("Startup boost not removed yet: found no VPA that controls the pod", "pod", klog.KObj(pod))
			return vpa, pause, nil
		}
		vpa = snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, vpa.Ranges)
		vpa.Object.Namespace, vpa.Object.Spec.UpdatePolicy = name.Namespace, &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
		return vpa, 0, nil
	}
	q.forgetSearch(name)
	if q.Reader.Generations.Outdated(vpa.Object) || convert.UnreadableReason(vpa.Object) != "" {
		return vpa, outdatedPause, nil
	}
	vpas := []snapshot.VPA{vpa}
	if e := q.Policies.Resolve(ctx, vpas, now)[0]; e.Skip != "" || e.Decision.Reason != "" {
		vpas[0].Recommendation = nil // no pod changes: it gets its original resources
	}
	return vpas[0], 0, nil
}

// Judge returns the verdict about the startup boosts of a pod at now. An unreadable annotation, or
// one of an unknown container, counts as an ended boost.
func Judge(vpa snapshot.VPA, pod *corev1.Pod, now time.Time) policy.BoostResult {
	original, _ := convert.BoostedContainers(pod) // unreadable ones are empty
	p := policy.BoostedPod{Containers: make([]policy.BoostedContainer, len(pod.Spec.Containers))}
	p.Ready, p.ReadySince = convert.Ready(pod)
	p.StaysBurstable = vpa.Rules.KeepsClass && convert.StaysBurstable(pod)
	observed, known := convert.ParseObserved(pod)
	current := convert.Pod(pod)
	p.InitTotals, p.Rounded = current.InitTotals, current.Rounded
	for i, c := range current.Containers {
		was, boosted := original[c.Name]
		delete(original, c.Name)
		p.Containers[i] = policy.BoostedContainer{
			Current: c, Boosted: boosted, Observed: !known || slices.Contains(observed, c.Name),
			Original: policy.Container{Requests: convert.Resources(was.Requests), Limits: convert.Resources(was.Limits)},
		}
	}
	verdict := policy.EvaluateBoost(p, policy.BoostInputs{
		AppliesRecommendation: vpa.Object != nil && convert.Mode(vpa.Object) != vpav1.UpdateModeOff,
		Recommendation:        vpa.Recommendation, Rules: vpa.Rules, Ranges: vpa.Ranges.Ranges,
	}, now)
	for name := range original {
		verdict.Expired = append(verdict.Expired, name)
	}
	return verdict
}

func isMissedByWebhook(pod *corev1.Pod, now time.Time) bool {
	if now.Sub(pod.CreationTimestamp.Time) > missedAge || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning {
		return false
	}
	_, seen := convert.ParseObserved(pod)
	return !seen && !convert.IsBoosted(pod)
}

func (q *Queue) addMissedBoost(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	if pod.Spec.NodeName == "" || q.isDecided(pod.UID, now) {
		return nil // the node assignment is an event
	}
	vpa, found, err := q.Reader.Controlling(ctx, pod, false)
	if err != nil || !found || !convert.HasBoost(vpa.Object) || pod.CreationTimestamp.Before(&vpa.Object.CreationTimestamp) {
		return err
	}
	err = q.Executor.AddBoost(ctx, actuate.Change{Object: pod, Autoscaler: vpa, Action: disruption.Action{
		Subject: disruption.Subject{Namespace: pod.Namespace, VPA: vpa.Object.Name, Pod: pod.Name, UID: string(pod.UID)},
		Cause:   disruption.BoostMissed,
	}})
	if err != nil && !errors.Is(err, actuate.ErrDryRun) && !actuate.IsGone(err) {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.decidedAt[pod.UID] = now
	return nil
}

func (q *Queue) isDecided(uid types.UID, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.decidedAt, func(_ types.UID, at time.Time) bool { return now.Sub(at) > missedAge })
	_, decided := q.decidedAt[uid]
	return decided
}

// nextSearch returns the pause before the next search, as caches lag, or 0 after maxSearches.
func (q *Queue) nextSearch(name cache.ObjectName) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.vpaSearches[name]
	if n >= maxSearches {
		delete(q.vpaSearches, name)
		return 0
	}
	q.vpaSearches[name] = n + 1
	return podqueue.MinPause << n
}

func (q *Queue) forgetSearch(name cache.ObjectName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.vpaSearches, name)
}

func (q *Queue) removeBoost(ctx context.Context, vpa snapshot.VPA, pod *corev1.Pod, verdict policy.BoostResult, now time.Time) error {
	change := actuate.Change{Object: pod, Autoscaler: vpa, RemovedBoosts: verdict.Expired, Action: disruption.Action{
		Subject:    disruption.Subject{Namespace: pod.Namespace, VPA: vpa.Object.Name, Pod: pod.Name, UID: string(pod.UID)},
		Cause:      disruption.BoostOver,
		Containers: verdict.Targets,
		Restarts:   restarts(vpa.Pod(pod), verdict),
	}}
	err := q.Executor.RemoveBoost(ctx, change)
	if errors.Is(err, actuate.ErrInUse) { // may last; the CPU does not wait for it
		change.Containers = withoutMemory(verdict).Targets
		err = q.Executor.RemoveBoost(ctx, change)
	}
	if errors.Is(err, actuate.ErrRestarting) || errors.Is(err, snapshot.ErrStale) {
		return err // the caller tries again later
	}
	if errors.Is(err, actuate.ErrDryRun) || err != nil && actuate.IsGone(err) {
		return nil
	}
	if err == nil {
		q.mu.Lock()
		q.recent[pod.UID] = recentRemoval{now, verdict.Expired, change.Restarts}
		q.mu.Unlock()
	}
	q.Metrics.BoostRemoved(cache.NewObjectName(pod.Namespace, vpa.Object.Name), err)
	return err
}

// remainingDelay returns how long a verdict counts as carried out, as caches may be behind.
func (q *Queue) remainingDelay(uid types.UID, verdict policy.BoostResult, now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.recent, func(_ types.UID, d recentRemoval) bool { return now.Sub(d.at) >= restartTime })
	if d, known := q.recent[uid]; known && slices.Equal(d.containers, verdict.Expired) {
		return d.at.Add(restartTime).Sub(now)
	}
	return 0
}

// isNodeRefusing reports whether the node would refuse to remove the boost. A refused pod would be
// evicted, boosted again, and refused again.
func (q *Queue) isNodeRefusing(p disruption.Pod, verdict policy.BoostResult) bool {
	p.StaticCPU, p.Containers = q.StaticCPU.Static(p.Node), slices.Clone(p.Containers)
	for i := range p.Containers {
		c := &p.Containers[i]
		at := slices.IndexFunc(verdict.Targets, func(f policy.ContainerTarget) bool { return f.Name == c.Spec.Name })
		if c.Observed = at >= 0; c.Observed {
			c.Target = verdict.Targets[at]
		}
	}
	return p.CPURefused()
}

func withoutMemory(v policy.BoostResult) policy.BoostResult {
	v.Targets = slices.Clone(v.Targets)
	for i := range v.Targets {
		f := &v.Targets[i]
		f.Requests, f.Limits = f.Requests.Without(resources.Memory), f.Limits.Without(resources.Memory)
	}
	return v
}

func restarts(p disruption.Pod, verdict policy.BoostResult) bool {
	for _, f := range verdict.Targets {
		for i := range p.Containers {
			if c := &p.Containers[i]; c.Spec.Name == f.Name && c.RestartsFor(f) {
				return true
			}
		}
	}
	return false
}

// restartBlocker counts pods with recently restarted containers as unavailable.
func (q *Queue) restartBlocker(ctx context.Context, vpa snapshot.VPA, pod *corev1.Pod) (reason.Reason, error) {
	v, err := q.Reader.Siblings(ctx, &vpa, pod)
	if err != nil {
		return "", err
	}
	budget := disruption.NewBudget(&v, q.Plan)
	q.mu.Lock()
	defer q.mu.Unlock()
	var current *disruption.Pod
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.UID == string(pod.UID) {
			current = p
		}
		if d, known := q.recent[types.UID(p.UID)]; known && d.restarts {
			budget.Spend(p)
		}
	}
	if current == nil {
		return reason.NoOwner, nil
	}
	return budget.Denies(current), nil
}
