// Package boost removes startup boosts: the extra CPU that the webhook gives to containers while they start.
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
	stalePause = time.Second        // after a resize of a pod that the cache does not show as it is
	// searches is the number of attempts to find the VPA of a pod, with the pauses of failures.
	searches = 5

	budgetPause   = 30 * time.Second // while the budget allows no restart
	outdatedPause = 30 * time.Second // while the recommendation is for another target
	staticPause   = 10 * time.Minute // while the node refuses to lower CPU
	restartTime   = time.Minute      // during which a restarting container may look ready in caches

	missedPause = time.Second      // before a new pod counts as missed by the webhook
	missedAge   = 30 * time.Second // maximum age of pods that get a missed boost
)

// Executor adds and removes boosts: actuate.Cluster, or actuate.DryRun in a dry run.
type Executor interface {
	Boost(ctx context.Context, c actuate.Change) error
	Unboost(ctx context.Context, c actuate.Change) error
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
		// Unboosted counts an attempt for a pod of a VPA. Without VPA only its namespace is set.
		Unboosted(vpa cache.ObjectName, err error)
	}
}

// Queue removes startup boosts. Make it with New.
//
// It watches ready pods with a boost annotation. When policy.JudgeBoost ends a boost, the queue resizes the pod and
// removes the annotation, with or without feature gate. Containers of pods without VPA get their original resources.
//
// It also adds the boost to new pods that the webhook missed, because another replica of the webhook had just admitted
// their VPA.
type Queue struct {
	Config
	queue podqueue.Queue

	mu      sync.Mutex
	recent  map[types.UID]unboosted  // within restartTime
	without map[cache.ObjectName]int // attempts to find the VPA
	given   map[types.UID]time.Time  // time of the decision about a missed boost
}

// unboosted is a recent change of a pod, which caches may not show yet.
type unboosted struct {
	at       time.Time
	over     []string
	restarts bool
}

// New returns a queue.
func New(c Config) *Queue {
	return &Queue{Config: c, queue: podqueue.New(maxPause), recent: map[types.UID]unboosted{}, without: map[cache.ObjectName]int{}, given: map[types.UID]time.Time{}}
}

// Watch adds pods of an informer to the queue.
func (q *Queue) Watch(pods cache.SharedIndexInformer) error {
	add := func(object any) {
		pod, ok := client.PodOf(object)
		if ok && unseen(pod, time.Now()) {
			q.queue.AddAfter(cache.MetaObjectToName(pod), missedPause)
			return
		}
		if !ok || !convert.HasBoosted(pod) {
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
	podqueue.Serve(ctx, q.queue, q.Workers, q.sync, "Failed to give or take back a startup boost, trying again")
}

// sync does for one pod what is due at now and returns when to look again; 0 if an event of the pod will come.
func (q *Queue) sync(ctx context.Context, name cache.ObjectName, now time.Time) (again time.Duration, err error) {
	pod, err := q.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (pod.DeletionTimestamp != nil || !q.Reader.Namespaces.Serves(name.Namespace)) {
		q.found(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if unseen(pod, now) {
		return 0, q.giveMissed(ctx, pod, now)
	}
	vpa, found, err := q.Reader.Controlling(ctx, pod, false)
	if err != nil { // whoever does not know the owner knows nothing of its VPA
		return 0, fmt.Errorf("find the VPA of the pod: %w", err)
	}
	if found {
		q.found(name)
	} else if pause := q.search(name); pause > 0 {
		klog.FromContext(ctx).V(4).Info("Startup boost not taken back yet: no VPA controls the pod, as far as is known", "pod", klog.KObj(pod))
		return pause, nil
	}
	if found && (q.Reader.Generations.Outdated(vpa.Object) || convert.Unreadable(vpa.Object) != "") {
		return outdatedPause, nil
	}
	if !found {
		// Nobody else would ever take the boost back.
		vpa = snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, vpa.Ranges)
		vpa.Object.Namespace, vpa.Object.Spec.UpdatePolicy = name.Namespace, &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	}
	if vpas := []snapshot.VPA{vpa}; found {
		if e := q.Policies.Resolve(ctx, vpas, now)[0]; e.Skip != "" || e.Decision.Reason != "" {
			vpas[0].Recommendation = nil // no pod changes: it gets the sizes of its template
		}
		vpa = vpas[0]
	}
	verdict := Judge(vpa, pod, now)
	if len(verdict.Over) == 0 {
		return verdict.Wait, nil
	}
	if left := q.justDone(pod.UID, verdict, now); left > 0 {
		return left, nil // the cache is behind; if it is not, it is time to do it again
	}
	core := vpa.Pod(pod)
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
		refused, err := q.refused(ctx, vpa, pod)
		if err != nil || refused != "" {
			return budgetPause, err
		}
	}
	err = q.unboost(ctx, vpa, pod, verdict, now)
	switch {
	case errors.Is(err, actuate.ErrRestarting):
		return budgetPause, nil
	case errors.Is(err, snapshot.ErrStale):
		return stalePause, nil
	}
	return verdict.Wait, err
}

// Judge returns the verdict about the startup boosts of a pod at now. An annotation of an unknown container, or an
// unreadable one, is over.
func Judge(vpa snapshot.VPA, pod *corev1.Pod, now time.Time) policy.BoostVerdict {
	original, _ := convert.Boosted(pod) // unreadable ones are empty
	p := policy.BoostedPod{Containers: make([]policy.BoostedContainer, len(pod.Spec.Containers))}
	p.Ready, p.ReadySince = convert.Ready(pod)
	p.StaysBurstable = vpa.Rules.KeepsClass && convert.StaysBurstable(pod)
	observed, known := convert.Observed(pod)
	current := convert.Pod(pod)
	p.Unsized, p.Rounded = current.Unsized, current.Rounded
	for i, c := range current.Containers {
		was, boosted := original[c.Name]
		delete(original, c.Name)
		p.Containers[i] = policy.BoostedContainer{
			Current: c, Boosted: boosted, Observed: !known || slices.Contains(observed, c.Name),
			Original: policy.Container{Requests: convert.Resources(was.Requests), Limits: convert.Resources(was.Limits)},
		}
	}
	verdict := policy.JudgeBoost(p, policy.BoostAdvice{
		Sizes:          vpa.Object != nil && convert.Mode(vpa.Object) != vpav1.UpdateModeOff,
		Recommendation: vpa.Recommendation, Rules: vpa.Rules, Ranges: vpa.Ranges.Ranges,
	}, now)
	for name := range original {
		verdict.Over = append(verdict.Over, name)
	}
	return verdict
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
func (q *Queue) giveMissed(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	if pod.Spec.NodeName == "" || q.wasGiven(pod.UID, now) {
		return nil // the end of that is an event
	}
	vpa, found, err := q.Reader.Controlling(ctx, pod, false)
	if err != nil || !found || !convert.HasBoost(vpa.Object) || pod.CreationTimestamp.Before(&vpa.Object.CreationTimestamp) {
		return err
	}
	err = q.Executor.Boost(ctx, actuate.Change{Target: pod, Autoscaler: vpa, Action: disruption.Action{
		Subject: disruption.Subject{Namespace: pod.Namespace, VPA: vpa.Object.Name, Pod: pod.Name, UID: string(pod.UID)},
		Cause:   disruption.BoostMissed,
	}})
	if err != nil && !errors.Is(err, actuate.ErrDryRun) && !actuate.Gone(err) {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.given[pod.UID] = now
	return nil
}

// wasGiven reports whether a pod has been served. It forgets pods that are no longer young.
func (q *Queue) wasGiven(uid types.UID, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.given, func(_ types.UID, at time.Time) bool { return now.Sub(at) > missedAge })
	_, given := q.given[uid]
	return given
}

// search returns when the VPA of a pod is to be looked for again after it was not
// found: a cache may be behind. 0: often enough, there is none.
func (q *Queue) search(name cache.ObjectName) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.without[name]
	if n >= searches {
		delete(q.without, name)
		return 0
	}
	q.without[name] = n + 1
	return podqueue.MinPause << n
}

func (q *Queue) found(name cache.ObjectName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.without, name)
}

func (q *Queue) unboost(ctx context.Context, vpa snapshot.VPA, pod *corev1.Pod, verdict policy.BoostVerdict, now time.Time) error {
	change := actuate.Change{Target: pod, Autoscaler: vpa, Unboosted: verdict.Over, Action: disruption.Action{
		Subject:    disruption.Subject{Namespace: pod.Namespace, VPA: vpa.Object.Name, Pod: pod.Name, UID: string(pod.UID)},
		Cause:      disruption.BoostOver,
		Containers: verdict.Give,
		Restarts:   restarts(vpa.Pod(pod), verdict),
	}}
	err := q.Executor.Unboost(ctx, change)
	if errors.Is(err, actuate.ErrInUse) { // which may last; the CPU must not wait for it
		change.Containers = keepingMemory(verdict).Give
		err = q.Executor.Unboost(ctx, change)
	}
	if errors.Is(err, actuate.ErrRestarting) || errors.Is(err, snapshot.ErrStale) {
		return err // it is tried again later
	}
	if errors.Is(err, actuate.ErrDryRun) || err != nil && actuate.Gone(err) {
		return nil
	}
	if err == nil {
		q.mu.Lock()
		q.recent[pod.UID] = unboosted{now, verdict.Over, change.Restarts}
		q.mu.Unlock()
	}
	q.Metrics.Unboosted(cache.NewObjectName(pod.Namespace, vpa.Object.Name), err)
	return err
}

// justDone returns for how long yet a verdict counts as carried out, because that
// was done a moment ago. It forgets what is older.
func (q *Queue) justDone(uid types.UID, verdict policy.BoostVerdict, now time.Time) time.Duration {
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
func (q *Queue) pinned(p disruption.Pod, verdict policy.BoostVerdict) bool {
	p.Static, p.Containers = q.StaticCPU.Static(p.Node), slices.Clone(p.Containers)
	for i := range p.Containers {
		c := &p.Containers[i]
		at := slices.IndexFunc(verdict.Give, func(f policy.ContainerTarget) bool { return f.Name == c.Spec.Name })
		if c.Observed = at >= 0; c.Observed {
			c.Target = verdict.Give[at]
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
			if c := &p.Containers[i]; c.Spec.Name == f.Name && c.RestartsFor(f) {
				return true
			}
		}
	}
	return false
}

// refused says why no container of the pod may be restarted now. Pods whose
// containers were restarted a moment ago count as away.
func (q *Queue) refused(ctx context.Context, vpa snapshot.VPA, pod *corev1.Pod) (reason.Reason, error) {
	v, err := q.Reader.Siblings(ctx, &vpa, pod)
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
